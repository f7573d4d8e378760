"""The list of tasks, and the addresses of all that one can do with one. Nothing is written but through the verbs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.admin import actions, create, run_page, signalling, task_page
from supervision.admin.access import may, task_or_refuse, visible_tasks
from supervision.admin.closed import ClosedAdmin
from supervision.admin.columns import Columns
from supervision.admin.created import CreatedFilter
from supervision.admin.filters import Attention, BodyFilter, QueueFilter, ReasonFilter, StateFilter
from supervision.admin.health import health_page
from supervision.admin.paging import CappedPaginator, shown_count
from supervision.admin.searching import search
from supervision.admin.verbs import VERBS
from supervision.kernel.models import Task
from supervision.showing import downloads

_WIDE = ("arguments", "sensitive", "locked_decisions", "result")
"""Columns that a list doesn't read."""


class TaskAdmin(ClosedAdmin):
    """Tasks: a list to find them, a page to understand one, verbs to act on them. The stock forms are closed."""

    actions = actions.list_actions()
    list_filter = (Attention, StateFilter, CreatedFilter, BodyFilter, QueueFilter, ReasonFilter)
    empty_value_display = ""
    list_display_links = None  # the first column makes its own, beside the subject's
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = CappedPaginator
    ordering = ("-id",)
    search_fields = ("id",)  # shows the box; get_search_results does the search
    search_help_text = gettext_lazy("Beginning of an id or a subject, a whole idempotency key, or an owner’s name.")
    sortable_by = ()
    change_list_template = "admin/supervision/task/change_list.html"

    class Media:
        css = {"all": ["supervision/control-room.css"]}
        js = ["supervision/live.js"]

    # --- the list

    def get_queryset(self, request: HttpRequest) -> Any:
        tasks = visible_tasks(request.user).with_clock().select_related("heartbeat", "owner")
        return tasks.defer(*_WIDE).order_by("-id")

    def get_list_display(self, request: HttpRequest) -> Any:
        return Columns(request, self.admin_site).all()

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        return search(queryset, search_term), False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        context = {"title": _("Tasks"), "can_start": may(request.user, "add_task"), **(extra_context or {})}
        response = super().changelist_view(request, context)
        if (changelist := getattr(response, "context_data", {}).get("cl")) is not None:
            response.context_data["shown_count"] = shown_count(changelist.result_count)  # type: ignore[attr-defined]
        return response

    def response_action(self, request: HttpRequest, queryset: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            for raw in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME):
                UUID(raw)
        except ValueError:
            self.message_user(request, _("That is no task's id. Nothing was changed."), messages.ERROR)
            return None
        return super().response_action(request, queryset, *args, **kwargs)

    # --- permissions

    def has_view_permission(self, request: HttpRequest, obj: Task | None = None) -> bool:
        return may(request.user, "view_task", obj)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return may(request.user, "add_task")

    def has_pause_permission(self, request: HttpRequest) -> bool:
        return may(request.user, "pause_task")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        return may(request.user, "cancel_task")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return may(request.user, "retry_task")

    # --- one task

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path("health/", view(health_page), name="supervision_task_health"),
            path("<uuid:pk>/live/", view(self.live_view), name="supervision_task_live"),
            path("<uuid:pk>/act/<slug:name>/", view(self.act_view), name="supervision_task_act"),
            path("<uuid:pk>/signal/", view(self.signal_view), name="supervision_task_signal"),
            path("<uuid:pk>/whole/<str:what>/", view(self.whole_view), name="supervision_task_whole"),
            path("<uuid:pk>/picture/", view(self.picture_view), name="supervision_task_picture"),
            path("<uuid:pk>/file/<int:number>/", view(self.file_view), name="supervision_task_file"),
        ]
        return own + super().get_urls()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The task's page: reading only."""
        task = task_or_refuse(request.user, _uuid(object_id))
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        return task_page.page(self, request, task)

    def live_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        task = task_or_refuse(request.user, pk)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        return task_page.live(self, request, task)

    def act_view(self, request: HttpRequest, pk: UUID, name: str) -> HttpResponse:
        verb = VERBS.get(name)
        task = task_or_refuse(request.user, pk, verb.codename if verb is not None else "view_task")
        if verb is None:
            raise Http404
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        return actions.act_on_one(self, request, task, verb)

    def signal_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        task = task_or_refuse(request.user, pk, "signal_task")
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        return signalling.send(self, request, task)

    def whole_view(self, request: HttpRequest, pk: UUID, what: str) -> HttpResponse:
        return downloads.whole(task_or_refuse(request.user, pk), what)

    def picture_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        """A run's nodes, each with its state."""
        return run_page.picture(task_or_refuse(request.user, pk))

    def file_view(self, request: HttpRequest, pk: UUID, number: int) -> Any:
        return downloads.file(task_or_refuse(request.user, pk), number)

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None) -> Any:
        if not self.has_add_permission(request):
            raise PermissionDenied
        return create.view(self, request)

    def history_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        """The log is the history."""
        task = task_or_refuse(request.user, _uuid(object_id))
        return HttpResponseRedirect(reverse("admin:supervision_task_change", args=[task.pk]) + "#log")


def _uuid(raw: str) -> UUID:
    """The id of an address; one that can't be is one that isn't there."""
    try:
        return UUID(raw)
    except ValueError:
        return UUID(int=0)

"""Pipelines in the control room: the list of pointers, each one's page, the pictures, and re-pointing."""

from __future__ import annotations

from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision import diagrams, wording
from supervision.admin import pointer_page, repointing
from supervision.admin.access import may, pointer_or_refuse, visible_pointers
from supervision.admin.closed import ClosedAdmin, row_number
from supervision.admin.paging import CappedPaginator, shown_count
from supervision.admin.pictures import picture
from supervision.admin.pointer_filters import PipelineFilter, StateFilter, StuckFilter
from supervision.engines.pipelines import pipeline, standing
from supervision.engines.pipelines.models import Pointer
from supervision.engines.pipelines.picture import graph_of
from supervision.showing.tasks import body_label, moment, shortened
from supervision.signs import sign


class PointerAdmin(ClosedAdmin):
    """Where every subject stands. Nothing is written but by re-pointing; the stock forms are closed."""

    actions = [repointing.repoint_chosen]
    list_display = ("subject_and_pipeline", "state_and_visit", "run_state", "since_when")
    list_display_links = None
    list_filter = (PipelineFilter, StateFilter, StuckFilter)
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = CappedPaginator
    ordering = ("pipeline", "subject")
    search_fields = ("subject__istartswith",)
    search_help_text = gettext_lazy("Beginning of a subject.")
    sortable_by = ()
    empty_value_display = ""
    change_list_template = "admin/supervision/pointer/change_list.html"

    class Media:
        css = {"all": ["supervision/control-room.css", "supervision/pipelines.css"]}
        js = ["supervision/live.js"]

    # --- the list

    def get_queryset(self, request: HttpRequest) -> QuerySet[Pointer]:
        return visible_pointers(request.user).with_clock().select_related("run").defer("params", "previous")

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        response = super().changelist_view(request, {"title": _("Pointers"), **(extra_context or {})})
        if (changelist := getattr(response, "context_data", {}).get("cl")) is not None:
            response.context_data["shown_count"] = shown_count(changelist.result_count)  # type: ignore[attr-defined]
        return response

    @admin.display(description=gettext_lazy("subject"))
    def subject_and_pipeline(self, pointer: Pointer) -> Any:
        return format_html(
            '<a class="sv-body" href="{}"><bdi>{}</bdi></a><span class="sv-line">{}</span>',
            reverse("admin:supervision_pointer_change", args=[pointer.pk]), shortened(pointer.subject, 80),
            body_label(pointer.pipeline),
        )  # fmt: skip

    @admin.display(description=gettext_lazy("state"))
    def state_and_visit(self, pointer: Pointer) -> Any:
        """With the generation that this list shows, which an action on the row brings back."""
        visit = _("visit %(n)s") % {"n": pointer.number} if pointer.number else ""
        return format_html(
            '<code class="sv-at">{}</code><span class="sv-line">{}</span>'
            '<input type="hidden" name="generation-{}" value="{}">',
            pointer.state, visit, pointer.pk, pointer.generation,
        )  # fmt: skip

    @admin.display(description=gettext_lazy("run"))
    def run_state(self, pointer: Pointer) -> Any:
        if pointer.run is None:
            return _("pruned")
        reason = wording.reason(pointer.run.watchdog_stop_reason) if pointer.run.watchdog_stop_reason else ""
        return format_html('{}<span class="sv-line">{}</span>', sign(wording.situation(pointer.run)),
                           shortened(reason, 120))  # fmt: skip

    @admin.display(description=gettext_lazy("since"))
    def since_when(self, pointer: Pointer) -> Any:
        return moment(pointer.since, pointer.db_now)

    # --- one pointer

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        own = [
            path("pipelines/", view(self.pipelines_view), name="supervision_pointer_pipelines"),
            path("picture/<path:name>/", view(self.picture_view), name="supervision_pointer_pictures"),
            path("<int:pk>/live/", view(self.live_view), name="supervision_pointer_live"),
            path("<int:pk>/picture/", view(self.pointer_picture_view), name="supervision_pointer_picture"),
            path("<int:pk>/repoint/", view(self.repoint_view), name="supervision_pointer_repoint"),
        ]
        return own + super().get_urls()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The pointer's page: reading only."""
        pointer = pointer_or_refuse(request.user, row_number(object_id))
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        return pointer_page.page(self, request, pointer)

    def live_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        pointer = pointer_or_refuse(request.user, pk)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        return pointer_page.live(request, pointer)

    def repoint_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        pointer = pointer_or_refuse(request.user, pk, "repoint_pointer")
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        outcome = repointing.one(pointer, request)
        self.message_user(request, outcome.text, messages.SUCCESS if outcome.is_done else messages.WARNING)
        return HttpResponseRedirect(reverse("admin:supervision_pointer_change", args=[pk]))

    # --- pictures

    def pipelines_view(self, request: HttpRequest) -> HttpResponse:
        """Every pipeline of this code with its picture and its counts."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        visible = visible_pointers(request.user)
        context = {
            **self.admin_site.each_context(request),
            "title": _("Pipelines"),
            "opts": self.opts,
            "media": self.media,
            "can_render": diagrams.can_render(),
            "pipelines": [
                pointer_page.pictured(name, table, standing.counts(name, visible))
                for name, table in pipeline.tables().items()
            ],
            "lost": shown_count(visible.filter(pk__in=standing.lost().values("pk")).count()),
        }
        return TemplateResponse(request, "supervision/admin/pipelines.html", context)

    def picture_view(self, request: HttpRequest, name: str) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return _picture(name, standing.counts(name, visible_pointers(request.user)))

    def pointer_picture_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The pipeline with this subject's state lit."""
        pointer = pointer_or_refuse(request.user, pk)
        return _picture(pointer.pipeline, {}, pointer.state)

    # --- permissions

    def has_view_permission(self, request: HttpRequest, obj: Pointer | None = None) -> bool:
        return may(request.user, "view_pointer", obj)

    def has_repoint_permission(self, request: HttpRequest) -> bool:
        return may(request.user, "repoint_pointer")

    def history_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        """The visits are the history."""
        pointer = pointer_or_refuse(request.user, row_number(object_id))
        return HttpResponseRedirect(reverse("admin:supervision_pointer_change", args=[pointer.pk]) + "#sv-visits")


def _picture(name: str, counts: dict[str, int], current: str = "") -> HttpResponse:
    return picture(lambda: graph_of(pipeline.get(name), counts=counts, current=current))

"""Machines in the control room: where every subject stands, also of rows that are gone, with its history; and pictures.

Rows of a model are sent events on their own page (``MachineAdmin``), subjects of a pointer here.
"""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from supervision import diagrams
from supervision.admin import machine_events
from supervision.admin.access import may, standing_or_refuse, visible_standings
from supervision.admin.closed import ClosedAdmin, row_number
from supervision.admin.machine_events import BEFORE, Place
from supervision.admin.machines import STYLES
from supervision.admin.paging import CappedPaginator, shown_count
from supervision.admin.pictures import picture
from supervision.engines.machines import Machine, histories
from supervision.engines.machines import machine as registered
from supervision.engines.machines.models import Standing
from supervision.engines.machines.picture import graph_of
from supervision.showing.tasks import moment, shortened


class MachineFilter(admin.SimpleListFilter):
    """The machines of this code, and the chosen one: no look through the table."""

    title = gettext_lazy("machine")
    parameter_name = "machine"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        labels = {name: each.label for name, each in registered.machines().items()}
        chosen = request.GET.get(self.parameter_name)
        return list({**({chosen: chosen} if chosen else {}), **labels}.items())

    def queryset(self, request: HttpRequest, standings: Any) -> Any:
        return standings if self.value() is None else standings.filter(machine=self.value())


class StandingAdmin(ClosedAdmin):
    """Where every subject stands. The stock forms are closed."""

    list_display = ("subject_and_machine", "state_in_words", "event_count", "since_when")
    list_display_links = None
    list_filter = (MachineFilter,)
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = CappedPaginator
    ordering = ("machine", "subject")
    search_fields = ("subject__istartswith",)
    search_help_text = gettext_lazy("Beginning of a subject.")
    sortable_by = ()
    actions = None
    change_list_template = "admin/supervision/standing/change_list.html"

    class Media:
        css = {"all": STYLES}

    def get_queryset(self, request: HttpRequest) -> QuerySet[Standing]:
        return visible_standings(request.user).with_clock()

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        response = super().changelist_view(request, {"title": _("Machines"), **(extra_context or {})})
        if (changelist := getattr(response, "context_data", {}).get("cl")) is not None:
            response.context_data["shown_count"] = shown_count(changelist.result_count)  # type: ignore[attr-defined]
        return response

    @admin.display(description=gettext_lazy("subject"))
    def subject_and_machine(self, standing: Standing) -> Any:
        machine = registered.machines().get(standing.machine)
        return format_html(
            '<a class="sv-body" href="{}"><bdi>{}</bdi></a><span class="sv-line">{}</span>',
            reverse("admin:supervision_standing_change", args=[standing.pk]), shortened(standing.subject, 80),
            machine.label if machine else standing.machine,
        )  # fmt: skip

    @admin.display(description=gettext_lazy("state"))
    def state_in_words(self, standing: Standing) -> Any:
        label = machine_events.state_label(registered.machines().get(standing.machine), standing.state)
        return format_html('<span class="sv-at">{}</span>', label)

    @admin.display(description=gettext_lazy("events"))
    def event_count(self, standing: Standing) -> str:
        return ngettext("%(n)s event", "%(n)s events", standing.generation) % {"n": f"{standing.generation:,}"}

    @admin.display(description=gettext_lazy("since"))
    def since_when(self, standing: Standing) -> Any:
        return moment(standing.since, standing.db_now)

    # --- one subject

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view
        return [
            path("pictures/", view(self.pictures_view), name="supervision_standing_pictures"),
            path("pictures/<path:name>/", view(self.machine_picture_view), name="supervision_standing_machine_picture"),
            path("<int:pk>/event/", view(self.event_view), name="supervision_standing_event"),
            path("<int:pk>/picture/", view(self.picture_view), name="supervision_standing_picture"),
            *super().get_urls(),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """The subject's page: its history; of a pointer the buttons, too."""
        standing = standing_or_refuse(request.user, row_number(object_id))
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        machine = registered.machines().get(standing.machine)
        context = {
            **self.admin_site.each_context(request),
            "title": str(standing),
            "opts": self.opts,
            "media": self.media,
            "standing": standing,
            "label": machine.label if machine else standing.machine,
            "row_page": _row_page(request, self.admin_site, machine, standing),
            "panel": machine_events.panel(request, self._place(request, machine, standing))
                     if machine is not None and machine.model is None else "",
            **self._history(request, machine, standing),
        }  # fmt: skip
        return TemplateResponse(request, "supervision/admin/standing.html", context)

    def event_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """A page for one event of a pointer's subject."""
        standing = standing_or_refuse(request.user, pk)
        machine = registered.machines().get(standing.machine)
        if machine is None or machine.model is not None:
            raise Http404
        return machine_events.event_view(self, request, self._place(request, machine, standing), standing.subject)

    def _place(self, request: HttpRequest, machine: Machine, standing: Standing) -> Place:
        may_send = may(request.user, "send_event")
        return Place(
            machine=machine, key=standing.subject, label=standing.subject, state=standing.state,
            allow=lambda transition: transition.permission is not None or may_send,
            page=reverse("admin:supervision_standing_change", args=[standing.pk]),
            send=reverse("admin:supervision_standing_event", args=[standing.pk]),
            picture=reverse("admin:supervision_standing_picture", args=[standing.pk]) + f"?at={standing.generation}",
        )  # fmt: skip

    def _history(self, request: HttpRequest, machine: Machine | None, standing: Standing) -> dict[str, Any]:
        before = request.GET.get(BEFORE, "")
        found = histories.page(standing.machine, standing.subject, before=row_number(before) or None)
        events = machine_events.shown(machine, found.events)
        return {
            "events": events, "total": found.total_count, "now": standing.db_now, "is_newest": not before,
            "older": found.older and f"?{BEFORE}={found.older}",
            "page": reverse("admin:supervision_standing_change", args=[standing.pk]),
            "state": machine_events.state_label(machine, standing.state),
        }  # fmt: skip

    # --- pictures

    def picture_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """The machine with the subject's state lit."""
        standing = standing_or_refuse(request.user, pk)
        return picture(lambda: graph_of(registered.get(standing.machine).table, current=standing.state))

    def machine_picture_view(self, request: HttpRequest, name: str) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return picture(lambda: graph_of(registered.get(name).table))

    def pictures_view(self, request: HttpRequest) -> HttpResponse:
        """Every machine of this code with its picture."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context = {
            **self.admin_site.each_context(request),
            "title": _("Pictures of all machines"),
            "opts": self.opts,
            "media": self.media,
            "can_render": diagrams.can_render(),
            "machines": [
                {"machine": each, "mermaid": diagrams.mermaid(graph_of(each.table)),
                 "picture": reverse("admin:supervision_standing_machine_picture", args=[name])}
                for name, each in registered.machines().items()
            ],
        }  # fmt: skip
        return TemplateResponse(request, "supervision/admin/machines.html", context)

    # --- permissions

    def has_view_permission(self, request: HttpRequest, obj: Standing | None = None) -> bool:
        return may(request.user, "view_standing")

    def history_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        """The page is the history."""
        return self.change_view(request, object_id)


def _row_page(request: HttpRequest, site: admin.AdminSite, machine: Machine | None, standing: Standing) -> str:
    """The address of the row's own page on this site, for those who may view it there."""
    model = machine.model if machine is not None else None
    owner = site._registry.get(model) if model is not None else None
    if model is None or owner is None or not owner.has_view_permission(request):
        return ""
    row = owner.get_object(request, standing.subject)
    if row is None or not owner.has_view_permission(request, row):
        return ""
    return reverse(f"{site.name}:{model._meta.app_label}_{model._meta.model_name}_change", args=[row.pk])

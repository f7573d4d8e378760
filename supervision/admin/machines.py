"""A host's own admin pages: where a row of a machine stands, the events that it may be sent as buttons, its history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.admin.utils import quote, unquote
from django.core.exceptions import PermissionDenied
from django.forms import Media
from django.http import Http404, HttpRequest, HttpResponse
from django.urls import URLPattern, path, reverse
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from supervision.admin import machine_events
from supervision.admin.machine_events import Place
from supervision.admin.pictures import picture
from supervision.engines.machines import Machine, Transition
from supervision.engines.machines import machine as registered
from supervision.engines.machines.picture import graph_of

if TYPE_CHECKING:
    _Base = admin.ModelAdmin[Any]
else:
    _Base = object

STYLES = ["supervision/control-room.css", "supervision/pipelines.css", "supervision/machines.css"]
_PANEL = "machine_panel"


class MachineAdmin(_Base):
    """Mix into a ModelAdmin, before it: a row's page shows its machines, with exactly those events as buttons that
    ``allowed_events`` has for the person. A transition without a permission of its own needs the one to change the row.
    The state is read-only, whatever the fields of the page are.

    >>> class OrderAdmin(MachineAdmin, admin.ModelAdmin): ...
    """

    @property
    def media(self) -> Any:
        return super().media + Media(css={"all": STYLES})

    # --- the page

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        machines = registered.of_model(self.model)
        fields = [*super().get_readonly_fields(request, obj), *(m.field.name for m in machines if m.field is not None)]
        return (*dict.fromkeys(fields), *(self._panels(request, machines) if obj is not None else ()))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Without the panels, which have fieldsets of their own."""
        return [field for field in super().get_fields(request, obj) if getattr(field, "__name__", "") != _PANEL]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        machines = registered.of_model(self.model) if obj is not None else []
        panels = zip(machines, self._panels(request, machines), strict=True)
        return [*super().get_fieldsets(request, obj), *((str(m.label), {"fields": (each,)}) for m, each in panels)]

    def _panels(self, request: HttpRequest, machines: list[Machine]) -> list[Any]:
        """The read-only fields of this request: made once, since a fieldset finds them by identity."""
        known: dict[str, Any] = request.__dict__.setdefault("_supervision_machine_panels", {})
        return [known.setdefault(each.name, self._panel(request, each)) for each in machines]

    def _panel(self, request: HttpRequest, machine: Machine) -> Any:
        @admin.display(description=_("state and events"))
        def machine_panel(row: Any) -> str:
            return machine_events.panel(request, self._place(request, machine, row))

        return machine_panel

    # --- its events

    def get_urls(self) -> list[URLPattern]:
        view, name = self.admin_site.admin_view, f"{self.opts.app_label}_{self.opts.model_name}"
        return [
            path("<path:object_id>/machine/event/", view(self.machine_event_view), name=f"{name}_machine_event"),
            path("<path:object_id>/machine/picture/", view(self.machine_picture_view), name=f"{name}_machine_picture"),
            *super().get_urls(),
        ]

    def machine_event_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """A page for one event of the row."""
        row, machine = self._found(request, object_id)
        return machine_events.event_view(self, request, self._place(request, machine, row), row)

    def machine_picture_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The machine with the row's state lit."""
        row, machine = self._found(request, object_id)
        return picture(lambda: graph_of(machine.table, current=machine.host.state(row, None)))

    def may_send(self, request: HttpRequest, row: Any, transition: Transition) -> bool:
        """Whether the person may send it here; a permission of its own is asked besides."""
        return transition.permission is not None or self.has_change_permission(request, row)

    def _found(self, request: HttpRequest, object_id: str) -> tuple[Any, Machine]:
        """The row and the machine, if the person may view the row: one that they may not see isn't there."""
        row = self.get_object(request, unquote(object_id))
        if row is None or not self.has_view_permission(request, row):
            if not self.has_view_permission(request):
                raise PermissionDenied
            raise Http404
        machines = {each.name: each for each in registered.of_model(self.model)}
        machine = machines.get(request.GET.get("machine", ""))
        if machine is None:
            raise Http404(_("There is no such machine here."))
        return row, machine

    def _place(self, request: HttpRequest, machine: Machine, row: Any) -> Place:
        name = f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}"
        key = [quote(row.pk)]
        lit = machine.host.state(row, None)
        return Place(
            machine=machine, key=machine.host.key(row), label=str(row), state=lit,
            allow=lambda transition: self.may_send(request, row, transition),
            page=reverse(f"{name}_change", args=key), send=reverse(f"{name}_machine_event", args=key),
            picture=f"{reverse(f'{name}_machine_picture', args=key)}?{urlencode({'machine': machine.name, 'at': lit})}",
        )  # fmt: skip

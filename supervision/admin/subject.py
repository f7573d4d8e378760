"""A host's own admin pages: a row's supervised work on the row's page, with a button to start some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.contenttypes.models import ContentType
from django.forms import Media
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.utils.translation import gettext_lazy

from supervision.admin.access import may, visible_tasks

_NEWEST = 10

if TYPE_CHECKING:
    _Base = admin.ModelAdmin[Any]
else:
    _Base = object


class SupervisedAdmin(_Base):
    """Mix into a ModelAdmin, before it: the row's tasks stand at the end of its page.

    >>> class CustomerAdmin(SupervisedAdmin, admin.ModelAdmin): ...
    """

    @property
    def media(self) -> Any:
        return super().media + Media(css={"all": ["supervision/control-room.css"]})

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        fields = tuple(super().get_readonly_fields(request, obj))
        if obj is None or not may(request.user, "view_task"):
            return fields
        return (*fields, _panel(request))

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Without the panel, which has a fieldset of its own."""
        return [field for field in super().get_fields(request, obj) if not _is_panel(field)]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        fieldsets = list(super().get_fieldsets(request, obj))
        panels = [field for field in self.get_readonly_fields(request, obj) if _is_panel(field)]
        if panels:
            fieldsets.append((gettext_lazy("Supervised work"), {"fields": (panels[0],)}))
        return fieldsets


def _panel(request: HttpRequest) -> Any:
    """The read-only field of this request: made once, since a fieldset finds it by identity."""
    known = getattr(request, "_supervision_panel", None)
    if known is not None:
        return known

    @admin.display(description=gettext_lazy("tasks"))
    def supervised_tasks(row: Any) -> str:
        return tasks_of(request, row)

    request._supervision_panel = supervised_tasks  # type: ignore[attr-defined]
    return supervised_tasks


def tasks_of(request: HttpRequest, row: Any) -> str:
    """The newest tasks about the row, as HTML."""
    kind = ContentType.objects.get_for_model(row)
    tasks = visible_tasks(request.user).with_clock().filter(subject_type=kind, subject_pk=str(row.pk))
    newest = list(tasks.defer("arguments", "locked_decisions", "result").order_by("-id")[: _NEWEST + 1])
    context = {
        "tasks": newest[:_NEWEST],
        "has_more": len(newest) > _NEWEST,
        "can_start": may(request.user, "add_task"),
        "query": f"subject_type={row._meta.label_lower}&subject={row.pk}",
    }
    return render_to_string("supervision/admin/subject_tasks.html", context, request)


def _is_panel(field: Any) -> bool:
    return getattr(field, "__name__", "") == "supervised_tasks"

"""Finding tasks: a FilterSet over what the person may read, and nothing else."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import django_filters
from django import forms
from django.db.models.functions import Collate, Upper
from django.utils.translation import gettext as _
from django_filters.fields import IsoDateTimeField
from drf_spectacular.utils import OpenApiParameter

from supervision.api import problems
from supervision.api.view import unknown_field
from supervision.kernel.models import Task, TaskQuerySet
from supervision.kernel.states import Reason, State, first_word

_YES_NO = (("true", "true"), ("false", "false"))
ORDERINGS = ("-created_at", "created_at", "-state_changed_at", "state_changed_at")
_ALL = 10**12
_PAGING = ("cursor", "page_size")


class MomentField(IsoDateTimeField):  # type: ignore[misc]
    """In UTC: PostgreSQL doesn't know all offsets that ISO 8601 has."""

    def clean(self, value: Any) -> Any:
        moment = super().clean(value)
        try:
            return None if moment is None else moment.astimezone(UTC)
        except (OverflowError, ValueError):
            raise forms.ValidationError(self.error_messages["invalid"], "invalid") from None


class Moment(django_filters.IsoDateTimeFilter):  # type: ignore[misc]
    field_class = MomentField


class TaskFilter(django_filters.FilterSet):  # type: ignore[misc]
    state = django_filters.MultipleChoiceFilter(field_name="current_state", choices=State.choices)
    reason = django_filters.CharFilter(method="filter_reason")
    body = django_filters.CharFilter()
    subject = django_filters.CharFilter(method="filter_subject")
    created_after = Moment(field_name="created_at", lookup_expr="gte")
    created_before = Moment(field_name="created_at", lookup_expr="lt")
    changed_after = Moment(field_name="state_changed_at", lookup_expr="gte")
    changed_before = Moment(field_name="state_changed_at", lookup_expr="lt")
    finished_after = Moment(field_name="finished_at", lookup_expr="gte")
    finished_before = Moment(field_name="finished_at", lookup_expr="lt")
    expires_before = Moment(field_name="expires_at", lookup_expr="lt")
    needs_answer = django_filters.ChoiceFilter(choices=_YES_NO, method="filter_needs_answer")
    dead_letter = django_filters.ChoiceFilter(choices=_YES_NO, method="filter_dead_letter")

    class Meta:
        model = Task
        fields: tuple[str, ...] = ()

    def filter_reason(self, tasks: TaskQuerySet, name: str, value: str) -> TaskQuerySet:
        words = [first_word(value)] if ":" in value else [word for word in Reason if word.startswith(value)]
        found = tasks.filter(watchdog_stop_reason__startswith=value)
        return found.for_reasons(*words) if words else found  # by the index of first words

    def filter_subject(self, tasks: TaskQuerySet, name: str, value: str) -> TaskQuerySet:
        folded = tasks.exclude(subject="").alias(_folded=Collate(Upper("subject"), "C"))  # exactly as the index has it
        found = folded.filter(_folded__startswith=value.upper()).order_by().values("pk")
        # A limit that is none, or the planner would rather read all tasks, newest first, than look for a few.
        return tasks.filter(pk__in=found[:_ALL])

    def filter_needs_answer(self, tasks: TaskQuerySet, name: str, value: str) -> TaskQuerySet:
        asking = Task.objects.awaiting_answer().values("pk")
        return tasks.filter(pk__in=asking) if value == "true" else tasks.exclude(pk__in=asking)

    def filter_dead_letter(self, tasks: TaskQuerySet, name: str, value: str) -> TaskQuerySet:
        if value == "true":
            return tasks.dead_lettered()
        return tasks.exclude(pk__in=Task.objects.dead_lettered().values("pk"))


def filtered(tasks: TaskQuerySet, query: Any) -> tuple[TaskQuerySet, str]:
    """The tasks that the query's parameters leave, and their order. A 400 names what it can't read or doesn't know."""
    known = {*TaskFilter.base_filters, "ordering", *_PAGING}
    faults = {name: [unknown_field(known)] for name in query if name not in known}
    form = TaskFilter(query, queryset=tasks)
    faults |= {name: [str(each) for each in said] for name, said in form.form.errors.items()}
    ordering = query.get("ordering", ORDERINGS[0])
    if ordering not in ORDERINGS:
        faults["ordering"] = [unknown_field(ORDERINGS)]
    if faults:
        problem = _("Something in the request can't be used.")
        raise problems.Problem(400, "invalid", problem, fields=faults)
    # an id begins with its time of creation, and has an index
    return form.qs, {"-created_at": "-id", "created_at": "id"}.get(ordering, ordering)


PARAMETERS = [
    OpenApiParameter("state", str, many=True, enum=State.values, description="Any of these."),
    OpenApiParameter("reason", str, description="How the reason begins: retrying, or retrying:charge."),
    OpenApiParameter("body", str),
    OpenApiParameter("subject", str, description="How the subject begins."),
    *(
        OpenApiParameter(f"{what}_{side}", {"type": "string", "format": "date-time"})
        for what in ("created", "changed", "finished")
        for side in ("after", "before")
    ),
    OpenApiParameter("expires_before", {"type": "string", "format": "date-time"}),
    OpenApiParameter("needs_answer", str, enum=["true", "false"]),
    OpenApiParameter("dead_letter", str, enum=["true", "false"]),
    OpenApiParameter("ordering", str, enum=ORDERINGS),
]
"""For the schema."""

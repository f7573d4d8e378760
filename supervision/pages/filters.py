"""The form above the list."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

import django_filters
from django import forms
from django.db.models.functions import Collate, Upper
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from supervision.kernel import ownership, sight
from supervision.kernel.clock import first_id
from supervision.kernel.models import Task, TaskQuerySet
from supervision.kernel.states import State
from supervision.showing.tasks import body_label

_KINDS_IN = 1000
"""The kinds of work that can be chosen are those of so many of the newest tasks: no list is read to its end."""
_FOUND = 1000
_DATE = forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d")


class TaskFilter(django_filters.FilterSet):  # type: ignore[misc]
    """What a person looks for among their tasks. What can't be understood is said, and finds nothing."""

    needs = django_filters.ChoiceFilter(
        label=_("Needs"),
        method="by_need",
        empty_label=_("anything"),
        choices=[("answer", _("an answer")), ("resume", _("to be resumed")), ("look", _("a look: it failed for good"))],
    )
    state = django_filters.ChoiceFilter(
        label=_("State"), field_name="current_state", empty_label=_("any"), choices=State.choices
    )
    body = django_filters.ChoiceFilter(label=_("Kind of work"), empty_label=_("any"), choices=[])
    subject = django_filters.CharFilter(label=_("About (its beginning)"), method="by_subject", max_length=200)
    since = django_filters.DateFilter(label=_("Created from"), method="from_day", widget=_DATE)
    until = django_filters.DateFilter(label=_("Created until"), method="until_day", widget=_DATE)
    parts = django_filters.ChoiceFilter(
        label=_("Parts of other work"), method="by_parts", empty_label=_("only if needed"), choices=[("all", _("all"))]
    )
    whose = django_filters.ChoiceFilter(
        label=_("Whose"), method="by_owner", empty_label=_("mine"), choices=[("all", _("everybody’s"))]
    )

    class Meta:
        model = Task
        fields: list[str] = []

    def __init__(self, data: Any, user: Any) -> None:
        super().__init__(data, queryset=sight.readable(user).with_clock())
        self._user = user
        if not sight.is_overseer(user):
            del self.filters["whose"]
        newest = ownership.tasks_of(user).order_by("-pk").values_list("body", flat=True)[:_KINDS_IN]
        self.filters["body"].extra["choices"] = sorted((name, body_label(name)) for name in set(newest))

    def found(self) -> Any:
        """The tasks, newest first, without parts of others unless something is needed of them; none while the form has
        errors."""
        if not self.form.is_valid():
            return self.queryset.none()
        chosen = self.form.cleaned_data
        found = self.qs if chosen.get("whose") else self.qs.filter(ownership.theirs(self._user))
        if not chosen.get("parts") and not chosen.get("needs"):
            found = found.filter(parent=None)
        return found.order_by("-pk")

    def by_need(self, tasks: TaskQuerySet, name: str, value: str) -> TaskQuerySet:
        match value:
            case "answer":
                return tasks.awaiting_answer()
            case "resume":
                return tasks.held()
        return tasks.dead_lettered()

    def by_subject(self, tasks: TaskQuerySet, name: str, value: str) -> TaskQuerySet:
        # in the order of its own index: newest first, the planner would read all tasks to find a few
        folded = sight.readable(self._user).exclude(subject="").alias(_folded=Collate(Upper("subject"), "C"))
        found = folded.filter(_folded__startswith=value.upper()).order_by("_folded")
        return tasks.filter(pk__in=found.values("pk")[:_FOUND])

    def by_parts(self, tasks: TaskQuerySet, name: str, value: str) -> TaskQuerySet:
        return tasks  # see found()

    def by_owner(self, tasks: TaskQuerySet, name: str, value: str) -> TaskQuerySet:
        return tasks  # see found()

    def from_day(self, tasks: TaskQuerySet, name: str, value: date) -> TaskQuerySet:
        return tasks.filter(pk__gte=first_id(_midnight(value)))

    def until_day(self, tasks: TaskQuerySet, name: str, value: date) -> TaskQuerySet:
        return tasks.filter(pk__lt=first_id(_midnight(value) + timedelta(days=1)))


def _midnight(day: date) -> datetime:
    """Its beginning in the current time zone; of a day beyond any task, of the nearest one that counts."""
    known = min(max(day, date(1971, 1, 1)), date(9000, 1, 1))
    return datetime.combine(known, datetime.min.time(), timezone.get_current_timezone())

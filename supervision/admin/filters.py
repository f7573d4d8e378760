"""Filters of the task list. Each reads an index; none asks the table what values there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from supervision import wording
from supervision.conf import settings
from supervision.engines import registry
from supervision.kernel import sql
from supervision.kernel.models import Task
from supervision.kernel.states import DEAD_LETTER_REASONS, PARK_REASONS, Reason, State

Choices = Sequence[tuple[str, Any]]
Admin: TypeAlias = "ModelAdmin[Task]"


class Attention(SimpleListFilter):
    """What an operator looks for first."""

    title = _("attention")
    parameter_name = "attention"

    def lookups(self, request: HttpRequest, model_admin: Admin) -> Choices:
        return (
            ("answer", _("needs an answer")),
            ("dead", _("dead letters")),
            ("waiting", _("due but not taken")),
            ("overdue", _("overdue")),
            ("held", _("paused")),
            ("operator", _("needs an operator")),
        )

    def queryset(self, request: HttpRequest, tasks: Any) -> Any:
        match self.value():
            case "answer":
                return tasks.awaiting_answer()
            case "dead":
                return tasks.dead_lettered()
            case "waiting":
                return tasks.due()
            case "overdue":
                return tasks.overdue()
            case "held":
                return tasks.held()
            case "operator":
                words = (Reason.VERSION_CHANGED, Reason.UNKNOWN_BODY, Reason.REPLAY_MISMATCH)
                return tasks.parked().for_reasons(*words)
        return tasks


class StateFilter(SimpleListFilter):
    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Admin) -> Choices:
        return State.choices

    def queryset(self, request: HttpRequest, tasks: Any) -> Any:
        return tasks.filter(current_state=self.value()) if self.value() in State.values else tasks


class ReasonFilter(SimpleListFilter):
    """By the first word of the reason."""

    title = _("reason")
    template = "supervision/admin/folded_filter.html"
    parameter_name = "reason"
    _WORDS = tuple(dict.fromkeys((*sorted(PARK_REASONS), *sorted(DEAD_LETTER_REASONS), *Reason)))

    def lookups(self, request: HttpRequest, model_admin: Admin) -> Choices:
        return [(str(word), wording.reason_word(str(word))) for word in self._WORDS]

    def queryset(self, request: HttpRequest, tasks: Any) -> Any:
        return tasks.for_reasons(self.value() or "") if self.value() in self._WORDS else tasks


class _Distinct(SimpleListFilter):
    """By a column's values: what this server knows, and what stands in the table, found by a loose scan of its index
    (one probe a value), never by reading the table."""

    column: str
    template = "supervision/admin/folded_filter.html"
    _MOST = 50

    def lookups(self, request: HttpRequest, model_admin: Admin) -> Choices:
        values = sorted({*self.known(), *self._stored()})
        chosen = request.GET.get(self.parameter_name or "")
        return [(value, value) for value in dict.fromkeys([*values, *([chosen] if chosen else [])])]

    def known(self) -> Iterator[str]:
        raise NotImplementedError

    def _stored(self) -> list[str]:
        if settings.VISIBLE_TASKS:  # what others have is not told
            return []
        return [row[0] for row in sql.run(_DISTINCT[self.column], {"most": self._MOST})]

    def queryset(self, request: HttpRequest, tasks: Any) -> Any:
        return tasks if self.value() is None else tasks.filter(**{self.column: self.value()})


class BodyFilter(_Distinct):
    title = _("body")
    parameter_name = column = "body"

    def known(self) -> Iterator[str]:
        return (body.name for body in registry.bodies())


class AskingBody(BodyFilter):
    """Questions, by the body of their task."""

    def queryset(self, request: HttpRequest, questions: Any) -> Any:
        return questions if self.value() is None else questions.filter(task__body=self.value())


class QueueFilter(_Distinct):
    title = _("queue")
    parameter_name = column = "queue"

    def known(self) -> Iterator[str]:
        return iter(("default", *(body.queue for body in registry.bodies())))


def _loose_scan(column: str, condition: str) -> str:
    return f"""
    WITH RECURSIVE found(value, number) AS (
        SELECT min({column})::text, 1 FROM supervision_task WHERE {condition}
        UNION ALL
        SELECT (SELECT min({column})::text FROM supervision_task WHERE {column} > found.value AND {condition}),
               number + 1
          FROM found WHERE found.value IS NOT NULL AND number < %(most)s
    )
    SELECT value FROM found WHERE value IS NOT NULL
    """  # noqa: S608 - constants only


_DISTINCT = {
    "body": _loose_scan("body", "true"),
    "queue": _loose_scan("queue", "queue <> 'default'"),
}

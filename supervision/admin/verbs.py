"""What people do to tasks here, and how one or many are carried out.

Every row brings the generation that the person saw. A row that has changed since is reported and left as it is; the
others go through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from supervision import wording
from supervision.admin.access import may, visible_tasks
from supervision.errors import Conflict, SupervisionError, TaskNotFound
from supervision.kernel.models import Task
from supervision.kernel.states import State
from supervision.showing.tasks import task_name
from supervision.showing.verbs import VERBS, Verb

__all__ = ["VERBS", "Outcome", "Verb", "carry_out"]


@dataclass(frozen=True)
class Outcome:
    """What became of one row: ``text`` says it; ``result`` is the task as it now stands (a retry's: the new one)."""

    task_id: UUID
    is_done: bool
    text: str
    result: Task | None = None


def carry_out(
    verb: Verb, chosen: Sequence[tuple[UUID, int | None]], *, by: Any, note: str = "", **options: Any
) -> list[Outcome]:
    """Does it to each task that the person may see and do this to, each in a transaction of its own."""
    visible = {task.pk: task for task in visible_tasks(by).filter(pk__in=[pk for pk, _generation in chosen])}
    return [_one(verb, visible.get(pk), pk, generation, by, note, options) for pk, generation in chosen]


def _one(
    verb: Verb, task: Task | None, pk: UUID, generation: int | None, by: Any, note: str, options: dict[str, Any]
) -> Outcome:
    if task is None or not may(by, "view_task", task) or not may(by, verb.codename, task):
        return Outcome(pk, False, str(TaskNotFound(pk)))
    name = task_name(task)
    if generation is None:
        return Outcome(pk, False, _("%(task)s: unchanged, for the page did not say what it showed.") % {"task": name})
    try:
        result = verb.does.run(pk, by=by, note=note, expected_generation=generation, **options)
    except Conflict as conflict:
        return Outcome(pk, False, _stale(name, conflict.task), conflict.task)
    except SupervisionError as refusal:
        return Outcome(pk, False, f"{name}: {refusal}", getattr(refusal, "task", None))
    return Outcome(pk, True, str(verb.done).replace("{0}", name), result)


def _stale(name: str, fresh: Task) -> str:
    """The fresh state of a row that has changed since the person looked."""
    now = wording.situation(fresh).label
    if fresh.watchdog_stop_reason and fresh.current_state != State.RUNNING:
        now = f"{now}, {wording.reason(fresh.watchdog_stop_reason)}"
    return _("%(task)s: unchanged, for it has changed since you saw it. Now it is: %(now)s.") % {
        "task": name,
        "now": now,
    }

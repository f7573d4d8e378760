"""What people do to tasks here: each verb with its permission and its words, and how one or many are carried out.

Every row brings the generation that the person saw. A row that has changed since is reported and left as it is; the
others go through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision import wording
from supervision.admin.access import may, visible_tasks
from supervision.admin.columns import task_name
from supervision.engines import verbs
from supervision.errors import Conflict, SupervisionError, TaskNotFound
from supervision.kernel.models import Task
from supervision.kernel.states import State

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise as Words


@dataclass(frozen=True)
class Verb:
    """One thing to do to a task, with its words. ``grant`` is the word of ``has_<grant>_permission``."""

    does: verbs.Verb
    grant: str
    label: Words
    """On the button and in the list's menu."""
    done: Words
    """``{0}`` is the task."""
    meaning: Words
    """What will happen, on the confirmation."""
    is_grave: bool = False

    @property
    def name(self) -> str:
        return self.does.name

    @property
    def codename(self) -> str:
        return self.does.codename

    def is_possible(self, task: Task) -> bool:
        return self.does.is_possible(task)


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            verbs.VERBS["pause"], "pause", gettext_lazy("Pause"),
            gettext_lazy("{0} is paused, or pausing after the current step."),
            gettext_lazy("A running task pauses after the current step. A waiting one stays where it is."),
        ),
        Verb(
            verbs.VERBS["resume"], "pause", gettext_lazy("Resume"), gettext_lazy("{0} goes on."),
            gettext_lazy("It goes on where it stopped. Deadlines that were set stand."),
        ),
        Verb(
            verbs.VERBS["cancel"], "cancel", gettext_lazy("Cancel"),
            gettext_lazy("{0} is cancelled, after its clean-up."),
            gettext_lazy("It ends. If it ever ran, a worker lets it clean up first. This can't be taken back."),
            is_grave=True,
        ),
        Verb(
            verbs.VERBS["expire"], "cancel", gettext_lazy("Expire now"), gettext_lazy("{0} is expired."),
            gettext_lazy("It ends as if its time had run out. This can't be taken back."),
            is_grave=True,
        ),
        Verb(
            verbs.VERBS["retry"], "retry", gettext_lazy("Retry"), gettext_lazy("{0} is tried again, as a new task."),
            gettext_lazy("A new task with the same arguments, decisions and answers. This one stays as it is."),
        ),
    )
}  # fmt: skip


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

"""What people do to tasks here: each verb with its permission and its words, and how one or many are carried out.

Every row brings the generation that the person saw. A row that has changed since is reported and left as it is; the
others go through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision import wording
from supervision.admin.access import may, visible_tasks
from supervision.engines import retry
from supervision.errors import Conflict, SupervisionError, TaskNotFound
from supervision.kernel import lifecycle
from supervision.kernel.models import Task
from supervision.kernel.states import State
from supervision.showing.tasks import task_name

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise as Words


@dataclass(frozen=True)
class Verb:
    """One thing to do to a task. ``grant`` is the word of ``has_<grant>_permission``, ``codename`` the permission."""

    name: str
    grant: str
    codename: str
    label: Words
    """On the button and in the list's menu."""
    done: Words
    """``{0}`` is the task."""
    meaning: Words
    """What will happen, on the confirmation."""
    run: Callable[..., Task]
    is_possible: Callable[[Task], bool]
    is_grave: bool = False


def _is_pausable(task: Task) -> bool:
    return not task.is_terminal and not task.ending and task.pause_requested_at is None


def _is_resumable(task: Task) -> bool:
    is_open = not task.is_terminal and not task.ending
    return is_open and (task.pause_requested_at is not None or (task.awaits_operator and task.wake_at is None))


def _is_endable(task: Task) -> bool:
    return not task.is_terminal and not task.ending


VERBS = {
    verb.name: verb
    for verb in (
        Verb(
            "pause", "pause", "pause_task", gettext_lazy("Pause"),
            gettext_lazy("{0} is paused, or pausing after the current step."),
            gettext_lazy("A running task pauses after the current step. A waiting one stays where it is."),
            lifecycle.pause, _is_pausable,
        ),
        Verb(
            "resume", "pause", "pause_task", gettext_lazy("Resume"), gettext_lazy("{0} goes on."),
            gettext_lazy("It goes on where it stopped. Deadlines that were set stand."),
            lifecycle.resume, _is_resumable,
        ),
        Verb(
            "cancel", "cancel", "cancel_task", gettext_lazy("Cancel"),
            gettext_lazy("{0} is cancelled, after its clean-up."),
            gettext_lazy("It ends. If it ever ran, a worker lets it clean up first. This can't be taken back."),
            lifecycle.cancel, _is_endable, is_grave=True,
        ),
        Verb(
            "expire", "cancel", "cancel_task", gettext_lazy("Expire now"), gettext_lazy("{0} is expired."),
            gettext_lazy("It ends as if its time had run out. This can't be taken back."),
            lifecycle.expire, _is_endable, is_grave=True,
        ),
        Verb(
            "retry", "retry", "retry_task", gettext_lazy("Retry"), gettext_lazy("{0} is tried again, as a new task."),
            gettext_lazy("A new task with the same arguments, decisions and answers. This one stays as it is."),
            retry, lambda task: task.is_terminal,
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
        result = verb.run(pk, by=by, note=note, expected_generation=generation, **options)
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

"""What people do to a task, as data: each verb with its permission, whether it makes sense now, and its function.

Every surface reads this table, so that none allows what another refuses. Owners may do each to their own tasks; see
``kernel/sight.py``. What a verb did is said by ``wording.outcome``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from supervision.engines.starting import retry
from supervision.kernel import lifecycle
from supervision.kernel.models import Task


@dataclass(frozen=True)
class Verb:
    """``run(task_id, by=, note=, expected_generation=)`` does it; ``codename`` is the permission staff need."""

    name: str
    codename: str
    run: Callable[..., Task]
    is_possible: Callable[[Task], bool]
    """Judged by the row as it was read: what to offer. The verb judges again, under the lock."""


def _is_open(task: Task) -> bool:
    return not task.is_terminal and not task.ending


def _is_pausable(task: Task) -> bool:
    return _is_open(task) and task.pause_requested_at is None


def _is_resumable(task: Task) -> bool:
    return _is_open(task) and (task.pause_requested_at is not None or (task.awaits_operator and task.wake_at is None))


VERBS = {
    verb.name: verb
    for verb in (
        Verb("pause", "pause_task", lifecycle.pause, _is_pausable),
        Verb("resume", "pause_task", lifecycle.resume, _is_resumable),
        Verb("cancel", "cancel_task", lifecycle.cancel, _is_open),
        Verb("expire", "cancel_task", lifecycle.expire, _is_open),
        Verb("retry", "retry_task", retry, lambda task: task.is_terminal),
    )
}


def possible(task: Task) -> list[str]:
    """The names of the verbs that make sense for the task as it was read."""
    return [verb.name for verb in VERBS.values() if verb.is_possible(task)]

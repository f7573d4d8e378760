"""What people ask of a task: pause, resume, cancel, expire, terminate. Each is a request, honestly named.

All take ``by`` (a user or a text), an optional ``note`` for the log and an optional ``expected_generation``; all raise
TaskNotFound, Conflict, Refused or Busy and then have written nothing; all return the fresh task. They may stand in a
caller's transaction.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from supervision.errors import Refused
from supervision.kernel import countdown, storable
from supervision.kernel.actors import actor_ref
from supervision.kernel.ends import ask_to_end, finish
from supervision.kernel.models import Question, Task
from supervision.kernel.states import ENDINGS, Reason, State, first_word
from supervision.kernel.transition import committing, locked, write


def pause(task_id: UUID | str, *, by: Any = None, note: str = "", expected_generation: int | None = None) -> Task:
    """Asks a running task to park at its next checkpoint; holds an idle one where it is, and a run with its nodes.

    State, reason and ``wake_at`` stay: whoever satisfies a wait goes on writing ``wake_at``, and nothing takes the task
    until it is resumed.
    """
    with committing("pause"), locked(task_id, expected_generation=expected_generation) as task:
        _refuse_ended("pause", task)
        if task.pause_requested_at is not None:
            raise Refused("pause", task, _("it is paused already, or pausing after the current step."))
        write(task, event="pause_requested", bump=True, actor=actor_ref(by), payload=_noted(note),
              pause_requested_at=task.db_now)  # fmt: skip
        countdown.pause(task)
        return task


def resume(task_id: UUID | str, *, by: Any = None, note: str = "", expected_generation: int | None = None) -> Task:
    """Lifts a pause; or, for a task parked for an operator's word (a changed version and the like), says go on.

    Deadlines that were recorded stand. A task past its expiry isn't resumed.
    """
    with committing("resume"), locked(task_id, expected_generation=expected_generation) as task:
        _refuse_ended("resume", task)
        if task.is_overdue:
            raise Refused("resume", task, _("its time ran out."))
        stamp = task.pause_requested_at
        columns: dict[str, Any] = {"pause_requested_at": None}
        if task.awaits_operator:
            columns["wake_at"] = task.db_now
            if first_word(task.watchdog_stop_reason) == Reason.VERSION_CHANGED:
                # "go on" accepts the version that the reason names: version_changed:1->2
                columns["body_version"] = int(task.watchdog_stop_reason.rpartition("->")[2])
        elif task.pause_requested_at is None:
            raise Refused("resume", task, _("it isn't paused."))
        elif task.wake_at is not None:
            columns["wake_at"] = task.wake_at  # unchanged, but the brokers must hear that it is free again
        write(task, event="task_resumed", bump=True, actor=actor_ref(by), payload=_noted(note), **columns)
        countdown.resume(task, stamp)
        return task


def cancel(task_id: UUID | str, *, by: Any = None, note: str = "", expected_generation: int | None = None) -> Task:
    """Asks for the end. A task that was ever taken is unwound by a worker first (``Cancelled`` in its body), so
    ``task.ending`` is set and the state follows; one that never ran is cancelled at once. Beats a pause."""
    with committing("cancel"), locked(task_id, expected_generation=expected_generation) as task:
        _refuse_ended("cancel", task)
        actor = actor_ref(by)
        ask_to_end(task, State.CANCELLED, Reason.CANCELLED.of(actor), actor=actor, note=note,
                   at_once=task.started_at is None, cancel_requested_at=task.db_now)  # fmt: skip
        return task


def expire(task_id: UUID | str, *, by: Any = None, note: str = "", expected_generation: int | None = None) -> Task:
    """Ends the task as expired, keeping why it waited: ``expired:awaiting_user_answer:approve_budget``.

    With ``by`` a person decides so now. Without, it is the tick's: refused unless the task, or a question it waits
    for, is past its time by the database's clock. Never proceeds: a running task is asked, an idle one with nothing to
    unwind ends at once.
    """
    with committing("expire"), locked(task_id, expected_generation=expected_generation) as task:
        _refuse_ended("expire", task)
        if by is None and not task.is_overdue and not _has_late_question(task):
            raise Refused("expire", task, _("its time has not run out."))
        at_once = task.current_state != State.RUNNING and task.compensations_outstanding == 0
        ask_to_end(task, State.EXPIRED, Reason.EXPIRED.of(task.watchdog_stop_reason), actor=actor_ref(by),
                   note=note, at_once=at_once)  # fmt: skip
        return task


def terminate(
    task_id: UUID | str,
    *,
    by: Any,
    note: str = "",
    state: State = State.CANCELLED,
    expected_generation: int | None = None,
) -> Task:
    """Ends the task now WITHOUT clean-up: no ``Cancelled`` in its body, no compensations; a worker that still drives
    it records nothing more. For work whose clean-up itself is stuck. The reason says so."""
    if state not in ENDINGS:
        raise ValueError(f"a task can't be terminated as {state}")
    with committing("end"), locked(task_id, expected_generation=expected_generation) as task:
        if task.is_terminal:
            raise Refused("terminate", task, _("it has ended already."))
        actor = actor_ref(by)
        finish(task, state, Reason.TERMINATED.of(actor), actor=actor, lease=task.lease + 1,
               payload={**_noted(note), "without_cleanup": True, "prior": task.watchdog_stop_reason})  # fmt: skip
        return task


def _refuse_ended(verb: str, task: Task) -> None:
    if task.is_terminal:
        raise Refused(verb, task, _("it has ended already (%(state)s).") % {"state": task.get_current_state_display()})
    if task.ending:
        raise Refused(verb, task, _("it is being ended (%(reason)s).") % {"reason": task.ending_reason})


def _has_late_question(task: Task) -> bool:
    """Asked after the lock, in a statement of its own."""
    return Question.objects.using(task._state.db).filter(task_id=task.pk).overdue().exists()


def _noted(note: str) -> dict[str, Any]:
    return {"note": storable.text(note)} if note else {}

"""How a task ends. Every way goes through ``finish``: the terminal state is written last, and once."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from supervision.conf import settings
from supervision.kernel import countdown, crash, notices, sql, storable
from supervision.kernel.models import Question, Task
from supervision.kernel.states import DEAD_LETTER_REASONS, Reason, State, first_word
from supervision.kernel.transition import CHANNEL, LOCK, announce_written, committing, locked, retried, write

EVENTS = {
    State.COMPLETED: "task_completed",
    State.FAILED: "task_failed",
    State.EXPIRED: "task_expired",
    State.CANCELLED: "task_cancelled",
}


def finish(
    task: Task,
    state: State,
    reason: str,
    *,
    actor: str = "",
    payload: Mapping[str, Any] | None = None,
    **columns: Any,
) -> None:
    """Writes the terminal ``state`` of the locked ``task`` and closes what hangs on it. Its pending questions are
    withdrawn, or expired where their time is up."""
    close_questions(task)
    write(task, to=state, reason=reason, event=EVENTS[state], bump=True, actor=actor,
          payload={"reason": reason, **(payload or {})}, **columns)  # fmt: skip
    if state == State.FAILED and first_word(reason) in DEAD_LETTER_REASONS:
        notices.plan_dead_letter(task)
    if task.parent_id is not None:
        _count_down(task, task.parent_id)
        countdown.ended(task)
    _end_children(task)


def close_questions(task: Task) -> None:
    """Nobody needs the answers to the pending questions of the locked ``task`` any more."""
    for question in Question.objects.using(settings.DATABASE).filter(task_id=task.pk).pending().order_by("pk"):
        is_late = question.expires_at is not None and question.expires_at <= task.db_now
        question.status = Question.Status.EXPIRED if is_late else Question.Status.WITHDRAWN
        question.save(update_fields=["status"])


def _count_down(child: Task, parent_id: UUID) -> None:
    """The parent, which is locked already, waits for one child less; the last one that it needs makes it due."""
    parents = Task.objects.using(settings.DATABASE).filter(pk=parent_id, children_awaited__gt=0)
    parent = parents.with_clock().first()
    if parent is None or not child.is_awaited or parent.watchdog_stop_reason != Reason.AWAITING_CHILDREN:
        return
    if parent.children_awaited > 1:
        parents.update(children_awaited=parent.children_awaited - 1)
        return
    write(parent, event="children_ended", payload={"last": str(child.pk)}, wake=True, children_awaited=0)


def _end_children(parent: Task) -> None:
    """Live children don't outlive their parent: those never taken end at once, the others are asked to."""
    children = Task.objects.using(settings.DATABASE).filter(parent_id=parent.pk).live().filter(ending="")
    for pk in list(children.order_by("pk").values_list("pk", flat=True)):
        with locked(pk) as child:
            if not child.is_terminal and not child.ending:
                ask_to_end(child, State.CANCELLED, Reason.CANCELLED.of("parent"), actor=f"task {parent.pk}",
                           at_once=child.started_at is None, cancel_requested_at=child.db_now)  # fmt: skip


def ask_to_end(
    task: Task, state: State, reason: str, *, actor: str, at_once: bool, note: str = "", **columns: Any
) -> None:
    """Ends the locked task now, or records the intent and makes it due, so that a worker unwinds it."""
    noted = {"note": note} if note else {}
    if at_once:
        finish(task, state, reason, actor=actor, payload=noted, **columns)
        return
    write(task, event="ending_requested", bump=True, actor=actor, wake=task.current_state != State.RUNNING,
          payload={**noted, "ending": state, "reason": reason}, ending=state,
          ending_reason=reason, **columns)  # fmt: skip


# A completion that nothing hangs on, as one guarded statement. Questions and children are only made under the lease, so
# none can appear beside it. What it doesn't match is completed the general way, or has lost its lease.
_COMPLETE = """
WITH task AS (
    UPDATE supervision_task AS task
       SET current_state = 'completed', state_changed_at = supervision_now_v1(), finished_at = supervision_now_v1(),
           watchdog_stop_reason = '', result = %(result)s::jsonb, compensations_outstanding = 0,
           wake_at = NULL, offered_until = NULL, log_length = log_length + 1, generation = generation + 1
     WHERE id = %(task_id)s::uuid AND lease = %(lease)s AND current_state = 'running'
       AND {of_parent} AND ending = '' AND pause_requested_at IS NULL AND cancel_requested_at IS NULL
       AND NOT EXISTS (SELECT 1 FROM supervision_question AS question
                        WHERE question.task_id = task.id AND question.status = 'pending')
       AND NOT EXISTS (SELECT 1 FROM supervision_task AS child
                        WHERE child.parent_id = task.id AND child.current_state IN ('pending', 'running', 'parked'))
    RETURNING id, lease, body, log_length, generation, parent_id, is_awaited
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, log_length, 'task_completed', '', '{{"reason": ""}}', lease, '' FROM task
){parent}
"""
_COMPLETE_ALONE = _COMPLETE.format(
    of_parent="parent_id IS NULL", parent="SELECT id, body, log_length, generation FROM task"
)

# The same for a child whose parent, locked before it, waits for children: one less; the last one makes it due.
_COMPLETE_CHILD = _COMPLETE.format(
    of_parent="""EXISTS (SELECT 1 FROM supervision_task AS parent
                        WHERE parent.id = task.parent_id AND parent.current_state = 'parked'
                          AND parent.watchdog_stop_reason = 'awaiting_children')""",
    parent=f""", parent AS (
    UPDATE supervision_task AS parent
       SET children_awaited = children_awaited - 1,
           wake_at = CASE WHEN children_awaited = 1 THEN supervision_now_v1() ELSE wake_at END,
           log_length = parent.log_length + CASE WHEN children_awaited = 1 THEN 1 ELSE 0 END
      FROM task WHERE parent.id = task.parent_id AND task.is_awaited AND children_awaited > 0
    RETURNING parent.id, parent.body, parent.log_length, parent.generation, parent.lease, children_awaited,
              task.id AS last
), woken AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, log_length, 'children_ended', '', jsonb_build_object('last', last), lease, ''
      FROM parent WHERE children_awaited = 0
    RETURNING pg_notify('{CHANNEL}', '')
)
SELECT task.id, task.body, task.log_length, task.generation,
       parent.id, parent.body, parent.lease, parent.generation, parent.log_length
  FROM task LEFT JOIN parent ON parent.children_awaited = 0""",  # noqa: S608 - the channel is a constant
)


@retried
def complete(
    task_id: UUID | str, lease: int, result: Any = None, *, is_child: bool = False, run_id: UUID | None = None
) -> None:
    """The body returned: completed with ``result``. What was requested and not observed any more is in the entry.

    One round trip where nothing hangs on the task; for one with a parent if the caller says so (``is_child``), with
    what follows in the run ``run_id`` that it is a node of. Raises LeaseLost; NotStorable or TooLarge for a result that
    can't be kept, having written nothing.
    """
    encoded = storable.encode(result, place="result", limit="MAX_RESULT_BYTES")
    crash.point("complete:before_commit")
    parameters = {"task_id": str(task_id), "lease": lease, "result": None if result is None else encoded}
    if is_child:
        counted = countdown.statements(task_id, run_id) if run_id else ()
        _locked, rows, *_rest = sql.together((LOCK, parameters), (_COMPLETE_CHILD, parameters), *counted)
    else:
        rows = sql.run(_COMPLETE_ALONE, parameters)
    if not rows:
        _complete(task_id, lease, result)
        return
    crash.point("complete:after_commit")
    pk, body, length, generation, *parent = rows[0]
    announce_written(EVENTS[State.COMPLETED], [(pk, body, lease, generation, length)], state=State.COMPLETED)
    if any(parent):
        announce_written("children_ended", [parent], state=State.PARKED, reason=Reason.AWAITING_CHILDREN)


def _complete(task_id: UUID | str, lease: int, result: Any) -> None:
    """The general way: with a parent, children, open questions or requests."""
    with committing("complete"), locked(task_id, lease=lease) as task:
        unobserved = {
            request: stamp.isoformat()
            for request, stamp in (("pause", task.pause_requested_at), ("cancel", task.cancel_requested_at))
            if stamp is not None
        }
        if task.ending and not unobserved:
            unobserved = {task.ending: task.ending_reason}
        payload = {"unobserved": unobserved} if unobserved else {}
        finish(task, State.COMPLETED, "", payload=payload, result=result, compensations_outstanding=0)


@retried
def fail(task_id: UUID | str, lease: int, reason: str, failure: str, details: Mapping[str, Any]) -> None:
    """The body failed: ``failure`` is one line for people, ``details`` (traceback and the like) goes to the log.

    Always recordable: texts are cleaned and shortened as needed. Raises LeaseLost.
    """
    recorded = {key: storable.text(value) for key, value in details.items()}
    with committing("fail"), locked(task_id, lease=lease) as task:
        if task.ending:
            recorded["intended"] = storable.text(task.ending_reason)
        finish(task, State.FAILED, storable.text(reason, 500), payload=recorded, failure=one_line(failure))


@retried
def intend(task_id: UUID | str, lease: int, reason: str, failure: str, details: Mapping[str, Any]) -> None:
    """The body failed and has something to undo: records the intended end, so that unwinding goes on after a crash.

    The task runs on under this lease, until ``end`` or ``fail``. Raises LeaseLost.
    """
    recorded = {key: storable.text(value) for key, value in details.items()}
    with committing("end"), locked(task_id, lease=lease) as task:
        write(task, event="ending_requested", bump=True, failure=one_line(failure), ending=State.FAILED,
              ending_reason=storable.text(reason, 500),
              payload={**recorded, "ending": State.FAILED, "reason": reason})  # fmt: skip


@retried
def begin_unwinding(task_id: UUID | str, lease: int, call: str) -> None:
    """The body is told of its end, at ``call``. An expiry that only the worker has seen becomes the intended end here,
    so that neither the tick nor a crash cuts the clean-up short. Raises LeaseLost."""
    with committing("end"), locked(task_id, lease=lease) as task:
        state, reason = task.ending or State.EXPIRED, task.ending_reason or Reason.EXPIRED.value
        write(task, event="unwinding_started", name=call, payload={"reason": reason}, ending=state,
              ending_reason=reason)  # fmt: skip


@retried
def end(task_id: UUID | str, lease: int, details: Mapping[str, Any] | None = None) -> None:
    """The worker has unwound: writes the end that was asked for, or the expiry that came. Raises LeaseLost.

    If compensations are outstanding all the same, because the body raised ``details`` before it reached their steps, it
    is parked and tried again a while later, MAX_RECOVERIES times; then, or if the code that knew them is gone, it is a
    dead letter.
    """
    recorded = {key: storable.text(value) for key, value in (details or {}).items()}
    with committing("end"), locked(task_id, lease=lease) as task:
        state, reason = State.EXPIRED, Reason.EXPIRED.value
        if task.ending:
            state, reason = State(task.ending), task.ending_reason
        payload: dict[str, Any] = {"unwound": True, **recorded}
        if task.compensations_outstanding:
            payload = {"intended": reason, "compensations_outstanding": task.compensations_outstanding, **recorded}
            if recorded and task.recoveries < settings.MAX_RECOVERIES:
                again = Reason.RETRYING.of("clean-up")
                wait = timedelta(seconds=settings.LEASE_SECONDS * 2**task.recoveries)
                write(task, to=State.PARKED, reason=again, event="task_parked", payload={"reason": again, **payload},
                      recoveries=task.recoveries + 1, wake_at=task.db_now + wait)  # fmt: skip
                return
            state, reason = State.FAILED, Reason.COMPENSATION_EXHAUSTED.of("not found")
        finish(task, state, reason, payload=payload)


def one_line(failure: str) -> str:
    """A failure as an operator reads it in a list."""
    return " ".join(storable.text(failure, 1000).split())

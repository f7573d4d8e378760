"""How a task ends. Every way goes through ``finish``: the terminal state is written last, and once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from supervision.conf import settings
from supervision.kernel import storable
from supervision.kernel.models import Question, Task
from supervision.kernel.states import Reason, State
from supervision.kernel.transition import committing, locked, retried, write

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


def close_questions(task: Task) -> None:
    """Nobody needs the answers to the pending questions of the locked ``task`` any more."""
    for question in Question.objects.using(settings.DATABASE).filter(task_id=task.pk).pending().order_by("pk"):
        is_late = question.expires_at is not None and question.expires_at <= task.db_now
        question.status = Question.Status.EXPIRED if is_late else Question.Status.WITHDRAWN
        question.save(update_fields=["status"])


@retried
def complete(task_id: UUID | str, lease: int, result: Any = None) -> None:
    """The body returned: completed with ``result``. What was requested and not observed any more is in the entry.

    Raises LeaseLost; NotStorable or TooLarge for a result that can't be kept, having written nothing.
    """
    storable.encode(result, place="result", limit="MAX_RESULT_BYTES")
    with committing("complete"), locked(task_id, lease=lease) as task:
        unobserved = {
            request: stamp.isoformat()
            for request, stamp in (("pause", task.pause_requested_at), ("cancel", task.cancel_requested_at))
            if stamp is not None
        }
        if task.ending and not unobserved:
            unobserved = {task.ending: task.ending_reason}
        payload = {"unobserved": unobserved} if unobserved else {}
        finish(task, State.COMPLETED, "", payload=payload, result=result)


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
def end(task_id: UUID | str, lease: int) -> None:
    """The worker has unwound: writes the end that was asked for, or the expiry that came. Raises LeaseLost."""
    with committing("end"), locked(task_id, lease=lease) as task:
        state, reason = (
            (State(task.ending), task.ending_reason) if task.ending else (State.EXPIRED, Reason.EXPIRED.of())
        )
        finish(task, state, reason, payload={"unwound": True})


def one_line(failure: str) -> str:
    """A failure as an operator reads it in a list."""
    return " ".join(storable.text(failure, 1000).split())

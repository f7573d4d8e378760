"""Waits that time alone ends, and the closing of a replay window."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from supervision.errors import SupervisionError
from supervision.kernel import storable
from supervision.kernel.lease import Requests
from supervision.kernel.states import Reason, State
from supervision.kernel.transition import committing, locked, retried, write


@dataclass(frozen=True)
class Slept:
    """What a sleep came to: ``over``, parked (neither), or ``requests`` that forbid to sleep."""

    over: bool = False
    requests: Requests | None = None


@retried
def sleep(
    task_id: UUID | str,
    lease: int,
    name: str,
    *,
    duration: timedelta | None = None,
    until: datetime | None = None,
    decisions: Mapping[str, Any] | None = None,
) -> Slept:
    """Parks until the moment, or records that it has come. One transaction; the clock is read after the lock.

    The first call gives ``duration``; its deadline is recorded in the entry ``name``, and later drives pass it as
    ``until``, so that a sleep doesn't start again. Raises LeaseLost.
    """
    with committing("park"), locked(task_id, lease=lease) as task:
        if task.ending or task.is_overdue:
            return Slept(
                requests=Requests(ending=task.ending, ending_reason=task.ending_reason, is_overdue=task.is_overdue)
            )
        deadline = until if until is not None else task.db_now + (duration or timedelta(0))
        if deadline <= task.db_now:
            write(task, event="slept", name=name, payload={"until": deadline.isoformat()}, decisions=decisions,
                  recoveries=0)  # fmt: skip
            return Slept(over=True)
        write(task, to=State.PARKED, reason=Reason.SLEEPING, event="task_parked", name=name, wake_at=deadline,
              payload={"reason": Reason.SLEEPING, "deadline": deadline.isoformat()}, decisions=decisions)  # fmt: skip
        return Slept()


@retried
def continue_as_new(task_id: UUID | str, lease: int, arguments: Mapping[str, Any]) -> None:
    """Starts the body afresh with ``arguments``, without decisions, and with nothing to replay; due now.

    The log goes on, and so do the questions: a new round needs new keys. Raises LeaseLost, NotStorable, TooLarge,
    and SupervisionError while something is to be undone, or for other sensitive arguments.
    """
    storable.encode(dict(arguments), place="arguments", limit="MAX_ARGUMENTS_BYTES")
    with committing("park"), locked(task_id, lease=lease) as task:
        if task.compensations_outstanding:
            raise SupervisionError(
                "A body with steps that are to be undone can't continue as new: nothing would undo them any more."
            )
        if any(task.arguments.get(name) != arguments.get(name) for name in task.sensitive):
            raise SupervisionError("Sensitive arguments stay as they are in continue_as_new: the log masks these.")
        write(
            task,
            to=State.PARKED,
            reason=Reason.YIELDED.of("continue_as_new"),
            event="continued_as_new",
            arguments=dict(arguments),
            locked_decisions={},
            replay_from=task.log_length + 1,
            round=task.round + 1,
            recoveries=0,
            wake_at=task.db_now,
        )

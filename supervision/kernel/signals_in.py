"""Signals: what the outside world tells a task. Kept when they come early, consumed once, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import Refused
from supervision.kernel import storable
from supervision.kernel.actors import actor_ref
from supervision.kernel.lease import Requests
from supervision.kernel.models import Signal, Task
from supervision.kernel.states import Reason, State
from supervision.kernel.transition import committing, locked, retried, write


def send(task_id: UUID | str, name: str, payload: Any = None, *, key: str = "", by: Any = None) -> Signal:
    """Stores the signal and, if the task waits for one of this name, makes it due: one commit.

    The same ``key`` for the same name twice is one signal: the first is returned. Raises Refused for a task that has
    ended or is being ended, NotStorable, TooLarge, TaskNotFound, Busy. May stand in the caller's transaction.
    """
    storable.name(name, place="signal name")
    storable.encode(payload, place=f"signal {name}", limit="MAX_PAYLOAD_BYTES")
    with committing("signal"), locked(task_id) as task:
        signals = Signal.objects.using(settings.DATABASE)
        if key:
            storable.name(key, place="signal key")
            known = signals.filter(task_id=task.pk, name=name, key=key).first()
            if known is not None:
                return known
        if task.is_terminal or task.ending:
            raise Refused("signal", task, _("it has ended or is being ended."))
        signal = signals.create(
            task_id=task.pk, name=name, payload=payload, key=key, sent_by_ref=actor_ref(by), sent_at=task.db_now,
            position=task.log_length + 1,
        )  # fmt: skip
        waits = task.watchdog_stop_reason == Reason.AWAITING_SIGNAL.of(name)
        write(task, event="signal_sent", name=name, actor=actor_ref(by), payload={"signal": str(signal.pk)},
              wake=waits and task.current_state == State.PARKED)  # fmt: skip
    return signal


@dataclass(frozen=True)
class Waited:
    """What a wait came to: a ``signal``, ``timed_out``, ``parked``, or ``requests`` that forbid to wait."""

    signal: Signal | None = None
    timed_out: bool = False
    parked: bool = False
    requests: Requests | None = None


@retried
def consume_or_park(
    task_id: UUID | str,
    lease: int,
    name: str,
    *,
    timeout: timedelta | None = None,
    deadline: datetime | None = None,
    wait: str = "",
    decisions: Mapping[str, Any] | None = None,
) -> Waited:
    """Consumes the oldest unconsumed signal of that name; else, past its ``deadline``, the wait is over; else parks.

    One transaction. The signal is looked for after the lock, in a statement of its own, so a task never parks beside a
    stored signal, and a signal wins over a timeout. ``timeout`` starts the first wait; its deadline is recorded in the
    entry, and passed as ``deadline`` by later drives. ``wait`` names the wait in the log. Raises LeaseLost.
    """
    entry: dict[str, Any] = {"name": wait or name, "decisions": decisions}
    settled: dict[str, Any] = {"event": "signal_consumed", "recoveries": 0}
    with committing("consume"), locked(task_id, lease=lease) as task:
        signal = _next(task, name)
        if signal is not None:
            write(task, **settled, **entry,
                  payload={"signal": str(signal.pk), "name": name, "payload": signal.payload, "key": signal.key,
                           "sent_by": signal.sent_by_ref, "sent_at": signal.sent_at.isoformat()})  # fmt: skip
            signal.consumed_in = task.log_length
            signal.save(update_fields=["consumed_in"])
            return Waited(signal=signal)
        if task.ending or task.is_overdue:
            return Waited(
                requests=Requests(ending=task.ending, ending_reason=task.ending_reason, is_overdue=task.is_overdue)
            )
        if deadline is None and timeout is not None:
            deadline = task.db_now + timeout
        if deadline is not None and deadline <= task.db_now:
            write(task, **settled, **entry, payload={"signal": None, "name": name})
            return Waited(timed_out=True)
        reason = Reason.AWAITING_SIGNAL.of(name)
        write(task, to=State.PARKED, reason=reason, event="task_parked", wake_at=deadline, **entry,
              payload={"reason": reason, "deadline": deadline.isoformat() if deadline else None})  # fmt: skip
        return Waited(parked=True)


def replayed(task_id: UUID, number: int, payload: Mapping[str, Any]) -> Signal | None:
    """The signal that the entry of that number consumed, as the drive that consumed it saw it; None: it timed out."""
    if payload["signal"] is None:
        return None
    return Signal(
        pk=UUID(payload["signal"]), task_id=task_id, name=payload["name"], payload=payload["payload"],
        key=payload["key"], sent_by_ref=payload["sent_by"], sent_at=datetime.fromisoformat(payload["sent_at"]),
        consumed_in=number,
    )  # fmt: skip


def _next(task: Task, name: str) -> Signal | None:
    return (
        Signal.objects.using(settings.DATABASE)
        .filter(task_id=task.pk, name=name, consumed_in=None)
        .order_by("position")
        .first()
    )

"""Timed transitions: timers of a state, set when it is entered and deleted when it is left.

The tick makes a supervised task of each timer that is due; a worker sends its event in an atomic step. So nothing
holds a worker meanwhile, an action runs where it may be slow or fail, and a failure is retried and ends as a dead
letter.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.db import models

from supervision.conf import settings
from supervision.engines import starting
from supervision.engines.machines.errors import GuardRejected, InvalidTransition, SubjectBusy, SubjectNotFound
from supervision.engines.machines.models import Standing, Timer
from supervision.engines.steps import Retry
from supervision.errors import SupervisionError
from supervision.kernel.clock import Now
from supervision.kernel.transition import committing

if TYPE_CHECKING:
    from supervision.engines.machines.machine import Machine

RETRY = Retry(attempts=8, first_delay=5, factor=4, max_delay=3600)
"""Of an action that raises: over about four hours, then a person must look."""
_AT_ONCE = 50
"""Timers of one transaction: a sender that leaves one of their states waits for it."""
_SHORT, _MOST_BUSY = 0.1, 10


class TimerOver(SupervisionError):
    """The state was left, or the table has no such timer any more."""


# --- setting them -----------------------------------------------------------------------------------------------------


def arm(machine: Machine, standing: Standing, *, entered: bool, fired: int | None = None) -> None:
    """The timers of the locked subject become those of its state. ``entered``: it came just now; else those that stand
    are kept, those that the table has anew or with another time are set by when it came, and none comes twice."""
    if not machine.table.timed_states and not standing.armed:
        return
    mine = Timer.objects.using(settings.DATABASE).filter(standing_id=standing.pk)
    wanted = armed(machine, standing.state)
    if entered:
        mine.delete()
        mine.bulk_create(_timer(standing, event, Now() + timedelta(seconds=s)) for event, s in wanted.items())
    else:
        if fired is not None:
            mine.filter(pk=fired).delete()
        if standing.armed == wanted:
            return
        _rearm(mine, standing, wanted)
    Standing.objects.using(settings.DATABASE).filter(pk=standing.pk).update(armed=wanted)
    standing.armed = wanted


def _rearm(mine: models.QuerySet[Timer], standing: Standing, wanted: dict[str, float]) -> None:
    mine.exclude(event__in=wanted).delete()
    for event, seconds in wanted.items():
        due_at = standing.since + timedelta(seconds=seconds)
        if event not in standing.armed:
            _timer(standing, event, due_at).save(using=settings.DATABASE, force_insert=True)
        elif standing.armed[event] != seconds:
            mine.filter(event=event, due_at__isnull=False).update(due_at=due_at)


def armed(machine: Machine, state: str) -> dict[str, float]:
    """What ``Standing.armed`` is when the timers of that state are set."""
    return {event: after.total_seconds() for event, after in machine.table.timers(state).items()}


def _timer(standing: Standing, event: str, due_at: Any) -> Timer:
    return Timer(standing_id=standing.pk, event=event, due_at=due_at)


# --- the tick ---------------------------------------------------------------------------------------------------------


def sweep(machines: dict[str, Machine], batch: int) -> int:
    """A task for each timer that is due, of these machines; how many."""
    timed = [name for name, machine in machines.items() if machine.table.timed_states]
    due = Timer.objects.using(settings.DATABASE).filter(due_at__lte=Now(), standing__machine__in=timed)
    done = 0
    while timed and done < batch and due.exists():
        found = _sweep(due, machines, min(_AT_ONCE, batch - done))
        done += found
        if not found:  # somebody else is at them
            break
    return done


def _sweep(due: models.QuerySet[Timer], machines: dict[str, Machine], count: int) -> int:
    """One transaction. No lock that a sender waits for is held while this waits for another."""
    timers = Timer.objects.using(settings.DATABASE)
    with committing("timer"):
        mine = due.select_related("standing").select_for_update(no_key=True, skip_locked=True, of=("self",))
        rows = list(mine.order_by("due_at")[:count])
        for timer in rows:
            machine, subject = machines[timer.standing.machine], timer.standing.subject
            task = starting.start(
                machine.body, {"subject": subject, "event": timer.event, "timer": timer.pk},
                subject=subject, subject_object=machine.stand_in(subject), by="timer",
            )  # fmt: skip
            timers.filter(pk=timer.pk).update(due_at=None, task=task)
    return len(rows)


def adopt(machines: dict[str, Machine], batch: int) -> int:
    """Sets the timers of subjects that came into a timed state unseen, or before the code had the timer; how many.

    Rows that ``bulk_create``, SQL or another release wrote. Their time counts from now; of the others from when they
    came. What somebody holds right now is left to the next time, so that the tick isn't held up.
    """
    busy, done = 0, 0
    for machine in machines.values():
        for key in list(_unarmed(machine, batch)):
            if busy == _MOST_BUSY:
                return done
            try:
                machine.begin(key, wait=_SHORT)
                done += 1
            except SubjectNotFound:
                continue
            except SubjectBusy:
                busy += 1
    return done


def _unarmed(machine: Machine, batch: int) -> Iterator[Any]:
    for state in machine.table.timed_states:
        yield from machine.host.unarmed(state, armed(machine, state))[:batch]


# --- the task ---------------------------------------------------------------------------------------------------------


def fire(machine: Machine, subject: str, event: str, timer: int) -> str:
    """Sends the event of the timer, within the transaction of an atomic step; what came of it."""
    mine = Timer.objects.using(settings.DATABASE).filter(pk=timer)
    try:
        entry = machine.send_timed(subject, event, timer)
    except GuardRejected as rejected:
        mine.update(due_at=Now() + machine.table.timers(rejected.state)[event], task=None)
        return "its guard says no; looked at again after the same time"
    except (TimerOver, InvalidTransition, SubjectNotFound):
        mine.delete()
        return "it has left the state"
    return f"{entry.source} -> {entry.target}"


def refuse_over(machine: Machine, standing: Standing, event: str, timer: int) -> None:
    """Asked under the lock of the standing, in a statement of its own."""
    mine = Timer.objects.using(settings.DATABASE).filter(pk=timer, standing_id=standing.pk, event=event)
    if event not in machine.table.timers(standing.state) or not mine.exists():
        raise TimerOver

"""``send``: lock the row, look up, guard, action, write the state, append to the history. One transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.db import OperationalError, models, transaction
from django.db.models import F

from supervision import signals
from supervision.conf import settings
from supervision.engines.machines import timers
from supervision.engines.machines.definition import Hook, Transition, takes_event
from supervision.engines.machines.errors import (
    GuardRejected,
    InvalidTransition,
    NotPermitted,
    SubjectBusy,
    SubjectMoved,
    Tangled,
)
from supervision.engines.machines.models import MachineEvent, Standing
from supervision.kernel import storable
from supervision.kernel.actors import actor_ref
from supervision.kernel.clock import Now
from supervision.kernel.sql import DEADLOCK, LOCK_NOT_AVAILABLE, connection, sqlstate
from supervision.kernel.transition import committing, refuse_isolation

if TYPE_CHECKING:
    from supervision.engines.machines.machine import Machine


@dataclass(frozen=True)
class Event:
    """What hooks may know of an event. ``number`` is the one that it gets in the history."""

    machine: str
    name: str
    source: str
    target: str
    number: int
    actor: Any = None
    payload: Any = None
    idempotency_key: str = ""
    note: str = ""
    is_timed: bool = False


@dataclass(frozen=True)
class Sent:
    """What the caller of ``send`` gave."""

    name: str
    actor: Any = None
    payload: Any = None
    idempotency_key: str = ""
    expected_generation: int | None = None
    note: str = ""
    timer: int | None = None
    allow: Callable[[Transition], bool] | None = None


def send(machine: Machine, subject: Any, sent: Sent) -> MachineEvent:
    """See ``Machine.send``. Of a ``timer`` that is over: raises ``timers.TimerOver``."""
    key = machine.host.key(subject)
    _check(sent)
    with committing("send"), locked(machine, key) as (row, standing):
        entry = _known(standing, sent) or _move(machine, row, standing, sent)
        state = machine.host.state(row, standing)
    if machine.field is not None and isinstance(subject, models.Model):
        subject.__dict__[machine.field.attname] = state
    return entry


@contextmanager
def locked(machine: Machine, key: str, *, wait: float | None = None) -> Iterator[tuple[Any, Standing]]:
    """The subject and its standing, locked in this order, in the transaction that is open; both as they are after the
    wait, which is bounded (default: LOCK_TIMEOUT_SECONDS) by SubjectBusy. A state that was changed by other means is
    put down in the history."""
    with _bounded(machine.name, key, settings.LOCK_TIMEOUT_SECONDS if wait is None else wait):
        row = machine.host.lock(key)
        standing = _standing(machine, key, row)
    state = machine.host.state(row, standing)
    standing.seen_as = standing.generation
    if standing.state != state:
        _append(standing, MachineEvent(event="", source=standing.state, target=state), changed=True)
        timers.arm(machine, standing, entered=True)
    yield row, standing


def _move(machine: Machine, row: Any, standing: Standing, sent: Sent) -> MachineEvent:
    state = standing.state
    if sent.timer is not None:
        timers.refuse_over(machine, standing, sent.name, sent.timer)
    if sent.expected_generation is not None and sent.expected_generation != standing.seen_as:
        raise SubjectMoved(machine.name, standing.subject, state, standing.seen_as, sent.expected_generation)
    transition, event = _chosen(machine, row, standing, sent)
    is_left = transition.target != state
    if is_left:
        call(machine.table.on_exit.get(state), row, event)
    call(transition.action, row, event)
    entry = MachineEvent(
        event=sent.name, source=state, target=transition.target, payload=sent.payload, note=storable.text(sent.note),
        idempotency_key=sent.idempotency_key, actor_ref=actor_ref(sent.actor), is_timed=sent.timer is not None,
    )  # fmt: skip
    if not _append(standing, entry, changed=is_left):
        raise Tangled(machine.name, standing.subject, sent.name)
    machine.host.move(row, transition.target)
    timers.arm(machine, standing, entered=is_left, fired=sent.timer)
    if is_left:
        call(machine.table.on_enter.get(transition.target), row, event)
    _after_commit(transition, row, event)
    _announce(machine, standing, entry)
    return entry


def _chosen(machine: Machine, row: Any, standing: Standing, sent: Sent) -> tuple[Transition, Event]:
    """The first transition whose guard says yes. Raises what tells why there is none."""
    state = standing.state
    candidates = machine.table.rows.get((state, sent.name), ())
    for transition in candidates:
        event = Event(machine.name, sent.name, state, transition.target, standing.generation + 1, sent.actor,
                      sent.payload, sent.idempotency_key, sent.note, sent.timer is not None)  # fmt: skip
        if not passes(transition, row, event):
            continue
        if not may(sent.actor, transition, row) or not (sent.allow is None or sent.allow(transition)):
            raise NotPermitted(
                machine.name, standing.subject, state, sent.name, offered(machine, row, state, sent.actor)
            )
        return transition, event
    refusal = GuardRejected if candidates else InvalidTransition
    raise refusal(machine.name, standing.subject, state, sent.name, offered(machine, row, state, sent.actor))


def offered(machine: Machine, row: Any, state: str, user: Any) -> dict[str, Transition]:
    """Event -> the transition that it would take, for all that the guards, and the user's permissions, allow."""
    found = {}
    for name, candidates in machine.table.leaving(state).items():
        for each in candidates:
            if passes(each, row, Event(machine.name, name, state, each.target, 0, user)):
                if may(user, each, row):
                    found[name] = each
                break
    return found


def passes(transition: Transition, row: Any, event: Event) -> bool:
    return transition.guard is None or bool(call(transition.guard, row, event))


def may(actor: Any, transition: Transition, row: Any) -> bool:
    """Permissions are asked of users. Nobody, or a name, is the host's own code."""
    wanted = transition.permission
    if wanted is None or not hasattr(actor, "has_perm"):
        return True
    if callable(wanted):
        return bool(actor.is_active and wanted(actor, row))
    return bool(actor.is_active and (actor.has_perm(wanted) or actor.has_perm(wanted, row)))


def call(hook: Hook | None, row: Any, event: Event) -> Any:
    if hook is None:
        return None
    return hook(row, event) if takes_event(hook) else hook(row)


# --- rows -------------------------------------------------------------------------------------------------------------


def _check(sent: Sent) -> None:
    storable.name(sent.name, place="event")
    storable.encode(sent.payload, place=f"the payload of {sent.name}", limit="MAX_PAYLOAD_BYTES")
    if sent.idempotency_key:
        storable.name(sent.idempotency_key, place="idempotency_key")


@contextmanager
def _bounded(machine: str, key: str, seconds: float) -> Iterator[None]:
    """Lock waits within end after so long. Refuses other isolation levels."""
    with connection().cursor() as cursor:
        cursor.execute(
            "SELECT current_setting('transaction_isolation'), current_setting('lock_timeout'), "
            "set_config('lock_timeout', %s, true)",
            [f"{int(seconds * 1000)}ms"],
        )
        level, before, _now = cursor.fetchone()
        refuse_isolation(level)
        try:
            yield
        except OperationalError as error:
            if sqlstate(error) in (LOCK_NOT_AVAILABLE, DEADLOCK):
                raise SubjectBusy(machine, key) from None
            raise
        # SET LOCAL would last until the end of a caller's transaction
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])


def _standing(machine: Machine, key: str, row: Any) -> Standing:
    """The subject's, locked; made, if this is its first event."""
    standings = Standing.objects.using(settings.DATABASE)
    mine = standings.select_for_update(no_key=True).filter(machine=machine.name, subject=key)
    found = mine.first()
    if found is None:
        begun = Standing(machine=machine.name, subject=key, state=machine.host.state(row, None))
        standings.bulk_create([begun], ignore_conflicts=True)
        found = mine.get()
    return found


def _known(standing: Standing, sent: Sent) -> MachineEvent | None:
    """The same event under the same key, if it was accepted. Asked after the lock, in a statement of its own."""
    if not sent.idempotency_key:
        return None
    entries = MachineEvent.objects.using(settings.DATABASE).filter(standing_id=standing.pk, event=sent.name)
    entry = entries.filter(idempotency_key=sent.idempotency_key).first()
    if entry is not None:
        entry.is_repeated = True
    return entry


def _append(standing: Standing, entry: MachineEvent, *, changed: bool) -> bool:
    """Moves the standing and appends to its history; False, with nothing written, if it isn't where it was read."""
    columns: dict[str, Any] = {"state": entry.target, "generation": F("generation") + 1}
    if changed:
        columns["since"] = Now()
    here = Standing.objects.using(settings.DATABASE).filter(pk=standing.pk, generation=standing.generation)
    if not here.update(**columns):
        return False
    standing.generation += 1
    standing.state = entry.target
    entry.standing_id, entry.sequence_num = standing.pk, standing.generation
    entry.save(using=settings.DATABASE, force_insert=True)
    return True


def _after_commit(transition: Transition, row: Any, event: Event) -> None:
    """Robust: the event has happened, whatever becomes of this."""

    def after_commit() -> None:  # no partial: Django names it in its log
        call(transition.after_commit, row, event)

    if transition.after_commit is not None:
        transaction.on_commit(after_commit, using=settings.DATABASE, robust=True)


def _announce(machine: Machine, standing: Standing, entry: MachineEvent) -> None:
    """Tells Django's receivers, after the (outermost) commit. Never fails the event."""
    facts: Mapping[str, Any] = {
        "machine": machine.name, "subject": standing.subject, "event": entry.event, "source": entry.source,
        "target": entry.target, "sequence_num": entry.sequence_num,
    }  # fmt: skip

    def tell() -> None:
        signals.machine_moved.send_robust(sender=Standing, **facts)

    if signals.machine_moved.receivers:
        transaction.on_commit(tell, using=settings.DATABASE, robust=True)

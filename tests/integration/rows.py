"""Tasks brought to a state by the kernel's own verbs, and what must always hold of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from supervision.kernel import creation, lease, questions
from supervision.kernel.lease import Worker
from supervision.kernel.models import Heartbeat, LogEntry, Question, Task
from supervision.kernel.question_form import Ask

BODY = "test.nobody"
"""Registered nowhere: these tests call the verbs themselves."""
WORKER = Worker("tester:1", "a host", 1)
OTHER = Worker("tester:2", "another host", 2)


class Running(NamedTuple):
    pk: UUID
    lease: int


class Waiting(NamedTuple):
    pk: UUID
    lease: int
    questions: dict[str, UUID]


def due(**options: Any) -> UUID:
    """A new task that may be taken."""
    return creation.create(BODY, **options).pk


def running(**options: Any) -> Running:
    """A task that ``WORKER`` drives."""
    pk = due(**options)
    taken = lease.take(pk, 0, WORKER)
    assert taken is not None
    return Running(pk, taken.lease)


def waiting(*keys: str, asks: Sequence[Ask] = (), **options: Any) -> Waiting:
    """A task that is parked until its questions (default: one, ``q``) are answered."""
    pk, held = running(**options)
    questions.ask(pk, held, list(asks) or [Ask(key, f"{key}?") for key in keys or ("q",)])
    return Waiting(pk, held, dict(Question.objects.filter(task_id=pk).values_list("key", "pk")))


def ended(**options: Any) -> UUID:
    """A completed task."""
    from supervision.kernel import ends

    pk, held = running(**options)
    ends.complete(pk, held, {"ok": True})
    return pk


def fresh(pk: UUID) -> Task:
    return Task.objects.get(pk=pk)


def whole(pk: UUID) -> dict[str, Any]:
    """Every column of the row."""
    names: list[Any] = [field.attname for field in Task._meta.concrete_fields]
    row: dict[str, Any] = Task.objects.filter(pk=pk).values(*names).get()
    return row


def events(pk: UUID) -> list[str]:
    return list(LogEntry.objects.filter(task_id=pk).order_by("sequence_num").values_list("event", flat=True))


def payload(pk: UUID, event: str) -> dict[str, Any]:
    """Of the only entry with that event."""
    found: dict[str, Any] = LogEntry.objects.get(task_id=pk, event=event).payload
    return found


def lose_worker(pk: UUID) -> None:
    """As if its worker had not beaten for an hour."""
    from datetime import timedelta

    from django.db.models import F

    Heartbeat.objects.filter(task_id=pk).update(beat_at=F("beat_at") - timedelta(hours=1))


def assert_sound(pk: UUID) -> None:
    """What holds of a task after any commit: its log is gapless, and it waits for nothing that has happened."""
    task = fresh(pk)
    numbers = list(LogEntry.objects.filter(task_id=pk).order_by("sequence_num").values_list("sequence_num", flat=True))
    assert numbers == list(range(1, task.log_length + 1))
    asks = task.watchdog_stop_reason.startswith("awaiting_user_answer")
    if task.current_state == "parked" and asks and not Question.objects.filter(task_id=pk).pending().exists():
        assert task.wake_at is not None, "it is parked with all its questions answered"
    if task.current_state == "parked" and task.ending:
        assert task.wake_at is not None, "nobody will unwind it"
    leases = list(LogEntry.objects.filter(task_id=pk).order_by("sequence_num").values_list("lease", flat=True))
    assert leases == sorted(leases), "a lease went back"
    takes = [each for each in events(pk) if each == "task_taken"]
    owners = set(LogEntry.objects.filter(task_id=pk, event="task_taken").values_list("lease", flat=True))
    assert len(owners) == len(takes), "two takes of one lease"

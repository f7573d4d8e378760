"""What a host project's test-suite needs: drive tasks without a cluster, script the person, travel in time.

Works inside ``TestCase`` (everything in its one transaction) and outside of it.

>>> task = start("onboarding", {"user_id": 7})
>>> run_until_idle()
>>> answer(task, {"approve_budget": "yes"})
>>> with travel(timedelta(hours=73)):
...     run_until_idle()
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from django.db import connections
from django.db.backends.signals import connection_created
from django.utils import timezone

from supervision.conf import settings
from supervision.engines import registry
from supervision.engines.registry import Body
from supervision.kernel import due, questions
from supervision.kernel.models import Question, Task
from supervision.worker.drive import drive_one
from supervision.worker.tick import ADOPT_BATCH, adopt, tick

_MANY = 10_000


def run_until_idle(*, limit: int = _MANY) -> int:
    """Ticks and drives, in this process, until nothing is due; the number of drives. Raises after ``limit`` of them."""
    drives = 0
    for _ in range(_MANY):
        if adopt() < ADOPT_BATCH:
            break
    while True:
        tick()
        offers = due.offer(100, queues=None, bodies=registry.drivable(), version_grace=timedelta(0))
        if not offers:
            return drives
        for offered in offers:
            drives += drive_one(offered.task_id, offered.lease, stopping=lambda: False, thread=False)
            if drives > limit:
                raise AssertionError(f"still busy after {limit} drives: does a body wake itself without end?")


def answer(task: Task, answers: Mapping[str, Any], *, by: Any = "test", via: str = "testing") -> None:
    """Answers the task's pending questions by key. AssertionError names a key that isn't pending."""
    for key, value in answers.items():
        question = Question.objects.using(settings.DATABASE).filter(task_id=task.pk, key=key).pending().first()
        if question is None:
            pending = Question.objects.using(settings.DATABASE).filter(task_id=task.pk).pending()
            raise AssertionError(f"no pending question {key!r}; pending: {sorted(q.key for q in pending)}")
        questions.answer(question.pk, value, by=by, via=via)


@contextmanager
def travel(shift: timedelta) -> Iterator[None]:
    """Within, the database's clock (of this process's connections) and Python's run ``shift`` ahead, or behind.

    Python's clock needs the package ``time-machine`` (extra ``testing``).
    """
    import time_machine  # noqa: PLC0415 - only this function needs it, and only in a test-suite

    database = connections[settings.DATABASE]
    before = _shift_of(database)
    total = before + shift

    def shift_new(sender: Any, connection: Any, **kwargs: Any) -> None:
        if connection.alias == settings.DATABASE:
            _set_shift(connection, total)

    connection_created.connect(shift_new, weak=False)
    _set_shift(database, total)
    try:
        with time_machine.travel(timezone.now() + shift, tick=True):
            yield
    finally:
        connection_created.disconnect(shift_new)
        _set_shift(database, before)


def _shift_of(connection: Any) -> timedelta:
    with connection.cursor() as cursor:
        cursor.execute("SELECT COALESCE(NULLIF(current_setting('supervision.clock_shift', true), ''), '0')::interval")
        shift: timedelta = cursor.fetchone()[0]
    return shift


def _set_shift(connection: Any, shift: timedelta) -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT set_config('supervision.clock_shift', %s, false)", [f"{shift.total_seconds():.6f} seconds"]
        )


@contextmanager
def registered(*bodies: Body) -> Iterator[None]:
    """Registers bodies for a while and takes them out again."""
    for body in bodies:
        registry.register(body)
    try:
        yield
    finally:
        for body in bodies:
            registry.unregister(body.name)


def prune_all(using: str | None = None) -> None:
    """Empties the kernel's tables through the log's own door, live tasks included. For a test database only."""
    database = using or settings.DATABASE
    with connections[database].cursor() as cursor:
        cursor.execute(_PRUNE_ALL)


# One simple-protocol round trip; the tasks that live are ended first, since only ended ones may leave.
_PRUNE_ALL = """
BEGIN;
UPDATE supervision_task SET current_state = 'cancelled', watchdog_stop_reason = 'test_flush', wake_at = NULL
 WHERE current_state IN ('pending', 'running', 'parked');
INSERT INTO supervision_tombstone (task_id, owner_ref, body, idempotency_key, final_state, log_length)
SELECT id, owner_ref, body, '', current_state, log_length FROM supervision_task;
UPDATE supervision_standing SET is_leaving = true;
DELETE FROM supervision_timer;
DELETE FROM supervision_machineevent;
DELETE FROM supervision_standing;
DELETE FROM supervision_visit;
DELETE FROM supervision_pointer;
DELETE FROM supervision_node;
DELETE FROM supervision_plan;
DELETE FROM supervision_logentry;
DELETE FROM supervision_notice;
DELETE FROM supervision_vote;
DELETE FROM supervision_question;
DELETE FROM supervision_signal;
DELETE FROM supervision_heartbeat;
DELETE FROM supervision_start;
DELETE FROM supervision_task;
COMMIT;
"""


class PruneBeforeFlush:
    """Mix into a ``TransactionTestCase`` (before it): its flush truncates all tables, which the log refuses while it
    has entries. This empties the log through its own door first.

    >>> class OrderTests(PruneBeforeFlush, TransactionTestCase): ...
    """

    def _fixture_teardown(self) -> None:
        if settings.DATABASE in self._databases_names(include_mirrors=False):  # type: ignore[attr-defined]
            prune_all()
        super()._fixture_teardown()  # type: ignore[misc]

"""THE write: lock the row, read it and the clock after the lock, check table and token, update, append to the log.

Every verb reads alike::

    with committing("pause"), locked(task_id, expected_generation=7) as task:
        ...guards on the fresh row...
        write(task, event="pause_requested", bump=True, pause_requested_at=task.db_now)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar
from uuid import UUID

from django.db import DatabaseError, OperationalError, transaction

from supervision import signals
from supervision.conf import settings
from supervision.errors import (
    Busy,
    Conflict,
    IllegalTransition,
    InsideTransaction,
    LeaseLost,
    TaskNotFound,
    WrongIsolation,
)
from supervision.kernel import crash, masking
from supervision.kernel.models import Heartbeat, LogEntry, Task
from supervision.kernel.sql import DEADLOCK, LOCK_NOT_AVAILABLE, RETRYABLE, connection, sqlstate
from supervision.kernel.states import TERMINAL, TRANSITIONS, State

P = ParamSpec("P")
R = TypeVar("R")

events_log = logging.getLogger("supervision.events")

CHANNEL = "supervision_wake"
_TRIES = 5


def refuse_open_transaction() -> None:
    """Raises InsideTransaction where a rollback that isn't ours would undo a worker's write.

    A ``TestCase``'s own transaction is no obstacle: it stands for the whole database of that test.
    """
    blocks = connection().atomic_blocks
    if blocks and not blocks[-1]._from_testcase:
        raise InsideTransaction


def refuse_isolation(level: str) -> None:
    """Raises WrongIsolation unless ``level``, PostgreSQL's transaction_isolation, is READ COMMITTED."""
    if level != "read committed":
        raise WrongIsolation(level)


def retried(verb: Callable[P, R]) -> Callable[P, R]:
    """A worker's verb that is tried again after a deadlock, a serialization failure, a lock or statement timeout.

    Each of these means that its transaction did nothing, so under the same lease it may simply be repeated. Refuses an
    open transaction, whose rollback would undo the verb.
    """

    @wraps(verb)
    def again(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_open_transaction()
        for left in range(_TRIES - 1, -1, -1):
            try:
                return verb(*args, **kwargs)
            except Busy:
                if left == 0:  # a child's row, which a client holds
                    raise
            except DatabaseError as error:
                if left == 0 or sqlstate(error) not in RETRYABLE:
                    raise
        raise AssertionError("unreachable")

    return again


@contextmanager
def committing(verb: str) -> Iterator[None]:
    """One transaction of the kernel with its crash points around the commit.

    Inside a caller's transaction it is a savepoint, and the outer commit is the caller's.
    """
    with transaction.atomic(using=settings.DATABASE):
        yield
        crash.point(f"{verb}:before_commit")
    crash.point(f"{verb}:after_commit")


@contextmanager
def locked(task_id: UUID | str, *, lease: int | None = None, expected_generation: int | None = None) -> Iterator[Task]:
    """The task's fresh row, NO KEY locked until the end of the surrounding transaction.

    The lock is one statement and the reading another: what a lock wait has changed is seen, and ``task.db_now`` and
    ``task.is_overdue`` are judged by the database's clock after the wait. A worker brings its ``lease`` and gets
    LeaseLost unless the task runs under exactly that one; a client may bring ``expected_generation`` and gets Conflict
    on a mismatch. Without a lease a lock wait is bounded, by Busy.
    """
    _lock(task_id, bounded=lease is None)
    task = Task.objects.using(settings.DATABASE).with_clock().get(pk=task_id)
    if lease is not None and (task.lease != lease or task.current_state != State.RUNNING):
        raise LeaseLost
    if expected_generation is not None and task.generation != expected_generation:
        raise Conflict(task, expected_generation)
    yield task


def lock_each(task_ids: Sequence[UUID]) -> None:
    """Locks these rows in the order of their ids, in one statement. Read them in another one: what a wait has changed
    is seen then, and who is gone. Raises Busy after LOCK_TIMEOUT_SECONDS."""
    with connection().cursor() as cursor:
        rows = _locked_rows(cursor, _LOCK_EACH, {"task_ids": list(task_ids)}, task_ids[0], bounded=True)
    if rows:
        refuse_isolation(rows[0][0])


_LOCK_EACH = """
SELECT current_setting('transaction_isolation') FROM supervision_task
 WHERE id = ANY (%(task_ids)s::uuid[]) ORDER BY id
   FOR NO KEY UPDATE
"""


def _lock(task_id: UUID | str, *, bounded: bool) -> None:
    """Locks the row; refuses other isolation levels; ``bounded`` waits no longer than LOCK_TIMEOUT_SECONDS."""
    with connection().cursor() as cursor:
        rows = _locked_rows(cursor, LOCK, {"task_id": str(task_id)}, task_id, bounded=bounded)
    if not any(is_it for is_it, _ in rows):
        raise TaskNotFound(task_id)
    refuse_isolation(rows[0][1])


def _locked_rows(cursor: Any, query: str, parameters: dict[str, Any], task_id: object, *, bounded: bool) -> list[Any]:
    before = None
    if bounded:
        cursor.execute(
            "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)",
            [f"{int(settings.LOCK_TIMEOUT_SECONDS * 1000)}ms"],
        )
        before = cursor.fetchone()[0]
    try:
        cursor.execute(query, parameters)
    except OperationalError as error:
        if bounded and sqlstate(error) in (LOCK_NOT_AVAILABLE, DEADLOCK):
            raise Busy(task_id) from None
        raise
    rows: list[Any] = cursor.fetchall()
    if bounded:
        # SET LOCAL would last until the end of a caller's transaction
        cursor.execute("SELECT set_config('lock_timeout', %s, true)", [before])
    return rows


# A child's end counts down what its parent waits for, so the parent is locked first: root before leaf, always.
LOCK = """
SELECT id = %(task_id)s::uuid AS is_it, current_setting('transaction_isolation')
  FROM supervision_task
 WHERE id = %(task_id)s::uuid OR id = (SELECT parent_id FROM supervision_task WHERE id = %(task_id)s::uuid)
 ORDER BY is_it
   FOR NO KEY UPDATE
"""


def write(
    task: Task,
    *,
    event: str,
    to: State | None = None,
    reason: str | None = None,
    bump: bool = False,
    name: str = "",
    payload: dict[str, Any] | None = None,
    actor: str = "",
    wake: bool = False,
    decisions: Mapping[str, Any] | None = None,
    **columns: Any,
) -> Task:
    """Updates the locked ``task`` and appends the entry that tells why; raises IllegalTransition off the table.

    ``columns`` are further columns of the row. ``bump`` for what a client could act on. ``wake`` makes the task due
    now; ``decisions``, where given, become the row's. Setting ``wake_at`` notifies the brokers at the commit, once per
    transaction. Returns the task as it now stands.
    """
    if wake:
        columns["wake_at"] = task.db_now
    if decisions is not None:
        columns["locked_decisions"] = decisions
    if to is not None:
        if (task.current_state, to) not in TRANSITIONS:
            raise IllegalTransition(task.current_state, to)
        columns |= {"current_state": to, "state_changed_at": task.db_now, "watchdog_stop_reason": reason or ""}
        if to in TERMINAL:
            columns |= {"finished_at": task.db_now, "wake_at": None, "offered_until": None}
    columns["log_length"] = task.log_length + 1
    if bump:
        columns["generation"] = task.generation + 1
    Task.objects.using(settings.DATABASE).filter(pk=task.pk).update(**columns)
    for column, value in columns.items():
        setattr(task, column, value)
    if "lease" in columns:  # moved without a take: the old worker's beats must find nothing either
        Heartbeat.objects.using(settings.DATABASE).filter(task_id=task.pk).update(lease=task.lease)
    LogEntry.objects.using(settings.DATABASE).create(
        task_id=task.pk,
        sequence_num=task.log_length,
        event=event,
        name=name,
        payload=payload or {},
        lease=task.lease,
        actor_ref=actor,
    )
    if columns.get("wake_at") is not None:
        notify()
    announce(task, event)
    return task


def notify() -> None:
    """Wakes the brokers at the commit; PostgreSQL folds equal notifications of one transaction into one."""
    with connection().cursor() as cursor:
        cursor.execute(f"NOTIFY {CHANNEL}")


def announce(task: Any, event: str) -> None:
    """Tells Django's receivers and the structured log, after the (outermost) commit. Never fails the verb."""
    if not is_heard(event):
        return
    facts = {
        "task_id": task.pk,
        "body": task.body,
        "event": event,
        "state": str(task.current_state),
        "reason": masking.mask_values(task.watchdog_stop_reason, task.secrets),
        "generation": task.generation,
        "lease": task.lease,
        "sequence_num": task.log_length,
    }

    def tell() -> None:
        events_log.info("%s %s %s", facts["body"], facts["task_id"], event, extra=facts)
        receivers = getattr(signals, event, None)
        if receivers is not None:
            receivers.send_robust(sender=Task, **facts)

    transaction.on_commit(tell, using=settings.DATABASE, robust=True)


def announce_written(event: str, rows: Iterable[Sequence[Any]], *, state: State, reason: str = "") -> None:
    """``announce`` for what a statement of its own wrote: rows that begin with id, body, lease, generation and
    log_length of tasks which now are in that state, for that reason."""
    for pk, body, lease, generation, log_length, *_more in rows if is_heard(event) else ():
        facts: dict[str, Any] = {"lease": lease, "generation": generation, "log_length": log_length}
        announce(Task(pk=pk, body=body, current_state=state, watchdog_stop_reason=str(reason), **facts), event)


def is_heard(event: str) -> bool:
    """Whether anybody listens to that event: else no ``Task`` is made for nothing."""
    receivers = getattr(signals, event, None)
    return bool(receivers is not None and receivers.receivers) or events_log.isEnabledFor(logging.INFO)

"""Take, checkpoint, park, beat: what a worker may do. How it loses the right to is ``reaping``'s.

Every write of a worker carries its lease. The statements of the hot path stand here as SQL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from supervision.errors import LeaseLost
from supervision.kernel import branches as branching
from supervision.kernel import crash, limits, sql, storable
from supervision.kernel.branches import Branch
from supervision.kernel.identity import Worker, host_identity
from supervision.kernel.limits import Limit
from supervision.kernel.reaping import reap, reap_process
from supervision.kernel.states import Reason, State
from supervision.kernel.transition import announce_written, committing, locked, refuse_isolation, retried, write

__all__ = ["Requests", "Taken", "Worker", "beat", "checkpoint", "host_identity", "park", "reap", "reap_process",
           "record_in_transaction", "take"]  # fmt: skip


@dataclass(frozen=True)
class Requests:
    """What was asked of a running task, as one statement saw it."""

    pause: bool = False
    ending: str = ""
    ending_reason: str = ""
    is_overdue: bool = False

    def __bool__(self) -> bool:
        return self.pause or bool(self.ending) or self.is_overdue


_NOTHING = Requests()


@dataclass
class Taken:
    """A won take: all that the drive starts from. ``lease`` fences each of its writes."""

    task_id: UUID
    lease: int
    body: str
    body_version: int
    arguments: dict[str, Any]
    sensitive: list[str]
    decisions: dict[str, Any]
    log_length: int
    recoveries: int
    subject: str
    owner_id: Any
    root_id: UUID
    version_at_start: int
    replay_from: int
    round: int
    is_child: bool
    run_id: UUID | None
    """Its parent, if it is a node of that run."""
    worker: str
    requests: Requests


# --- take -------------------------------------------------------------------------------------------------------------

_TAKE_LOCK = """
SELECT current_setting('transaction_isolation') FROM supervision_task WHERE id = %(task_id)s::uuid FOR NO KEY UPDATE
"""

_MAY_TAKE = """
           task.id = %(task_id)s::uuid AND task.lease = %(lease)s AND task.current_state IN ('pending', 'parked')
       AND task.wake_at <= supervision_now_v1()
       AND current_setting('transaction_isolation') = 'read committed'
       AND NOT EXISTS (SELECT 1 FROM supervision_hold AS hold
                        WHERE hold.released_at IS NULL
                          AND (hold.kind, hold.name) IN (('body', task.body), ('queue', task.queue)))
       AND (task.ending <> '' OR (task.pause_requested_at IS NULL
                                  AND (task.expires_at IS NULL OR task.expires_at > supervision_now_v1())))
"""

# A statement of its own after the lock: its clock is read after the wait, so nothing expired is taken. (All are sent
# in one go, so the second can't wait for what Python thinks of the first: it looks at the isolation level itself.)
_TAKE = f"""
WITH task AS (
    UPDATE supervision_task AS task
       SET current_state = 'running', watchdog_stop_reason = '', state_changed_at = supervision_now_v1(),
           started_at = COALESCE(started_at, supervision_now_v1()),
           lease = lease + 1, wake_at = NULL, offered_until = NULL, log_length = log_length + 1
     WHERE {_MAY_TAKE}
    RETURNING *
), beat AS (
    INSERT INTO supervision_heartbeat AS heartbeat
           (task_id, lease, worker, host, pid, process_started, started_at, beat_at, progress_text)
    SELECT id, lease, %(worker)s, %(host)s, %(pid)s, %(started)s, supervision_clock_v1(), supervision_clock_v1(), ''
      FROM task
    ON CONFLICT (task_id) DO UPDATE
       SET lease = excluded.lease, worker = excluded.worker, host = excluded.host, pid = excluded.pid,
           process_started = excluded.process_started, started_at = excluded.started_at, beat_at = excluded.beat_at
     WHERE heartbeat.lease < excluded.lease
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, log_length, 'task_taken', '', %(note)s::jsonb, lease, %(worker)s FROM task
){{start}}
SELECT id, lease, body, body_version, arguments::text, sensitive::text, locked_decisions::text, log_length, recoveries,
       subject, owner_id, COALESCE(root_id, id), ending, ending_reason, generation, version_at_start, replay_from,
       round, parent_id IS NOT NULL, CASE WHEN parent_step LIKE 'node:%%' THEN parent_id END
  FROM task
"""  # noqa: S608 - constants only
_TAKE_ANY = _TAKE.format(start="")
_TAKE_LIMITED = _TAKE.format(start=limits.START)
_PARK_IF_FULL = limits.PARK_IF_FULL.format(may_take=_MAY_TAKE)


@retried
def take(
    task_id: UUID | str,
    lease: int,
    worker: Worker | None = None,
    *,
    note: Mapping[str, Any] | None = None,
    body: str = "",
    limit: Limit | None = None,
) -> Taken | None:
    """Wins the right to drive the task, or None: somebody else has it, it isn't due, is held, has expired or ended.

    ``lease`` is the row's when it was offered; afterwards the row's is one more, so a second package of one offer
    matches nothing. One short transaction in one round trip: row lock; then update, beat row and entry in one
    statement. A task that is being ended is taken for unwinding even if it is held or past its expiry. ``note`` is the
    entry's payload.

    ``limit`` is that of its ``body``: with no slot free the task is parked ``awaiting_slot`` instead, under its old
    lease, and the answer is None. Then the body's slot lock comes first, so that no two takes count at once; and
    whoever drove calls ``limits.wake_next`` in the end.
    """
    by = worker or Worker.current()
    parameters = {
        "task_id": str(task_id), "lease": lease, "note": json.dumps(note or {}),
        "worker": by.name, "host": by.host, "pid": by.pid, "started": by.started,
    }  # fmt: skip
    crash.point("take:before_commit")
    parked: list[tuple[Any, ...]] = []
    if limit:
        parameters |= limit.parameters(body)
        _slot, levels, parked, rows = sql.together(
            (limits.SLOT_LOCK, parameters), (_TAKE_LOCK, parameters), (_PARK_IF_FULL, parameters),
            (_TAKE_LIMITED, parameters),
        )  # fmt: skip
    else:
        levels, rows = sql.together((_TAKE_LOCK, parameters), (_TAKE_ANY, parameters))
    for (level,) in levels:
        refuse_isolation(level)
    crash.point("take:after_commit")
    announce_written("task_parked", parked, state=State.PARKED, reason=Reason.AWAITING_SLOT)
    if not rows:
        return None
    row = rows[0]
    announce_written("task_taken", [(row[0], row[2], row[1], row[14], row[7])], state=State.RUNNING)
    return Taken(
        task_id=row[0], lease=row[1], body=row[2], body_version=row[3], arguments=json.loads(row[4]),
        sensitive=json.loads(row[5]), decisions=json.loads(row[6]), log_length=row[7], recoveries=row[8],
        subject=row[9], owner_id=row[10], root_id=row[11], version_at_start=row[15], replay_from=row[16], round=row[17],
        is_child=row[18], run_id=row[19], worker=by.name, requests=Requests(ending=row[12], ending_reason=row[13]),
    )  # fmt: skip


# --- checkpoint -------------------------------------------------------------------------------------------------------

_CHECKPOINT = """
WITH task AS (
    UPDATE supervision_task
       SET log_length = log_length + 1, recoveries = CASE WHEN %(is_progress)s THEN 0 ELSE recoveries END,
           compensations_outstanding = GREATEST(0, compensations_outstanding + %(compensations)s::int),
           locked_decisions = COALESCE(%(decisions)s::jsonb, locked_decisions)
     WHERE id = %(task_id)s::uuid AND lease = %(lease)s AND current_state = 'running'
    RETURNING id, log_length, lease, pause_requested_at IS NOT NULL AS pause, ending, ending_reason,
              COALESCE(expires_at <= supervision_now_v1(), false) AS is_overdue, supervision_now_v1() AS now
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, log_length, %(event)s, %(name)s, %(payload)s::jsonb, lease, '' FROM task
)"""
_OBSERVED = """
SELECT CASE WHEN pause OR ending <> '' OR is_overdue
            THEN ARRAY[pause::text, ending, ending_reason, is_overdue::text] END
  FROM task
"""

_REPEATED = frozenset({"message_logged", "unwinding_started", "task_checkpointed"})
"""What each drive writes again on its way to where the last one died: no sign that it will get any further."""


def record_in_transaction(
    task_id: UUID | str,
    lease: int,
    *,
    event: str,
    name: str,
    payload: str,
    decisions: str | None = None,
    compensations: int = 0,
    branches: Sequence[Branch] = (),
) -> Requests:
    """``checkpoint`` as the last statement of the caller's open transaction: an atomic step's record, which commits
    with the author's effects or not at all. The effects come first, so the task's row is locked last."""
    rows = sql.run(
        branching.spliced(_CHECKPOINT, branches, _OBSERVED),
        {
            "task_id": str(task_id), "lease": lease, "event": event, "name": name, "payload": payload,
            "decisions": decisions, "is_progress": event not in _REPEATED or decisions is not None,
            "compensations": compensations, **branching.parameters(branches),
        },
    )  # fmt: skip
    if not rows:
        raise LeaseLost
    asked = rows[0][0]
    if asked is None:
        return _NOTHING
    pause, ending, ending_reason, is_overdue = asked
    return Requests(pause == "true", ending, ending_reason, is_overdue == "true")


@retried
def checkpoint(
    task_id: UUID | str,
    lease: int,
    *,
    event: str = "task_checkpointed",
    name: str = "",
    payload: str = "{}",
    decisions: str | None = None,
    compensations: int = 0,
    branches: Sequence[Branch] = (),
) -> Requests:
    """Makes progress durable: one statement, one round trip, one commit. Returns what was asked of the task meanwhile.

    ``payload`` and ``decisions`` are JSON texts from ``storable.encode``; None leaves the decisions as they are.
    ``compensations`` is 1 for a step that has one, -1 for a step undone; ``branches`` write an engine's own rows in the
    same statement. Raises LeaseLost, having written nothing, unless the task runs under this lease. A task past its
    expiry is recorded all the same (the work was done) and says so.
    """
    crash.point("checkpoint:before_commit")
    requests = record_in_transaction(
        task_id, lease, event=event, name=name, payload=payload, decisions=decisions, compensations=compensations,
        branches=branches,
    )  # fmt: skip
    crash.point("checkpoint:after_commit")
    return requests


# --- park -------------------------------------------------------------------------------------------------------------


@retried
def park(
    task_id: UUID | str,
    lease: int,
    reason: str,
    *,
    wake_after: timedelta | None = None,
    actor: str = "",
    payload: Mapping[str, Any] | None = None,
    decisions: Mapping[str, Any] | None = None,
    name: str = "",
    while_ending: bool = False,
    branches: Sequence[Branch] = (),
) -> None:
    """Parks the running task; due after ``wake_after`` of the database's clock, or when somebody wakes it if None.

    For waits that nothing outside can satisfy meanwhile; a wait for an answer or a signal checks it under the lock and
    has a verb of its own. ``decisions``, where given, become the row's in the same commit, and ``branches`` write an
    engine's own rows in it. A task that is being ended is due at once instead, unless ``while_ending``. Raises
    LeaseLost.
    """
    with committing("park"), locked(task_id, lease=lease) as task:
        wake_at = (
            task.db_now
            if task.ending and not while_ending
            else None
            if wake_after is None
            else task.db_now + wake_after
        )
        write(
            task,
            to=State.PARKED,
            reason=reason,
            event="task_parked",
            bump=reason == Reason.USER_PAUSED,
            actor=actor,
            name=name,
            payload={"reason": reason, **(payload or {})},
            wake_at=wake_at,
            decisions=decisions,
        )
        branching.run(task_id, branches)


# --- beat -------------------------------------------------------------------------------------------------------------

# Locked first: an UPDATE that waits for a row which is then merely unlocked keeps the time that it computed before.
_BEAT = """
WITH mine AS MATERIALIZED (
    SELECT task_id FROM supervision_heartbeat
     WHERE task_id = %(task_id)s::uuid AND lease = %(lease)s
       FOR NO KEY UPDATE
)
UPDATE supervision_heartbeat AS heartbeat
   SET beat_at = supervision_clock_v1(),
       progress_done = COALESCE(%(done)s::bigint, progress_done),
       progress_total = COALESCE(%(total)s::bigint, progress_total),
       progress_text = COALESCE(%(text)s::text, progress_text)
  FROM mine WHERE heartbeat.task_id = mine.task_id AND heartbeat.lease = %(lease)s
RETURNING 1
"""

_LARGEST = 2**63 - 1


def beat(
    task_id: UUID | str, lease: int, *, done: int | None = None, total: int | None = None, text: str | None = None
) -> bool:
    """Says that the worker lives, with its progress. False: the lease is gone. Locks the beat row alone.

    What can't be shown (a number that no bigint holds) is shown as near as can be: a beat never fails for it."""
    shown = None if text is None else storable.text(text, 200)[:200]
    progress = {
        name: None if value is None else max(-_LARGEST, min(_LARGEST, int(value)))
        for name, value in (("done", done), ("total", total))
    }
    return bool(sql.run(_BEAT, {"task_id": str(task_id), "lease": lease, "text": shown, **progress}))

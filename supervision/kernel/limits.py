"""Limits: how many of a body run at once, and how many start in a time, across all workers and hosts; exactly.

A body's slots are guarded by an advisory lock of its name, taken before any task: whoever holds it waits for no task
that waits for it. A take that finds no free slot parks its task ``awaiting_slot``. Whoever frees a slot calls
``wake_next`` when that has committed: it takes the same lock, so it sees every take that has found the slot taken. A
process that dies between the two leaves the waiting ones to the tick, which looks for them (``waiting_bodies``).
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from supervision.kernel import sql
from supervision.kernel.states import Reason, State
from supervision.kernel.transition import CHANNEL, announce_written, retried

OLDEST_FIRST = 8
"""One in so many times the one that waits longest gets its turn, whatever its priority or owner: so none starves."""

_TOKEN = timedelta(seconds=5)
"""How long a slot is kept for a task that was woken for it, before another one is woken too."""


@dataclass(frozen=True)
class Limit:
    """``max_running`` tasks of the body run at once, and ``at_most`` of its drives start in any stretch of ``per``.

    Either may be None. A drive is one stretch of running: a task that parks frees its slot, and needs one again (and
    counts again) when it goes on; so does one that is being unwound. ValueError for what makes no sense.

    >>> Limit(max_running=3, at_most=100, per=timedelta(minutes=1))
    """

    max_running: int | None = None
    at_most: int | None = None
    per: timedelta | None = None

    def __post_init__(self) -> None:
        for name, value in (("max_running", self.max_running), ("at_most", self.at_most)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ValueError(f"{name} is {value!r}; it must be a whole number from 1.")
        if (self.at_most is None) != (self.per is None):
            raise ValueError("at_most and per go together: at_most=100, per=timedelta(minutes=1).")
        if self.per is not None and self.per <= timedelta(0):
            raise ValueError(f"per is {self.per}; it must be longer than nothing.")

    def __bool__(self) -> bool:
        return self.max_running is not None or self.at_most is not None

    def parameters(self, body: str) -> dict[str, Any]:
        """Of the statements here, and of ``lease.take``'s."""
        return {"body": body, "max_running": self.max_running, "at_most": self.at_most, "per": self.per}


SLOT_LOCK = "SELECT pg_advisory_xact_lock(1937076837, hashtext(%(body)s))"

# What is free now, by each limit; NULL where there is none. OFFSET 0: the running ones, which are as many as there are
# workers, are read by their state, never all that the body ever had.
_FREE = """
free AS MATERIALIZED (
    SELECT %(max_running)s::int - (SELECT count(*) FROM (SELECT body FROM supervision_task
                                                          WHERE current_state = 'running' OFFSET 0) AS running
                                    WHERE body = %(body)s) AS slots,
           %(at_most)s::int - (SELECT count(*) FROM supervision_start WHERE body = %(body)s
                                  AND started_at > supervision_now_v1() - %(per)s::interval) AS starts
)
"""

# Goes before the take's statement, which then finds nothing that is due. The task goes on waiting since it was due.
PARK_IF_FULL = f"""
WITH {_FREE}, task AS (
    UPDATE supervision_task AS task
       SET current_state = 'parked', watchdog_stop_reason = 'awaiting_slot', wake_at = NULL, offered_until = NULL,
           state_changed_at = CASE WHEN watchdog_stop_reason = 'awaiting_slot' THEN state_changed_at ELSE wake_at END,
           log_length = log_length + 1
      FROM free
     WHERE {{may_take}} AND (free.slots <= 0 OR free.starts <= 0)
    RETURNING task.id, task.body, task.lease, task.generation, task.log_length
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, log_length, 'task_parked', '', '{{{{"reason": "awaiting_slot"}}}}', lease, '' FROM task
)
SELECT id, body, lease, generation, log_length FROM task
"""  # noqa: S608 - constants only

START = """, start AS (
    INSERT INTO supervision_start (body, started_at) SELECT body, state_changed_at FROM task WHERE %(at_most)s::int > 0
), past AS (
    DELETE FROM supervision_start WHERE body = %(body)s AND started_at <= supervision_now_v1() - %(per)s::interval
)"""
"""A branch of the take's statement, whose ``task`` is the taken one."""

_WAITS = """
   task.body = %(body)s AND task.watchdog_stop_reason = 'awaiting_slot' AND task.current_state = 'parked'
   AND (task.pause_requested_at IS NULL OR task.ending <> '')
"""

# Each owner's first of each priority, so that who has many waiting doesn't take more than a share; among equals by lot.
_FAIR = f"""
owner AS MATERIALIZED (
    WITH RECURSIVE every(ref) AS (
        SELECT min(owner_ref) FROM supervision_task WHERE body = %(body)s AND watchdog_stop_reason = 'awaiting_slot'
        UNION ALL
        SELECT (SELECT min(owner_ref) FROM supervision_task
                 WHERE body = %(body)s AND watchdog_stop_reason = 'awaiting_slot' AND owner_ref > every.ref)
          FROM every WHERE every.ref IS NOT NULL
    ) SELECT ref FROM every WHERE ref IS NOT NULL LIMIT 1000
), busy AS MATERIALIZED (
    SELECT owner_ref, count(*) AS running
      FROM (SELECT body, owner_ref FROM supervision_task WHERE current_state = 'running' OFFSET 0) AS running
     WHERE body = %(body)s GROUP BY owner_ref
), candidate AS MATERIALIZED (
    SELECT head.id, head.priority, head.state_changed_at,
           row_number() OVER (PARTITION BY owner.ref ORDER BY head.priority, head.state_changed_at)
           + COALESCE((SELECT running FROM busy WHERE owner_ref = owner.ref), 0) AS share,
           hashtext(owner.ref || %(lot)s) AS lot
      FROM owner CROSS JOIN generate_series(0, 9) AS level(priority)
     CROSS JOIN LATERAL (
        SELECT task.id, task.priority, task.state_changed_at FROM supervision_task AS task
         WHERE {_WAITS} AND task.wake_at IS NULL AND task.owner_ref = owner.ref AND task.priority = level.priority
         ORDER BY task.state_changed_at LIMIT (SELECT n FROM turn)
     ) AS head
     ORDER BY head.priority, share, lot, head.state_changed_at LIMIT (SELECT n FROM turn) + 4
)
"""  # noqa: S608 - constants only
_OLDEST = f"""
candidate AS MATERIALIZED (
    SELECT task.id, 0 AS priority, task.state_changed_at, 0 AS share, 0 AS lot FROM supervision_task AS task
     WHERE {_WAITS} AND task.wake_at IS NULL
     ORDER BY task.state_changed_at LIMIT (SELECT n FROM turn) + 4
)
"""  # noqa: S608 - constants only

# A woken task keeps its slot for a moment (offered_until tells since when it may be taken), so that one free slot
# doesn't wake all that wait. Where only the rate is in the way, one is woken for when that next allows a start.
_WAKE = f"""
WITH {_FREE}, woken AS MATERIALIZED (
    SELECT count(*) AS n FROM supervision_task AS task
     WHERE {_WAITS} AND wake_at IS NOT NULL AND offered_until > supervision_now_v1() - %(token)s::interval
), turn AS MATERIALIZED (
    SELECT GREATEST(0, CASE WHEN EXISTS (SELECT 1 FROM supervision_hold
                                          WHERE released_at IS NULL AND kind = 'body' AND name = %(body)s) THEN 0
                            WHEN free.starts <= 0 THEN LEAST(1, COALESCE(free.slots, 1))
                            ELSE COALESCE(LEAST(free.slots, free.starts), 1000) END - woken.n) AS n,
           CASE WHEN free.starts <= 0 THEN (
               SELECT started_at + %(per)s::interval FROM supervision_start WHERE body = %(body)s
                ORDER BY started_at DESC OFFSET GREATEST(0, %(at_most)s::int - 1) LIMIT 1) END AS later
      FROM free, woken
), {{candidates}}, chosen AS (
    SELECT task.id FROM supervision_task AS task JOIN candidate USING (id)
     WHERE {_WAITS} AND task.wake_at IS NULL
     ORDER BY candidate.priority, candidate.share, candidate.lot, candidate.state_changed_at
     LIMIT (SELECT n FROM turn) FOR NO KEY UPDATE OF task SKIP LOCKED
), task AS (
    UPDATE supervision_task AS task
       SET wake_at = COALESCE(turn.later, task.state_changed_at),
           offered_until = COALESCE(turn.later, supervision_now_v1()), log_length = log_length + 1
      FROM chosen, turn WHERE task.id = chosen.id
    RETURNING task.id, task.body, task.lease, task.generation, task.log_length, task.wake_at
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, log_length, 'slot_freed', '', jsonb_build_object('wake_at', wake_at), lease, '' FROM task
)
SELECT id, body, lease, generation, log_length, pg_notify('{CHANNEL}', '') FROM task
"""  # noqa: S608 - constants only
_WAKE_FAIR = _WAKE.format(candidates=_FAIR)
_WAKE_OLDEST = _WAKE.format(candidates=_OLDEST)

_WAITING = """
WITH RECURSIVE every(body) AS (
    SELECT min(body) FROM supervision_task WHERE watchdog_stop_reason = 'awaiting_slot'
    UNION ALL
    SELECT (SELECT min(body) FROM supervision_task WHERE watchdog_stop_reason = 'awaiting_slot' AND body > every.body)
      FROM every WHERE every.body IS NOT NULL
)
SELECT body FROM every WHERE body IS NOT NULL
"""


@retried
def wake_next(body: str, limit: Limit | None) -> int:
    """Makes as many waiting tasks of the body due as there are free slots, in one short transaction; their count.

    By priority, then by the owners' shares; one in OLDEST_FIRST times whoever has waited longest. If only the rate is
    in the way, one task is made due for when that allows the next start, and its take sees to the one after it. No
    limit any more (None): all are woken, a thousand at a time. Waits for no task; a locked one is passed over.
    """
    parameters = {**(limit or Limit()).parameters(body), "token": _TOKEN, "lot": str(random.random())}  # noqa: S311
    statement = _WAKE_OLDEST if random.randrange(OLDEST_FIRST) == 0 else _WAKE_FAIR  # noqa: S311
    _locked, rows = sql.together((SLOT_LOCK, parameters), (statement, parameters))
    announce_written("slot_freed", rows, state=State.PARKED, reason=Reason.AWAITING_SLOT)
    return len(rows)


def waiting_bodies() -> list[str]:
    """The bodies of which tasks wait for a slot: a few index probes."""
    return [body for (body,) in sql.run(_WAITING, {})]

"""The task table is the queue: what is due, offering it, and when to look again."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from supervision.conf import settings
from supervision.kernel import sql
from supervision.kernel.limits import OLDEST_FIRST
from supervision.kernel.transition import CHANNEL, retried

__all__ = ["CHANNEL", "Offer", "offer", "seconds_until_next"]


@dataclass(frozen=True)
class Offer:
    """A due task and its lease: what a worker needs to take it. Its body, so that this one's limit is known."""

    task_id: UUID
    lease: int
    body: str = ""


# Lanes that have anything due or sleeping, by a loose scan of the partial index; or just the named ones.
_LANES = """
WITH RECURSIVE every(queue) AS (
    SELECT min(queue) FROM supervision_task WHERE wake_at IS NOT NULL AND (pause_requested_at IS NULL OR ending <> '')
    UNION ALL
    SELECT (SELECT min(queue) FROM supervision_task
             WHERE queue > every.queue AND wake_at IS NOT NULL AND (pause_requested_at IS NULL OR ending <> ''))
      FROM every WHERE every.queue IS NOT NULL
), lane AS (
    SELECT queue FROM every WHERE queue IS NOT NULL AND %(queues)s::text[] IS NULL
    UNION ALL
    SELECT unnest(%(queues)s::text[])
)
"""

_DUE = """
       wake_at IS NOT NULL AND (pause_requested_at IS NULL OR ending <> '')
   AND wake_at <= supervision_now_v1()
   AND (offered_until IS NULL OR offered_until <= supervision_now_v1())
"""

# Each lane and priority is visited on its own: ordered over all at once the index would be read through every sleeper.
# What is due there is looked at in samples: at its oldest, and where a coin lands in each half, quarter, eighth... of
# the time since then. So owners are found who came behind another's ten thousand, without reading through those. Only
# the first reads on through what this process doesn't know, until it finds something.
# Candidates are found without locks; the few that are taken are locked, and judged again, by id. By arrays of ids: a
# join was planned as a loop over all that is due.
_OFFER = f"""
{_LANES}, known AS (
    SELECT * FROM unnest(%(bodies)s::text[], %(versions)s::int[]) AS known(body, version)
     WHERE NOT EXISTS (SELECT 1 FROM supervision_hold
                        WHERE released_at IS NULL AND kind = 'body' AND name = known.body)
), oldest AS MATERIALIZED (
    SELECT lane.queue, level.priority, first.wake_at
      FROM lane CROSS JOIN generate_series(0, 9) AS level(priority)
     CROSS JOIN LATERAL (
        SELECT wake_at FROM supervision_task AS task
         WHERE task.queue = lane.queue AND task.priority = level.priority AND {_DUE} ORDER BY wake_at LIMIT 1
     ) AS first
     WHERE NOT EXISTS (SELECT 1 FROM supervision_hold
                        WHERE released_at IS NULL AND kind = 'queue' AND name = lane.queue)
), sample AS (
    SELECT queue, priority, wake_at, %(limit)s + 16 AS size, NULL::bigint AS read FROM oldest
    UNION ALL
    SELECT queue, priority, wake_at + (supervision_now_v1() - wake_at) * power(0.5, step - random()), %(limit)s + 1, 100
      FROM oldest CROSS JOIN generate_series(1, 12) AS halved(step)
), found AS (
    SELECT DISTINCT due.id, due.queue, due.priority, due.owner_ref, due.wake_at
      FROM sample CROSS JOIN LATERAL (
        SELECT id, task.queue, task.priority, owner_ref, wake_at
          FROM (SELECT * FROM supervision_task
                 WHERE queue = sample.queue AND priority = sample.priority AND wake_at >= sample.wake_at AND {_DUE}
                 ORDER BY wake_at LIMIT sample.read) AS task
         WHERE EXISTS (SELECT 1 FROM known WHERE known.body = task.body AND (
                   task.body_version = known.version
                OR task.body_version < known.version
                   AND task.wake_at <= supervision_now_v1() - %(grace)s::interval
                   AND (task.ending <> '' OR task.watchdog_stop_reason NOT LIKE 'version_changed:%%')))
         ORDER BY wake_at LIMIT sample.size
     ) AS due
), busy AS MATERIALIZED (
    SELECT queue, owner_ref, count(*) AS running FROM supervision_task
     WHERE current_state = 'running' GROUP BY queue, owner_ref
), candidate AS (
    SELECT found.id, CASE WHEN %(oldest_first)s THEN 0 ELSE found.priority END AS priority,
           CASE WHEN %(oldest_first)s THEN 0 ELSE
               row_number() OVER (PARTITION BY found.queue, found.owner_ref ORDER BY found.priority, found.wake_at)
               + COALESCE(busy.running, 0) END AS share,
           CASE WHEN %(oldest_first)s THEN 0 ELSE hashtext(found.owner_ref || %(lot)s) END AS lot, found.wake_at
      FROM found LEFT JOIN busy USING (queue, owner_ref)
), shortlist AS MATERIALIZED (
    SELECT * FROM candidate ORDER BY priority, share, lot, wake_at LIMIT %(limit)s + 16
), chosen AS (
    SELECT task.id
      FROM supervision_task AS task JOIN shortlist ON shortlist.id = task.id
     WHERE task.id = ANY (ARRAY(SELECT id FROM shortlist)) AND {_DUE.replace("wake_at", "task.wake_at")}
     ORDER BY shortlist.priority, shortlist.share, shortlist.lot, shortlist.wake_at LIMIT %(limit)s
       FOR NO KEY UPDATE OF task SKIP LOCKED
)
UPDATE supervision_task AS task
   SET offered_until = supervision_now_v1() + %(offer)s::interval
  FROM chosen WHERE task.id = chosen.id AND task.id = ANY (ARRAY(SELECT id FROM chosen))
RETURNING task.id, task.lease, task.body
"""  # noqa: S608 - constants only

# Planning it anew costs three times as much as running it, and its estimates would have it compiled. An offer is only a
# hint: one that a crash of the server forgets is made again.
_OFFER_HINTS = {"plan_cache_mode": "force_generic_plan", "jit": "off", "synchronous_commit": "off"}

_NEXT = f"""
{_LANES}
SELECT extract(epoch FROM min(next.wake_at) - supervision_now_v1())::float
  FROM lane CROSS JOIN generate_series(0, 9) AS level(priority)
 CROSS JOIN LATERAL (
    SELECT wake_at FROM supervision_task AS task
     WHERE task.queue = lane.queue AND task.priority = level.priority
       AND wake_at IS NOT NULL AND (pause_requested_at IS NULL OR ending <> '')
       AND wake_at > supervision_now_v1()
     ORDER BY wake_at LIMIT 1
 ) AS next
"""  # noqa: S608 - constants only


@retried
def offer(
    limit: int,
    *,
    queues: Sequence[str] | None,
    bodies: Iterable[tuple[str, int]],
    version_grace: timedelta | None = None,
) -> list[Offer]:
    """Up to ``limit`` due tasks, most urgent first, marked as offered for OFFER_SECONDS so that nobody else gets them.

    By priority; within it those whose owner has least running in the lane, by lot among equals; then who is due
    longest. One in OLDEST_FIRST times it is only that, whatever the priority or owner, so that nothing starves.
    Only of ``queues`` (None: all) and only what this process can drive, ``bodies`` (name, version): the rest is left to
    other clusters. A task of an older version that nobody has taken for ``version_grace`` (default
    VERSION_GRACE_SECONDS) is handed out too, once, to be parked for an operator, or if it is being ended. Nothing of a
    body or queue on hold. Rows that are locked right now are skipped.
    """
    drivable = list(bodies)
    grace = timedelta(seconds=settings.VERSION_GRACE_SECONDS) if version_grace is None else version_grace
    parameters = {
        "limit": limit, "queues": None if queues is None else list(queues),
        "bodies": [name for name, _version in drivable], "versions": [version for _name, version in drivable],
        "offer": timedelta(seconds=settings.OFFER_SECONDS), "grace": grace,
        "oldest_first": random.randrange(OLDEST_FIRST) == 0, "lot": str(random.random()),  # noqa: S311
    }  # fmt: skip
    [rows] = sql.together((_OFFER, parameters), hints=_OFFER_HINTS)
    return [Offer(*row) for row in rows]


def seconds_until_next(*, queues: Sequence[str] | None) -> float | None:
    """How long until the next sleeping task wakes, by the database's clock; None: nothing sleeps."""
    rows = sql.run(_NEXT, {"queues": None if queues is None else list(queues)})
    return rows[0][0] if rows and rows[0][0] is not None else None

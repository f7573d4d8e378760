"""What must be true after any storm, read from the rows and from the witness, who knows nothing of the supervisor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import connection

# A worker's own entries: what it recorded under its lease.
_WORKERS = (
    "('task_taken', 'step_completed', 'step_attempt_failed', 'step_failed', 'task_checkpointed', 'task_completed')"
)

_LOST = """
SELECT id::text, current_state, watchdog_stop_reason, failure FROM supervision_task WHERE current_state <> 'completed'
"""
_UNWITNESSED = """
SELECT entry.task_id::text, entry.name FROM supervision_logentry AS entry
 WHERE entry.event = 'step_completed'
   AND NOT EXISTS (SELECT 1 FROM chaos_witness AS seen
                    WHERE seen.task = entry.task_id AND seen.mark = entry.payload ->> 'result'
                      AND entry.name = 'step[' || seen.step || ']')
"""
_TWICE = """
SELECT task_id::text, name, count(*) FROM supervision_logentry
 WHERE event = 'step_completed' GROUP BY 1, 2 HAVING count(*) > 1
"""
_INCOMPLETE = """
SELECT task.id::text, count(entry.name) FROM supervision_task AS task
  LEFT JOIN supervision_logentry AS entry ON entry.task_id = task.id AND entry.event = 'step_completed'
 GROUP BY task.id, task.arguments HAVING count(entry.name) <> (task.arguments ->> 'steps')::int
"""
_GAPS = """
SELECT task.id::text, task.log_length, count(*), max(entry.sequence_num) FROM supervision_task AS task
  JOIN supervision_logentry AS entry ON entry.task_id = task.id
 GROUP BY task.id HAVING count(*) <> task.log_length OR max(entry.sequence_num) <> task.log_length
"""
# A worker's entry whose lease is not that of the last take before it was written by one that had lost the task.
_STALE = f"""
SELECT task_id::text, sequence_num, event FROM (
    SELECT *, max(lease) FILTER (WHERE event = 'task_taken') OVER (PARTITION BY task_id ORDER BY sequence_num) AS held,
           max(lease) OVER (PARTITION BY task_id ORDER BY sequence_num) AS highest
      FROM supervision_logentry
) AS entry
 WHERE event IN {_WORKERS} AND (lease <> held OR lease < highest)
"""
_TWO_OWNERS = """
SELECT task_id::text, lease, count(*) FROM supervision_logentry WHERE event = 'task_taken'
 GROUP BY 1, 2 HAVING count(*) > 1
"""
# A step may be begun again only after something took its worker away: once for each recorded loss.
_REPEATED = """
SELECT seen.task::text, seen.step, count(*) FROM chaos_witness AS seen
 GROUP BY 1, 2, seen.task
HAVING count(*) > 1 + (SELECT count(*) FROM supervision_logentry AS entry
                        WHERE entry.task_id = seen.task AND entry.event = 'task_parked')
"""
_LOSSES = """
SELECT payload ->> 'reason', count(*) FROM supervision_logentry WHERE event = 'task_parked' GROUP BY 1
"""
FAULTS = {
    "lost": _LOST,
    "steps not witnessed": _UNWITNESSED,
    "recorded twice": _TWICE,
    "steps missing": _INCOMPLETE,
    "gaps in the log": _GAPS,
    "stale writes": _STALE,
    "two takes of one lease": _TWO_OWNERS,
    "begun again without a loss": _REPEATED,
}


@dataclass(frozen=True)
class Verdict:
    """``faults`` by name; ``tasks``, ``steps``, and ``losses``: how often a worker or connection was lost."""

    faults: dict[str, list[Any]]
    tasks: int
    steps: int
    losses: dict[str, int]

    def assert_clean(self) -> None:
        bad = {name: rows[:5] for name, rows in self.faults.items() if rows}
        assert not bad, bad


def judge() -> Verdict:
    """Reads everything there is. All tasks must have been created by ``World.create``."""
    faults = {name: _rows(query) for name, query in FAULTS.items()}
    [(tasks, steps)] = _rows(
        "SELECT count(DISTINCT task_id), count(*) FILTER (WHERE event = 'step_completed') FROM supervision_logentry"
    )
    losses = _rows(
        "SELECT payload ->> 'reason', count(*) FROM supervision_logentry WHERE event = 'task_parked' GROUP BY 1"
    )
    return Verdict(faults, tasks, steps, dict(losses))


def _rows(query: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())

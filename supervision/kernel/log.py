"""Reading the log: bounded, counted, and honest about what it withholds."""

import json
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from supervision.conf import settings
from supervision.errors import TaskNotFound
from supervision.kernel import masking, sql
from supervision.kernel.models import LogEntry


@dataclass(frozen=True)
class Page:
    """One page of a task's log, in chronological order.

    ``total_count`` is exact: the log is gapless, so the newest number is the COUNT(*). ``withheld_count`` entries of
    the log are not on this page; ``older`` is the cursor to the page before it, None on the first.
    """

    entries: list[LogEntry]
    returned_count: int
    total_count: int
    withheld_count: int
    truncated: bool
    older: int | None


def page(task_id: UUID | str, *, before: int | None = None, size: int | None = None) -> Page:
    """The newest ``size`` entries (default LOG_PAGE_SIZE) older than number ``before``, secrets masked, in one query.

    The counts and the entries come from one snapshot, so they agree while entries are being written.
    """
    rows = sql.run(
        _PAGE,
        {
            "task_id": str(task_id),
            "before": 2**62 if before is None else before,
            "size": settings.LOG_PAGE_SIZE if size is None else size,
        },
    )
    if not rows:
        raise TaskNotFound(task_id)
    total, arguments, sensitive = rows[0][:3]
    secrets = masking.secrets_of(json.loads(arguments), json.loads(sensitive))
    entries = [_entry(row[3:], secrets) for row in rows if row[3] is not None]
    oldest = entries[0].sequence_num if entries else 1
    return Page(
        entries=entries,
        returned_count=len(entries),
        total_count=total,
        withheld_count=total - len(entries),
        truncated=len(entries) < total,
        older=oldest if oldest > 1 else None,
    )


_PAGE = """
SELECT task.log_length, task.arguments::text, task.sensitive::text,
       entry.task_id, entry.sequence_num, entry.event, entry.name, entry.payload::text, entry.lease, entry.actor_ref,
       entry.created_at
  FROM supervision_task AS task
  LEFT JOIN LATERAL (
      SELECT * FROM supervision_logentry
       WHERE task_id = task.id AND sequence_num < %(before)s
       ORDER BY sequence_num DESC LIMIT %(size)s
  ) AS entry ON true
 WHERE task.id = %(task_id)s::uuid
 ORDER BY entry.sequence_num
"""


def _entry(row: tuple[Any, ...], secrets: list[str]) -> LogEntry:
    task_id, number, event, name, payload, lease, actor, at = row
    return LogEntry(
        task_id=task_id, sequence_num=number, event=event, name=masking.mask_values(name, secrets),
        payload=masking.mask_values(json.loads(payload), secrets), lease=lease, actor_ref=actor, created_at=at,
    )  # fmt: skip


# --- replay

REPLAYED = (
    "step_completed", "step_failed", "step_attempt_failed", "step_intended", "signal_consumed", "slept", "task_parked",
    "children_started", "step_compensated", "unwinding_started",
)  # fmt: skip
"""The events that a drive reads again: what was recorded, and what was begun."""

_RECORDED = """
SELECT sequence_num, event, name, CASE WHEN sequence_num <= %(whole)s THEN payload::text END
  FROM supervision_logentry
 WHERE task_id = %(task_id)s::uuid AND sequence_num > %(after)s AND event = ANY(%(events)s) AND name <> ''
 ORDER BY sequence_num
"""
_PAYLOADS = """
SELECT sequence_num, payload::text FROM supervision_logentry
 WHERE task_id = %(task_id)s::uuid AND sequence_num >= %(first)s AND sequence_num < %(end)s
"""


def recorded(task_id: UUID | str, *, after: int, whole: int) -> list[tuple[int, str, str, str | None]]:
    """(number, event, name, payload as JSON text) of what a drive replays, in one query.

    Of entries numbered above ``whole`` the payload is left out: ``payloads`` reads those in windows, so that a long
    log doesn't have to fit into memory.
    """
    parameters = {"task_id": str(task_id), "after": after, "whole": after + whole, "events": list(REPLAYED)}
    return [(row[0], row[1], row[2], row[3]) for row in sql.run(_RECORDED, parameters)]


def payloads(task_id: UUID | str, first: int, count: int) -> dict[int, str]:
    """Number -> payload as JSON text of ``count`` entries from number ``first``."""
    return {
        row[0]: row[1] for row in sql.run(_PAYLOADS, {"task_id": str(task_id), "first": first, "end": first + count})
    }


def last_loss(task_id: UUID | str) -> dict[str, Any]:
    """What the reaper last recorded of a lost worker of this task: ``worker`` and ``beat_at``; empty if nothing."""
    rows = sql.run(
        """
        SELECT payload::text FROM supervision_logentry
         WHERE task_id = %(task_id)s::uuid AND event = 'task_parked' AND actor_ref = 'reaper'
         ORDER BY sequence_num DESC LIMIT 1
        """,
        {"task_id": str(task_id)},
    )
    facts: dict[str, Any] = json.loads(rows[0][0]) if rows else {}
    return facts


_LAST_DRIVE = """
SELECT payload ->> 'trace', (
        SELECT wait.payload ->> 'reason' FROM supervision_logentry AS wait
         WHERE wait.task_id = entry.task_id AND wait.sequence_num > entry.sequence_num
           AND wait.sequence_num < %(before)s AND wait.payload ? 'reason'
         ORDER BY wait.sequence_num DESC LIMIT 1)
  FROM supervision_logentry AS entry
 WHERE task_id = %(task_id)s::uuid AND sequence_num < %(before)s AND event = 'task_taken'
 ORDER BY sequence_num DESC LIMIT 1
"""


def last_drive(task_id: UUID | str, *, before: int) -> tuple[str, str]:
    """(trace, why it parked) of the drive before the take of number ``before``; empty where there is none."""
    rows = sql.run(_LAST_DRIVE, {"task_id": str(task_id), "before": before})
    return (rows[0][0] or "", rows[0][1] or "") if rows else ("", "")

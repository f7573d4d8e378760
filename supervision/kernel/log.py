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

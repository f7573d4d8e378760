"""Reap: how a worker loses the right to a task, and what becomes of a task that loses its workers again and again."""

from __future__ import annotations

import json
from collections.abc import Collection
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db.models import F, QuerySet

from supervision.conf import settings
from supervision.kernel import sql
from supervision.kernel.clock import Clock
from supervision.kernel.ends import finish
from supervision.kernel.identity import Worker, is_gone
from supervision.kernel.models import Heartbeat, Task
from supervision.kernel.states import Reason, State
from supervision.kernel.transition import announce_written, committing, locked, notify, write

_GONE = "the process is gone"
"""What is known of an end that nobody saw."""


def reap(task_id: UUID | str, *, lost: Worker | None = None, how: str = "") -> bool:
    """Takes the task from a worker that is gone: parked ``worker_lost``, due now, lease + 1. False: it lives, or
    isn't running.

    Locks the task, then its beat row, and judges after: by the age of the beat, or, when the caller has seen the
    process ``lost`` end, by its host, pid and start. ``how`` it ended (``SIGKILL``, ``exit status 3``), if anybody
    saw, goes to the log. Past MAX_RECOVERIES since the last checkpoint the task is a dead letter that says so.
    """
    with committing("reap"), locked(task_id) as task:
        if task.current_state != State.RUNNING:
            return False
        rows = Heartbeat.objects.using(settings.DATABASE).filter(task_id=task.pk, lease=task.lease)
        list(rows.select_for_update(no_key=True).values_list("pk"))
        # judged in a statement of its own, after both locks
        if lost is not None:
            is_lost = _of_process(rows, lost).exists()
        else:
            is_lost = not rows.filter(beat_at__gt=Clock() - timedelta(seconds=settings.LEASE_SECONDS)).exists()
            how = how or f"no beat for {settings.LEASE_SECONDS:g} s"
        if not is_lost:
            return False
        beat_row = rows.first()
        facts = {"worker": beat_row.worker, "beat_at": beat_row.beat_at.isoformat()} if beat_row else {}
        _give_up(task, {**facts, "how": how or _GONE})
    return True


def _give_up(task: Task, facts: dict[str, Any]) -> None:
    """Parks the task for another worker; past the cap it is poison: unwound if need be, then dead."""
    recoveries = task.recoveries + 1
    task.lease += 1
    columns: dict[str, Any] = {"lease": task.lease, "recoveries": recoveries}
    payload = {"reason": Reason.WORKER_LOST.value, "recoveries": recoveries, **facts}
    if recoveries > settings.MAX_RECOVERIES:
        columns["failure"] = (
            f"The worker was lost {recoveries} times in a row, last: {facts.get('worker', 'unknown')} ({facts['how']})"
        )
        if task.ending and task.compensations_outstanding:
            reason = Reason.COMPENSATION_EXHAUSTED.of(Reason.WORKER_LOST)
        else:
            reason = Reason.RECOVERIES_EXHAUSTED.of(recoveries)
        if task.ending or not task.compensations_outstanding:
            finish(task, State.FAILED, reason, actor="reaper", payload=payload, **columns)
            return
        columns |= {"ending": State.FAILED, "ending_reason": reason, "recoveries": 0}
    write(task, to=State.PARKED, reason=Reason.WORKER_LOST, event="task_parked", actor="reaper", payload=payload,
          wake_at=task.db_now, **columns)  # fmt: skip


def reap_process(*, host: str, pid: int, started: str = "", how: str = "") -> int:
    """Reaps what the ended process ``pid`` of ``host`` was driving; the count. For whoever saw it end.

    ``started`` is its ``identity.started_of``, if that is known; ``how`` it ended, for the log.
    """
    lost = Worker("", host, pid, started)
    driven = _of_process(_driving(), lost).values_list("task_id", flat=True)
    return sum(reap(task_id, lost=lost, how=how) for task_id in list(driven))


def reap_gone(host: str, *, but_not: Collection[int] = ()) -> int:
    """Reaps what processes of ``host``, which must be this one, were driving that live no more; the count.

    So a cluster that was killed whole is recovered by any other of its host, without waiting for a lease to run out.
    ``but_not`` are processes whose end somebody else will tell of, and how they ended.
    """
    columns = ("task_id", "lease", "pid", "process_started", "worker", "beat_at")
    others = _driving().filter(host=host).exclude(pid__in=but_not)
    driven = list(others.order_by("task_id").values_list(*columns))
    gone = {(pid, started) for pid, started in {(row[2], row[3]) for row in driven} if is_gone(pid, started)}
    lost = [row for row in driven if (row[2], row[3]) in gone]
    if not lost:
        return 0
    reaped = _reap_together(lost)
    rest = [row for row in lost if row[0] not in reaped]
    return len(reaped) + sum(reap(row[0], lost=Worker("", host, row[2], row[3])) for row in rest)


# Which process held a lease never changes, and a process that is gone stays gone: so these may be judged before the
# lock, and a hundred of them be parked in one statement. What is at its cap, or locked right now, goes the general way.
_REAP = """
WITH lost AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(leases)s::bigint[], %(facts)s::text[]) AS lost(id, lease, facts)
), mine AS MATERIALIZED (
    SELECT task.id FROM supervision_task AS task JOIN lost USING (id, lease)
     WHERE task.current_state = 'running' AND task.recoveries < %(cap)s
     ORDER BY task.id FOR NO KEY UPDATE OF task SKIP LOCKED
), task AS (
    UPDATE supervision_task AS task
       SET current_state = 'parked', watchdog_stop_reason = 'worker_lost', state_changed_at = supervision_now_v1(),
           lease = task.lease + 1, recoveries = recoveries + 1, wake_at = supervision_now_v1(),
           log_length = log_length + 1
      FROM lost JOIN mine USING (id)
     WHERE task.id = lost.id AND task.lease = lost.lease AND task.current_state = 'running'
    RETURNING task.id, task.body, task.lease, task.generation, task.log_length, task.recoveries, lost.facts
), beat AS (
    UPDATE supervision_heartbeat AS heartbeat SET lease = task.lease FROM task WHERE heartbeat.task_id = task.id
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, log_length, 'task_parked', '',
           facts::jsonb || jsonb_build_object('reason', 'worker_lost', 'recoveries', recoveries), lease, 'reaper'
      FROM task
)
SELECT id, body, lease, generation, log_length FROM task
"""


def _reap_together(lost: list[tuple[Any, ...]]) -> set[UUID]:
    """The ids of those that were parked: due now, lease + 1."""
    with committing("reap"):
        rows = sql.run(
            _REAP,
            {
                "ids": [row[0] for row in lost], "leases": [row[1] for row in lost], "cap": settings.MAX_RECOVERIES,
                "facts": [
                    json.dumps({"worker": worker, "beat_at": beat_at.isoformat(), "how": _GONE})
                    for *_, worker, beat_at in lost
                ],
            },
        )  # fmt: skip
        if rows:
            notify()
        announce_written("task_parked", rows, state=State.PARKED, reason=Reason.WORKER_LOST)
    return {row[0] for row in rows}


def _driving() -> QuerySet[Heartbeat]:
    """The beat rows of running tasks."""
    return Heartbeat.objects.using(settings.DATABASE).filter(task__current_state=State.RUNNING, task__lease=F("lease"))


def _of_process(rows: QuerySet[Heartbeat], lost: Worker) -> QuerySet[Heartbeat]:
    """Those of that process; by host and pid alone where nobody knows when it started."""
    rows = rows.filter(host=lost.host, pid=lost.pid)
    return rows.filter(process_started__in=["", lost.started]) if lost.started else rows

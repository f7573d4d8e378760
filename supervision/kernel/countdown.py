"""The end of a node's child: counts down what waits for it and starts what became ready, in the same transaction.

The run's row is locked first, then the child's, as for every child: so two last finishers come one after the other, and
a join is started once. Each statement sees what the one before it has written. The run itself is woken only for what
SQL can't decide: failures, conditions, maps, and its end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from supervision.kernel import sql
from supervision.kernel.models import Task
from supervision.kernel.nodes import STEP, Plan
from supervision.kernel.states import Reason, State
from supervision.kernel.transition import CHANNEL, locked, notify, retried, write

# The node is over, and what waits for its success waits for one less. Progress rides on the run's beat row. Nodes are
# sought by their numbers alone: the planner takes a run to have a few nodes, and would read all of them.
_COUNT = """
WITH child AS MATERIALIZED (
    SELECT parent_id, substr(parent_step, 6)::bigint AS number, current_state, failure, watchdog_stop_reason
      FROM supervision_task
     WHERE id = %(task_id)s::uuid AND current_state IN ('completed', 'failed', 'expired', 'cancelled')
), ended AS (
    UPDATE supervision_node AS node
       SET state = CASE WHEN child.current_state = 'completed' THEN 'succeeded' ELSE 'failed' END,
           failure = COALESCE(NULLIF(child.failure, ''), child.watchdog_stop_reason),
           finished_at = supervision_now_v1()
      FROM child
     WHERE node.number = (SELECT number FROM child)
       AND node.state = 'running'
    RETURNING node.run_id, node.state, node.item, node.dependents
), counted AS (
    UPDATE supervision_node AS node
       SET waiting_for = waiting_for - 1,
           is_ready = waiting_for = 1 AND NOT is_driven AND node.state = 'pending'
     WHERE node.number = ANY (ARRAY(SELECT unnest(dependents) FROM ended WHERE ended.state = 'succeeded'))
       AND node.waiting_for > 0 AND node.state IN ('pending', 'running')
    RETURNING node.waiting_for = 0 AND is_driven AS needs_run
), plan AS (
    UPDATE supervision_plan AS plan
       SET running = running - 1, unfinished = unfinished - CASE WHEN ended.item IS NULL THEN 1 ELSE 0 END,
           needs_run = needs_run OR ended.state = 'failed' OR EXISTS (SELECT FROM counted WHERE counted.needs_run)
      FROM ended WHERE plan.task_id = ended.run_id
    RETURNING plan.task_id, plan.total - plan.unfinished AS done, plan.total
)
UPDATE supervision_heartbeat AS beat SET progress_done = plan.done, progress_total = plan.total
  FROM plan WHERE beat.task_id = plan.task_id
"""

# Whatever is ready becomes a child, as far as there are places, unless the run is held or being ended. What conflicts
# (a concurrency key that is taken) is left for the run to judge.
_START = f"""
WITH run AS (
    SELECT run.*, COALESCE(plan.max_parallel - plan.running, 1000000000) AS places
      FROM supervision_task AS run JOIN supervision_plan AS plan ON plan.task_id = run.id
     WHERE run.id = %(run_id)s::uuid AND run.current_state IN ('running', 'parked')
       AND run.ending = '' AND run.pause_requested_at IS NULL
), ready AS (
    SELECT node.*, '{STEP}' || node.number AS step FROM supervision_node AS node
     WHERE node.run_id = %(run_id)s::uuid AND node.is_ready
     ORDER BY node.number LIMIT (SELECT GREATEST(0, places) FROM run)
), task AS (
    INSERT INTO supervision_task (
        body, body_version, version_at_start, replay_from, round, queue, priority, arguments, sensitive,
        owner_id, owner_ref, created_by_ref, subject, subject_pk, current_state, watchdog_stop_reason, generation,
        lease, log_length, locked_decisions, failure, wake_at, recoveries, compensations_outstanding, ending,
        ending_reason, idempotency_key, concurrency_key, parent_id, parent_step, root_id, children_awaited, is_awaited
    )
    SELECT ready.body, COALESCE(ready.body_version, run.body_version),
           COALESCE(ready.body_version, run.body_version), 0, 0, ready.queue, ready.priority, ready.arguments,
           ready.sensitive, run.owner_id, run.owner_ref, run.created_by_ref,
           COALESCE(NULLIF(ready.subject, ''), left(ready.name, 200)), '', 'pending', '', 1, 0, 1, '{{}}', '',
           supervision_now_v1(), 0, 0, '', '', '', ready.concurrency_key, run.id, ready.step,
           ready.root_id, 0, true
      FROM run CROSS JOIN ready
     ORDER BY ready.number
    ON CONFLICT DO NOTHING
    RETURNING id, parent_step
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, 1, 'task_created', '', '{{}}', 0, %(actor)s FROM task
), started AS (
    UPDATE supervision_node AS node
       SET state = 'running', is_ready = false, task_id = task.id, started_at = supervision_now_v1()
      FROM task
     WHERE node.number = ANY (ARRAY(SELECT substr(parent_step, 6)::bigint FROM task))
       AND task.parent_step = '{STEP}' || node.number
    RETURNING 1
), plan AS (
    UPDATE supervision_plan SET running = running + (SELECT count(*) FROM started)
     WHERE task_id = %(run_id)s::uuid AND EXISTS (SELECT FROM started)
)
SELECT pg_notify('{CHANNEL}', '') FROM started LIMIT 1
"""  # noqa: S608 - constants only

_WAKE = f"""
WITH run AS (
    UPDATE supervision_task AS run SET wake_at = supervision_now_v1(), log_length = log_length + 1
      FROM supervision_plan AS plan
     WHERE run.id = %(run_id)s::uuid AND plan.task_id = run.id AND run.current_state = 'parked'
       AND run.watchdog_stop_reason = '{Reason.AWAITING_CHILDREN}' AND run.wake_at IS NULL
       AND (plan.needs_run OR plan.unfinished = 0 OR plan.running = 0
            OR run.pause_requested_at IS NULL AND plan.running < COALESCE(plan.max_parallel, 1000000000)
               AND EXISTS (SELECT FROM supervision_node WHERE run_id = plan.task_id AND is_ready))
    RETURNING run.id, run.log_length, run.lease
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, log_length, 'children_ended', '', jsonb_build_object('last', %(task_id)s::text), lease, '' FROM run
)
SELECT pg_notify('{CHANNEL}', '') FROM run
"""  # noqa: S608 - constants only


def statements(task_id: UUID | str, run_id: UUID) -> list[sql.Statement]:
    """What follows the completion of the run's child in its transaction, if it did complete."""
    run = {"task_id": str(task_id), "run_id": str(run_id), "actor": f"task {run_id}"}
    return [(_COUNT, run), (_START, run), (_WAKE, run)]


def ended(child: Task) -> None:
    """The general way: the locked ``child``, whose run is locked too, has just ended in the caller's transaction."""
    if child.parent_id is not None and child.parent_step.startswith(STEP):
        for query, parameters in statements(child.pk, child.parent_id):
            sql.run(query, parameters)


def start_ready(run_id: UUID) -> None:
    """Starts what is ready and has a place; wakes the run if only its drive can go on. The run is locked."""
    for query, parameters in statements("", run_id)[1:]:
        sql.run(query, parameters)


# --- pause, resume, and code that is gone -----------------------------------------------------------------------------

# The stamp of the run's own pause: so a child that a person has paused for itself is told apart, and stays so.
_PAUSE = """
WITH child AS MATERIALIZED (
    SELECT id FROM supervision_task
     WHERE parent_id = %(run_id)s::uuid AND current_state IN ('pending', 'running', 'parked')
       AND ending = '' AND pause_requested_at IS NOT DISTINCT FROM %(was)s::timestamptz
     ORDER BY id FOR NO KEY UPDATE
), task AS (
    UPDATE supervision_task AS task
       SET pause_requested_at = %(becomes)s::timestamptz, generation = generation + 1, log_length = log_length + 1
      FROM child WHERE task.id = child.id
    RETURNING task.id, task.log_length, task.lease
), entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, log_length, %(event)s, '', '{}', lease, %(actor)s FROM task
)
SELECT id FROM task WHERE EXISTS (SELECT FROM supervision_plan WHERE supervision_plan.task_id = task.id)
"""


def pause(run: Task) -> None:
    """The locked run was paused: so are its children, and theirs where they are runs; nothing more is started."""
    _hold(run, None, run.pause_requested_at, "pause_requested")


def resume(run: Task, stamp: datetime | None) -> None:
    """The locked run was resumed, whose pause had the ``stamp``: its children go on, and what is ready starts. A child
    that parked for want of its code tries again."""
    if not Plan.objects.using(run._state.db).filter(task_id=run.pk).exists():
        return
    if stamp is not None:
        _hold(run, stamp, None, "task_resumed")
        notify()  # what is due is free again
    else:
        lost = Task.objects.using(run._state.db).filter(parent_id=run.pk, current_state=State.PARKED)
        for pk in list(lost.for_reasons(Reason.UNKNOWN_NODE).order_by("pk").values_list("pk", flat=True)):
            with locked(pk) as child:
                if child.awaits_operator:
                    write(child, event="task_resumed", bump=True, actor=f"task {run.pk}", wake=True)
    start_ready(run.pk)


def _hold(run: Task, was: datetime | None, becomes: datetime | None, event: str) -> None:
    if not Plan.objects.using(run._state.db).filter(task_id=run.pk).exists():
        return
    runs = [run.pk]
    while runs:
        pk = runs.pop()
        stamps = {"run_id": str(pk), "was": was, "becomes": becomes, "event": event, "actor": f"task {pk}"}
        runs += [row[0] for row in sql.run(_PAUSE, stamps)]


@retried
def park_lost(task_id: UUID | str, lease: int, node: str) -> None:
    """A node's child whose function is gone parks for an operator, and its run is woken to do the same. LeaseLost."""
    reason = Reason.UNKNOWN_NODE.of(node)
    with locked(task_id, lease=lease) as child:
        write(child, to=State.PARKED, reason=reason, event="task_parked", name=node, payload={"reason": reason},
              wake_at=None)  # fmt: skip
        Plan.objects.using(child._state.db).filter(task=child.parent_id).update(needs_run=True)
        sql.run(_WAKE, {"run_id": str(child.parent_id), "task_id": str(child.pk)})


# --- what a retry keeps, and what leaves ------------------------------------------------------------------------------

_KEEP = """
INSERT INTO supervision_node (
    run_id, number, name, state, waiting_for, is_ready, is_driven, after, dependents, "join", required, kind, map_over,
    item, body, body_version, queue, priority, arguments, sensitive, subject, concurrency_key, root_id, task_id, output,
    failure, started_at, finished_at
)
SELECT %(fork)s::uuid, nextval(pg_get_serial_sequence('supervision_node', 'number')), name, node.state, 0, false,
       is_driven, after, dependents, "join", required,
       kind, map_over, item, node.body, node.body_version, node.queue, node.priority, node.arguments, node.sensitive,
       node.subject, node.concurrency_key, node.root_id, node.task_id,
       COALESCE(node.output, child.result, (
           SELECT jsonb_agg(COALESCE(part.output, result.result) ORDER BY part.item)
             FROM supervision_node AS part LEFT JOIN supervision_task AS result ON result.id = part.task_id
            WHERE part.run_id = node.run_id AND part.item IS NOT NULL AND part.dependents[1] = node.number)),
       '', node.started_at, node.finished_at
  FROM supervision_node AS node LEFT JOIN supervision_task AS child ON child.id = node.task_id
 WHERE node.run_id = %(source)s::uuid AND node.state = 'succeeded'
   AND NOT EXISTS (SELECT FROM supervision_node AS whole
                    WHERE node.item IS NOT NULL AND whole.run_id = node.run_id AND whole.number = node.dependents[1]
                      AND whole.state = 'succeeded')
"""


def keep(source: Task, fork: Task) -> None:
    """Copies the nodes that have succeeded, with their outputs: the fork doesn't run them again. It has no plan yet:
    its first drive lays out what the code now says, around them."""
    sql.run(_KEEP, {"source": str(source.pk), "fork": str(fork.pk)})


def prune(task_ids: list[UUID]) -> None:
    """Removes plans and nodes of these runs, inside ``retention.prune``."""
    for table, column in (("supervision_node", "run_id"), ("supervision_plan", "task_id")):
        sql.run(f"DELETE FROM {table} WHERE {column} = ANY (%(ids)s::uuid[])", {"ids": task_ids})  # noqa: S608


_ERASE = """
UPDATE supervision_node
   SET arguments = CASE WHEN arguments = '{}' THEN arguments ELSE %(erased)s::jsonb END, failure = '',
       output = CASE WHEN output IS NULL THEN NULL ELSE %(erased)s::jsonb END
 WHERE run_id = %(id)s::uuid
"""


def erase(task_id: UUID, marker: Mapping[str, Any]) -> None:
    """Replaces what its nodes hold of a person, inside ``retention.erase``."""
    sql.run(_ERASE, {"id": str(task_id), "erased": json.dumps(marker)})

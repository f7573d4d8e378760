"""Plans: a run's nodes are laid out once, and settled whenever the run is driven.

What follows from what, the engine judges, without a look at the database; here it is written, under the run's lock and
lease, so no end of a child comes in between.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from supervision.conf import settings
from supervision.errors import ConcurrencyKeyHeld
from supervision.kernel import countdown, nodes, sql
from supervision.kernel.lease import Requests
from supervision.kernel.models import Heartbeat, Task
from supervision.kernel.nodes import OVER, Node, Plan
from supervision.kernel.states import Reason, State
from supervision.kernel.transition import committing, locked, retried, write

_BATCH = 1_000


@dataclass(frozen=True)
class Judgement:
    """What the engine says of the nodes: those that it changed, those that it added, and whether it has work to do
    before the run may park."""

    changed: Sequence[Node]
    added: Sequence[Node]
    has_work: bool


@dataclass(frozen=True)
class Settled:
    """How a run stands. ``requests``: nothing was written, it is being ended. Otherwise ``has_parked``, ``is_stuck``
    (nothing runs, and nothing can), or the engine has work, or all nodes are over."""

    rows: Sequence[Node] = ()
    requests: Requests | None = None
    has_parked: bool = False
    is_stuck: bool = False
    lost: str = ""
    """A node whose child has parked since its function is gone."""


Judge = Callable[[Sequence[Node], Mapping[int, str]], Judgement]


def is_laid_out(task_id: UUID) -> bool:
    """Whether the run's structure is stored."""
    return Plan.objects.using(settings.DATABASE).filter(task_id=task_id).exists()


@retried
def lay_out(task_id: UUID | str, lease: int, rows: Sequence[Node], *, max_parallel: int | None) -> None:
    """Stores the run's structure, once: one lease-checked transaction. What a retry has kept stays done.

    Items of mapped nodes that were kept stay, too, until their node is expanded. Raises LeaseLost.
    """
    database = settings.DATABASE
    with committing("create"), locked(task_id, lease=lease) as run:
        kept = {row.name: row for row in Node.objects.using(database).filter(run_id=run.pk)}
        whole = {name for name, row in kept.items() if row.item is None}
        Node.objects.using(database).filter(run_id=run.pk, name__in=whole)._raw_delete(database)
        Node.objects.using(database).filter(run_id=run.pk).update(dependents=[])  # until their node is expanded
        _number(rows)
        for row in rows:
            if row.name in whole:
                old = kept[row.name]
                for column in ("state", "task_id", "output", "started_at", "finished_at"):
                    setattr(row, column, getattr(old, column))
                row.is_ready = False
        Node.objects.using(database).bulk_create(rows, batch_size=_BATCH)
        unfinished = sum(row.state not in OVER for row in rows)
        Plan.objects.using(database).create(
            task_id=run.pk, max_parallel=max_parallel, total=len(rows), unfinished=unfinished
        )
        names = [row.name for row in rows[:50]]
        write(run, event="nodes_laid_out", payload={"count": len(rows), "nodes": names, "kept": len(whole)})


@retried
def settle(task_id: UUID | str, lease: int, judge: Judge, *, decisions: Mapping[str, Any] | None = None) -> Settled:
    """Has the fresh nodes judged, writes what changed, starts what is ready, and parks the run if there is nothing for
    it to do: one lease-checked transaction. ``judge`` is pure; it may be called again. Raises LeaseLost."""
    with committing("park"), locked(task_id, lease=lease) as run:
        if run.ending or run.is_overdue:
            return Settled(
                requests=Requests(ending=run.ending, ending_reason=run.ending_reason, is_overdue=run.is_overdue)
            )
        refused: dict[int, str] = {}
        while True:
            rows = nodes.of(run.pk)
            judgement = judge(rows, refused)
            _write(judgement)
            rows = [*rows, *judgement.added]
            _count(run, rows)
            countdown.start_ready(run.pk)
            plan = Plan.objects.using(settings.DATABASE).get(task_id=run.pk)
            more = {} if run.pause_requested_at else _refused(run, plan)
            if not more:
                break
            refused |= more
        return _parked(run, plan, judgement, rows, decisions)


def _parked(
    run: Task, plan: Plan, judgement: Judgement, rows: Sequence[Node], decisions: Mapping[str, Any] | None
) -> Settled:
    lost = Task.objects.using(settings.DATABASE).filter(parent_id=run.pk, current_state=State.PARKED, wake_at=None)
    reason = lost.for_reasons(Reason.UNKNOWN_NODE).values_list("watchdog_stop_reason", flat=True).first()
    if reason:
        return Settled(rows, lost=reason.partition(":")[2])
    if judgement.has_work or not plan.unfinished:
        return Settled(rows)
    if not plan.running and not run.pause_requested_at:
        return Settled(rows, is_stuck=True)
    payload = {"reason": Reason.AWAITING_CHILDREN, "done": plan.total - plan.unfinished, "of": plan.total}
    write(run, to=State.PARKED, reason=Reason.AWAITING_CHILDREN, event="task_parked", payload=payload,
          children_awaited=0, decisions=decisions, wake_at=None if plan.running else run.db_now)  # fmt: skip
    return Settled(rows, has_parked=True)


_CHANGE = """
UPDATE supervision_node AS node
   SET state = each.state, waiting_for = each.waiting_for, is_ready = each.is_ready, is_driven = each.is_driven,
       failure = each.failure, output = COALESCE(each.output::jsonb, node.output),
       started_at = CASE WHEN each.state IN ('pending', 'skipped') THEN node.started_at
                         ELSE COALESCE(node.started_at, supervision_now_v1()) END,
       finished_at = CASE WHEN each.state IN ('succeeded', 'failed', 'skipped')
                          THEN COALESCE(node.finished_at, supervision_now_v1()) END
  FROM unnest(%(number)s::bigint[], %(state)s::text[], %(waiting_for)s::int[], %(is_ready)s::bool[],
              %(is_driven)s::bool[], %(failure)s::text[], %(output)s::text[])
       AS each(number, state, waiting_for, is_ready, is_driven, failure, output)
 WHERE node.number = each.number
"""
_COLUMNS = ("number", "state", "waiting_for", "is_ready", "is_driven", "failure")
_CHILD = ("arguments", "sensitive", "subject", "concurrency_key", "body_version", "dependents", "item")
"""What a node becomes known to start with only when it is ready."""


def _write(judgement: Judgement) -> None:
    rows = judgement.changed
    if rows:
        arrays: dict[str, list[Any]] = {name: [getattr(row, name) for row in rows] for name in _COLUMNS}
        arrays["output"] = [getattr(row, "new_output", None) for row in rows]
        sql.run(_CHANGE, arrays)
    for row in rows:
        if getattr(row, "is_filled", False):
            values = {name: getattr(row, name) for name in _CHILD if name in row.__dict__}
            Node.objects.using(settings.DATABASE).filter(pk=row.number).update(**values)
    for row, number in zip(judgement.added, nodes.fresh_numbers(len(judgement.added)), strict=True):
        row.number = number
    Node.objects.using(settings.DATABASE).bulk_create(judgement.added, batch_size=_BATCH)


def _number(rows: Sequence[Node]) -> None:
    """Gives the nodes, numbered from 1 among themselves, numbers that no other node has."""
    numbers = dict(enumerate(nodes.fresh_numbers(len(rows)), start=1))
    for row in rows:
        row.number = numbers[row.number]
        row.after, row.dependents = ([numbers[each] for each in column] for column in (row.after, row.dependents))


def _count(run: Task, rows: Sequence[Node]) -> None:
    """The plan's counts, anew: what was unsettled is settled."""
    whole = [row for row in rows if row.item is None]
    unfinished = sum(row.state not in OVER for row in whole)
    Plan.objects.using(settings.DATABASE).filter(task_id=run.pk).update(unfinished=unfinished, needs_run=False)
    Heartbeat.objects.using(settings.DATABASE).filter(task_id=run.pk).update(
        progress_done=len(whole) - unfinished, progress_total=len(whole)
    )


def _refused(run: Task, plan: Plan) -> dict[int, str]:
    """Nodes that are ready, have a place, and yet could not be started: a live task holds their concurrency key."""
    places = (plan.max_parallel - plan.running) if plan.max_parallel is not None else 1
    if places <= 0:
        return {}
    left = Node.objects.using(settings.DATABASE).filter(run_id=run.pk, is_ready=True).only("number", "concurrency_key")
    return {row.number: str(ConcurrencyKeyHeld(row.concurrency_key, None)) for row in left}

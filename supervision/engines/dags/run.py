"""Driving a run: lay its nodes out, do what only it can (conditions, maps, inline work), and say how it went.

A run isn't driven for each node: the end of a child starts what follows. It is for what needs the author's code.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from supervision.engines import registry
from supervision.engines.context import Context
from supervision.engines.dags import layout
from supervision.engines.dags.board import MAP, Begin, Board, Decision, Expand, Fail, Skip, Succeed
from supervision.engines.dags.definition import Definition, takes
from supervision.engines.dags.errors import NodeLost, NodesFailed, Stuck
from supervision.engines.registry import Body
from supervision.errors import AwaitingChildren, StepFailed, SupervisionError, TooLarge
from supervision.kernel import lease as leases
from supervision.kernel import nodes, plans, storable
from supervision.kernel.nodes import Node
from supervision.kernel.plans import Judgement, Settled
from supervision.kernel.states import Reason

if TYPE_CHECKING:
    from supervision.engines.dags.dag import Dag

_PATIENCE = 0.2
"""How many seconds nodes that have become ready may wait for the inline work that goes on,"""
_UNSEEN = 2.0
"""and how many it may go on without showing its progress."""


class DagRun(Context):
    """The context of a run's drive."""

    decided: dict[int, Decision]
    """What was decided since the nodes were last settled."""

    def lay_out(self, dag: Dag) -> Sequence[Node]:
        """The nodes as stored; the first drive stores them."""
        with self._kernel():
            if not plans.is_laid_out(self.id):
                fresh = layout.rows(dag, self.id, self._taken.root_id)
                plans.lay_out(self.id, self._taken.lease, fresh, max_parallel=dag.max_parallel)
            return nodes.of(self.id)

    def enter(self, node: str) -> None:
        """Observes what was requested, before anything is done for the node."""
        self._enter(node, is_recorded=False)

    def settle(self, make: Callable[[Node, int, int, Any], Node]) -> Settled:
        """Writes what was decided, and parks if nothing is left to do here. Raises what ends the drive."""
        decided = dict(self.decided)

        def judge(rows: Sequence[Node], refused: Mapping[int, str]) -> Judgement:
            board = Board(rows, make)
            for number, decision in decided.items():
                board.apply(number, decision)
            for number, why in refused.items():
                board.apply(number, Fail(why))
            return Judgement(board.changed, board.added, board.work() is not None)

        with self._kernel():
            settled = plans.settle(self.id, self._taken.lease, judge, decisions=self._changed())
        self._refuse(settled.requests, "nodes")
        self.decided = {}
        if settled.has_parked:
            raise self._end(AwaitingChildren())
        return settled

    def park_lost(self, node: str) -> NodeLost:
        """Parks for an operator: the code has no such node. What to raise."""
        reason = Reason.UNKNOWN_NODE.of(node)
        with self._kernel():
            leases.park(self.id, self._taken.lease, reason, name=node[:400])
        self._end(lost := NodeLost(reason))
        return lost

    def inputs(self, node: str) -> dict[str, Any]:
        with self._kernel():
            return nodes.inputs(self.id, node)

    def outputs(self, numbers: Sequence[int]) -> dict[str, Any]:
        with self._kernel():
            return nodes.outputs(numbers)

    def said(self, error: Exception) -> str:
        """An error of the author's code as one line; one of a database that went away ends the drive instead."""
        self._raise_if_lost(error)
        return f"{type(error).__name__}: {self._clean(error)}"


class DagEngine:
    """Interprets one DAG. The structure is the run's, as stored; the functions are the code's, as it is now."""

    context = DagRun
    keeps_steps = True

    def __init__(self, dag: Dag) -> None:
        self.dag = dag

    def run(self, body: Body, context: DagRun) -> Any:
        """Drives until all nodes are over, with the run's result, or until something ends the drive."""
        context.enter("nodes")
        context.decided = {}
        rows = context.lay_out(self.dag)
        self._find_lost(context, rows)
        return _Drive(self.dag, context, rows).to_the_end()

    def _find_lost(self, run: DagRun, rows: Sequence[Node]) -> None:
        for row in rows:
            if row.state in nodes.OVER or row.item is not None:
                continue
            if layout.kind_of(self.dag.nodes.get(row.name)) != layout.coarse(row.kind):
                raise run.park_lost(row.name)


class _Drive:
    """One drive of one run: the board in memory, with outputs that inline nodes have just handed over."""

    def __init__(self, dag: Dag, run: DagRun, rows: Sequence[Node]) -> None:
        self._dag, self._run = dag, run
        self._arguments = dag.body.load_arguments(run.arguments)
        self._make = partial(layout.item, run._taken.root_id)
        self._board = Board(rows, self._make)
        self._fresh: dict[str, Any] = {}

    def to_the_end(self) -> Any:
        while True:
            # what has ended since (a map, by its last item) is settled first: outputs are read from the rows
            if not self._board.changed:
                self._work()
            self._run.enter("nodes")
            settled = self._run.settle(self._make)
            self._fresh = {}
            self._board = Board(settled.rows, self._make)
            if settled.lost:
                raise self._run.park_lost(settled.lost)
            if settled.is_stuck:
                raise Stuck(_waiting(self._board))
            if self._board.work() is None:
                return self._over(self._board.nodes)

    def _work(self) -> None:
        """What waits for the run alone, node by node; what becomes ready to be a child doesn't wait long for it."""
        began = time.monotonic()
        while (node := self._board.work()) is not None:
            if time.monotonic() - began > (_PATIENCE if self._board.has_startable else _UNSEEN):
                return
            self._run.enter(node.name)
            decision = self._decide(node)
            self._run.decided[node.number] = decision
            self._board.apply(node.number, decision)

    def _decide(self, node: Node) -> Decision:
        """What becomes of a node that is ready. Errors of the author's code are its failure."""
        definition = self._dag.nodes[node.name]
        names = [self._board.by_number[number].name for number in node.after]
        found = {name: self._fresh[name] for name in names if name in self._fresh}
        if len(found) < len(names):
            found = {**self._run.inputs(node.name), **found}
        try:
            if definition.when is not None and not definition.when(found):
                return Skip()
            return self._begin(node, definition, found)
        except StepFailed as failed:
            return Fail(f"{failed.error_type}: {failed.error}")
        except Exception as error:
            return Fail(self._run.said(error))

    def _begin(self, node: Node, definition: Definition, found: dict[str, Any]) -> Decision:
        offered = {**self._arguments, **found}
        if node.kind == MAP:
            values = found[node.map_over]
            if not isinstance(values, list):
                raise SupervisionError(f"{node.map_over} returned no list, but {type(values).__name__}")
            if not values:
                self._fresh[node.name] = []  # over at once
            return Expand(values)
        if node.kind == layout.INLINE:
            return self._inline(node, definition, offered)
        if node.kind == layout.TASK:
            return self._task(definition, offered)
        return Begin()

    def _inline(self, node: Node, definition: Definition, offered: dict[str, Any]) -> Decision:
        """Runs it as a step: what a crash leaves unsettled is found in the log."""
        function = definition.function
        assert function is not None  # noqa: S101 - of that kind
        work = partial(function, **takes(function, offered, first=1))
        output = self._run.step(
            f"node {node.name}", work, self._run, retry=definition.retry, timeout=definition.timeout
        )
        self._fresh[node.name] = output
        return Succeed(storable.encode(output, place=node.name, limit="MAX_PAYLOAD_BYTES"))

    def _task(self, definition: Definition, offered: dict[str, Any]) -> Decision:
        """The arguments of a whole task, checked as any start checks them."""
        known = registry.get(definition.body)
        arguments, subject = definition.arguments, definition.subject
        if callable(arguments):
            arguments = arguments(**takes(arguments, offered, first=0))
        if callable(subject):
            subject = subject(**takes(subject, offered, first=0))
        checked = known.check_arguments(arguments or {})
        storable.encode(checked, place="arguments", limit="MAX_ARGUMENTS_BYTES")
        about = storable.text(str(subject), 200)
        return Begin(
            {
                "arguments": checked, "sensitive": list(known.sensitive), "subject": about,
                "body_version": known.version,
                "concurrency_key": known.key_of(about) if known.key_of is not None else "",
            }
        )  # fmt: skip

    def _over(self, rows: Sequence[Any]) -> Any:
        """The result of a run whose nodes are all over. Raises NodesFailed if one that it requires has failed."""
        whole = [row for row in rows if row.item is None]
        named = {
            state: [row.name for row in whole if row.state == state] for state in ("succeeded", "failed", "skipped")
        }
        bad = [(row.name, row.failure) for row in whole if row.state == "failed" and row.required]
        if bad:
            raise NodesFailed(bad, succeeded=len(named["succeeded"]), skipped=named["skipped"])
        last = [row.number for row in whole if not row.dependents and row.state == "succeeded"]
        result = {**named, "outputs": self._run.outputs(last)}
        try:
            storable.encode(result, place="result", limit="MAX_RESULT_BYTES")
        except TooLarge:
            return {**named, "outputs": None}
        return result


def _waiting(board: Board) -> list[tuple[str, list[str]]]:
    names = board.by_number
    return [
        (node.name, [names[number].name for number in node.after if names[number].state not in nodes.OVER])
        for node in board.nodes if node.state not in nodes.OVER
    ]  # fmt: skip

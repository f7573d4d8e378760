"""The rows of a run, made of a DAG's definition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid5

from supervision.engines import registry
from supervision.engines.dags.board import Board
from supervision.engines.dags.definition import Definition
from supervision.kernel.nodes import STEP, Node

if TYPE_CHECKING:
    from supervision.engines.dags.dag import Dag

INLINE, TASK, FUNCTION = "inline", "task", "function"


def coarse(kind: str) -> str:
    """Whether a stored node needs a function of the code, or a body."""
    return TASK if kind == TASK else FUNCTION


def kind_of(definition: Definition | None) -> str:
    return "" if definition is None else coarse(definition.kind)


def rows(dag: Dag, run_id: UUID, root_id: UUID) -> list[Node]:
    """The nodes of a new run, each numbered above what it waits for, judged as they stand before anything has run."""
    ordered = dag.ordered()
    numbers = {node.name: at for at, node in enumerate(ordered, start=1)}
    made = {node.name: _row(dag, node, run_id, root_id, numbers) for node in ordered}
    for node in ordered:
        for each in node.after:
            made[each].dependents.append(numbers[node.name])
    Board(made.values())
    return list(made.values())


def _row(dag: Dag, node: Definition, run_id: UUID, root_id: UUID, numbers: dict[str, int]) -> Node:
    body = registry.get(node.body) if node.body else dag.node_body
    return Node(
        run_id=run_id, number=numbers[node.name], name=node.name, after=sorted(numbers[each] for each in node.after),
        dependents=[], join=node.join, required=node.required, kind=node.kind, is_driven=node.is_driven,
        map_over=node.map_over, body=body.name, body_version=body.version if node.body else None,
        queue=node.queue or body.queue,
        priority=body.priority if node.priority is None else node.priority,
        arguments={} if node.body else {"node": node.name}, root_id=uuid5(root_id, STEP + node.name),
    )  # fmt: skip


def item(root_id: UUID, node: Node, number: int, place: int, value: Any) -> Node:
    """The row of one item of a mapped node: ready at once."""
    name = f"{node.name}[{place:06d}]"
    return Node(
        run_id=node.run_id, number=number, name=name, after=[], dependents=[node.number], kind=FUNCTION, item=place,
        is_ready=True, body=node.body, body_version=node.body_version, queue=node.queue, priority=node.priority,
        arguments={"node": node.name, "item": value}, root_id=uuid5(root_id, STEP + name), required=False,
    )  # fmt: skip

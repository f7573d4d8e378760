"""A run's nodes on its task's page: the graph with each node's state, and the same in words, with times and links."""

from __future__ import annotations

import hashlib
from datetime import datetime
from functools import partial
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from supervision import diagrams, wording
from supervision.admin import pictures
from supervision.admin.access import visible_tasks
from supervision.engines.dags.picture import graph_of_run, taken
from supervision.kernel import masking, nodes
from supervision.kernel.models import Task
from supervision.kernel.nodes import Node, NodeState, Plan
from supervision.showing.tasks import body_label
from supervision.showing.texts import excerpt
from supervision.signs import sign
from supervision.wording import Situation

DRAWN = 100
"""A picture of more nodes tells nobody anything."""
LISTED = 200
_FIRST = {"failed": 0, "running": 1}


def describe(request: HttpRequest, task: Task) -> dict[str, Any]:
    """What the page shows of the nodes; nothing if the task is no run."""
    plan = Plan.objects.filter(task_id=task.pk).first()
    if plan is None:
        return {"plan": None}
    rows = nodes.of(task.pk)
    listed = sorted(rows, key=partial(_place, urgent_first=len(rows) > LISTED))[:LISTED]
    is_drawn = sum(row.item is None for row in rows) <= DRAWN
    children = _children(request, listed)
    secrets = task.secrets
    return {
        "plan": plan,
        "nodes": [_row(row, children, task.db_now, secrets) for row in listed],
        "left_out": len(rows) - len(listed),
        "is_drawn": is_drawn,
        "can_render": is_drawn and diagrams.can_render(),
        "mermaid": diagrams.mermaid(_graph(task, rows)) if is_drawn and not diagrams.can_render() else "",
        "drawn_at": hashlib.sha256(repr([(row.name, row.state) for row in rows]).encode()).hexdigest()[:16],
        "children": [],  # the nodes tell of them
        "has_more_children": False,
    }


def _place(row: Node, *, urgent_first: bool) -> tuple[int, int, int]:
    """Items behind the node that they are of."""
    whole = row.dependents[0] if row.item is not None and row.dependents else row.number
    return _FIRST.get(row.state, 2) if urgent_first else 0, whole, -1 if row.item is None else row.item


def picture(task: Task) -> HttpResponse:
    """An image, and nothing that could run."""
    rows = nodes.of(task.pk)
    if not 0 < sum(row.item is None for row in rows) <= DRAWN:
        raise Http404(_("There is no picture of this task."))
    return pictures.picture(partial(_graph, task, rows))


def _graph(task: Task, rows: list[Node]) -> diagrams.Graph:
    return graph_of_run(body_label(task.body), rows, task.db_now)


def _children(request: HttpRequest, rows: list[Node]) -> dict[Any, Task]:
    """The tasks of those nodes that this person may see."""
    ids = [row.task_id for row in rows if row.task_id is not None]
    tasks = visible_tasks(request.user).with_clock().defer("arguments", "locked_decisions", "result")
    return {each.pk: each for each in tasks.filter(pk__in=ids)}


def _row(row: Node, children: dict[Any, Task], now: datetime, secrets: list[str]) -> dict[str, Any]:
    """A running node shows what its task is doing."""
    child = children.get(row.task_id)
    shape = "completed" if row.state == NodeState.SUCCEEDED else str(row.state)
    situation = Situation(shape, str(row.get_state_display()))
    if child is not None and row.state == NodeState.RUNNING:
        situation = wording.situation(child)
    return {
        "node": row,
        "sign": sign(situation),
        "child": child,
        "took": taken(row, now),
        "failure": excerpt(masking.mask_values(row.failure, secrets), 300) if row.failure else "",
    }

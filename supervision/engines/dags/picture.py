"""The picture of a DAG, or of one run of it with each node's state. Pure but for the words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils.translation import gettext as _

from supervision import wording
from supervision.diagrams import Edge, Graph, Node, NodeKind
from supervision.engines.dags.definition import Definition

_MARKS = {"pending": "·", "running": "▶", "succeeded": "✓", "failed": "✗", "skipped": "»"}
"""Beside the word: a colour is never the only sign."""
_KINDS: dict[str, NodeKind] = {"succeeded": "completed", "failed": "failed"}


def graph_of(title: str, definitions: Sequence[Definition]) -> Graph:
    """The DAG as the code has it, with its joins, conditions and maps."""
    nodes = [Node(node.name, notes=tuple(_options(node)), waits=node.when is not None) for node in definitions]
    edges = [Edge(other, node.name, *_edge(node.join)) for node in definitions for other in node.after]
    return Graph(title, tuple(nodes), tuple(edges))


def graph_of_run(title: str, rows: Sequence[Any], now: datetime) -> Graph:
    """A run's stored structure, each node with its state in a word, and how long it took. ``rows`` are its nodes."""
    whole = [row for row in rows if row.item is None]
    names = {row.number: row.name for row in whole}
    items: dict[int, list[str]] = {}
    for row in rows:
        if row.item is not None and row.dependents:
            items.setdefault(row.dependents[0], []).append(row.state)
    nodes = [
        Node(row.name, _KINDS.get(row.state, "state"), tuple(_notes(row, items.get(row.number, []), now)),
             waits=row.state == "skipped", is_current=row.state == "running")
        for row in whole
    ]  # fmt: skip
    edges = [Edge(names[number], row.name, *_edge(row.join)) for row in whole for number in row.after]
    return Graph(title, tuple(nodes), tuple(edges))


def _edge(join: str) -> tuple[str, Any]:
    if join == "any":
        return _("any"), "branch"
    return (_("however it ends"), "branch") if join == "all_done" else ("", "success")


def _options(node: Definition) -> Iterator[str]:
    if node.when is not None:
        yield _("on a condition")
    if node.map_over:
        yield _("for each of %(name)s") % {"name": node.map_over}
    if node.inline:
        yield _("inline")
    if node.body:
        yield node.body
    if not node.required:
        yield _("not required")


def _notes(row: Any, items: list[str], now: datetime) -> Iterator[str]:
    took = taken(row, now)
    yield f"{_MARKS[row.state]} {row.get_state_display()}" + (f", {took}" if took else "")
    if items:
        yield _("%(done)s of %(all)s items") % {"done": items.count("succeeded"), "all": len(items)}


def taken(row: Any, now: datetime) -> str:
    """How long the node has run so far, in words; empty if it hasn't."""
    if row.started_at is None or row.state == "skipped":
        return ""
    length = (row.finished_at or now) - row.started_at
    return wording.duration(length) if length >= timedelta(seconds=1) else _("under 1 s")


def counted(rows: Sequence[Any]) -> Mapping[str, int]:
    """State -> how many nodes."""
    found: dict[str, int] = {}
    for row in rows:
        if row.item is None:
            found[row.state] = found.get(row.state, 0) + 1
    return found

"""The picture of a machine, drawn from the very table that is looked up. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision import wording
from supervision.diagrams import Edge, Graph, Node
from supervision.engines.machines.definition import Hook, Table, Transition


def graph_of(table: Table, *, counts: Mapping[str, int] | None = None, current: str = "") -> Graph:
    """States and the events that lead from one to the other, with guards and times. ``counts`` are the subjects in each
    state; ``current`` is lit. Where a subject is that the table doesn't have is drawn, too."""
    subjects = counts or {}
    strangers = sorted({*subjects, *([current] if current else [])} - set(table.states))
    nodes = [
        Node(state, "state" if table.leaving(state) else "completed", _counted(subjects, state),
             waits=state in table.timed_states, is_initial=state in table.initial, is_current=state == current)
        for state in table.states
    ]  # fmt: skip
    nodes += [Node(name, "lost", _counted(subjects, name), is_current=name == current) for name in strangers]
    return Graph(table.name, tuple(nodes), tuple(_edges(table)))


def _edges(table: Table) -> Iterator[Edge]:
    """One for each pair of states, with all events that lead there."""
    labels: dict[tuple[str, str], list[str]] = {}
    for state in table.states:
        for rows in table.leaving(state).values():
            for row in rows:
                labels.setdefault((state, row.target), []).append(_label(row))
    for (source, target), texts in labels.items():
        yield Edge(source, target, ", ".join(dict.fromkeys(texts)))


def _label(row: Transition) -> str:
    guard = f" [{_name(row.guard)}]" if row.guard is not None else ""
    timed = " " + _("after %(time)s") % {"time": wording.duration(row.after)} if row.after is not None else ""
    return f"{row.event}{guard}{timed}"


def _name(guard: Hook) -> str:
    name = getattr(guard, "__name__", "")
    return name if name.isidentifier() else _("guard")


def _counted(subjects: Mapping[str, int], state: str) -> tuple[str, ...]:
    count = subjects.get(state, 0)
    return (ngettext("%(n)s here", "%(n)s here", count) % {"n": f"{count:,}"},) if count else ()

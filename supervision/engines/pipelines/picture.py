"""The picture of a pipeline, drawn from the very table that the engine runs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision import wording
from supervision.diagrams import Edge, EdgeKind, Graph, Node
from supervision.engines.pipelines.definition import State, Table, exhausted_state
from supervision.engines.pipelines.outcome import FAILURE, SUCCESS


def graph_of(table: Table, *, counts: Mapping[str, int] | None = None, current: str = "") -> Graph:
    """States, ends and what leads where, with yields and caps. ``counts`` are the subjects in each state; ``current``
    is lit. Where a pointer is that the table doesn't have (a cap's end, a state that was lost) is drawn, too."""
    subjects = counts or {}
    nodes = [
        Node(name, "state", (*_notes(state), *_counted(subjects, name)), waits=_waits(name, state),
             is_initial=name == table.initial, is_current=name == current)
        for name, state in table.states.items()
    ]  # fmt: skip
    nodes += [
        Node(name, "completed" if end == "completed" else "failed", (_end(end), *_counted(subjects, name)),
             is_current=name == current)
        for name, end in table.terminal.items()
    ]  # fmt: skip
    edges = [edge for name, state in table.states.items() for edge in _edges(name, state)]
    for name in sorted({*subjects, *([current] if current else [])} - {node.name for node in nodes}):
        capped = exhausted_state(name)
        nodes.append(Node(name, "failed" if capped else "lost", _counted(subjects, name), is_current=name == current))
        if capped in table.states:
            edges.append(Edge(capped, name, _("no visits left"), "failure"))
    return Graph(table.name, tuple(nodes), tuple(edges))


def _edges(name: str, state: State) -> Iterator[Edge]:
    """One edge for each target, with the outcomes that lead there; a plain success needs no word."""
    outcomes: dict[str, list[str]] = {}
    for outcome, target in state.targets.items():
        outcomes.setdefault(target, []).append(outcome)
    for target, names in outcomes.items():
        if names == [SUCCESS] and target != name:
            yield Edge(name, target)
            continue
        label = ", ".join(_outcome(each) for each in names)
        if SUCCESS in names and FAILURE in names and len(names) == 2:
            label = _("always")
        if target == name and not state.continue_run:
            label = _("%(outcome)s: yields") % {"outcome": label}
        yield Edge(name, target, label, _kind(names))


def _kind(outcomes: list[str]) -> EdgeKind:
    return "success" if SUCCESS in outcomes else "failure" if FAILURE in outcomes else "branch"


def _outcome(name: str) -> str:
    return {SUCCESS: _("success"), FAILURE: _("failure")}.get(name, name)


def _waits(name: str, state: State) -> bool:
    return state.ready is not None or (not state.continue_run and name in state.targets.values())


def _notes(state: State) -> Iterator[str]:
    if state.ready is not None or not state.continue_run:
        yield _("looks every %(time)s") % {"time": wording.duration(state.poll_every)}
    if state.max_visits is not None:
        yield ngettext("at most %(n)s visit", "at most %(n)s visits", state.max_visits) % {"n": state.max_visits}
    if state.retry_after > timedelta(0):
        yield _("again after %(time)s") % {"time": wording.duration(state.retry_after)}


def _counted(subjects: Mapping[str, int], name: str) -> tuple[str, ...]:
    count = subjects.get(name, 0)
    return (ngettext("%(n)s here", "%(n)s here", count) % {"n": f"{count:,}"},) if count else ()


def _end(end: str) -> str:
    return _("completed") if end == "completed" else _("failed")

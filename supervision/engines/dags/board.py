"""What follows from what has happened: which nodes are ready, skipped, or over. Pure; the database is elsewhere.

Nodes are anything that has the columns of ``kernel.nodes.Node``; they are changed in place. They come by number, and
each has a higher one than those that it waits for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PENDING, RUNNING, SUCCEEDED, FAILED, SKIPPED = "pending", "running", "succeeded", "failed", "skipped"
OVER = frozenset({SUCCEEDED, FAILED, SKIPPED})
JOINS = ("all", "any", "all_done")
MAP = "map"


@dataclass(frozen=True)
class Skip:
    """Its condition said no."""


@dataclass(frozen=True)
class Fail:
    """It can't be run, or was run here and failed. One line for people."""

    failure: str


@dataclass(frozen=True)
class Succeed:
    """It was run here. ``output`` is JSON; None: nothing."""

    output: str | None = None


@dataclass(frozen=True)
class Begin:
    """It becomes a child, with these columns of its own."""

    columns: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Expand:
    """It becomes a child for each of these items."""

    items: Sequence[Any]


Decision = Skip | Fail | Succeed | Begin | Expand


class Board:
    """The nodes of one run as they stand. ``make`` makes the row of an item: (mapped node, number, place, value)."""

    def __init__(self, nodes: Iterable[Any], make: Callable[[Any, int, int, Any], Any] | None = None) -> None:
        self._make = make
        self.nodes: list[Any] = list(nodes)
        self.by_number = {node.number: node for node in self.nodes}
        self._items: dict[int, list[Any]] = {}
        for node in self.nodes:
            if node.item is not None and node.dependents:
                self._items.setdefault(node.dependents[0], []).append(node)
        self._changed: dict[int, Any] = {}
        self._new: set[int] = set()
        self.added: list[Any] = []
        self._ready: dict[int, None] = {}
        self.has_startable = False
        """Whether something has become ready to be a child since."""
        for node in self.nodes:
            self._judge(node)

    # --- what to do

    @property
    def changed(self) -> list[Any]:
        """What differs from what was given, but for what was added."""
        return list(self._changed.values())

    def work(self) -> Any | None:
        """The first node that waits for nothing but the run itself."""
        while self._ready:
            number = next(iter(self._ready))
            if self._is_work(self.by_number[number]):
                return self.by_number[number]
            del self._ready[number]
        return None

    def _is_work(self, node: Any) -> bool:
        return bool(node.state == PENDING and node.is_driven and node.waiting_for == 0 and node.item is None)

    # --- what was decided

    def apply(self, number: int, decision: Decision) -> None:
        """Takes the decision over, if the node still waits for one, and all that follows from it."""
        node = self.by_number[number]
        if node.state != PENDING:
            return
        match decision:
            case Skip():
                self._end(node, SKIPPED)
            case Fail(failure):
                node.failure = failure
                self._end(node, FAILED)
            case Succeed(output):
                node.new_output = output
                self._end(node, SUCCEEDED)
            case Begin(columns):
                for column, value in columns.items():
                    setattr(node, column, value)
                node.is_filled = bool(columns)
                node.is_driven, node.is_ready = False, True
                self.has_startable = True
                self._note(node)
            case Expand(items):
                self._expand(node, items)

    def _expand(self, node: Any, values: Sequence[Any]) -> None:
        assert self._make is not None  # noqa: S101 - only a definition has none, and decides nothing
        named = {item.name: item for item in self.nodes if item.item is not None}
        top = max(self.by_number)
        parts = []
        for place, value in enumerate(values):
            part = self._make(node, top + 1 + place, place, value)
            known = named.get(part.name)
            if known is not None:  # kept by a retry
                known.dependents, known.item, known.is_filled = [node.number], place, True
                self._note(known)
                part = known
            else:
                self.added.append(part)
                self._new.add(part.number)
                self.by_number[part.number] = part
            parts.append(part)
        self._items[node.number] = parts
        self.has_startable = True
        node.state, node.is_ready = RUNNING, False
        if not parts:
            node.new_output = "[]"
        self._note(node)
        self._judge(node)

    def _end(self, node: Any, state: str) -> None:
        """The node is over, and so is, or begins, whatever follows from that."""
        node.state, node.is_ready = state, False
        self._note(node)
        fresh = deque(node.dependents)
        while fresh:
            self._judge(self.by_number[fresh.popleft()], fresh)

    # --- how one node stands

    def _judge(self, node: Any, fresh: deque[int] | None = None) -> None:
        if node.state == RUNNING and node.kind == MAP:
            self._judge_map(node, fresh)
        if node.state != PENDING or node.item is not None:
            return
        before = (node.waiting_for, node.is_ready)
        waiting = waits(node.join, [self.by_number[number].state for number in node.after])
        if waiting is None:
            node.state, node.is_ready = SKIPPED, False
            self._note(node)
            if fresh is not None:
                fresh.extend(node.dependents)
            return  # at the start all later ones are judged anyway
        node.waiting_for = waiting
        node.is_ready = waiting == 0 and not node.is_driven
        if (node.waiting_for, node.is_ready) != before:
            self.has_startable |= node.is_ready
            self._note(node)
        if self._is_work(node):
            self._ready[node.number] = None

    def _judge_map(self, node: Any, fresh: deque[int] | None) -> None:
        parts = self._items.get(node.number, [])
        left = sum(part.state != SUCCEEDED for part in parts)
        if left != node.waiting_for:
            node.waiting_for = left
            self._note(node)
        if all(part.state in OVER for part in parts):
            bad = [part for part in parts if part.state != SUCCEEDED]
            if bad:
                node.failure = f"{len(bad)} of {len(parts)} items failed; the first, {bad[0].name}: {bad[0].failure}"
            node.state = FAILED if bad else SUCCEEDED
            self._note(node)
            if fresh is not None:
                fresh.extend(node.dependents)
            else:
                self._end(node, node.state)

    def _note(self, node: Any) -> None:
        if node.number not in self._new:
            self._changed[node.number] = node


def waits(join: str, states: Sequence[str]) -> int | None:
    """How many successes a node still waits for, of those in these states; None: it never starts."""
    over = sum(state in OVER for state in states)
    succeeded = states.count(SUCCEEDED)
    if join == "any" and states:
        return 0 if succeeded else None if over == len(states) else 1
    if join == "all_done":
        return len(states) - over
    return None if over > succeeded else len(states) - succeeded

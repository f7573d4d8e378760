"""What an author says of a node, and what can be wrong with it. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from supervision.engines.dags.board import JOINS
from supervision.engines.steps import Retry

LONGEST_NAME = 200


@dataclass(frozen=True)
class Definition:
    """One node of the code. ``function`` is called with what it names of its dependencies' outputs and of the run's
    arguments; a node without one is a whole task of ``body``."""

    name: str
    after: tuple[str, ...]
    join: str = "all"
    required: bool = True
    when: Callable[[Mapping[str, Any]], Any] | None = None
    inline: bool = False
    map_over: str = ""
    function: Callable[..., Any] | None = None
    retry: Retry | None = None
    timeout: float | timedelta | None = None
    body: str = ""
    arguments: Mapping[str, Any] | Callable[..., Any] = field(default_factory=dict)
    subject: str | Callable[..., Any] = ""
    queue: str = ""
    priority: int | None = None

    @property
    def kind(self) -> str:
        return "map" if self.map_over else "inline" if self.inline else "task" if self.body else "function"

    @property
    def is_driven(self) -> bool:
        """Whether the run must be driven before it can begin."""
        return self.kind != "function" or self.when is not None


def takes(function: Callable[..., Any], offered: Mapping[str, Any], *, first: int) -> dict[str, Any]:
    """What the function takes of what is offered, by the names of its parameters from the ``first`` on."""
    parameters = list(inspect.signature(function).parameters.values())[first:]
    if any(each.kind is each.VAR_KEYWORD for each in parameters):
        return dict(offered)
    return {each.name: offered[each.name] for each in parameters if each.name in offered}


def name_fault(name: Any) -> str:
    is_text = isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and name.isprintable()
    if not is_text:
        return f"a node's name must be a text of 1 to {LONGEST_NAME} printable characters, not {name!r}"
    return f"the node's name {name!r} may not contain “[” or “#”" if set(name) & set("[#") else ""


def option_fault(node: Definition) -> str:
    """What is wrong with the options of one node, seen alone."""
    if node.join not in JOINS:
        return f"join is {node.join!r}; it must be one of {', '.join(JOINS)}"
    if node.name in node.after:
        return f"it waits for itself: {node.name} → {node.name}"
    if len(set(node.after)) < len(node.after):
        return f"it names a dependency twice: {', '.join(node.after)}"
    if node.map_over and node.map_over not in node.after:
        return f"map_over names {node.map_over!r}, which isn't in after"
    if node.map_over and node.inline:
        return "inline=True and map_over= contradict each other"
    if node.inline and (node.queue or node.priority is not None):
        return "an inline node is run by its run: queue= and priority= have no meaning"
    if node.priority is not None and not 0 <= node.priority <= 9:
        return f"priority is {node.priority}; it must be from 0 to 9"
    if inspect.iscoroutinefunction(node.function):
        return "its function is `async def`; it must be an ordinary function"
    return ""


def parameter_fault(node: Definition, arguments: Iterable[str]) -> str:
    """A parameter that nothing is handed to. Without dependencies a function's parameters are the run's arguments."""
    known = {*node.after, *arguments}
    functions = [(each, 0) for each in (node.arguments, node.subject) if callable(each)]
    functions += [(node.function, 1)] if node.function is not None else []
    for function, first in functions:
        parameters = list(inspect.signature(function).parameters.values())
        if first and not parameters:
            return "its function takes no parameter; the first one is the node's context"
        for each in parameters[first:]:
            if each.kind in (each.VAR_KEYWORD, each.VAR_POSITIONAL):
                continue
            if each.name not in known:
                having = f"it has {', '.join(node.after) or 'none'}"
                return f"the parameter {each.name!r} is no dependency ({having}), and no argument of the run"
    return ""


def cycle(nodes: Mapping[str, Definition]) -> list[str]:
    """The names along a circle of dependencies, the first again at the end; empty if there is none."""
    done: set[str] = set()
    for start in nodes:
        path: list[str] = []
        on_path: set[str] = set()
        stack: list[tuple[str, bool]] = [(start, False)]
        while stack:
            name, is_left = stack.pop()
            if is_left:
                path.pop()
                on_path.discard(name)
                done.add(name)
                continue
            if name in on_path:
                return [*path[path.index(name) :], name]
            if name in done or name not in nodes:
                continue
            path.append(name)
            on_path.add(name)
            stack.append((name, True))
            stack += [(each, False) for each in nodes[name].after]
    return []


def ordered(nodes: Mapping[str, Definition]) -> list[Definition]:
    """By layer: each behind what it waits for, in the order of their definition within a layer. No cycles."""
    layer: dict[str, int] = {}
    stack = list(nodes)[::-1]
    while stack:
        name = stack[-1]
        missing = [each for each in nodes[name].after if each not in layer]
        if missing:
            stack += missing
            continue
        stack.pop()
        layer[name] = 1 + max((layer[each] for each in nodes[name].after), default=0)
    place = {name: at for at, name in enumerate(nodes)}
    return sorted(nodes.values(), key=lambda node: (layer[node.name], place[node.name]))

"""A DAG: its nodes, registered as a body of its name, and how runs of it are started."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from supervision.engines import registry, starting
from supervision.engines.dags import definition
from supervision.engines.dags.definition import Definition
from supervision.engines.dags.errors import InvalidDag
from supervision.engines.dags.node import NodeEngine
from supervision.engines.dags.run import DagEngine
from supervision.engines.forms import form_from, hints_of
from supervision.engines.registry import Body
from supervision.engines.steps import Retry
from supervision.kernel.models import Task

F = TypeVar("F", bound=Callable[..., Any])
_LONGEST = 190


class Dag:
    """Tasks with dependencies, many at once: each node is a child task of the run, started by the end of the last one
    that it waits for.

    Registered under ``name`` where it is written; what is wrong with a node is said there (InvalidDag). At most
    ``max_parallel`` children of a run live at a time. The other options are those of ``body``; a run's arguments are
    what the functions of nodes without dependencies take.

    >>> report = Dag("nightly_report", max_parallel=4)
    >>> @report.node()
    ... def extract(task, *, day): ...
    >>> @report.node(after=[extract], retry=Retry(attempts=3), timeout=600)
    ... def clean(task, *, extract): ...
    """

    def __init__(
        self,
        name: str,
        *,
        max_parallel: int | None = None,
        version: int = 1,
        compatible_with: Collection[int] = (),
        queue: str = "default",
        priority: int = 5,
        expires_after: timedelta | None = None,
        sensitive: Sequence[str] = (),
        label: str = "",
    ) -> None:
        if not isinstance(name, str) or not 0 < len(name) <= _LONGEST or not name.isprintable():
            raise InvalidDag(name, f"its name must be a text of 1 to {_LONGEST} printable characters")
        if name in registry.known_versions():
            raise InvalidDag(name, "another DAG, pipeline or body of this name is registered already")
        if max_parallel is not None and (not isinstance(max_parallel, int) or max_parallel < 1):
            raise InvalidDag(name, f"max_parallel must be 1 or more, or None, not {max_parallel!r}")
        if not 0 <= priority <= 9:
            raise InvalidDag(name, f"priority is {priority}; it must be from 0 to 9")
        self.name, self.max_parallel = name, max_parallel
        self.nodes: dict[str, Definition] = {}
        self._awaited: set[str] = set()
        self._names: dict[Callable[..., Any], list[str]] = {}
        self._arguments: dict[str, inspect.Parameter] = {}
        shared: dict[str, Any] = {
            "version": version, "queue": queue, "priority": priority, "compatible_with": frozenset(compatible_with),
            "form": None,
        }  # fmt: skip
        self.body = Body(
            name=name, function=_Signature(name), engine=DagEngine(self), expires_after=expires_after,
            sensitive=tuple(sensitive), label=label or name, **shared,
        )  # fmt: skip
        self.node_body = Body(
            name=f"{name}/node", function=_node, engine=NodeEngine(self), label=f"{label or name}: node", **shared
        )
        registry.register(self.body)
        registry.register(self.node_body)

    # --- its nodes

    def node(
        self,
        name: str = "",
        *,
        after: Sequence[Callable[..., Any] | str] = (),
        join: str = "all",
        when: Callable[[Mapping[str, Any]], Any] | None = None,
        required: bool = True,
        inline: bool = False,
        map_over: Callable[..., Any] | str | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        queue: str = "",
        priority: int | None = None,
    ) -> Callable[[F], F]:
        """Adds the function as a node, named after it unless ``name`` is given; the function stays an ordinary one.

        It is called with a context (all that ``task`` is in a body) and, by name, with the outputs of the nodes that
        it is ``after``, and arguments of the run. ``after`` has functions, or names, which may come later.

        ``join``: it starts when ``all`` of them have succeeded (the default; one that failed or was skipped skips it),
        when ``any`` has, or when they are ``all_done`` however they ended: what didn't succeed is None. ``when`` is
        asked with their outputs by name; no skips it. A run completes although a node failed that isn't ``required``.
        ``inline`` runs it as a step of the run, in its worker: for small work that neither asks nor waits.
        ``map_over`` names one of ``after`` that returns a list: a child for each item, which takes the list's place
        among the arguments; the output is the list of theirs.

        ``retry`` calls the function again, ``timeout`` seconds bound each stretch of running. Steps inside keep what
        they have recorded; one that failed for good isn't tried again: give it a retry of its own. Nor is a Failure,
        which says that there is no point.
        """

        def decorate(function: F) -> F:
            self._add(
                Definition(
                    name or getattr(function, "__name__", ""), self._named(after), join, required, when, inline,
                    self._named([map_over])[0] if map_over is not None else "", function, retry, timeout,
                    queue=queue, priority=priority,
                )
            )  # fmt: skip
            return function

        return decorate

    def task(
        self,
        name: str,
        body: Any,
        *,
        after: Sequence[Callable[..., Any] | str] = (),
        arguments: Mapping[str, Any] | Callable[..., Any] | None = None,
        subject: str | Callable[..., Any] = "",
        join: str = "all",
        when: Callable[[Mapping[str, Any]], Any] | None = None,
        required: bool = True,
    ) -> str:
        """Adds a node that is a whole task: of a body, a pipeline (which needs a ``subject``) or another DAG, or of the
        body of that name. Its output is the task's result.

        ``arguments`` and ``subject`` may be functions that take outputs and arguments of the run by name, as a node's
        function does but for the context. Returns the name, for ``after``.
        """
        self._add(
            Definition(
                name, self._named(after), join, required, when, body=getattr(body, "name", body),
                arguments=arguments or {}, subject=subject,
            )
        )  # fmt: skip
        return name

    def _named(self, after: Sequence[Callable[..., Any] | str]) -> tuple[str, ...]:
        names = []
        for each in after:
            if isinstance(each, str):
                names.append(each)
                continue
            found = self._names.get(each, [])
            shown = getattr(each, "__name__", repr(each))
            if not found:
                raise InvalidDag(self.name, f"a node waits for {shown}, which is no node of it")
            if len(found) > 1:
                raise InvalidDag(self.name, f"{shown} is several nodes: name the one that is meant, {', '.join(found)}")
            names += found
        return tuple(names)

    def _add(self, node: Definition) -> None:
        fault = definition.name_fault(node.name)
        if fault:
            raise InvalidDag(self.name, fault)
        if node.name in self.nodes:
            raise InvalidDag(self.name, f"it has two nodes of the name {node.name!r}")
        arguments = dict(self._arguments)
        if not node.after and node.function is not None:
            parameters = list(inspect.signature(node.function).parameters.values())[1:]
            arguments |= {p.name: _resolved(p, node.function) for p in parameters if _is_named(p)}
        fault = definition.option_fault(node) or definition.parameter_fault(node, arguments)
        if fault:
            raise InvalidDag(self.name, f"node {node.name!r}: {fault}")
        # only a node that another one has named before can close a circle
        circle = definition.cycle({**self.nodes, node.name: node}) if node.name in self._awaited else []
        if circle:
            raise InvalidDag(self.name, f"its nodes wait for each other in a circle: {' → '.join(reversed(circle))}")
        self.nodes[node.name] = node
        self._awaited |= {each for each in node.after if each not in self.nodes}
        if node.function is not None:
            self._names.setdefault(node.function, []).append(node.name)
        if arguments != self._arguments:
            self._take(arguments)

    def _take(self, arguments: dict[str, inspect.Parameter]) -> None:
        """The run's arguments are these from now on: what starts are checked against, and the form of them."""
        self._arguments = arguments
        function = _Signature(self.name, arguments.values())
        self.body = replace(self.body, function=function, hints=hints_of(function))
        self.body = replace(self.body, form=form_from(self.name, function, self.body.sensitive))
        registry.register(self.body)

    def check(self) -> None:
        """Raises InvalidDag for what only the whole can tell: a dependency that never came. Called at the end of the
        discovery of ``supervised.py``, and before each start."""
        if not self.nodes:
            raise InvalidDag(self.name, "it has no node")
        for node in self.nodes.values():
            for each in node.after:
                if each not in self.nodes:
                    raise InvalidDag(self.name, f"node {node.name!r} waits for {each!r}, which is no node of it")
        missing = [each for each in self.body.sensitive if each not in self._arguments]
        if missing:
            raise InvalidDag(self.name, f"sensitive names {', '.join(missing)}, which no node takes")

    def ordered(self) -> list[Definition]:
        """Its nodes, each behind what it waits for."""
        self.check()
        return definition.ordered(self.nodes)

    # --- its runs

    def start(self, arguments: Mapping[str, Any] | None = None, **options: Any) -> Task:
        """The task of a new run; ``options`` are those of ``start``. Raises InvalidDag, InvalidArguments."""
        self.check()
        return starting.start(self.name, arguments, **options)


def dags() -> dict[str, Dag]:
    """Name -> every registered DAG."""
    return {body.name: body.engine.dag for body in registry.bodies() if isinstance(body.engine, DagEngine)}


class _Signature:
    """What a run's arguments are checked against. The engine drives the nodes instead of calling it."""

    def __init__(self, name: str, parameters: Collection[inspect.Parameter] = ()) -> None:
        self.__module__, self.__qualname__, self.__name__ = __name__, f"Dag({name!r})", name
        context = inspect.Parameter("task", inspect.Parameter.POSITIONAL_ONLY)
        named = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters]
        self.__signature__ = inspect.Signature([context, *named])

    def __call__(self, task: Any, **arguments: Any) -> None:
        raise NotImplementedError


def _node(task: Any, *, node: str, item: Any = None) -> None:
    """What the arguments of a node's child are checked against."""


def _is_named(parameter: inspect.Parameter) -> bool:
    return parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)


def _resolved(parameter: inspect.Parameter, function: Callable[..., Any]) -> inspect.Parameter:
    """With its annotation as an object, whichever module it was written in."""
    if parameter.annotation is parameter.empty:
        return parameter
    return parameter.replace(annotation=hints_of(function)[parameter.name])

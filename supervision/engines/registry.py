"""The registry: bodies by name. A task names its body by a string, and nothing else is ever resolved or imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from django import forms as django_forms

from supervision.engines import forms
from supervision.errors import InvalidArguments, UnknownBody
from supervision.kernel.limits import Limit


class Engine(Protocol):
    """What interprets a body. It gets the context of the drive and returns the task's result."""

    @property
    def context(self) -> Callable[..., Any]:
        """Makes the context of a drive: ``Context``, or an engine's own kind of it."""

    @property
    def keeps_steps(self) -> bool:
        """Whether a retry of an ended task goes on from its recorded steps; else it starts over."""

    def run(self, body: Body, context: Any) -> Any:
        """Drives until the body returns or something ends the drive; writes only through the context."""


@dataclass(frozen=True)
class Body:
    """A registered body. ``version`` grows when running tasks can't go on with the new code; ``sensitive`` names the
    arguments that every reader masks; ``expires_after`` counts from the start."""

    name: str
    function: Callable[..., Any]
    engine: Engine
    version: int = 1
    queue: str = "default"
    priority: int = 5
    expires_after: timedelta | None = None
    sensitive: tuple[str, ...] = ()
    label: str = ""
    compatible_with: frozenset[int] = field(default_factory=frozenset)
    hints: Mapping[str, Any] = field(default_factory=dict)
    """Parameter -> annotation: what arguments are converted by."""
    form: type[django_forms.Form] | None = None
    """What a person fills in to start one; None: only code starts it."""
    public: bool = False
    """Whether those whose work it is may start one, outside of the control room."""
    key_of: Callable[[str], str] | None = None
    """Subject -> the concurrency key of a task about it, for bodies that have one live task a subject."""
    limit: Limit | None = None
    """How many run at once, and start in a time."""

    @property
    def parameters(self) -> list[str]:
        """The names of its arguments; the first parameter is the context and not among them."""
        return list(inspect.signature(self.function).parameters)[1:]

    def check_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as JSON, with the signature's defaults left to the code. Raises InvalidArguments, naming each
        fault: one that the signature doesn't take or lacks, or that can't become what its annotation says."""
        signature = inspect.signature(self.function)
        parameters = list(signature.parameters.values())
        takes = _named(parameters[1:])
        takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
        unknown = sorted(set(arguments) - {parameter.name for parameter in parameters[1:]})
        if unknown and not takes_any:
            raise InvalidArguments(self.name, f"unknown: {', '.join(unknown)}; it takes {takes}")
        try:
            signature.bind(None, **arguments)
        except TypeError as error:
            raise InvalidArguments(self.name, f"{error}; it takes {takes}") from None
        dumped: dict[str, Any] = forms.dump(dict(arguments))
        forms.load(self.name, self.hints, dumped, rows=False, sensitive=self.sensitive)
        return dumped

    def load_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of the row as the annotations say, for the call. Raises InvalidArguments, Failure (a row that
        an argument names is gone)."""
        return forms.load(self.name, self.hints, arguments, sensitive=self.sensitive)


_bodies: dict[str, Body] = {}
_duplicates: list[tuple[str, str, str]] = []


def register(body: Body) -> None:
    """Adds the body. A second one of its name is kept out and reported by a system check (``supervision.E007``)."""
    known = _bodies.get(body.name)
    if known is not None and _place(known) != _place(body):
        _duplicates.append((body.name, _place(known), _place(body)))
        return
    _bodies[body.name] = body


def unregister(name: str) -> None:
    """Takes a body out again: for tests, and for ``testing.registered``."""
    _bodies.pop(name, None)
    _duplicates[:] = [row for row in _duplicates if row[0] != name]


def get(name: str) -> Body:
    """The body of that name, or UnknownBody, which names those that there are."""
    try:
        return _bodies[name]
    except KeyError:
        raise UnknownBody(name, sorted(_bodies)) from None


def bodies() -> list[Body]:
    """All registered bodies, by name."""
    return [_bodies[name] for name in sorted(_bodies)]


def known_versions() -> dict[str, int]:
    """Body name -> version: what this process knows."""
    return {name: body.version for name, body in _bodies.items()}


def drivable() -> list[tuple[str, int]]:
    """(body name, version) of every task that this process can drive to its end."""
    return [(name, version) for name, body in _bodies.items() for version in {body.version, *body.compatible_with}]


def limit_of(name: str) -> Limit | None:
    """The limit of that body; None where it has none, or isn't known here."""
    body = _bodies.get(name)
    return body.limit if body else None


def has_limits() -> bool:
    """Whether any body has one."""
    return any(body.limit for body in _bodies.values())


def duplicates() -> list[tuple[str, str, str]]:
    """(name, first place, second place) of names that were registered twice."""
    return list(_duplicates)


def _place(body: Body) -> str:
    function = inspect.unwrap(body.function)
    return f"{function.__module__}.{function.__qualname__}"


def _named(parameters: Iterable[inspect.Parameter]) -> str:
    return ", ".join(parameter.name for parameter in parameters) or "no arguments"

"""The table of a machine: ``(state, event) -> state``, and what is wrong with one. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

from django import forms
from django.utils.functional import Promise

from supervision.engines.machines.errors import InvalidMachine

LONGEST_NAME = 100
ANY = "*"

Hook = Callable[..., Any]


@dataclass(frozen=True)
class Transition:
    """One row of the table: in ``source``, ``event`` leads to ``target``.

    ``source`` is a state, a list of them, or ``"*"``: every state but the target. Of several rows for one state and
    event the first whose guard says yes is taken; what is written for a state comes before what is written for ``"*"``.

    ``guard``, ``action`` and ``after_commit`` are called with the row, or the pointer's subject; one that takes a
    second argument gets the ``Event``.

    >>> Transition("fulfillment_queued", "CANCEL_REQUESTED", "canceled", guard=is_unshipped, action=release_stock)
    """

    source: str | Sequence[str]
    event: str
    target: str
    guard: Hook | None = field(default=None, kw_only=True)
    """Says whether it may happen. Reads, and writes nothing: asked for buttons, too."""
    action: Hook | None = field(default=None, kw_only=True)
    """Done in the transaction, before the state is written; what it raises undoes everything. It saves what it sets."""
    after_commit: Hook | None = field(default=None, kw_only=True)
    """For effects outside the database: called once the (outermost) transaction is committed, and lost if the process
    dies just then. What must not be lost is a task that the action starts."""
    after: timedelta | None = field(default=None, kw_only=True)
    """The event comes by itself when a row has been in the source state for so long."""
    permission: str | Callable[[Any, Any], bool] | None = field(default=None, kw_only=True)
    """What an actor who is a user needs: ``"shop.refund_order"``, or ``permission(user, row)``. None: nothing; admin
    asks for the permission to change the row."""
    form: type[forms.Form] | None = field(default=None, kw_only=True)
    """What a person fills in; its values are the payload."""
    label: str | Promise = field(default="", kw_only=True)
    """On its button. Default: the event in plain letters."""

    def __post_init__(self) -> None:
        """Members of TextChoices become the plain texts that they are."""
        source: Any = self.source
        is_several = isinstance(source, list | tuple | set | frozenset)
        object.__setattr__(self, "source", tuple(map(plain, source)) if is_several else plain(source))
        object.__setattr__(self, "event", plain(self.event))
        object.__setattr__(self, "target", plain(self.target))

    @property
    def text(self) -> str:
        return str(self.label or self.event.replace("_", " ").capitalize())


@dataclass(frozen=True)
class Table:
    """A machine's transitions. InvalidMachine lists all that is wrong with them."""

    name: str
    initial: tuple[str, ...]
    """The states that a subject may begin in."""
    transitions: tuple[Transition, ...]
    on_enter: Mapping[str, Hook] = field(default_factory=dict)
    on_exit: Mapping[str, Hook] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "initial", tuple(map(plain, self.initial)))
        for role, hooks in (("on_enter", self.on_enter), ("on_exit", self.on_exit)):
            object.__setattr__(self, role, MappingProxyType({plain(state): hook for state, hook in hooks.items()}))
        faults = list(_faults(self))
        if faults:
            raise InvalidMachine(self.name, faults)

    @cached_property
    def states(self) -> tuple[str, ...]:
        """All of them, in the order of their first mention."""
        found = list(self.initial)
        for each in self.transitions:
            found += [*_sources(each), each.target]
        return tuple(dict.fromkeys(found))

    @cached_property
    def rows(self) -> dict[tuple[str, str], tuple[Transition, ...]]:
        """(state, event) -> its transitions, in the order in which they are tried."""
        found: dict[tuple[str, str], list[Transition]] = {}
        for each in self.transitions:
            for state in _sources(each):
                found.setdefault((state, each.event), []).append(each)
        for each in self.transitions:
            for state in self.states if each.source == ANY else ():
                if state != each.target:
                    found.setdefault((state, each.event), []).append(each)
        return {key: tuple(rows) for key, rows in found.items()}

    def leaving(self, state: str) -> dict[str, tuple[Transition, ...]]:
        """Event -> its transitions, of a state, in the order of the table."""
        events = dict.fromkeys(each.event for each in self.transitions)
        return {event: self.rows[state, event] for event in events if (state, event) in self.rows}

    def timers(self, state: str) -> dict[str, timedelta]:
        """Event -> how long after the state was entered it comes by itself."""
        return self._timed.get(state, {})

    @property
    def timed_states(self) -> tuple[str, ...]:
        return tuple(self._timed)

    @cached_property
    def _timed(self) -> dict[str, dict[str, timedelta]]:
        found: dict[str, dict[str, timedelta]] = {}
        for (state, event), rows in self.rows.items():
            for each in rows:
                if each.after is not None:
                    found.setdefault(state, {})[event] = each.after
        return found


def plain(value: Any) -> Any:
    """A member of an enumeration of texts as the text that it is; anything else as it is."""
    value = value.value if isinstance(value, Enum) else value
    return str(value) if isinstance(value, str) else value


@lru_cache(maxsize=1024)
def takes_event(function: Hook) -> bool:
    """Whether a second argument without a default is there for the event."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a builtin that doesn't tell
        return False
    needed = [
        each for each in parameters
        if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) and each.default is each.empty
    ]  # fmt: skip
    return len(needed) > 1


# --- what can be wrong ------------------------------------------------------------------------------------------------


def _sources(transition: Transition) -> tuple[str, ...]:
    """The states that are named; none for ``"*"``."""
    source = transition.source
    if isinstance(source, str):
        return () if source == ANY else (source,)
    return tuple(dict.fromkeys(source))


def _faults(table: Table) -> Iterator[str]:
    yield from (f"the name {fault}" for fault in _name_faults(table.name))
    if not table.transitions:
        yield "it has no transitions"
    broken = [
        f"transition {at} ({_shown(each)}): {fault}"
        for at, each in enumerate(table.transitions, 1)
        for fault in _transition_faults(each)
    ]
    broken += [f"initial state {fault}" for state in table.initial for fault in _name_faults(state)]
    if not table.initial:
        broken.append("it has no initial state: give the field a default, or the machine initial=")
    yield from broken
    if not broken:
        yield from _hook_faults(table)
        yield from _row_faults(table)
        yield from _path_faults(table)


def _name_faults(name: Any) -> Iterator[str]:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        yield f"{name!r} must be a text of 1 to {LONGEST_NAME} printable characters"
    elif name == ANY:
        yield f"{name!r} may not be the star, which means every state"


def _transition_faults(each: Any) -> Iterator[str]:
    if not isinstance(each, Transition):
        yield f"it must be a Transition, not {type(each).__name__}"
    else:
        yield from _row_of_table_faults(each)


def _row_of_table_faults(each: Transition) -> Iterator[str]:
    source: Any = each.source
    if source != ANY:
        if not isinstance(source, str) and (not isinstance(source, tuple) or not source):
            yield f"source must be a state, a list of states or '*', not {source!r}"
            return
        yield from (f"source {fault}" for state in _sources(each) for fault in _name_faults(state))
    yield from (f"event {fault}" for fault in _name_faults(each.event))
    yield from (f"target {fault}" for fault in _name_faults(each.target))
    for role in ("guard", "action", "after_commit"):
        if (function := getattr(each, role)) is not None:
            yield from _function_faults(role, function)
    if each.after is not None and (not isinstance(each.after, timedelta) or each.after <= timedelta(0)):
        yield f"after must be a positive timedelta, not {each.after!r}"
    permission: Any = each.permission
    if isinstance(permission, str) and permission.count(".") != 1:
        yield f"permission {permission!r} must be like 'shop.refund_order'"
    elif permission is not None and not isinstance(permission, str) and not callable(permission):
        yield f"permission must be a text or a function, not {permission!r}"
    form: Any = each.form
    if form is not None and not (isinstance(form, type) and issubclass(form, forms.Form)):
        yield f"form must be a Django form, not {form!r}"


def _function_faults(role: str, function: Any) -> Iterator[str]:
    if not callable(function):
        yield f"{role} isn't callable: {function!r}"
    elif inspect.iscoroutinefunction(function):
        yield f"{role} is `async def`; it must be an ordinary function"


def _hook_faults(table: Table) -> Iterator[str]:
    for role, hooks in (("on_enter", table.on_enter), ("on_exit", table.on_exit)):
        for state, function in hooks.items():
            if state not in table.states:
                yield f"{role} names {state!r}, which is no state of the table"
            yield from (f"state {state!r}: {fault}" for fault in _function_faults(role, function))


def _row_faults(table: Table) -> Iterator[str]:
    named = {(state, each.event) for each in table.transitions for state in _sources(each)}
    for (state, event), rows in table.rows.items():
        # a "*" behind what is written for the state is a fallback, or is shadowed on purpose
        own = [row for row in rows if row.source != ANY] if (state, event) in named else list(rows)
        if any(row.guard is None for row in own[:-1]):
            yield f"state {state!r}, event {event!r}: a transition without a guard stands before another, never tried"
        if len({row.after for row in rows if row.after is not None}) > 1:
            yield f"state {state!r}, event {event!r}: two times of after="


def _path_faults(table: Table) -> Iterator[str]:
    reached, fresh = set(table.initial), set(table.initial)
    while fresh:
        fresh = {row.target for (state, _event), rows in table.rows.items() for row in rows if state in fresh} - reached
        reached |= fresh
    start = ", ".join(map(repr, table.initial))
    for state in table.states:
        if state not in reached:
            yield f"state {state!r}: it can't be reached from {start}"


def _shown(each: Any) -> str:
    return f"{each.source!r}, {each.event!r}" if isinstance(each, Transition) else repr(each)

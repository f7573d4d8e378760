"""The state table: what its rows mean, where an outcome leads, and what is wrong with it. Pure."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from types import MappingProxyType
from typing import Any

from supervision.engines.pipelines.errors import InvalidPipeline
from supervision.engines.pipelines.outcome import FAILURE, NOT_READY, REPOINTED, SUCCESS
from supervision.kernel.states import Reason
from supervision.kernel.states import State as TaskState

DEFAULT_MAX_VISITS = 100
DEFAULT_POLL = timedelta(minutes=1)
LONGEST_NAME = 100
ENDS = {"completed": TaskState.COMPLETED, "failed": TaskState.FAILED}
_NO_WAIT = timedelta(0)
_EXHAUSTED = f"{Reason.VISITS_EXHAUSTED}:"


@dataclass(frozen=True)
class State:
    """One row of the table.

    ``transition(run)`` does the state's work and says how it went; ``on_success`` and ``on_failure`` name the states,
    or ends, that follow. ``continue_run`` False marks a state that waits for something: when its next state is itself,
    the run yields, and is back after ``poll_every``.

    >>> State(check_job_status, "DOWNLOAD_SAVE", "POLL_JOB", False, poll_every=timedelta(minutes=3))
    """

    transition: Callable[[Any], Any]
    on_success: str
    on_failure: str
    continue_run: bool
    max_visits: int | None = field(default=DEFAULT_MAX_VISITS, kw_only=True)
    """How often a run may be in this state; the next entry ends it as failed. None, which must be written: no limit."""
    poll_every: timedelta = field(default=DEFAULT_POLL, kw_only=True)
    """How long a yield lasts."""
    ready: Callable[[Any], Any] | None = field(default=None, kw_only=True)
    """Asked first, ``ready(run)``: no means yield, without running the transition."""
    branches: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    """Named outcomes beyond success and failure, and where they lead."""
    retry_after: timedelta = field(default=_NO_WAIT, kw_only=True)
    """Every visit of a run but its first to this state begins so long after it was entered."""

    @cached_property
    def targets(self) -> dict[str, str]:
        """Outcome -> where it leads."""
        return {SUCCESS: self.on_success, FAILURE: self.on_failure, **self.branches}


@dataclass(frozen=True)
class Move:
    """Where the pointer goes: ``target``, entered after ``wait``. ``yielded``: it stays, and comes back to look."""

    target: str
    wait: timedelta = _NO_WAIT
    yielded: bool = False


@dataclass(frozen=True)
class Table:
    """A pipeline's states and ends. InvalidPipeline lists all that is wrong with it, each with the state's name."""

    name: str
    initial: str
    terminal: Mapping[str, str]
    states: Mapping[str, State]

    def __post_init__(self) -> None:
        faults = list(_faults(self))
        if faults:
            raise InvalidPipeline(self.name, faults)
        object.__setattr__(self, "terminal", MappingProxyType(dict(self.terminal)))
        object.__setattr__(self, "states", MappingProxyType(dict(self.states)))

    def __contains__(self, name: object) -> bool:
        """Whether a pointer may be put there by hand."""
        return name in self.states or name in self.terminal

    def end_of(self, name: str) -> TaskState | None:
        """How a run ends in that state: completed, failed, or None where it goes on."""
        return TaskState.FAILED if exhausted_state(name) else ENDS.get(self.terminal.get(name, ""))

    def move(self, name: str, outcome: str, counts: Mapping[str, int], forgiven: Mapping[str, int]) -> Move:
        """What follows the visit of ``name`` that ended in ``outcome``.

        ``counts`` are the entries of each state in this run, ``forgiven`` those before a person moved the pointer.
        """
        state = self.states[name]
        target = name if outcome == NOT_READY else state.targets[outcome]
        yielded = outcome == NOT_READY or (target == name and not state.continue_run)
        following = self.states.get(target)
        if following is None:
            return Move(target)
        entries = counts.get(target, 0) - forgiven.get(target, 0)
        if following.max_visits is not None and entries >= following.max_visits:
            return Move(exhausted(target))
        wait = max(state.poll_every if yielded else _NO_WAIT, following.retry_after if entries else _NO_WAIT)
        return Move(target, wait, yielded)


def exhausted(name: str) -> str:
    """The built-in failed end that a run enters instead of a state that it may not enter once more."""
    return f"{_EXHAUSTED}{name}"


def exhausted_state(name: str) -> str:
    """The state whose visits were used up, if ``name`` is that end; else empty."""
    return name.removeprefix(_EXHAUSTED) if name.startswith(_EXHAUSTED) else ""


# --- what can be wrong ------------------------------------------------------------------------------------------------


def _faults(table: Table) -> Iterator[str]:
    name = table.name
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        yield f"the name {name!r} must be a text of 1 to {LONGEST_NAME} printable characters"
    broken = list(_table_faults(table))
    for state_name, state in table.states.items():
        broken += [f"state {state_name!r}: {fault}" for fault in _name_faults(state_name)]
        broken += [f"state {state_name!r}: {fault}" for fault in _state_faults(state_name, state, table)]
    yield from broken
    if not broken:
        yield from _path_faults(table)


def _table_faults(table: Table) -> Iterator[str]:
    if table.initial not in table.states:
        yield f"initial names {table.initial!r}, which is no state"
    if not table.terminal:
        yield 'it has no terminal state: terminal={"DONE": "completed"}'
    for name, end in table.terminal.items():
        yield from (f"terminal state {name!r}: {fault}" for fault in _name_faults(name))
        if end not in ENDS:
            yield f"terminal state {name!r} ends as {end!r}; it must be one of {', '.join(ENDS)}"
        if name in table.states:
            yield f"terminal state {name!r} is in the table of states, too"


def _name_faults(name: Any) -> Iterator[str]:
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
        yield f"its name must be a text of 1 to {LONGEST_NAME} printable characters"
    elif name.startswith(Reason.VISITS_EXHAUSTED):
        yield f"its name may not begin with {Reason.VISITS_EXHAUSTED.value!r}, which is built in"


def _state_faults(name: str, state: Any, table: Table) -> Iterator[str]:
    if not isinstance(state, State):
        yield f"it must be a State, not {type(state).__name__}"
        return
    functions: dict[str, Any] = {"transition": state.transition, **({"ready": state.ready} if state.ready else {})}
    for role, function in functions.items():
        if not callable(function):
            yield f"its {role} isn't callable: {function!r}"
        elif inspect.iscoroutinefunction(function):
            yield f"its {role} is `async def`; it must be an ordinary function"
    continue_run: Any = state.continue_run
    if not isinstance(continue_run, bool):
        yield f"continue_run must be True or False, not {continue_run!r}"
    for outcome, target in state.targets.items():
        if target not in table.states and target not in table.terminal:
            yield f"{_role(outcome)} names {target!r}, which is neither a state nor terminal"
    reserved = sorted({SUCCESS, FAILURE, NOT_READY, REPOINTED} & set(state.branches))
    if reserved:
        yield f"a branch may not be called {reserved[0]!r}"
    for branch in state.branches:
        if not isinstance(branch, str) or not 0 < len(branch) <= LONGEST_NAME or not branch.isprintable():
            yield f"the branch {branch!r} must be a text of 1 to {LONGEST_NAME} printable characters"
    yield from _limit_faults(name, state)


def _limit_faults(name: str, state: State) -> Iterator[str]:
    cap = state.max_visits
    if cap is not None and (not isinstance(cap, int) or isinstance(cap, bool) or cap < 1):
        yield f"max_visits must be 1 or more, or None, not {cap!r}"
    if cap is None and name in state.targets.values():
        yield "it leads to itself without a cap: give it max_visits"
    if not isinstance(state.poll_every, timedelta) or state.poll_every <= _NO_WAIT:
        yield f"poll_every must be a positive timedelta, not {state.poll_every!r}"
    if not isinstance(state.retry_after, timedelta) or state.retry_after < _NO_WAIT:
        yield f"retry_after must be a timedelta, not {state.retry_after!r}"


def _path_faults(table: Table) -> Iterator[str]:
    onward = {name: set(state.targets.values()) for name, state in table.states.items()}
    reached = _closure({table.initial}, onward)
    for name in table.states:
        if name not in reached:
            yield f"state {name!r}: it can't be reached from {table.initial!r}"
    # an end that can't be reached may be meant for re-pointing
    back: dict[str, set[str]] = {}
    for name, targets in onward.items():
        for target in targets:
            back.setdefault(target, set()).add(name)
    ending = _closure(set(table.terminal), back)
    for name in table.states:
        if name not in ending:
            yield f"state {name!r}: no way leads from it to an end"


def _closure(start: set[str], edges: Mapping[str, set[str]]) -> set[str]:
    found, fresh = set(start), set(start)
    while fresh:
        fresh = {target for name in fresh for target in edges.get(name, ())} - found
        found |= fresh
    return found


def _role(outcome: str) -> str:
    return {SUCCESS: "on_success", FAILURE: "on_failure"}.get(outcome, f"branch {outcome!r}")

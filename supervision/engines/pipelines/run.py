"""What a transition gets: the context of a body, and where the run stands."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, TypeVar
from uuid import UUID

from supervision.conf import settings
from supervision.engines.context import Context
from supervision.engines.pipelines import moves
from supervision.engines.pipelines.definition import Move, Table
from supervision.engines.pipelines.errors import StateLost, Yielded
from supervision.engines.pipelines.models import Visit
from supervision.engines.pipelines.moves import Standing
from supervision.engines.pipelines.outcome import FAILURE, Outcome
from supervision.errors import Failure, SupervisionError
from supervision.kernel import lease as leases
from supervision.kernel import storable
from supervision.kernel.states import Reason

R = TypeVar("R")


@dataclass(frozen=True)
class Previous:
    """The subject's run before this one: where it stood at its end, and how it ended (``completed``, ``failed``,
    ``cancelled``, ``expired``; empty if it was pruned before this run began)."""

    run_id: UUID
    state: str
    end: str
    reason: str
    params: Mapping[str, Any]
    pointer_id: int
    after: int
    last: int
    """Its visits are numbered above ``after``, up to ``last``."""

    @property
    def visits(self) -> list[Visit]:
        """Its visits, oldest first; none once it is pruned."""
        visits = Visit.objects.using(settings.DATABASE).filter(pointer_id=self.pointer_id)
        return list(visits.filter(sequence_num__gt=self.after, sequence_num__lte=self.last).order_by("sequence_num"))


class Run(Context):
    """``run`` in a transition: all that ``task`` is in a body, for one visit of a state.

    Steps, waits and questions are this visit's own: the next visit of the state does and asks anew, while a visit that
    goes on after a crash or a wait finds what it has recorded.
    """

    previous: Previous | None
    """The subject's last run, or None. What spares a retraining after a broken download."""
    _table: Table
    _pointer_id: int
    _run_from: int
    _counts: dict[str, int]
    _forgiven: dict[str, int]
    _params: dict[str, Any]
    _state: str

    # --- where it stands

    @property
    def state(self) -> str:
        """The state that this visit is in."""
        return self._state

    @property
    def visit(self) -> int:
        """Which visit of this state this is, from 1. The same after a crash."""
        return self._counts.get(self._state, 0)

    @property
    def params(self) -> Mapping[str, Any]:
        """The run's arguments and what its transitions have returned so far; to add some, return them."""
        return MappingProxyType(self._params)

    @property
    def idempotency_key(self) -> str:
        """In a step, the step's. Outside, this visit's: the same after a crash, another one for the next visit."""
        return super().idempotency_key if self._step else f"{self.id}:{self._scope.rstrip('/')}"

    def step(self, name: str, function: Callable[..., R], /, *args: Any, **options: Any) -> R:
        """As in a body, but for ``compensate``: a visit that is over isn't run again, so nothing would undo it."""
        if options.get("compensate") is not None:
            raise SupervisionError(
                f"Step {name!r} has compensate=, which a pipeline can't keep: undo it in a state, or in on_cancel."
            )
        return super().step(name, function, *args, **options)

    def continue_as_new(self, **arguments: Any) -> None:
        raise SupervisionError("A pipeline has no round to close: each visit is one. Return, and go on in a state.")

    # --- for the engine: open, enter, leave

    def open(self, table: Table) -> None:
        """Finds the pointer of this run; the first drive of a run turns it to the initial state."""
        self._table = table
        row = self._standing()
        if row.concurrency_key != key_of(table.name, row.subject):
            raise Failure(f"A run of the pipeline {table.name!r} is started by its start(), and in no other way.")
        if row.run_id != self.id:
            params = storable.encode(self.arguments, place="params", limit="MAX_DECISIONS_BYTES")
            begun = moves.begin(table, row.subject, table.initial, params)
            self._write("run_started", table.initial, "{}", branches=begun)
            row = self._standing()
        self._pointer_id, self._run_from, self._state = row.pointer_id, row.run_from, row.state
        self._counts, self._forgiven, self._params = row.counts, row.forgiven, row.params
        self.previous = None if row.previous is None else _previous(row.pointer_id, row.previous)
        self._begin_visit(after=row.entered_in)

    def enter(self) -> None:
        """Observes what was requested, before a visit does anything."""
        self._enter(self._state, is_recorded=False)

    def follow(self, outcome: str) -> Move:
        """Where that outcome of this visit leads."""
        return self._table.move(self._state, outcome, self._counts, self._forgiven)

    def leave(self, outcome: Outcome, move: Move) -> None:
        """Records the visit and moves the pointer, in one statement; or parks with it, and raises Yielded."""
        left, number = self._state, self.visit
        entered = self._counts.get(move.target, 0) + 1 if move.target in self._table.states else None
        branches = moves.leave(self._pointer_id, left, number, outcome, move, entered)
        if move.wait:
            reason = (Reason.YIELDED if move.yielded else Reason.RETRYING).of(move.target)
            with self._kernel():
                leases.park(self.id, self._taken.lease, reason, wake_after=move.wait, name=left,
                            payload=json.loads(_payload(number, outcome, move)), decisions=self._changed(),
                            branches=branches)  # fmt: skip
            raise self._end(Yielded(reason))
        self._write("state_visited", left, _payload(number, outcome, move), branches=branches)
        self._state = move.target
        if entered is not None:
            self._counts[move.target] = entered
        self._params.update(outcome.params)
        self._begin_visit(after=None)

    def failed(self, error: Exception) -> Outcome:
        """An exception as an outcome; one of a database that went away ends the drive instead."""
        self._raise_if_lost(error)
        return Outcome(FAILURE, f"{type(error).__name__}: {self._clean(error)}", traceback=self._traceback(error))

    def checked(self, outcome: Outcome) -> Outcome:
        """The outcome as it can be kept. Raises NotStorable, TooLarge."""
        if outcome.params:
            storable.encode({**self._params, **outcome.params}, place="params", limit="MAX_DECISIONS_BYTES")
        return replace(outcome, error=self._clean(outcome.error)) if outcome.error else outcome  # type: ignore[arg-type]

    def park_lost(self) -> StateLost:
        """Parks for an operator: the table no longer has this state. What to raise."""
        reason = Reason.UNKNOWN_STATE.of(self._state)
        with self._kernel():
            leases.park(self.id, self._taken.lease, reason, name=self._state)
        self._end(lost := StateLost(reason))
        return lost

    def last_error(self) -> str:
        """Of the visits of this run, the newest one's that had one; for the sentence of its failure."""
        visits = Visit.objects.using(settings.DATABASE).filter(pointer_id=self._pointer_id).exclude(errors="")
        mine = visits.filter(sequence_num__gt=self._run_from).order_by("-sequence_num")
        with self._kernel():
            return mine.values_list("errors", flat=True).first() or ""

    def _standing(self) -> Standing:
        with self._kernel():
            return moves.standing(self.id)

    def _begin_visit(self, *, after: int | None) -> None:
        """Names, questions and what is replayed are of this visit alone."""
        self._begin_part(f"{self._state}.{self.visit}/", after=after)


def key_of(pipeline: str, subject: str) -> str:
    """The concurrency key that admits one live run of the subject."""
    return f"pipeline:{pipeline}:{subject}"


def _payload(number: int, outcome: Outcome, move: Move) -> str:
    """What the log says of a visit, as JSON. Written out, since it is on the hot path."""
    errors = ""
    if outcome.error:
        errors = f', "error": {json.dumps(outcome.error)}'
    if outcome.traceback:
        errors += f', "traceback": {json.dumps(outcome.traceback)}'
    return f'{{"visit": {number}, "outcome": {_quoted(outcome.name)}, "to": {_quoted(move.target)}{errors}}}'


_quoted = lru_cache(maxsize=1024)(json.dumps)


def _previous(pointer_id: int, row: Mapping[str, Any]) -> Previous:
    after, last = row["visits"]
    return Previous(
        run_id=UUID(row["run"]), state=row["state"], end=row.get("end", ""), reason=row.get("reason", ""),
        params=MappingProxyType(row["params"]), pointer_id=pointer_id, after=after, last=last,
    )  # fmt: skip

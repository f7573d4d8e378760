"""Driving a run: from where the pointer stands, one visit after the other, as far as it goes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from supervision.engines.pipelines.definition import State, Table, exhausted_state
from supervision.engines.pipelines.errors import EndedBadly, VisitsExhausted
from supervision.engines.pipelines.outcome import NOT_READY, Outcome, normalised
from supervision.engines.pipelines.run import Run
from supervision.engines.registry import Body
from supervision.errors import Cancelled
from supervision.kernel.states import State as TaskState

Step = Callable[[], Any]


def trampoline(step: Step) -> Any:
    """Runs steps, each of which hands back the next one, until one hands back a value. The stack stays flat."""
    result = step()
    while callable(result):
        result = result()
    return result


class PipelineEngine:
    """Interprets one table. The pointer says where a run stands; nothing is held in memory between two drives."""

    context = Run
    keeps_steps = False

    def __init__(self, table: Table, on_cancel: Callable[[Run], Any] | None) -> None:
        self.table = table
        self._on_cancel = on_cancel

    def run(self, body: Body, context: Run) -> Any:
        """Drives until the run ends, with the task's result, or until something ends the drive."""
        context.open(self.table)
        try:
            return trampoline(partial(self._advance, context))
        except Cancelled:
            if self._on_cancel is not None:
                self._on_cancel(context)
            raise

    def _advance(self, run: Run) -> Any:
        """One visit; the next step, or the result."""
        end = self.table.end_of(run.state)
        if end is not None:
            return _end(run, end)
        state = self.table.states.get(run.state)
        if state is None:
            raise run.park_lost()
        run.enter()
        outcome = _visit(state, run)
        # what ended the drive, or asked to clean up, may have been swallowed by the author's code
        if run.unwinding is not None:
            raise run.unwinding
        if run.ended is not None:
            return None  # the driver says so, in the log
        run.leave(outcome, run.follow(outcome.name))
        return partial(self._advance, run)


def _visit(state: State, run: Run) -> Outcome:
    """Runs the transition. The one place where errors turn into ordinary outcomes."""
    try:
        if state.ready is not None and not state.ready(run):
            return Outcome(NOT_READY)
        return run.checked(normalised(state.transition(run), state.branches))
    except Exception as error:
        return run.failed(error)


def _end(run: Run, end: TaskState) -> dict[str, Any]:
    """The result of a run that has reached a terminal state. Raises Failure for one that means failure."""
    if end is TaskState.COMPLETED:
        return {"state": run.state, "params": dict(run.params)}
    capped = exhausted_state(run.state)
    raise VisitsExhausted(capped, run.last_error()) if capped else EndedBadly(run.state, run.last_error())

"""Random programs, interrupted at random points, end as they do undisturbed."""

from __future__ import annotations

import itertools
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervision.engines import registry, start
from supervision.engines.bodies import body
from supervision.kernel import signals_in
from tests.property.programs import AsyncProgram, Op, Program, Run

pytestmark = pytest.mark.django_db

_NAMES = itertools.count()
bounded = settings(
    # SUPERVISION_EXAMPLES=2000: a longer hunt, different each time
    max_examples=int(os.environ.get("SUPERVISION_EXAMPLES", "60")),
    derandomize="SUPERVISION_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def op(op: str, /, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Op]:
    return st.fixed_dictionaries({"op": st.just(op), **fields})


steps = op(
    "step", kind=st.sampled_from(["plain", "plain", "atomic", "once"]), fails=st.sampled_from([0, 0, 0, 1, 2]),
    attempts=st.integers(1, 3), delay=st.sampled_from([0, 30]), keyed=st.booleans(), turns=st.integers(0, 3),
)  # fmt: skip
simple = st.one_of(
    steps,
    steps,
    op("ask", keys=st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=2, unique=True)),
    op("sleep", seconds=st.sampled_from([0, 60])),
    op("signal", name=st.sampled_from(["s", "t"]), timeout=st.booleans()),
    op("note", log=st.booleans()),
)
ops = st.recursive(
    st.lists(simple, min_size=1, max_size=4),
    lambda inner: st.lists(
        st.one_of(
            simple,
            op("try", ops=inner, handler=st.lists(steps, max_size=1)),
            op("loop", times=st.integers(1, 3), ops=inner),
            op("fail"),
        ),
        min_size=1,
        max_size=4,
    ),
    max_leaves=3,
)
rounds = st.lists(ops, min_size=1, max_size=2)
early = st.lists(st.sampled_from(["s", "t"]), max_size=2)
points = st.integers(1, 14)
interruptions = st.lists(st.tuples(points, st.sampled_from(["die", "die", "pause", "stop"])), min_size=1, max_size=5)


def run(program: Program | AsyncProgram, plan: list[tuple[int, str]], signals: list[str]) -> Run:
    name = f"program.{next(_NAMES)}"
    body(name, form=None)(program.body)
    try:
        task = start(name)
        for number, signal in enumerate(signals):
            signals_in.send(task.pk, signal, f"early {number}")
        program.run = Run(task.pk, plan)
        return program.run.to_the_end()
    finally:
        registry.unregister(name)


@bounded
@given(rounds=rounds, early=early, plan=interruptions)
def test_an_interrupted_program_ends_as_an_undisturbed_one(
    rounds: list[list[Op]], early: list[str], plan: list[tuple[int, str]]
) -> None:
    undisturbed = run(Program(rounds), [], early)
    interrupted = run(Program(rounds), plan, early)
    assert interrupted.outcome() == undisturbed.outcome()
    assert interrupted.history() == undisturbed.history()


@bounded
@given(rounds=rounds, early=early, plan=interruptions, cancelled_after=points)
def test_a_program_that_is_cancelled_anywhere_has_one_truthful_end(
    rounds: list[list[Op]], early: list[str], plan: list[tuple[int, str]], cancelled_after: int
) -> None:
    undisturbed = run(Program(rounds), [], early)
    cancelled = run(Program(rounds), [(cancelled_after, "cancel"), *plan], early)
    task, history = cancelled.task, cancelled.history()
    if task.cancel_requested_at is None or task.current_state != "cancelled":
        # it ended before it was asked to, or before it came to a call that could tell it
        assert cancelled.outcome() == undisturbed.outcome()
        assert history == undisturbed.history()
        return
    assert task.watchdog_stop_reason == "cancelled:alice"
    assert task.result is None
    if task.entries.filter(event="unwinding_started").exists():
        assert history.pop() == ("step_completed", "undo")
    assert history == undisturbed.history()[: len(history)]


@bounded
@given(branches=st.lists(st.lists(simple, max_size=3), min_size=1, max_size=4), plan=interruptions)
def test_gathered_branches_that_are_interrupted_end_as_undisturbed_ones(
    branches: list[list[Op]], plan: list[tuple[int, str]]
) -> None:
    undisturbed = run(AsyncProgram(branches), [], [])
    interrupted = run(AsyncProgram(branches), plan, [])
    assert interrupted.outcome() == undisturbed.outcome()
    assert sorted(interrupted.history()) == sorted(undisturbed.history())

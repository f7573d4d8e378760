"""Random tables and random events agree with a dictionary; what is rejected changes nothing, history included."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from supervision.engines import GuardRejected, InvalidMachine, InvalidTransition, Machine, Transition
from supervision.engines.machines import machine
from supervision.engines.machines.models import MachineEvent, Standing, Timer
from tests.integration.machine_work import Ticket, path, tables

pytestmark = pytest.mark.django_db

EVENTS = ("go", "back", "jump")
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Row:
    source: str
    event: str
    target: str
    guard: int | None
    """The guard says yes to payloads of at least this; None: there is no guard."""


Moves = list[tuple[str, int, bool]]


@st.composite
def machines(draw: st.DrawFn) -> list[Row]:
    states = [f"s{n}" for n in range(draw(st.integers(1, 4)))]
    row = st.builds(Row, st.sampled_from([*states, "*"]), st.sampled_from(EVENTS), st.sampled_from(states),
                    st.sampled_from([None, 0, 2, 4, 6, 8]))  # fmt: skip
    spine = [Row(one, "go", other, None) for one, other in itertools.pairwise(states)]
    return [*draw(st.lists(row, max_size=6)), *spine]


def meant(rows: list[Row]) -> dict[tuple[str, str], list[tuple[int | None, str]]] | None:
    """The model: (state, event) -> guards and targets in order. None: it is empty, or has what can't be reached."""
    states = list(dict.fromkeys(["s0", *(s for row in rows for s in (row.source, row.target) if s != "*")]))
    table: dict[tuple[str, str], list[tuple[int | None, str]]] = {}
    for state, name in itertools.product(states, EVENTS):
        own = [(row.guard, row.target) for row in rows if (row.source, row.event) == (state, name)]
        star = [
            (row.guard, row.target) for row in rows if (row.source, row.event) == ("*", name) and row.target != state
        ]
        for part in (own, *([star] if not own else [])):
            if any(guard is None for guard, _target in part[:-1]):
                return None
        if own or star:
            table[state, name] = own + star
    reached = {"s0"}
    for _ in states:
        reached |= {target for (state, _name), found in table.items() if state in reached for _guard, target in found}
    return table if rows and reached == set(states) else None


def lasting() -> list[Any]:
    return [list(model._default_manager.order_by("pk").values()) for model in (Ticket, Standing, MachineEvent, Timer)]


@pytest.fixture(scope="module", autouse=True)
def _tables(django_db_setup: None, django_db_blocker: Any) -> Any:
    with django_db_blocker.unblock(), tables():
        yield


@pytest.mark.parametrize("on_a_row", [True, False])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=machines(), moves=st.lists(st.tuples(st.sampled_from([*EVENTS, "?"]), st.integers(0, 9), st.booleans()),
                                       max_size=8))  # fmt: skip
def test_random_machines_mean_what_the_dictionary_says(on_a_row: bool, rows: list[Row], moves: Moves) -> None:
    name = f"model{next(_NUMBERS)}"
    options: Any = {"model": Ticket, "initial": "s0"} if on_a_row else {"initial": "s0"}

    def guard(least: int | None) -> Any:
        return None if least is None else lambda _subject, sent: (sent.payload or 0) >= least

    transitions = [Transition(row.source, row.event, row.target, guard=guard(row.guard)) for row in rows]
    table = meant(rows)
    if table is None:
        event("refused at import")
        with pytest.raises(InvalidMachine):
            Machine(name, transitions=transitions, **options)
        return
    work = Machine(name, transitions=transitions, **options)
    try:
        _walk(work, table, moves, Ticket.objects.create(state="s0") if on_a_row else "x")
    finally:
        machine.unregister(name)


def _walk(
    work: Machine, table: dict[tuple[str, str], list[tuple[int | None, str]]], moves: Moves, subject: Any
) -> None:
    at, history = "s0", []
    for number, (name, payload, is_repeated) in enumerate(moves):
        found = [target for guard, target in table.get((at, name), []) if guard is None or payload >= guard]
        before = lasting()
        if not found:
            refusal = GuardRejected if (at, name) in table else InvalidTransition
            with pytest.raises(refusal) as refused:
                work.send(subject, name, payload=payload)
            event("rejected")
            assert (refused.value.state, refused.value.event) == (at, name)
            assert lasting() == before
        else:
            entry = work.send(subject, name, payload=payload, idempotency_key=str(number))
            event("accepted")
            history.append((at, name, found[0]))
            at = found[0]
            if is_repeated:
                before = lasting()
                assert work.send(subject, name, idempotency_key=str(number)).pk == entry.pk
                assert lasting() == before
        allowed = {
            each for (state, each), rows in table.items() if state == at and any((g or 0) <= 0 for g, _t in rows)
        }
        assert set(work.allowed_events(subject)) == allowed
    assert work.state(subject) == at
    assert path(work.name, getattr(subject, "pk", subject)) == history
    assert work.generation(subject) == len(history)

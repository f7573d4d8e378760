"""What is wrong with a machine's table is said where it is written, with the transition or state; and its picture."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django import forms
from django.db.models import TextChoices

from supervision import diagrams
from supervision.engines import InvalidMachine, Machine, Transition
from supervision.engines.machines.definition import Table, takes_event
from supervision.engines.machines.picture import graph_of
from tests.integration.machine_work import forgetting


def noop(row: Any) -> None: ...


async def coroutine(row: Any) -> None: ...


def table(*transitions: Any, initial: Any = ("a",), name: Any = "t", **hooks: Any) -> Table:
    return Table(name, initial, transitions, **hooks)


def faults(*transitions: Any, **options: Any) -> list[str]:
    with pytest.raises(InvalidMachine) as refused:
        table(*transitions, **options)
    assert all(fault in str(refused.value) for fault in refused.value.faults)
    return refused.value.faults


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    with forgetting():
        yield


def test_a_table_that_works_says_nothing() -> None:
    sound = table(Transition("a", "GO", "b"), Transition(["b", "a"], "AGAIN", "b"), Transition("*", "STOP", "c"),
                  on_enter={"b": noop})  # fmt: skip
    assert sound.states == ("a", "b", "c")
    assert list(sound.leaving("a")) == ["GO", "AGAIN", "STOP"]
    assert list(sound.leaving("c")) == []


@pytest.mark.parametrize(
    ("transition", "fault"),
    [
        (("a", "GO", "b"), "transition 1 (('a', 'GO', 'b')): it must be a Transition, not tuple"),
        (Transition("", "GO", "b"), "transition 1 ('', 'GO'): source '' must be a text of 1 to 100"),
        (Transition([], "GO", "b"), "transition 1 ((), 'GO'): source must be a state, a list of states or '*'"),
        (Transition(7, "GO", "b"), "transition 1 (7, 'GO'): source must be"),  # type: ignore[arg-type]
        (Transition(["a", "*"], "GO", "b"), "transition 1 (('a', '*'), 'GO'): source '*' may not be the star"),
        (Transition("a", "", "b"), "transition 1 ('a', ''): event '' must be a text"),
        (Transition("a", "x" * 101, "b"), "transition 1"),
        (Transition("a", "GO", "new\nline"), "transition 1 ('a', 'GO'): target 'new\\nline' must be"),
        (Transition("a", "GO", "*"), "transition 1 ('a', 'GO'): target '*' may not be the star"),
        (Transition("a", "GO", "b", guard=True), "transition 1 ('a', 'GO'): guard isn't callable: True"),  # type: ignore[arg-type]
        (Transition("a", "GO", "b", action=coroutine), "transition 1 ('a', 'GO'): action is `async def`"),
        (Transition("a", "GO", "b", after_commit=coroutine), "transition 1 ('a', 'GO'): after_commit is `async def`"),
        (Transition("a", "GO", "b", after=timedelta(0)), "transition 1 ('a', 'GO'): after must be a positive"),
        (Transition("a", "GO", "b", after=3), "transition 1 ('a', 'GO'): after must be"),  # type: ignore[arg-type]
        (Transition("a", "GO", "b", permission="refund"), "transition 1 ('a', 'GO'): permission 'refund' must be like"),
        (Transition("a", "GO", "b", permission=3), "transition 1 ('a', 'GO'): permission must be"),  # type: ignore[arg-type]
        (Transition("a", "GO", "b", form=forms.Form()), "transition 1 ('a', 'GO'): form must be"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_fault_of_a_transition_names_it(transition: Any, fault: str) -> None:
    assert faults(transition)[0].startswith(fault)


def test_a_state_that_cannot_be_reached_is_named() -> None:
    assert faults(Transition("a", "GO", "b"), Transition("island", "GO", "b")) == [
        "state 'island': it can't be reached from 'a'"
    ]
    table(Transition("a", "GO", "b"), Transition("island", "GO", "b"), initial=("a", "island"))


def test_a_transition_that_would_never_be_tried_is_named() -> None:
    twice = (Transition("a", "GO", "b"), Transition(["a"], "GO", "a"))
    expected = ["state 'a', event 'GO': a transition without a guard stands before another, never tried"]
    assert faults(*twice) == expected
    assert faults(Transition("*", "GO", "b"), Transition("*", "GO", "b")) == expected
    table(Transition("a", "GO", "b", guard=noop), Transition("a", "GO", "a"))
    table(Transition("*", "GO", "b"), Transition("a", "GO", "a"))


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"initial": ()}, "it has no initial state"),
        ({"initial": ("",)}, "initial state '' must be"),
        ({"name": ""}, "the name '' must be"),
        ({"name": "x" * 101}, "the name"),
        ({"on_enter": {"z": noop}}, "on_enter names 'z', which is no state of the table"),
        ({"on_exit": {"a": coroutine}}, "state 'a': on_exit is `async def`"),
    ],
)
def test_a_fault_of_the_table_is_told(options: dict[str, Any], fault: str) -> None:
    assert faults(Transition("a", "GO", "b"), **options)[0].startswith(fault)
    assert "it has no transitions" in faults()


def test_all_faults_are_told_at_once() -> None:
    found = faults(Transition("a", "", "b"), Transition("a", "GO", ""), name="")
    assert [fault[:12] for fault in found] == ["the name '' ", "transition 1", "transition 2"]
    two = (Transition("a", "T", "b", after=timedelta(1), guard=noop), Transition("a", "T", "a", after=timedelta(2)))
    assert faults(*two) == ["state 'a', event 'T': two times of after="]


def test_members_of_choices_are_the_texts_that_they_are() -> None:
    class State(TextChoices):
        A = "a"
        B = "b"

    made = table(Transition(State.A, "GO", State.B), initial=(State.A,))
    assert [type(state) for state in made.states] == [str, str]


def test_a_hook_gets_the_event_if_it_takes_a_second_argument() -> None:
    assert not takes_event(lambda row: None)
    assert not takes_event(lambda row, bound=1: None)
    assert not takes_event(lambda row, *rest: None)
    assert not takes_event(str)
    assert takes_event(lambda row, event: None)


def test_a_table_cannot_be_changed_after_it_was_checked() -> None:
    hooks = {"b": noop}
    checked = table(Transition("a", "GO", "b"), on_enter=hooks)
    hooks["z"] = noop
    assert "z" not in checked.on_enter
    with pytest.raises(TypeError):
        checked.on_enter["z"] = noop  # type: ignore[index]


def test_a_machine_that_is_refused_leaves_its_name_free() -> None:
    with pytest.raises(InvalidMachine):
        Machine("unit", initial="a", transitions=[])
    Machine("unit", initial="a", transitions=[Transition("a", "GO", "b")])


def test_the_picture_has_what_the_table_has() -> None:
    def is_big(row: Any) -> bool:
        return True

    drawn = graph_of(table(
        Transition("a", "GO", "b", guard=is_big), Transition("a", "GO", "c"), Transition("b", "LATE", "c",
        after=timedelta(days=3)), Transition("a", "<b>", "a", guard=lambda row: True),
    ), counts={"a": 2, "gone": 1}, current="b")  # fmt: skip
    nodes = {node.name: (node.kind, node.notes, node.waits, node.is_initial, node.is_current) for node in drawn.nodes}
    assert nodes == {
        "a": ("state", ("2 here",), False, True, False),
        "b": ("state", (), True, False, True),
        "c": ("completed", (), False, False, False),
        "gone": ("lost", ("1 here",), False, False, False),
    }
    assert {(edge.source, edge.target, edge.label) for edge in drawn.edges} == {
        ("a", "b", "GO [is_big]"), ("a", "c", "GO"), ("b", "c", "LATE after 3 days"), ("a", "a", "<b> [guard]"),
    }  # fmt: skip
    assert "<b>" not in diagrams.mermaid(drawn)

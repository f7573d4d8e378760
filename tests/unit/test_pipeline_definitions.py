"""What is wrong with a pipeline's table is said where it is written, with the state's name."""

import importlib
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from supervision.engines import Context, InvalidPipeline, Pipeline, State
from supervision.engines.bodies import body
from supervision.engines.pipelines.definition import Table, exhausted, exhausted_state

DONE = {"DONE": "completed"}


def noop(run: Any) -> None: ...


async def coroutine(run: Any) -> None: ...


def table(states: dict[str, Any], terminal: dict[str, str] | None = None, initial: str = "A", name: str = "t") -> Table:
    return Table(name, initial, DONE if terminal is None else terminal, states)


def faults(*args: Any, **kwargs: Any) -> list[str]:
    with pytest.raises(InvalidPipeline) as refused:
        table(*args, **kwargs)
    assert all(fault in str(refused.value) for fault in refused.value.faults)
    return refused.value.faults


@pytest.fixture(autouse=True)
def _forget_pipelines(own_bodies: None) -> None: ...


def test_a_table_that_works_says_nothing() -> None:
    sound = table({"A": State(noop, "DONE", "A", False), "B": State(noop, "DONE", "A", True, max_visits=None)},
                  initial="B")  # fmt: skip
    assert sound.end_of("DONE") == "completed"
    assert sound.end_of("A") is None
    assert exhausted_state(exhausted("A")) == "A"


def test_exactly_four_are_positional() -> None:
    with pytest.raises(TypeError, match="positional"):
        State(noop, "DONE", "DONE", True, 3)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        State(noop, "DONE", "DONE")  # type: ignore[call-arg]
    assert State(noop, "DONE", "DONE", True).max_visits == 100


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        (State(noop, "DOEN", "A", True), "state 'A': on_success names 'DOEN', which is neither a state nor terminal"),
        (State(noop, "DONE", "AA", True), "state 'A': on_failure names 'AA'"),
        (State(noop, "DONE", "A", True, branches={"lost": "X"}), "state 'A': branch 'lost' names 'X'"),
        (State(noop, "DONE", "A", True, max_visits=None), "state 'A': it leads to itself without a cap"),
        (State(noop, "DONE", "DONE", True, max_visits=None, branches={"again": "A"}), "state 'A': it leads to itself"),
        (State(noop, "DONE", "A", True, max_visits=0), "state 'A': max_visits must be 1 or more"),
        (State(noop, "DONE", "A", True, max_visits=True), "state 'A': max_visits must be 1 or more"),
        (State(noop, "DONE", "A", False, poll_every=timedelta(0)), "state 'A': poll_every must be a positive"),
        (State(noop, "DONE", "A", False, poll_every=3), "state 'A': poll_every"),  # type: ignore[arg-type]
        (State(noop, "DONE", "A", True, retry_after=timedelta(-1)), "state 'A': retry_after"),
        (State(noop, "DONE", "A", 1), "state 'A': continue_run must be True or False"),  # type: ignore[arg-type]
        (State("noop", "DONE", "A", True), "state 'A': its transition isn't callable"),  # type: ignore[arg-type]
        (State(coroutine, "DONE", "A", True), "state 'A': its transition is `async def`"),
        (State(noop, "DONE", "A", True, ready=coroutine), "state 'A': its ready is `async def`"),
        (
            State(noop, "DONE", "A", True, branches={"success": "DONE"}),
            "state 'A': a branch may not be called 'success'",
        ),
        (State(noop, "DONE", "A", True, branches={"": "DONE"}), "state 'A': the branch ''"),
        ((noop, "DONE", "A", True), "state 'A': it must be a State, not tuple"),
    ],
)  # fmt: skip
def test_a_fault_of_a_state_names_it(state: Any, fault: str) -> None:
    found = faults({"A": state})
    assert found[0].startswith(fault)


def test_a_state_that_cannot_be_reached_is_named() -> None:
    states = {"A": State(noop, "DONE", "A", True), "ISLAND": State(noop, "DONE", "A", True)}
    assert faults(states) == ["state 'ISLAND': it can't be reached from 'A'"]


def test_states_without_a_way_to_an_end_are_named() -> None:
    states = {
        "A": State(noop, "B", "DONE", True),
        "B": State(noop, "C", "C", True),
        "C": State(noop, "B", "B", True),
    }
    assert faults(states) == ["state 'B': no way leads from it to an end", "state 'C': no way leads from it to an end"]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"initial": "Z"}, "initial names 'Z', which is no state"),
        ({"terminal": {}}, "it has no terminal state"),
        ({"terminal": {"DONE": "finished"}}, "terminal state 'DONE' ends as 'finished'"),
        ({"terminal": {"DONE": "completed", "A": "failed"}}, "terminal state 'A' is in the table of states, too"),
        ({"terminal": {"DONE": "completed", "": "failed"}}, "terminal state '': its name must be"),
        ({"name": ""}, "the name '' must be a text"),
        ({"name": "x" * 101}, "the name"),
    ],
)
def test_a_fault_of_the_table_is_told(options: dict[str, Any], fault: str) -> None:
    assert any(found.startswith(fault) for found in faults({"A": State(noop, "DONE", "A", True)}, **options))


@pytest.mark.parametrize("name", ["", "x" * 101, "new\nline", "max retries reached:A"])
def test_a_name_that_cannot_be_one_is_told(name: str) -> None:
    assert f"state {name!r}: its name m" in faults({name: State(noop, "DONE", name, True)}, initial=name)[0]


def test_all_faults_are_told_at_once() -> None:
    found = faults({"A": State(noop, "X", "A", True), "B": State(noop, "Y", "A", True, max_visits=0)})
    assert [fault[:9] for fault in found] == ["state 'A'", "state 'B'", "state 'B'"]


def test_an_end_that_only_a_person_puts_a_pointer_to_is_allowed() -> None:
    table({"A": State(noop, "DONE", "A", True)}, {"DONE": "completed", "GIVEN_UP": "failed"})


def test_two_of_one_name_are_refused_at_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
from supervision.engines import Pipeline, State
Pipeline("retraining twice", initial="A", terminal={"DONE": "completed"},
         states={"A": State(lambda run: None, "DONE", "A", True)})
"""
    for module in ("pipelines_one", "pipelines_two"):
        (tmp_path / f"{module}.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.import_module("pipelines_one")
    with pytest.raises(
        InvalidPipeline, match=r"'retraining twice' can't work:\n  - another pipeline or body of this name"
    ):
        importlib.import_module("pipelines_two")
    for module in ("pipelines_one", "pipelines_two"):
        sys.modules.pop(module, None)


def test_a_body_and_a_pipeline_cannot_share_a_name() -> None:
    @body("shared name")
    def work(task: Context) -> None: ...

    with pytest.raises(InvalidPipeline):
        Pipeline("shared name", initial="A", terminal=DONE, states={"A": State(noop, "DONE", "A", True)})


def test_a_table_cannot_be_changed_after_it_was_checked() -> None:
    states = {"A": State(noop, "DONE", "A", True)}
    checked = table(states)
    states["B"] = State(noop, "X", "Y", True)
    assert "B" not in checked
    with pytest.raises(TypeError):
        checked.states["B"] = states["B"]  # type: ignore[index]

"""What is wrong with a DAG is said where it is written; and what follows from what, without a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from supervision.engines import Dag, InvalidDag, registry
from supervision.engines.dags.board import Begin, Board, Expand, Fail, Succeed, waits
from supervision.errors import InvalidArguments


@pytest.fixture
def dag() -> Iterator[Dag]:
    yield Dag("faulty")
    registry.unregister("faulty")
    registry.unregister("faulty/node")


def plain(task: Any) -> None: ...


def add(dag: Dag, name: str, *after: Any, **options: Any) -> Callable[..., Any]:
    """A node of that name that takes what it waits for."""

    def work(task: Any, **outputs: Any) -> None: ...

    return dag.node(name, after=after, **options)(work)


def fault(action: Callable[[], Any]) -> str:
    with pytest.raises(InvalidDag) as caught:
        action()
    assert str(caught.value).startswith("The DAG 'faulty' can't work: ")
    return caught.value.fault


def test_a_circle_is_named(dag: Dag) -> None:
    add(dag, "a", "c")
    add(dag, "b", "a")
    said = fault(lambda: add(dag, "c", "b"))
    assert said == "its nodes wait for each other in a circle: a → b → c → a"
    assert "waits for itself: d → d" in fault(lambda: add(dag, "d", "d"))


def test_unknown_and_duplicate_nodes(dag: Dag) -> None:
    add(dag, "a")
    assert fault(lambda: add(dag, "a")) == "it has two nodes of the name 'a'"
    assert fault(lambda: add(dag, "b", plain)) == "a node waits for plain, which is no node of it"
    add(dag, "b", "never")
    assert fault(dag.check) == "node 'b' waits for 'never', which is no node of it"
    assert fault(dag.start) == "node 'b' waits for 'never', which is no node of it"


def test_a_function_that_is_two_nodes_must_be_named(dag: Dag) -> None:
    dag.node("one")(plain)
    dag.node("two")(plain)
    assert fault(lambda: add(dag, "b", plain)) == "plain is several nodes: name the one that is meant, one, two"


def test_a_parameter_that_is_no_dependency(dag: Dag) -> None:
    @dag.node()
    def extract(task: Any, *, day: str) -> None: ...

    def clean(task: Any, *, extrakt: Any, day: str) -> None: ...

    said = fault(lambda: dag.node(after=[extract])(clean))
    assert said == (
        "node 'clean': the parameter 'extrakt' is no dependency (it has extract), and no argument of the run"
    )
    said = fault(lambda: dag.task("whole", "a body", after=[extract], arguments=lambda rows: {"n": rows}))
    assert "the parameter 'rows' is no dependency" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"join": "some"}, "join is 'some'; it must be one of all, any, all_done"),
        ({"map_over": "b"}, "map_over names 'b', which isn't in after"),
        ({"map_over": "a", "after": ["a"], "inline": True}, "inline=True and map_over= contradict each other"),
        ({"inline": True, "queue": "slow"}, "an inline node is run by its run"),
        ({"priority": 11}, "priority is 11; it must be from 0 to 9"),
        ({"after": ["a", "a"]}, "it names a dependency twice: a, a"),
    ],
)
def test_options_that_make_no_sense(dag: Dag, options: dict[str, Any], said: str) -> None:
    add(dag, "a")
    assert said in fault(lambda: dag.node("n", **options)(plain))


async def slow(task: Any) -> None: ...


@pytest.mark.parametrize(("name", "function", "said"), [
    ("", lambda: None, "takes no parameter; the first one is the node's context"),
    ("a[1]", plain, "may not contain “[” or “#”"),
    ("x" * 201, plain, "must be a text of 1 to 200 printable characters"),
    ("slow", slow, "it must be an ordinary function"),
])  # fmt: skip
def test_names_and_functions_that_cannot_be(dag: Dag, name: str, function: Any, said: str) -> None:
    assert said in fault(lambda: dag.node(name)(function))


def test_a_dag_needs_a_name_of_its_own_and_a_node(dag: Dag) -> None:
    assert fault(dag.check) == "it has no node"
    assert "is registered already" in fault(lambda: Dag("faulty"))
    with pytest.raises(InvalidDag, match="max_parallel must be 1 or more"):
        Dag("other", max_parallel=0)
    assert "other" not in registry.known_versions()


def test_the_runs_arguments_are_what_the_first_nodes_take(dag: Dag) -> None:
    @dag.node()
    def one(task: Any, *, day: str) -> None: ...

    @dag.node()
    def two(task: Any, *, limit: int = 3) -> None: ...

    body = registry.get("faulty")
    assert body.parameters == ["day", "limit"]
    assert body.form is not None
    assert list(body.form.base_fields) == ["day", "limit"]
    with pytest.raises(InvalidArguments, match=r"missing a required .*argument: 'day'"):
        dag.start({"limit": 4})
    with pytest.raises(InvalidArguments, match="unknown: night"):
        dag.start({"day": "x", "night": 1})


def test_nodes_may_wait_for_ones_that_come_later(dag: Dag) -> None:
    add(dag, "last", "middle")
    add(dag, "middle", "first")
    add(dag, "first")
    assert [node.name for node in dag.ordered()] == ["first", "middle", "last"]


# --- what follows from what


def spots(*rows: tuple[tuple[int, ...], str, bool]) -> list[Any]:
    """Nodes numbered from 1: (after, join, is_driven)."""
    made = [
        SimpleNamespace(
            number=at, name=f"n{at}", after=list(after), dependents=[], join=join, is_driven=is_driven, state="pending",
            waiting_for=0, is_ready=False, item=None, kind="function", failure="",
        )
        for at, (after, join, is_driven) in enumerate(rows, start=1)
    ]  # fmt: skip
    for node in made:
        for number in node.after:
            made[number - 1].dependents.append(node.number)
    return made


def test_a_failure_skips_through_every_layer_and_reaches_who_waits_for_the_end() -> None:
    nodes = spots(((), "all", True), ((1,), "all", False), ((2,), "all", False), ((3,), "all_done", False))
    board = Board(nodes)
    assert [node.waiting_for for node in nodes] == [0, 1, 1, 1]
    board.apply(1, Fail("no"))
    assert [node.state for node in nodes] == ["failed", "skipped", "skipped", "pending"]
    assert nodes[3].is_ready


def test_inline_work_leads_on_until_only_children_are_left() -> None:
    nodes = spots(((), "all", True), ((1,), "all", True), ((2,), "all", False))
    board = Board(nodes)
    for number in (1, 2):
        assert board.work().number == number  # type: ignore[union-attr]
        board.apply(number, Succeed("1"))
    assert board.work() is None
    assert nodes[2].is_ready


def test_a_decision_for_a_node_that_is_over_changes_nothing() -> None:
    nodes = spots(((), "all", True))
    board = Board(nodes)
    board.apply(1, Succeed("1"))
    for decision in (Fail("no"), Begin(), Expand([1])):
        board.apply(1, decision)
    assert nodes[0].state == "succeeded"


@pytest.mark.parametrize(
    ("join", "states", "left"),
    [
        ("all", [], 0), ("any", [], 0), ("all_done", [], 0),
        ("all", ["succeeded", "running"], 1), ("all", ["succeeded", "failed"], None), ("all", ["skipped"], None),
        ("any", ["failed", "running"], 1), ("any", ["failed", "skipped"], None), ("any", ["failed", "succeeded"], 0),
        ("all_done", ["failed", "running", "pending"], 2), ("all_done", ["failed", "skipped"], 0),
    ],
)  # fmt: skip
def test_how_many_a_node_still_waits_for(join: str, states: list[str], left: int | None) -> None:
    assert waits(join, states) == left

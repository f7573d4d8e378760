"""DAGs: what starts when, what fails and is skipped, and what a run says at its end."""

from __future__ import annotations

import itertools
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from supervision.engines import Context, Dag, Failure, Retry, registry
from supervision.engines import retry as retry_task
from supervision.errors import Refused
from supervision.kernel import due, ends, lifecycle, retention, sql
from supervision.kernel.archive import Archive
from supervision.kernel.models import Task
from supervision.kernel.nodes import Node, Plan
from supervision.testing import answer, run_until_idle, travel
from supervision.worker.drive import drive_one

pytestmark = pytest.mark.django_db

_NAMES = itertools.count()


@pytest.fixture(autouse=True)
def _registry(own_bodies: None) -> None: ...


def new(**options: Any) -> Dag:
    return Dag(f"dag.{next(_NAMES)}", **options)


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


def result(task: Task) -> Any:
    return fresh(task).result


def states(task: Task) -> dict[str, str]:
    rows = Node.objects.filter(run=task, item=None).order_by("number")
    return dict(rows.values_list("name", "state"))


def child(task: Task, node: str) -> Task:
    pk = Node.objects.get(run=task, name=node).task_id
    assert pk is not None
    return Task.objects.get(pk=pk)


def drive(task: Task) -> None:
    """Drives only this task, once."""
    row = fresh(task)
    assert drive_one(row.pk, row.lease, stopping=lambda: False, thread=False)


def test_a_run_hands_outputs_on_and_says_what_succeeded() -> None:
    dag = new()

    @dag.node()
    def extract(task: Context, *, day: str) -> list[int]:
        return [1, 2, len(day)]

    @dag.node(after=[extract])
    def clean(task: Context, *, extract: list[int]) -> dict[str, int]:
        return {"rows": len(extract)}

    @dag.node(after=[clean, "extract"], when=lambda outputs: outputs["clean"]["rows"] > 2)
    def publish(task: Context, *, clean: Any, extract: Any, day: str) -> Any:
        return [clean, extract, day]

    @dag.node(after=[clean], when=lambda outputs: outputs["clean"]["rows"] > 3)
    def alarm(task: Context) -> None: ...

    @dag.node(after=[alarm])
    def call(task: Context) -> None: ...

    task = dag.start({"day": "monday"})
    run_until_idle()
    assert fresh(task).result == {
        "succeeded": ["extract", "clean", "publish"], "failed": [], "skipped": ["alarm", "call"],
        "outputs": {"publish": [{"rows": 3}, [1, 2, 6], "monday"]},
    }  # fmt: skip


def diamond(bad: str = "", **options: Any) -> Dag:
    """a -> b, c -> d; whoever is ``bad`` fails."""
    dag = new()

    def made(name: str, *after: str, **more: Any) -> None:
        @dag.node(name, after=after, **more)
        def work(task: Context, **outputs: Any) -> Any:
            if name == bad:
                raise ValueError("as told")
            return sorted(outputs.items())

    made("a")
    made("b", "a", **options)
    made("c", "a")
    made("d", "b", "c")
    return dag


def test_the_run_is_not_driven_for_each_node() -> None:
    task = diamond().start()
    run_until_idle()
    assert fresh(task).current_state == "completed"
    assert fresh(task).lease == 2  # laid out, and ended
    assert {child(task, name).lease for name in "abcd"} == {1}
    assert fresh(task).heartbeat.progress_done == fresh(task).heartbeat.progress_total == 4


def test_the_end_of_a_node_starts_what_follows_in_one_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    task = diamond().start()
    drive(task)
    sent: list[int] = []

    def counted(*statements: Any, **options: Any) -> Any:
        sent.append(len(statements))
        return together(*statements, **options)

    together = sql.together
    monkeypatch.setattr(sql, "together", counted)
    monkeypatch.setattr(ends, "_complete", None)  # the general way
    drive(child(task, "a"))
    assert sent == [2, 5], "a take, an end"
    assert states(task) == {"a": "succeeded", "b": "running", "c": "running", "d": "pending"}


def test_a_failed_node_skips_what_depends_on_it_and_others_go_on() -> None:
    task = diamond(bad="b").start()
    run_until_idle()
    assert states(task) == {"a": "succeeded", "b": "failed", "c": "succeeded", "d": "skipped"}
    assert fresh(task).watchdog_stop_reason == "nodes_failed:b"
    assert fresh(task).failure == ("1 node failed: b: ValueError: as told. Succeeded: 2; skipped: 1 (d).")
    assert Node.objects.get(run=task, name="d").task_id is None
    assert Task.objects.filter(parent=task).count() == 3


def test_a_run_completes_without_a_node_that_it_does_not_require() -> None:
    task = diamond(bad="b", required=False).start()
    run_until_idle()
    said = result(task)
    assert (said["failed"], said["skipped"]) == (["b"], ["d"])


@pytest.mark.parametrize(("join", "expected"), [("any", ["skipped", "succeeded"]), ("all_done", ["succeeded"] * 2)])
def test_joins(join: str, expected: list[str]) -> None:
    dag = new()

    @dag.node()
    def good(task: Context) -> str:
        return "good"

    @dag.node(required=False)
    def bad(task: Context) -> None:
        raise Failure("no")

    @dag.node(after=[bad], join=join)
    def only_bad(task: Context, *, bad: Any) -> Any:
        return [bad]

    @dag.node(after=[bad, good], join=join)
    def both(task: Context, *, good: Any, bad: Any) -> Any:
        return [good, bad]

    task = dag.start()
    run_until_idle()
    assert [states(task)["only_bad"], states(task)["both"]] == expected
    assert result(task)["outputs"]["both"] == ["good", None]


def test_any_starts_at_the_first_success() -> None:
    dag = new()

    @dag.node()
    def quick(task: Context) -> int:
        return 1

    @dag.node()
    def slow(task: Context) -> Any:
        return task.ask("go", "Go?")

    @dag.node(after=[quick, slow], join="any")
    def first(task: Context, *, quick: Any, slow: Any) -> Any:
        return [quick, slow]

    task = dag.start()
    run_until_idle()
    assert states(task) == {"quick": "succeeded", "slow": "running", "first": "succeeded"}
    answer(child(task, "slow"), {"go": "x"})
    run_until_idle()
    assert result(task)["outputs"] == {"first": [1, None]}


def test_a_node_asks_and_parks_its_branch_alone() -> None:
    dag = new()

    @dag.node()
    def asks(task: Context) -> Any:
        return task.ask("go", "Go?")

    @dag.node(after=[asks])
    def told(task: Context, *, asks: str) -> str:
        return asks

    @dag.node()
    def other(task: Context) -> int:
        return 1

    @dag.node(after=[other])
    def further(task: Context, *, other: int) -> int:
        return other + 1

    task = dag.start()
    run_until_idle()
    assert states(task) == {"asks": "running", "other": "succeeded", "told": "pending", "further": "succeeded"}
    assert child(task, "asks").watchdog_stop_reason == "awaiting_user_answer:go"
    answer(child(task, "asks"), {"go": "yes"})
    run_until_idle()
    assert result(task)["outputs"] == {"told": "yes", "further": 2}


def test_a_condition_that_raises_is_the_nodes_failure() -> None:
    dag = new()

    @dag.node(when=lambda outputs: outputs["nothing"])
    def work(task: Context) -> None: ...

    task = dag.start()
    run_until_idle()
    assert fresh(task).failure == "1 node failed: work: KeyError: 'nothing'. Succeeded: 0; skipped: 0."


@pytest.mark.parametrize("max_parallel", [None, 2])
def test_a_node_is_mapped_over_a_list(max_parallel: int | None) -> None:
    dag = new(max_parallel=max_parallel)

    @dag.node()
    def listing(task: Context) -> list[int]:
        return [3, 1, 2]

    @dag.node(after=[listing], map_over=listing)
    def square(task: Context, *, listing: int) -> int:
        return listing * listing

    @dag.node(after=[square])
    def total(task: Context, *, square: list[int]) -> Any:
        return [square, sum(square)]

    task = dag.start()
    most = 0
    while offers := due.offer(1, queues=None, bodies=registry.drivable()):
        drive_one(offers[0].task_id, offers[0].lease, stopping=lambda: False, thread=False)
        most = max(most, Task.objects.live().filter(parent=task).count())
    assert most == (max_parallel or 3)
    assert result(task)["outputs"] == {"total": [[9, 1, 4], 14]}
    assert fresh(task).heartbeat.progress_total == 3


def test_a_map_over_nothing_is_nothing_and_over_no_list_fails() -> None:
    dag = new()

    @dag.node()
    def empty(task: Context) -> list[int]:
        return []

    @dag.node()
    def number(task: Context) -> int:
        return 7

    def each(task: Context, **item: Any) -> Any: ...

    dag.node("over_empty", after=[empty], map_over=empty)(each)
    dag.node("over_number", after=[number], map_over=number, required=False)(each)
    task = dag.start()
    run_until_idle()
    assert result(task)["outputs"] == {"over_empty": []}
    assert Node.objects.get(run=task, name="over_number").failure == (
        "SupervisionError: number returned no list, but int"
    )


def test_an_item_that_fails_fails_its_node_once_all_are_over() -> None:
    dag = new()
    calls: list[int] = []

    @dag.node()
    def listing(task: Context) -> list[int]:
        return [1, 2, 3]

    @dag.node(after=[listing], map_over=listing)
    def each(task: Context, *, listing: int) -> int:
        calls.append(listing)
        if listing == 2 and calls.count(2) == 1:
            raise Failure("two")
        return listing

    task = dag.start()
    run_until_idle()
    assert "1 of 3 items failed; the first, each[000001]: two" in fresh(task).failure
    fork = retry_task(task.pk, by="alice")
    run_until_idle()
    assert result(fork)["outputs"] == {"each": [1, 2, 3]}
    assert sorted(calls) == [1, 2, 2, 3]


def test_a_retry_keeps_what_succeeded() -> None:
    dag = new()
    calls: list[str] = []
    is_mended: list[bool] = []

    @dag.node()
    def extract(task: Context, *, day: str) -> str:
        calls.append("extract")
        return day

    @dag.node(after=[extract], inline=True)
    def small(task: Context, *, extract: str) -> str:
        calls.append("small")
        return extract * 2

    @dag.node(after=[small])
    def clean(task: Context, *, small: str) -> str:
        calls.append("clean")
        if not is_mended:
            raise OSError("the disk")
        return small + "!"

    @dag.node(after=[clean, extract])
    def publish(task: Context, *, clean: str, extract: str) -> str:
        calls.append("publish")
        return clean + extract

    task = dag.start({"day": "mon"})
    run_until_idle()
    assert states(task)["publish"] == "skipped"
    is_mended.append(True)
    fork = retry_task(task.pk, by="alice")
    run_until_idle()
    assert result(fork)["outputs"] == {"publish": "monmon!mon"}
    assert calls == ["extract", "small", "clean", "clean", "publish"]
    assert Node.objects.get(run=fork, name="extract").task_id == child(task, "extract").pk


def test_a_node_is_not_retried_without_its_run_and_a_run_not_from_a_step() -> None:
    task = diamond(bad="b").start()
    run_until_idle()
    with pytest.raises(Refused, match="retry the run"):
        retry_task(child(task, "b").pk, by="alice")
    with pytest.raises(Refused, match="keeps the nodes that succeeded"):
        retry_task(task.pk, by="alice", from_step="b")
    fork = retry_task(task.pk, by="alice", from_scratch=True)
    run_until_idle()
    assert Task.objects.filter(parent=fork).count() == 3


def test_a_run_accepted_for_a_new_version_starts_its_nodes_in_it() -> None:
    name = f"dag.{next(_NAMES)}"

    def deploy(version: int) -> Dag:
        registry.unregister(name)
        registry.unregister(f"{name}/node")
        dag = Dag(name, version=version)
        dag.node("a")(lambda task: task.ask("go", "Go?"))
        dag.node("b", after=["a"], when=lambda outputs: True)(lambda task: version)
        return dag

    task = deploy(1).start()
    run_until_idle()
    asking = child(task, "a")
    answer(asking, {"go": "x"})
    deploy(2)
    run_until_idle()
    for row in (asking, task):
        assert fresh(row).watchdog_stop_reason == "version_changed:1->2"
        lifecycle.resume(row.pk, by="alice")
        run_until_idle()
    assert result(task)["outputs"] == {"b": 2}
    assert child(task, "b").body_version == 2


def test_a_whole_task_with_arguments_that_cannot_be_fails_its_node() -> None:
    dag = new()
    inner = new()

    @inner.node()
    def work(task: Context, *, n: int) -> int:
        return n

    dag.task("unknown", inner, arguments={"m": 1}, required=False)
    dag.task("unstorable", inner, arguments=lambda: {"n": float("nan")}, required=False)
    task = dag.start()
    run_until_idle()
    failures = dict(Node.objects.filter(run=task).values_list("name", "failure"))
    assert "unknown: m; it takes n" in failures["unknown"]
    assert "NotStorable" in failures["unstorable"]
    assert fresh(task).current_state == "completed"


def test_inline_nodes_are_steps_of_the_run_and_may_not_wait() -> None:
    dag = new()

    @dag.node(inline=True)
    def first(task: Context) -> int:
        return 1

    @dag.node(after=[first], inline=True, retry=Retry(attempts=2, first_delay=0))
    def second(task: Context, *, first: int) -> int:
        seen.append(first)
        if len(seen) == 1:
            raise OSError("not yet")
        return first + 1

    @dag.node(after=[second])
    def third(task: Context, *, second: int) -> int:
        return second + 1

    @dag.node(after=[first], inline=True, required=False)
    def asks(task: Context) -> Any:
        return task.ask("go", "Go?")

    seen: list[int] = []
    task = dag.start()
    run_until_idle()
    assert result(task)["outputs"] == {"third": 3}
    assert len(seen) == 2
    assert Task.objects.filter(parent=task).count() == 1
    assert "was called inside the step" in Node.objects.get(run=task, name="asks").failure


def test_a_node_is_tried_again_and_keeps_its_steps() -> None:
    dag = new()
    calls: list[str] = []

    @dag.node(retry=Retry(attempts=3, first_delay=60, jitter=0))
    def work(task: Context) -> Any:
        task.step("fetch", calls.append, "fetch")
        calls.append("work")
        if calls.count("work") < 3:
            raise OSError("not yet")
        return len(calls)

    task = dag.start()
    run_until_idle()
    assert child(task, "work").watchdog_stop_reason == "retrying:node work"
    with travel(timedelta(minutes=2)):
        run_until_idle()
        with travel(timedelta(minutes=3)):
            run_until_idle()
    assert calls == ["fetch", "work", "work", "work"]
    assert result(task)["outputs"] == {"work": 4}


def test_a_node_that_uses_up_its_attempts_fails_for_lack_of_retries() -> None:
    dag = new()

    @dag.node(retry=Retry(attempts=2, first_delay=0))
    def work(task: Context) -> None:
        raise OSError("never")

    task = dag.start()
    run_until_idle()
    assert child(task, "work").watchdog_stop_reason == "retries_exhausted:node work"
    assert "OSError: never" in fresh(task).failure


def test_a_timeout_bounds_a_node_also_around_steps_with_timeouts() -> None:
    dag = new()

    @dag.node(timeout=0.2)
    def work(task: Context) -> None:
        task.step("quick", len, "abc", timeout=5)
        while True:
            pass

    task = dag.start()
    run_until_idle()
    assert "ran longer than 0.2 s" in fresh(task).failure


def test_pause_resume_and_cancel_of_a_run_reach_its_children() -> None:
    dag = new()

    def asks(task: Context, **outputs: Any) -> Any:
        return task.ask("go", "Go?")

    for name in ("one", "two"):
        dag.node(name)(asks)
    dag.node("after", after=["one"])(asks)
    task = dag.start()
    run_until_idle()
    lifecycle.pause(child(task, "two").pk, by="bob")
    lifecycle.pause(task.pk, by="alice")
    assert child(task, "one").is_held
    answer(child(task, "one"), {"go": "x"})
    assert run_until_idle() == 0
    lifecycle.resume(task.pk, by="alice")
    assert not child(task, "one").is_held
    assert child(task, "two").is_held, "bob's own pause stays"
    run_until_idle()
    assert states(task) == {"one": "succeeded", "two": "running", "after": "running"}
    lifecycle.cancel(task.pk, by="alice")
    run_until_idle()
    assert fresh(task).current_state == "cancelled"
    assert {child(task, name).current_state for name in ("two", "after")} == {"cancelled"}
    assert states(task) == {"one": "succeeded", "two": "failed", "after": "failed"}


def test_nothing_is_started_while_a_run_is_paused() -> None:
    task = diamond().start()
    drive(task)
    row = child(task, "a")
    lifecycle.pause(task.pk, by="alice")
    lifecycle.resume(row.pk, by="bob")
    drive(row)
    assert states(task) == {"a": "succeeded", "b": "pending", "c": "pending", "d": "pending"}
    lifecycle.resume(task.pk, by="alice")
    run_until_idle()
    assert fresh(task).current_state == "completed"


def test_an_expired_run_takes_its_children_along() -> None:
    dag = new()

    @dag.node()
    def asks(task: Context) -> Any:
        return task.ask("go", "Go?")

    @dag.node(after=[asks])
    def told(task: Context, *, asks: str) -> None: ...

    task = dag.start(expires_after=timedelta(minutes=1))
    run_until_idle()
    with travel(timedelta(minutes=2)):
        run_until_idle()
    assert fresh(task).current_state == "expired"
    assert child(task, "asks").current_state == "cancelled"
    assert states(task) == {"asks": "failed", "told": "pending"}


def test_the_structure_is_stored_with_the_run_and_the_code_is_current() -> None:
    name = f"dag.{next(_NAMES)}"

    def deploy(version: str, *, after: list[str], gone: bool = False) -> Dag:
        registry.unregister(name)
        registry.unregister(f"{name}/node")
        dag = Dag(name)

        @dag.node()
        def a(task: Context) -> Any:
            return task.ask("go", "Go?")

        if not gone:
            dag.node("b", after=after)(lambda task, **outputs: [version, sorted(outputs)])
            dag.node("c", after=[])(lambda task: version)
        return dag

    task = deploy("old", after=["a"]).start()
    run_until_idle()
    deploy("none", after=[], gone=True)
    answer(child(task, "a"), {"go": "x"})
    run_until_idle()
    assert child(task, "b").watchdog_stop_reason == "unknown_node:b"
    assert fresh(task).watchdog_stop_reason == "unknown_node:b"
    assert fresh(task).wake_at is None
    deploy("new", after=["c"])
    assert run_until_idle() == 0
    lifecycle.resume(task.pk, by="alice")
    run_until_idle()
    assert result(task)["outputs"] == {"b": ["new", ["a"]], "c": "old"}


def test_a_run_that_can_make_no_progress_fails_at_once_and_says_who_waits() -> None:
    task = diamond().start()
    drive(task)
    numbers = dict(Node.objects.filter(run=task).values_list("name", "number"))
    Node.objects.filter(run=task, name="b").update(after=[numbers["a"], numbers["d"]], waiting_for=2)
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "no_progress"
    assert fresh(task).failure == "No node can go on. Who waits for what: b ← d; d ← b"


def test_secrets_of_the_run_reach_its_nodes_and_stay_masked() -> None:
    dag = new(sensitive=("token",))

    @dag.node()
    def call(task: Context, *, token: str) -> None:
        raise OSError(f"denied for {token}")

    task = dag.start({"token": "canary-7"})
    run_until_idle()
    for row in Task.objects.filter(parent=task):
        assert "canary" not in row.failure + str(row.arguments)
        assert all("canary" not in str(entry.payload) for entry in row.entries.all())
    assert "denied" in fresh(task).failure
    assert "canary" not in fresh(task).failure


def test_nodes_leave_and_are_erased_with_their_run() -> None:
    task = diamond().start()
    run_until_idle()
    Node.objects.filter(run=task, name="b").update(output={"person": "x"}, failure="x")
    retention.erase(task.pk, by="alice")
    node = Node.objects.get(run=task, name="b")
    assert (node.output, node.failure) == ({"erased": True}, "")
    retention.prune(task.pk)
    assert not Node.objects.exists()
    assert not Plan.objects.exists()


def test_nodes_are_archived_with_their_run_and_their_secrets_masked(tmp_path: Path) -> None:
    dag = new(sensitive=("token",))

    @dag.node()
    def call(task: Context, *, token: str) -> str:
        return f"used {token}"

    task = dag.start({"token": "canary-7"})
    run_until_idle()
    with Archive(tmp_path / "archive") as archive:
        retention.prune(task.pk, before=archive.add)
    text = (tmp_path / "archive").read_text()
    assert "canary" not in text
    rows = [json.loads(line) for line in text.splitlines()]
    assert [row["node"]["name"] for row in rows if "node" in row] == ["call"]
    assert [row["plan"]["total"] for row in rows if "plan" in row] == [1]

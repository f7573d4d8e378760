"""Children: started once, waited for without a worker, and ended with their parent."""

import itertools
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from supervision.engines import Cancelled, ChildFailed, Context, Failure, registry, start, start_many
from supervision.engines.bodies import body
from supervision.errors import InvalidArguments
from supervision.kernel import due, ends, lease, lifecycle
from supervision.kernel.models import LogEntry, Task
from supervision.testing import answer, run_until_idle
from supervision.worker.drive import drive_one
from tests.integration.races import Stage, held

pytestmark = pytest.mark.django_db

_NAMES = itertools.count()


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    before = set(registry.known_versions())

    @body("child.double")
    def double(task: Context, *, n: int) -> int:
        if n < 0:
            raise Failure("negative")
        return 2 * n

    @body("child.asks")
    def asks(task: Context) -> Any:
        try:
            return task.ask("go", "Go?")
        except Cancelled:
            task.checkpoint(cleaned=True)
            raise

    yield
    for name in set(registry.known_versions()) - before:
        registry.unregister(name)


def parent(function: Any) -> Task:
    name = f"parent.{next(_NAMES)}"
    body(name)(function)
    return start(name)


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


def drive(task: Task) -> None:
    """Drives only this task, once."""
    row = fresh(task)
    assert drive_one(row.pk, row.lease, stopping=lambda: False, thread=False)


def test_map_gives_the_results_in_order_and_the_parent_sleeps() -> None:
    task = parent(lambda task: task.map("child.double", [{"n": n} for n in range(5)]))
    drive(task)
    assert fresh(task).watchdog_stop_reason == "awaiting_children"
    assert fresh(task).children_awaited == 5
    run_until_idle()
    assert fresh(task).result == [0, 2, 4, 6, 8]
    assert Task.objects.filter(parent=task).count() == 5


def test_a_parent_is_woken_once_by_its_last_child() -> None:
    task = parent(lambda task: task.map("child.double", [{"n": n} for n in range(3)]))
    drive(task)
    for at, child in enumerate(Task.objects.filter(parent=task).order_by("parent_step")):
        assert fresh(task).wake_at is None
        assert fresh(task).children_awaited == 3 - at
        drive(child)
    assert fresh(task).wake_at is not None
    drive(task)
    assert fresh(task).result == [0, 2, 4]


def test_at_most_bounds_how_many_live() -> None:
    task = parent(lambda task: task.map("child.double", [{"n": n} for n in range(25)], at_most=4))
    most = 0
    while not fresh(task).is_terminal:
        offers = due.offer(1, queues=None, bodies=registry.drivable())
        drive_one(offers[0].task_id, offers[0].lease, stopping=lambda: False, thread=False)
        most = max(most, Task.objects.live().filter(parent=task).count())
    assert fresh(task).result == [2 * n for n in range(25)]
    assert most == 4


def test_a_redrive_finds_its_children_again() -> None:
    def work(task: Context) -> Any:
        first = task.start_child("child.double", {"n": 1})
        second = task.start_child("child.double", {"n": 2})
        task.ask("go", "Go?")
        return [outcome.result for outcome in task.wait_for([second, first])]

    task = parent(work)
    run_until_idle()
    answer(task, {"go": "x"})
    run_until_idle()
    assert fresh(task).result == [4, 2]
    assert Task.objects.filter(parent=task).count() == 2


def test_a_failed_child_means_what_the_parent_says() -> None:
    def work(task: Context) -> Any:
        try:
            task.run_child("child.double", {"n": -1})
        except ChildFailed as failed:
            return [outcome.failure for outcome in failed.outcomes]

    task = parent(work)
    run_until_idle()
    assert fresh(task).result == ["negative"]

    task = parent(lambda task: task.run_child("child.double", {"n": -1}))
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "failed:ChildFailed"
    assert "negative" in fresh(task).failure


def test_a_wait_for_some_children_ignores_the_others() -> None:
    def work(task: Context) -> Any:
        slow = task.start_child("child.asks")
        quick = task.start_child("child.double", {"n": 1})
        task.wait_for(quick)
        task.checkpoint(quick=True)
        return task.wait_for(slow)[0].result

    task = parent(work)
    run_until_idle()
    assert fresh(task).locked_decisions == {"quick": True}
    assert fresh(task).watchdog_stop_reason == "awaiting_children"
    answer(Task.objects.get(parent=task, body="child.asks"), {"go": "done"})
    run_until_idle()
    assert fresh(task).result == "done"


def test_children_do_not_outlive_their_parent_and_may_clean_up() -> None:
    def work(task: Context) -> Any:
        task.start_child("child.asks")
        task.start_child("child.double", {"n": 1}, priority=9, queue="nobody")
        task.ask("go", "Go?")

    task = parent(work)
    drive(task)
    asking, waiting = Task.objects.filter(parent=task).order_by("parent_step")
    drive(asking)
    lifecycle.cancel(task.pk, by="alice")
    drive(task)
    assert fresh(task).current_state == "cancelled"
    assert fresh(waiting).current_state == "cancelled"
    assert fresh(asking).ending == "cancelled"
    run_until_idle()
    assert fresh(asking).locked_decisions == {"cleaned": True}
    assert fresh(asking).watchdog_stop_reason == "cancelled:parent"


def test_a_parent_that_waits_is_cancelled_at_its_wait() -> None:
    task = parent(lambda task: task.run_child("child.asks"))
    run_until_idle()
    lifecycle.cancel(task.pk, by="alice")
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "cancelled:alice"
    assert {child.current_state for child in Task.objects.filter(parent=task)} == {"cancelled"}


def test_wrong_arguments_of_a_child_start_nothing() -> None:
    task = parent(lambda task: task.map("child.double", [{"n": 1}, {"m": 2}]))
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == f"failed:{InvalidArguments.__name__}"
    assert not Task.objects.filter(parent=task).exists()


def test_many_tasks_are_started_at_once_and_only_once_for_their_keys() -> None:
    arguments = [{"n": n} for n in range(120)]
    keys = [f"row-{n}" for n in range(120)]
    first = start_many("child.double", arguments, idempotency_keys=keys, subjects=keys)
    again = start_many("child.double", [*arguments, {"n": 7}], idempotency_keys=[*keys, "row-120"])
    assert len(first) == 120
    assert len(again) == 1
    assert Task.objects.get(pk=first[5]).subject == "row-5"
    run_until_idle()
    assert Task.objects.get(pk=first[5]).result == 10
    assert Task.objects.get(pk=first[5]).log_length == 3


def test_starts_may_be_spread_over_time() -> None:
    ids = start_many("child.double", [{"n": 1}, {"n": 2}], start_after=[timedelta(0), timedelta(hours=1)])
    run_until_idle()
    assert [Task.objects.get(pk=each).current_state for each in ids] == ["completed", "pending"]


@pytest.mark.parametrize("ways", [(True, True), (True, False), (False, True), (False, False)])
def test_the_last_two_children_end_at_the_same_moment_and_wake_their_parent_once(
    stage: Stage, ways: tuple[bool, bool]
) -> None:
    task = parent(lambda task: task.map("child.double", [{"n": n} for n in range(2)]))
    drive(task)
    taken = [lease.take(child.pk, child.lease) for child in Task.objects.filter(parent=task).order_by("parent_step")]

    def completes(at: int) -> Any:
        ending = taken[at]
        assert ending is not None
        verb = lambda: ends.complete(ending.task_id, ending.lease, at, is_child=ways[at])  # noqa: E731
        return held(verb) if ways[at] else verb

    first = stage.begin(completes(0))
    second = stage.begin(completes(1))
    assert second.is_blocked_by(first)
    assert fresh(task).children_awaited == 2
    first.commit()
    second.commit()
    assert fresh(task).wake_at is not None
    assert LogEntry.objects.filter(task_id=task.pk, event="children_ended").count() == 1
    run_until_idle()
    assert fresh(task).result == [0, 1]
    assert LogEntry.objects.filter(task_id=task.pk, event="task_taken").count() == 2, (
        "driven once to its wait, and once after"
    )

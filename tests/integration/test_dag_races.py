"""What happens to a run at the same moment: stopped by locks, not by luck."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from supervision.engines import Context, Dag
from supervision.kernel import ends, lease, lifecycle
from supervision.kernel.models import Task
from supervision.kernel.nodes import Node, Plan
from supervision.testing import run_until_idle
from supervision.worker.drive import drive_one
from tests.integration.races import Stage, held

_NAMES = itertools.count()


@pytest.fixture(autouse=True)
def _registry(own_bodies: None) -> None: ...


def joined() -> Task:
    """A run whose nodes left and right are pending children, and wait in ``join``'s way."""
    dag = Dag(f"race.{next(_NAMES)}")

    def work(task: Context, **outputs: Any) -> Any:
        return sorted(outputs)

    dag.node("left")(work)
    dag.node("right")(work)
    dag.node("join", after=["left", "right"])(work)
    task = dag.start()
    drive_one(task.pk, 0, stopping=lambda: False, thread=False)
    return task


def taken(task: Task, node: str) -> lease.Taken:
    pk = Node.objects.get(run=task, name=node).task_id
    assert pk is not None
    won = lease.take(pk, 0)
    assert won is not None
    return won


@pytest.mark.parametrize("paused", [set(), {"right"}, {"left", "right"}])
def test_the_last_two_finishers_of_a_join_start_it_once(stage: Stage, paused: set[str]) -> None:
    """Fast and general way (a request that was not observed) alike."""
    task = joined()
    left, right = taken(task, "left"), taken(task, "right")
    for won, node in ((left, "left"), (right, "right")):
        if node in paused:
            lifecycle.pause(won.task_id, by="alice")
    first = stage.begin(held(lambda: ends.complete(left.task_id, left.lease, 1)))
    second = stage.begin(held(lambda: ends.complete(right.task_id, right.lease, 2)))
    assert first.is_stopped
    assert second.is_blocked_by(first)
    first.commit()
    second.settle()
    assert Node.objects.get(run=task, name="join").state == "pending"
    second.commit()
    assert Task.objects.filter(parent=task).count() == 3
    assert Node.objects.get(run=task, name="join").state == "running"
    assert Plan.objects.get(task=task).running == 1
    run_until_idle()
    task.refresh_from_db()
    assert task.result == {"succeeded": ["left", "right", "join"], "failed": [], "skipped": [],
                           "outputs": {"join": ["left", "right"]}}  # fmt: skip


def test_the_last_end_and_the_settling_of_the_run_see_each_other(stage: Stage) -> None:
    """The run is driven (for the failure of left) while right ends: it must not park beside an end that it missed."""
    task = joined()
    left, right = taken(task, "left"), taken(task, "right")
    ends.fail(left.task_id, left.lease, "failed:ValueError", "no", {})
    task.refresh_from_db()
    assert task.wake_at is not None
    run = stage.begin(lambda: drive_one(task.pk, task.lease, stopping=lambda: False, thread=False))
    end = stage.begin(held(lambda: ends.complete(right.task_id, right.lease, 2)))
    assert run.is_stopped
    assert end.is_blocked_by(run)
    run.commit()
    end.commit()
    run_until_idle()
    task.refresh_from_db()
    assert task.watchdog_stop_reason == "nodes_failed:left"
    assert dict(Node.objects.filter(run=task).values_list("name", "state")) == {
        "left": "failed", "right": "succeeded", "join": "skipped",
    }  # fmt: skip


def test_a_pause_and_an_end_at_once_start_nothing_behind_the_pause(stage: Stage) -> None:
    task = joined()
    left, right = taken(task, "left"), taken(task, "right")
    ends.complete(left.task_id, left.lease, 1)
    pause = stage.begin(lambda: lifecycle.pause(task.pk, by="alice"))
    end = stage.begin(held(lambda: ends.complete(right.task_id, right.lease, 2)))
    assert end.is_blocked_by(pause)
    pause.commit()
    end.commit()
    assert Node.objects.get(run=task, name="join").state == "pending"
    lifecycle.resume(task.pk, by="alice")
    assert Node.objects.get(run=task, name="join").state == "running"

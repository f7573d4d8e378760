"""Ten thousand children of one parent on a real cluster whose workers are killed throughout."""

import time

import pytest

from supervision.kernel import creation
from supervision.kernel.models import LogEntry, Task
from tests.acceptance.conftest import start_cluster
from tests.processes import StartCluster, wait_for

__all__ = ["start_cluster"]
pytestmark = [pytest.mark.cluster, pytest.mark.slow]
COUNT = 10_000


def test_ten_thousand_children_are_each_started_once_and_their_parent_sleeps(
    start_cluster: StartCluster,
) -> None:
    cluster = start_cluster(supervision={"MAX_RECOVERIES": 50})
    parent = creation.create("fan-out", {"count": COUNT}).pk
    ended = Task.objects.filter(parent=parent, current_state="completed")
    moments = []
    for part in range(10):
        wait_for(lambda part=part: ended.count() >= part * COUNT // 10, f"{part} of 10 parts are done", 60)  # type: ignore[misc]
        moments.append(time.monotonic())
        cluster.kill("worker")
    wait_for(lambda: Task.objects.filter(pk=parent, current_state="completed").exists(), "the parent has ended", 60)
    moments.append(time.monotonic())

    assert Task.objects.get(pk=parent).result == COUNT
    assert Task.objects.filter(parent=parent).count() == COUNT
    assert Task.objects.filter(parent=parent).values("parent_step").distinct().count() == COUNT
    steps = LogEntry.objects.filter(event="step_completed", task_id__in=Task.objects.filter(parent=parent).values("pk"))
    assert steps.count() == COUNT, "each child's step was recorded once"
    entries = LogEntry.objects.filter(task_id=parent)
    assert entries.filter(event="children_ended").count() == 1
    drives = entries.filter(event="task_taken").count()
    assert drives - entries.filter(payload__reason="worker_lost").count() == 2, "driven to its wait, and from there"
    early, late = moments[4] - moments[1], moments[9] - moments[6]
    assert late < 3 * early, "the last thousands take no longer than the first"

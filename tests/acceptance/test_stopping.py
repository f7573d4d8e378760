"""A cluster that is asked to stop ends in time and whole."""

import signal
import time

import pytest

from supervision.kernel.models import Task
from tests.acceptance import tasks
from tests.processes import Cluster, StartCluster, wait_for

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("group", [False, True], ids=["main", "group"])
def test_idle_cluster_stops_within_seconds(cluster: Cluster, signum: int, group: bool) -> None:
    assert cluster.stop(signum, group=group, seconds=3) == 0
    assert cluster.complaints() == []


@pytest.mark.parametrize("group", [False, True], ids=["main", "group"])
def test_running_bodies_park_at_their_next_checkpoint_and_are_due(cluster: Cluster, group: bool) -> None:
    running = [tasks.start(steps=600, seconds=0.1) for _ in range(2)]
    waiting = [tasks.start(steps=1) for _ in range(4)]
    for task in running:
        tasks.wait_for_progress(task)

    assert cluster.stop(group=group, seconds=5) == 0

    assert cluster.complaints() == []
    assert [tasks.reason(task) for task in running] == ["worker_stopping"] * 2
    assert Task.objects.filter(pk__in=running, wake_at__isnull=False).count() == 2
    assert [tasks.state(task) for task in waiting] == ["pending"] * 4


def test_another_cluster_goes_on_from_where_a_stopped_one_parked(start_cluster: StartCluster) -> None:
    first = start_cluster()
    task = tasks.start(steps=20, seconds=0.05)
    tasks.wait_for_progress(task)
    first.stop()
    start_cluster()
    tasks.wait_for_state(task, "completed")


def test_step_that_outlasts_the_grace_time_is_killed_and_its_task_is_due(start_cluster: StartCluster) -> None:
    cluster = start_cluster(supervision={"STOP_GRACE_SECONDS": 1})
    task = tasks.start(steps=1, seconds=120)
    tasks.wait_for_state(task, "running")
    assert cluster.stop(seconds=6) == 0
    assert (tasks.state(task), tasks.reason(task)) == ("parked", "worker_lost")


def test_second_signal_stops_at_once(start_cluster: StartCluster) -> None:
    cluster = start_cluster(supervision={"STOP_GRACE_SECONDS": 120})
    task = tasks.start(steps=1, seconds=120)
    tasks.wait_for_state(task, "running")
    signalled_at = time.monotonic()
    with pytest.raises(AssertionError, match="no process of the cluster is left"):
        cluster.stop(seconds=0.7)
    assert cluster.stop(seconds=4) == 0
    assert time.monotonic() - signalled_at < 5
    assert tasks.reason(task) == "worker_lost"


def test_signal_to_one_idle_worker_replaces_that_worker_alone(cluster: Cluster) -> None:
    stopped = cluster.kill("worker", signal.SIGTERM)
    wait_for(lambda: stopped not in cluster.alive() and len(cluster.pids("worker")) == 2, "the worker is replaced")
    task = tasks.start()
    tasks.wait_for_state(task, "completed")
    assert cluster.stop() == 0

"""Whatever process of a cluster is killed, work goes on or the cluster ends whole; it never hangs."""

import os
import signal

import pytest
from django.db import connection

from supervision.kernel.models import LogEntry
from tests.acceptance import tasks
from tests.processes import Cluster, Role, StartCluster, wait_for

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("role", ["main", "sentinel"])
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_killed_head_leaves_no_process(cluster: Cluster, role: Role, busy: bool) -> None:
    if busy:
        tasks.wait_for_progress(tasks.start(steps=600, seconds=0.1))
    cluster.kill(role)
    assert cluster.wait_until_gone(5) != 0


def test_task_of_a_killed_sentinel_is_due_when_main_has_ended(cluster: Cluster) -> None:
    task = tasks.start(steps=600, seconds=0.1)
    tasks.wait_for_progress(task)
    cluster.kill("sentinel")
    assert cluster.wait_until_gone(5) == 1
    assert (tasks.state(task), tasks.reason(task)) == ("parked", "worker_lost")


def test_killed_idle_workers_do_not_freeze_the_cluster(cluster: Cluster) -> None:
    for _ in range(8):
        cluster.kill("worker")
        task = tasks.start()
        tasks.wait_for_state(task, "completed")
    wait_for(lambda: len(cluster.pids("worker")) == 2, "both workers are back")


def test_all_workers_killed_at_once_are_replaced_at_once(cluster: Cluster) -> None:
    for pid in cluster.pids("worker"):
        os.kill(pid, signal.SIGKILL)
    task = tasks.start()
    tasks.wait_for_state(task, "completed", seconds=2)


def test_task_of_a_killed_worker_is_due_within_a_second(start_cluster: StartCluster) -> None:
    cluster = start_cluster(workers=1, supervision={"LEASE_SECONDS": 600, "BEAT_SECONDS": 1})
    task = tasks.start(steps=30, seconds=0.05)
    tasks.wait_for_progress(task)
    cluster.kill("worker")
    wait_for(
        lambda: LogEntry.objects.filter(task_id=task, payload__reason="worker_lost").exists(),
        "the task is reaped, long before its lease runs out",
        seconds=1,
    )
    tasks.wait_for_state(task, "completed")


@pytest.mark.parametrize("role", ["pusher", "monitor"])
def test_killed_helper_is_replaced(cluster: Cluster, role: Role) -> None:
    for _ in range(3):
        killed = cluster.kill(role)
        assert cluster.pid_of(role) != killed
        tasks.wait_for_state(tasks.start(), "completed")
    assert cluster.stop() == 0


def test_stopped_process_does_not_keep_the_cluster_from_ending(start_cluster: StartCluster) -> None:
    cluster = start_cluster(supervision={"STOP_GRACE_SECONDS": 1})
    cluster.kill("worker", signal.SIGSTOP)
    cluster.kill("pusher", signal.SIGSTOP)
    assert cluster.stop(seconds=6) == 0


def test_frozen_worker_does_not_keep_the_others_from_working(cluster: Cluster) -> None:
    cluster.kill("worker", signal.SIGSTOP)
    for _ in range(3):
        tasks.wait_for_state(tasks.start(), "completed")


def test_killed_group_is_recovered_by_the_next_cluster(start_cluster: StartCluster) -> None:
    supervision = {"LEASE_SECONDS": 3, "BEAT_SECONDS": 0.5}
    first = start_cluster(supervision=supervision)
    task = tasks.start(steps=20, seconds=0.05)
    tasks.wait_for_progress(task)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait_until_gone()
    start_cluster(supervision=supervision)
    tasks.wait_for_state(task, "completed", seconds=15)


def test_killed_cluster_is_recovered_at_once_by_another_of_its_host(start_cluster: StartCluster) -> None:
    """Which sees that the processes are gone, and waits for no lease."""
    supervision = {"LEASE_SECONDS": 600, "BEAT_SECONDS": 1}
    first = start_cluster(supervision=supervision, workers=1)
    task = tasks.start(steps=30, seconds=0.05)
    tasks.wait_for_progress(task)
    start_cluster("--queue", "other", supervision=supervision, workers=1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait_until_gone()
    wait_for(lambda: tasks.reason(task) == "worker_lost", "the task is reaped", seconds=1.5)


def test_cluster_outlasts_the_loss_of_all_its_connections(start_cluster: StartCluster) -> None:
    cluster = start_cluster(supervision={"LEASE_SECONDS": 3, "BEAT_SECONDS": 0.5})
    running = [tasks.start(steps=40, seconds=0.05) for _ in range(2)]
    for task in running:
        tasks.wait_for_progress(task)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        assert cursor.fetchone()[0] >= 4
    tasks.wait_for_state(tasks.start(), "completed", seconds=15)
    for task in running:
        tasks.wait_for_state(task, "completed", seconds=15)
    assert cluster.stop() == 0

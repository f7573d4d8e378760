"""Ordinary django-q2 tasks beside supervised ones, and supervised ones in a stock ``qcluster``."""

import os
import signal

import pytest
from django_q import models as q2_models
from django_q.tasks import async_task

from tests.acceptance import tasks
from tests.processes import Cluster, StartCluster, wait_for

pytestmark = pytest.mark.cluster


def saved_result(task_id: str) -> q2_models.Task:
    found = wait_for(lambda: list(q2_models.Task.objects.filter(id=task_id)), "the result is saved")
    wait_for(lambda: not q2_models.OrmQ.objects.exists(), "the message is acknowledged")
    return found[0]


def test_ordinary_task_runs_is_saved_and_acknowledged(cluster: Cluster) -> None:
    task = saved_result(async_task("math.hypot", 3, 4, save=True))
    assert (task.success, task.result, task.attempt_count) == (True, 5.0, 1)


def test_large_arguments_and_results_pass(cluster: Cluster) -> None:
    text = "0123456789" * 300_000
    assert saved_result(async_task("copy.copy", text, save=True)).result == text


def test_failure_is_saved(cluster: Cluster) -> None:
    task = saved_result(async_task("math.sqrt", -1))
    assert not task.success
    assert "ValueError" in task.result


def test_result_that_cannot_be_pickled_is_a_failure_and_runs_once(cluster: Cluster) -> None:
    task = saved_result(async_task("threading.Lock", save=True))
    assert not task.success
    assert "can't be pickled" in task.result


def test_task_that_outruns_its_timeout_is_a_failure_and_its_worker_is_replaced(cluster: Cluster) -> None:
    task = saved_result(async_task("time.sleep", 60, timeout=1))
    assert not task.success
    assert saved_result(async_task("math.sqrt", 4, save=True)).success
    wait_for(lambda: len(cluster.pids("worker")) == 2, "both workers are there")


def test_lane_takes_only_its_queues(start_cluster: StartCluster) -> None:
    start_cluster("--queue", "slow", workers=1)
    other, own = tasks.start(queue="default"), tasks.start(queue="slow")
    ordinary = async_task("math.sqrt", 4, save=True)
    own_ordinary = async_task("math.sqrt", 9, save=True, cluster="slow")
    tasks.wait_for_state(own, "completed")
    wait_for(lambda: q2_models.Task.objects.filter(id=own_ordinary).exists(), "its ordinary task has run")
    assert tasks.state(other) == "pending"
    assert not q2_models.Task.objects.filter(id=ordinary).exists()


def test_busy_cluster_does_not_starve_ordinary_tasks(start_cluster: StartCluster) -> None:
    start_cluster(workers=1)
    supervised = [tasks.start(steps=1, seconds=0.2) for _ in range(40)]
    ordinary = async_task("math.sqrt", 4, save=True)
    assert saved_result(ordinary).success
    assert tasks.state(supervised[-1]) == "pending"


def test_stock_qcluster_runs_and_reaps_supervised_tasks(start_cluster: StartCluster) -> None:
    cluster = start_cluster(command="qcluster", supervision={"LEASE_SECONDS": 3, "BEAT_SECONDS": 0.5})
    first = tasks.start()
    tasks.wait_for_state(first, "completed", seconds=30)
    second = tasks.start(steps=20, seconds=0.1)
    tasks.wait_for_progress(second)
    os.kill(tasks.driver_of(second), signal.SIGKILL)
    tasks.wait_for_state(second, "completed", seconds=30)
    cluster.stop(signal.SIGTERM, seconds=20)

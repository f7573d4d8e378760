"""What the health check says of real clusters."""

import signal
from datetime import timedelta

import pytest

from supervision.kernel.models import Task
from supervision.worker import health
from supervision.worker.health import Limits
from tests.acceptance import tasks
from tests.processes import Cluster, StartCluster, wait_for

pytestmark = pytest.mark.cluster

LIMITS = Limits(late=timedelta(seconds=2), backlog=timedelta(seconds=3), dead_letters=0)
SUPERVISION = {"BEAT_SECONDS": 0.5, "TICK_SECONDS": 0.2, "LEASE_SECONDS": 60}


def found() -> set[str]:
    return {finding.check for finding in health.report(LIMITS).findings}


def test_stopped_cluster_leaves_nothing_behind(start_cluster: StartCluster) -> None:
    cluster = start_cluster(supervision=SUPERVISION)
    wait_for(lambda: found() == set(), "the cluster is healthy")
    wait_for(lambda: health.report(LIMITS).clusters[0].free == 2, "its free workers are known")
    cluster.stop()
    report = health.report(LIMITS)
    assert [finding.check for finding in report.findings] == ["clusters"]


def test_killed_cluster_is_noticed(start_cluster: StartCluster) -> None:
    cluster = start_cluster(supervision=SUPERVISION)
    wait_for(lambda: found() == set(), "the cluster is healthy")
    cluster.kill("main")
    wait_for(lambda: found() == {"clusters", "silent_cluster"}, "the loss is noticed")


def test_frozen_cluster_is_told_from_a_busy_one(start_cluster: StartCluster) -> None:
    cluster = start_cluster(supervision=SUPERVISION, workers=1)
    running = tasks.start(steps=300, seconds=0.1)
    tasks.wait_for_progress(running)
    tasks.start()
    wait_for(lambda: found() == {"backlog"}, "the backlog is seen", 15)
    Task.objects.filter(pk=running).update(pause_requested_at="2000-01-01T00:00Z")
    wait_for(lambda: found() == set(), "the backlog is done")
    cluster.kill("pusher", signal.SIGSTOP)
    tasks.start()
    wait_for(lambda: found() == {"frozen"}, "the freeze is seen", 15)


def test_stock_qcluster_announces_itself(start_cluster: StartCluster) -> None:
    cluster: Cluster = start_cluster(command="qcluster", supervision=SUPERVISION)
    wait_for(lambda: found() == set(), "the cluster is healthy", 30)
    cluster.stop(signal.SIGTERM, seconds=20)

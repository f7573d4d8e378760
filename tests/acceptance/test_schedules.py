"""Real clusters and the clock: each run once, whoever of them looks, and whoever is killed."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from supervision.engines import body, registry
from supervision.kernel import clock
from supervision.kernel.models import Task
from supervision.worker.schedules import SupervisedSchedule, schedule
from tests.processes import StartCluster, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]

SCHEDULES, TIMES = 12, 20


@pytest.fixture(autouse=True)
def _body() -> Iterator[None]:
    """The body that the clusters have, for this process: a schedule of one that it doesn't know is refused."""
    body("noop")(lambda task: None)
    yield
    registry.unregister("noop")


def test_two_clusters_and_a_kill_start_each_run_of_each_schedule_once(start_cluster: StartCluster) -> None:
    first, second = start_cluster(workers=1), start_cluster(workers=1)
    minute = timedelta(minutes=1)
    begin = clock.now() - TIMES * minute + timedelta(seconds=30)
    for number in range(SCHEDULES):
        schedule(f"s{number}", "noop", every=minute, first_run=begin, overlap="allow", missed="all")
    wait_for(Task.objects.exists, "one of them has begun")
    first.kill("main")
    wait_for(lambda: not SupervisedSchedule.objects.filter(next_run__lte=clock.now()).exists(), "all have started")
    wait_for(lambda: not Task.objects.live().exists(), "all have ended", 20)
    for number in range(SCHEDULES):
        keys = Task.objects.filter(subject=f"s{number}").values_list("idempotency_key", flat=True)
        times = sorted(datetime.fromisoformat(key.split(":", 2)[2]) for key in keys)
        assert times[:TIMES] == [begin + n * minute for n in range(TIMES)]
    assert not second.complaints()

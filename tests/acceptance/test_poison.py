"""Work that takes its worker down, each time it is tried, stops at the cap and says what it died of."""

import pytest

from supervision.kernel import creation
from supervision.kernel.models import LogEntry, Task
from tests.acceptance import tasks
from tests.processes import StartCluster, wait_for

pytestmark = pytest.mark.cluster

CAP = 3
SUPERVISION = {"MAX_RECOVERIES": CAP, "LEASE_SECONDS": 3, "BEAT_SECONDS": 0.5, "TICK_SECONDS": 0.5}
HEALTHY = 100


@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("kill", "SIGKILL"),
        ("segfault", "SIGSEGV"),
        ("leave", "exit status 3"),
        ("out_of_memory", "exit status 71"),
        ("endless", "3 s"),
    ],
)
def test_poison_stops_at_the_cap_naming_its_cause_while_healthy_work_goes_on(
    start_cluster: StartCluster, how: str, cause: str
) -> None:
    start_cluster(supervision=SUPERVISION)
    poison = creation.create("poison", {"how": how}, priority=0).pk
    healthy = [tasks.start() for _ in range(HEALTHY)]

    tasks.wait_for_state(poison, "failed", seconds=60)
    done = Task.objects.filter(pk__in=healthy, current_state="completed")
    wait_for(lambda: done.count() == HEALTHY, "the healthy tasks complete", 30)

    task = Task.objects.get(pk=poison)
    assert task in Task.objects.dead_lettered()
    assert task.watchdog_stop_reason == f"recoveries_exhausted:{CAP + 1}"
    assert cause in task.failure
    entries = LogEntry.objects.filter(task_id=poison).order_by("sequence_num")
    assert entries.filter(event="task_taken").count() == CAP + 1
    losses = [entry.payload["how"] for entry in entries.filter(actor_ref="reaper")]
    assert len(losses) == CAP + 1
    assert all(cause in loss for loss in losses)


def test_worker_that_shows_no_sign_of_life_is_replaced(start_cluster: StartCluster) -> None:
    """By its own sentinel: a process that is stopped, or never lets go of the interpreter, serves nobody."""
    import signal

    cluster = start_cluster(workers=1, supervision=SUPERVISION)
    for role in ("worker", "pusher"):
        stopped = cluster.kill(role, signal.SIGSTOP)
        tasks.wait_for_state(tasks.start(), "completed", seconds=15)
        wait_for(lambda pid=stopped: pid not in cluster.alive(), f"the stopped {role} is gone", 15)  # type: ignore[misc]


def test_cluster_whose_sentinel_shows_no_sign_of_life_ends(start_cluster: StartCluster) -> None:
    import signal

    cluster = start_cluster(workers=1, supervision=SUPERVISION)
    cluster.kill("sentinel", signal.SIGSTOP)
    assert cluster.wait_until_gone(15) == 1

"""Limits across real clusters, whatever is killed."""

import os
import random
import signal
from datetime import timedelta
from pathlib import Path

import pytest

from supervision.kernel import creation
from supervision.kernel.models import LogEntry, Task
from tests.processes import StartCluster, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_four_clusters_of_two_workers_never_run_four_of_three_whatever_is_killed(
    start_cluster: StartCluster, tmp_path: Path
) -> None:
    clusters = [start_cluster(workers=2, supervision={"MAX_RECOVERIES": 50}) for _ in range(4)]
    witness = tmp_path / "running"
    witness.mkdir()
    tasks = creation.create_many("witnessed", [{"directory": str(witness), "seconds": 0.05}] * 60)
    creation.create_many("rated", [{}] * 35)

    chance = random.Random(7)
    for kill in range(8):
        done = 5 * kill
        wait_for(lambda done=done: _completed("witnessed") >= done, f"{done} are done", 30)  # type: ignore[misc]
        if kill == 4:
            clusters.pop().kill("main")
        else:
            os.kill(
                chance.choice(chance.choice(clusters).pids("worker") or [clusters[0].pid_of("worker")]), signal.SIGKILL
            )
    wait_for(lambda: _completed("witnessed") == len(tasks) and _completed("rated") == 35, "all are done", 40)

    assert sorted(file.name for file in witness.iterdir()) == ["1", "2", "3"], "three ran at once, and never four"
    assert LogEntry.objects.filter(event="slot_freed").exists()
    assert LogEntry.objects.filter(payload__reason="worker_lost").exists()
    entries = LogEntry.objects.filter(event="task_taken", task_id__in=Task.objects.filter(body="rated").values("pk"))
    starts = list(entries.order_by("created_at").values_list("created_at", flat=True))
    tightest = min(later - earlier for earlier, later in zip(starts, starts[10:], strict=False))
    assert tightest >= timedelta(seconds=1), "ten in any second, and no more"


def _completed(body: str) -> int:
    return Task.objects.filter(body=body, current_state="completed").count()

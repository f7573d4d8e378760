"""DAGs through a real cluster: independent nodes overlap, and killed workers cost none."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial
from pathlib import Path

import pytest

from supervision.kernel import creation
from supervision.kernel.models import Heartbeat, LogEntry, Task
from supervision.kernel.nodes import Node
from tests.processes import Cluster, StartCluster, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]


def ended(task: Task, seconds: float = 20) -> Task:
    wait_for(lambda: not Task.objects.live().filter(pk=task.pk).exists(), "the run has ended", seconds)
    task.refresh_from_db()
    return task


def have_succeeded(task: Task, count: int) -> bool:
    return Node.objects.filter(run=task, state="succeeded").count() >= count


def test_independent_nodes_overlap_on_two_workers(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "witnesses").mkdir()
    task = ended(creation.create("overlapping", {"directory": str(tmp_path / "witnesses")}))
    assert task.result is not None, task.failure
    left, right = task.result["outputs"]["both"]
    assert max(left["began"], right["began"]) < min(left["ended"], right["ended"])
    assert left["pid"] != right["pid"]


def test_a_run_whose_workers_are_killed_completes_each_node_once(
    start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUPERVISION_TEST_LAYERS", "200")
    start_cluster(supervision={"LEASE_SECONDS": 6, "BEAT_SECONDS": 1})
    task = creation.create("layered.200")
    for done in (20, 60, 100, 140):
        wait_for(partial(have_succeeded, task, done), "it goes on", 30)
        pid = Heartbeat.objects.filter(task__current_state="running").values_list("pid", flat=True).first()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    assert ended(task, 60).current_state == "completed"
    assert Task.objects.filter(parent=task, current_state="completed").count() == 200
    assert LogEntry.objects.filter(task__parent=task, event="task_completed").count() == 200

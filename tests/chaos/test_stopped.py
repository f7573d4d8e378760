"""A worker stopped past its lease, its tasks taken over, then continued: each kind of write is refused."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
from django.conf import settings
from django.test import override_settings

from supervision.kernel import creation, lease
from supervision.kernel.lease import Worker
from supervision.kernel.models import Heartbeat, LogEntry, Question, Signal, Task
from tests.chaos.world import World, times
from tests.processes import ROOT, database_url, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

ROUNDS = times(30)
KINDS = (
    "checkpoint", "step", "atomic step", "beat", "ask", "park", "sleep", "new round", "consume", "children", "complete",
    "fail", "intend", "end",
)  # fmt: skip
SHORT = {"LEASE_SECONDS": 0.3, "BEAT_SECONDS": 0.1}
OTHER = Worker("other", "elsewhere", 1)


@pytest.fixture
def worker(world: World) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "DATABASE_URL": database_url(), "DJANGO_SECRET_KEY": settings.SECRET_KEY,
                   "DJANGO_SETTINGS_MODULE": "tests.cluster_settings"}  # fmt: skip
    process = subprocess.Popen([sys.executable, "-m", "tests.chaos.stale"], cwd=ROOT, env=environment, text=True,
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    yield process
    process.kill()
    process.communicate()


def test_stopped_worker_that_goes_on_writes_nothing_of_any_kind(world: World, worker: subprocess.Popen[str]) -> None:
    refused = dict.fromkeys(KINDS, 0)
    for _ in range(ROUNDS):
        tasks = {kind: str(pk) for kind, pk in zip(KINDS, _created(), strict=True)}
        assert _ask(worker, json.dumps(tasks)) == sorted(KINDS)
        os.kill(worker.pid, signal.SIGSTOP)
        wait_for(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_STOPPED, "it is stopped")
        world.did("stopped past its lease")
        with override_settings(SUPERVISION=SHORT):
            wait_for(_none_runs, "its lease has passed")
        assert all(lease.take(pk, 2, OTHER) for pk in tasks.values())
        before = _everything()
        os.kill(worker.pid, signal.SIGCONT)
        for kind, outcome in _ask(worker, "go on").items():
            assert outcome == "LeaseLost", kind
            refused[kind] += 1
        assert _everything() == before
        Task.objects.filter(current_state="running").update(current_state="completed")
    assert refused == dict.fromkeys(KINDS, ROUNDS)
    assert world.faults == {"stopped past its lease": ROUNDS}


def _created() -> list[Any]:
    return list(creation.create_many("noop", [{}] * len(KINDS)))


def _none_runs() -> bool:
    """Reaps what can be reaped."""
    running = list(Task.objects.filter(current_state="running").values_list("pk", flat=True))
    return all([lease.reap(pk) for pk in running])  # noqa: C419 (each of them)


def _ask(worker: subprocess.Popen[str], line: str) -> Any:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(line + "\n")
    worker.stdin.flush()
    return json.loads(worker.stdout.readline())


def _everything() -> list[Any]:
    live = Task.objects.filter(current_state="running")
    columns = [field.attname for field in Task._meta.concrete_fields]
    return [
        list(live.order_by("pk").values(*columns)),
        Task.objects.count(),
        *(list(model.objects.filter(task__in=live).order_by("pk").values()) for model in
          (LogEntry, Heartbeat, Question, Signal)),
    ]  # fmt: skip

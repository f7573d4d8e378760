"""A worker stopped (SIGSTOP) past its lease, its task taken over, then continued: nothing that it tries is recorded."""

from __future__ import annotations

import os
import signal
from typing import Any
from uuid import UUID

import psutil
import pytest
from django.test import override_settings

from supervision.engines import start
from supervision.kernel import ends, lease
from supervision.kernel.models import Heartbeat, LogEntry, Question, Signal
from tests.crash.processes import Child
from tests.integration import rows
from tests.processes import wait_for

SHORT = {"LEASE_SECONDS": 0.3, "BEAT_SECONDS": 0.1}
KINDS = {"checkpoint", "beat", "ask", "park", "consume", "complete", "fail", "end"}


def _stop(child: Child) -> None:
    os.kill(child.pid, signal.SIGSTOP)
    wait_for(lambda: psutil.Process(child.pid).status() == psutil.STATUS_STOPPED, "the worker is stopped")


def _reap(pk: UUID) -> None:
    with override_settings(SUPERVISION=SHORT):
        wait_for(lambda: lease.reap(pk), "its lease has passed")


def _everything(pk: UUID) -> list[Any]:
    return [
        rows.whole(pk),
        *(list(model._default_manager.filter(task_id=pk).order_by("pk").values())
          for model in (LogEntry, Heartbeat, Question, Signal)),
    ]  # fmt: skip


@pytest.mark.parametrize("meanwhile", ["reaped", "taken over", "completed by another"])
def test_a_stopped_worker_that_goes_on_after_its_lease_records_nothing(child: Any, meanwhile: str) -> None:
    pk = rows.due()
    worker = child("stale", str(pk), supervision=SHORT)
    assert worker.hear() == "ready"
    _stop(worker)
    _reap(pk)
    if meanwhile != "reaped":
        taken = lease.take(pk, rows.fresh(pk).lease, rows.OTHER)
        assert taken is not None
        if meanwhile == "completed by another":
            ends.complete(pk, taken.lease, "theirs")
    before = _everything(pk)
    os.kill(worker.pid, signal.SIGCONT)
    worker.tell("go on")
    refusals = worker.said()
    assert set(refusals) == KINDS
    assert refusals.pop("beat") is False
    assert set(refusals.values()) == {"LeaseLost"}
    assert _everything(pk) == before


def test_a_stopped_drive_that_goes_on_after_its_lease_ends_without_a_trace(child: Any) -> None:
    told = ("checkpoint", "ask", "fail", "complete")
    workers: list[tuple[UUID, Child]] = []
    for _ in told:
        pk = start("crash.follows").pk
        workers.append((pk, child("drive", str(pk), supervision=SHORT)))
    for pk, worker in workers:
        assert worker.hear() == "driving"
        _stop(worker)
        _reap(pk)
        assert lease.take(pk, rows.fresh(pk).lease, rows.OTHER) is not None
    before = [_everything(pk) for pk, _worker in workers]
    for (_pk, worker), line in zip(workers, told, strict=True):
        os.kill(worker.pid, signal.SIGCONT)
        worker.tell(line)
    for _pk, worker in workers:
        assert worker.said() is True
        assert "was taken over" in worker.errors
    assert [_everything(pk) for pk, _worker in workers] == before

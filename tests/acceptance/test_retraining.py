"""Retraining through real clusters whose workers are killed, judged by the ledger of the training service."""

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from project.retraining import service
from supervision.engines.pipelines.models import Pointer, Visit
from supervision.kernel.models import Heartbeat, Task
from tests.processes import StartCluster, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]

FAST = {"LEASE_SECONDS": 6, "BEAT_SECONDS": 1}
CUSTOMERS = [f"customer {number:02d}" for number in range(1, 7)]


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of a service that answers late, loses every fourth job, and breaks a download of every third."""
    monkeypatch.setenv("TRAINING_POLL_SECONDS", "0.2")
    options = ("--seconds", "0.5", "--answer-after", "0.25", "--lose-every", "4", "--break-every", "3")
    with service(tmp_path / "service", *options):
        yield tmp_path / "service" / "ledger.jsonl"


def events(ledger: Path, *kinds: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in ledger.read_text().splitlines()]
    return [event for event in found if event["event"] in kinds]


def start(customers: list[str]) -> dict[str, Task]:
    from project.retraining import retraining

    return {customer: retraining.start(customer) for customer in customers}


def have_ended(tasks: dict[str, Task]) -> bool:
    return not Task.objects.live().filter(pk__in=[task.pk for task in tasks.values()]).exists()


def kill_whoever_drives(subject: str) -> bool:
    """The worker that drives the subject's run, by SIGKILL, if it lives."""
    pids = Heartbeat.objects.filter(task__subject=subject, task__current_state="running").values_list("pid", flat=True)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True
    return False


def test_kills_cost_no_second_submission_and_a_broken_download_costs_a_download(
    start_cluster: StartCluster, ledger: Path
) -> None:
    start_cluster(workers=2, supervision=FAST)
    tasks = start(CUSTOMERS)
    killed, seen = 0, 0
    while not have_ended(tasks):
        accepted = events(ledger, "accepted") if ledger.exists() else []
        # accepted a moment ago, and the worker doesn't know yet: the worst moment to die
        for event in accepted[seen:]:
            killed += kill_whoever_drives(event["customer"]) if killed < 5 else 0
        seen = len(accepted)
    assert killed >= 3
    first_run = events(ledger, "accepted")

    # never two accepted submissions under one attempt's key, and every key is one visit's
    assert max(Counter(event["key"] for event in first_run).values()) == 1
    submits = Visit.objects.filter(state="SUBMIT_JOB")
    assert {event["key"] for event in first_run} == {f"{v.run_id}:SUBMIT_JOB.{v.number}" for v in submits}
    assert events(ledger, "repeated"), "a worker died between the acceptance and its record"
    assert {v.next_state for v in Visit.objects.filter(outcome="job lost")} == {"JOB_FAILED"}
    assert len(events(ledger, "lost")) == Visit.objects.filter(outcome="job lost").count() >= 1

    # the next run of those whose download broke off fetches the model of the very job that was trained
    broken = {event["customer"]: event["job"] for event in events(ledger, "broken")}
    assert broken
    assert Visit.objects.filter(state="DOWNLOAD_SAVE", outcome="failure").count() == len(broken)
    again = start(sorted(broken))
    wait_for(lambda: have_ended(again), "the second runs have ended", seconds=20)
    assert events(ledger, "accepted") == first_run
    for customer, task in again.items():
        states = list(Visit.objects.filter(run=task).order_by("sequence_num").values_list("state", flat=True))
        assert states == ["INITIAL", "CHECK_LAST_TRAIN", "DOWNLOAD_SAVE"]
        assert broken[customer] in {event["job"] for event in events(ledger, "downloaded")}
        assert "model" in Pointer.objects.get(subject=customer).params

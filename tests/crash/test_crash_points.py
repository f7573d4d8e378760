"""A process dies just before, and just after, each commit of the kernel; a fresh process ends the work as if nothing
had happened: the same result, nothing recorded twice, no gap in the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F, Q
from django.test import override_settings

from supervision.engines import start
from supervision.kernel import crash, lease, lifecycle, questions, signals_in
from supervision.kernel.lease import Worker
from supervision.kernel.models import LogEntry, Question, Signal, Task, Tombstone
from supervision.kernel.notices import Notice
from supervision.worker.drive import drive_one
from tests.integration import rows

MOMENTS = ("before_commit", "after_commit")
STORY = ["task_created", "task_taken", "row 0", "row 1", "question_asked", "question_answered", "task_taken", "painted",
         "task_completed"]  # fmt: skip
RESULT = {"rows": 2, "painted": "blue"}


@dataclass
class Scenario:
    """What is prepared, which verb dies, whether its caller calls again, and what the task looks like at the end."""

    prepare: Callable[[], UUID | None]
    verb: str
    ends_as: list[str]
    arguments: tuple[str, ...] = ()
    calls_again: bool = True
    """A client that got no answer calls again. A worker's task is recovered instead."""
    result: Any = field(default_factory=lambda: RESULT)
    state: str = "completed"


def fresh_story() -> UUID:
    return start("crash.story").pk


def settle(pk: UUID) -> UUID:
    """Drives this task alone as far as it goes."""
    while Task.objects.due().filter(pk=pk).exists():
        drive_one(pk, rows.fresh(pk).lease, stopping=lambda: False, thread=False)
    return pk


def asking() -> UUID:
    """Parked until the question is answered."""
    return settle(fresh_story())


def announced() -> UUID:
    """Asking, and people are to be told of it."""
    with override_settings(SUPERVISION={"NOTIFY": ["test"]}):
        return asking()


def answered() -> UUID:
    pk = asking()
    questions.answer(Question.objects.get(task_id=pk).pk, "blue", by="ann")
    return pk


def completed() -> UUID:
    return settle(answered())


def paused() -> UUID:
    return lifecycle.pause(fresh_story(), by="ann").pk


def cancelled() -> UUID:
    return lifecycle.cancel(asking(), by="ann").pk


def orphaned() -> UUID:
    """Running under a worker that is no more."""
    pk = fresh_story()
    assert lease.take(pk, 0, Worker("gone", "gone", 1))
    rows.lose_worker(pk)
    return pk


def late() -> UUID:
    pk = asking()
    Question.objects.filter(task_id=pk).update(expires_at=F("asked_at"))
    return pk


def signalled() -> UUID:
    pk = fresh_story()
    signals_in.send(pk, "paid", "400 EUR", by="bank")
    return pk


UNWOUND = [*STORY[:5], "ending_requested", "task_taken", "unwinding_started", "cleaned up", "task_cancelled"]
SCENARIOS: dict[str, Scenario] = {
    "create": Scenario(lambda: None, "create", STORY, ("order-7",)),
    "take": Scenario(fresh_story, "drive", STORY, calls_again=False),
    "checkpoint": Scenario(fresh_story, "drive", STORY, calls_again=False),
    "checkpoint@2": Scenario(fresh_story, "drive", STORY, calls_again=False),
    "ask": Scenario(fresh_story, "drive", STORY, calls_again=False),
    "answer": Scenario(asking, "answer", STORY),
    "take@1": Scenario(answered, "drive", STORY, calls_again=False),
    "checkpoint@1": Scenario(answered, "drive", STORY, calls_again=False),
    "complete": Scenario(answered, "drive", STORY, calls_again=False),
    "park": Scenario(fresh_story, "drive", STORY, ("stopping",), calls_again=False),
    "fail": Scenario(lambda: start("crash.fails").pk, "drive", ["task_created", "task_taken", "row 0", "task_failed"],
                     calls_again=False, result=None, state="failed"),
    "end": Scenario(cancelled, "drive", UNWOUND, calls_again=False, result=None, state="cancelled"),
    "reap": Scenario(orphaned, "reap", [*STORY[:2], "worker_lost", "task_taken", *STORY[2:]]),
    "pause": Scenario(fresh_story, "pause", [STORY[0], "pause_requested"], result=None, state="pending"),
    "resume": Scenario(paused, "resume", [STORY[0], "pause_requested", "task_resumed", *STORY[1:]]),
    "cancel": Scenario(asking, "cancel", UNWOUND, result=None, state="cancelled"),
    "expire": Scenario(late, "expire", [*STORY[:5], "task_expired"], result=None, state="expired"),
    "signal": Scenario(fresh_story, "signal", [STORY[0], "signal_sent", *STORY[1:]]),
    "consume": Scenario(signalled, "consume", [STORY[0], "signal_sent", "task_taken", "signal_consumed",
                                               "task_completed"], result="400 EUR"),
    "fork": Scenario(completed, "fork", STORY),
    "notice": Scenario(announced, "notice", STORY),
    "schedule": Scenario(lambda: None, "schedule", STORY),
    "archive": Scenario(completed, "archive", [], result=None, state=""),
    "prune": Scenario(completed, "prune", [], result=None, state=""),
}  # fmt: skip


def test_every_crash_point_has_a_scenario() -> None:
    assert {point.split(":")[0] for point in crash.NAMES} == {name.split("@")[0] for name in SCENARIOS}
    assert {point.split(":")[1] for point in crash.NAMES} == set(MOMENTS)


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_around_the_commit_is_recovered_by_a_fresh_process(child: Any, name: str, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    verb, _, count = name.partition("@")
    tasks: dict[str, UUID | None] = {}
    dying = {}
    for moment in MOMENTS:  # side by side: two tasks, two processes
        tasks[moment] = scenario.prepare()
        arguments = scenario.arguments if tasks[moment] is None else (str(tasks[moment]), *scenario.arguments)
        if verb in ("create", "schedule"):
            arguments = (moment,)
        if verb == "archive":
            arguments = (*arguments, str(tmp_path / f"{moment}.jsonl"))
        dying[moment] = child(scenario.verb, *arguments, crash_at=f"{verb}:{moment}@{count or 1}"), arguments
    recoveries = []
    for moment, (process, arguments) in dying.items():
        assert process.wait() == crash.EXIT_STATUS, process.errors
        again = [scenario.verb, *arguments] if scenario.calls_again else []
        recoveries.append(json.dumps({"pk": str(tasks[moment]), "dead": process.pid, "again": again}))
    child("recover", *recoveries).said()
    for moment in MOMENTS:
        _assert_as_if_nothing_had_happened(scenario, verb, tasks[moment] or _created(moment))
    if verb == "park":
        parks = LogEntry.objects.filter(event="task_parked", payload__reason="worker_stopping")
        assert [entry.task_id for entry in parks] == [tasks["after_commit"]]


def _created(key: str) -> UUID:
    return Task.objects.get(Q(idempotency_key=key) | Q(subject=key)).pk


def _assert_as_if_nothing_had_happened(scenario: Scenario, verb: str, pk: UUID) -> None:
    if verb in ("prune", "archive"):
        assert not Task.objects.filter(pk=pk).exists()
        assert not LogEntry.objects.filter(task_id=pk).exists()
        assert Tombstone.objects.filter(task_id=pk).count() == 1
        return
    if verb == "notice":
        told = Notice.objects.get(task_id=pk, kind=Notice.Kind.ASKED)
        assert told.delivered_to == ["test ann"]
        assert told.settled_at is not None
    if verb == "fork":
        fork = Task.objects.get(forked_from=pk)
        assert fork.current_state == "completed"
        assert rows.events(fork.pk).count("task_created") == 1
    task = rows.fresh(pk)
    assert (task.current_state, task.result) == (scenario.state, scenario.result)
    assert _story(pk) == scenario.ends_as
    assert Question.objects.filter(task_id=pk).count() == scenario.ends_as.count("question_asked")
    assert Signal.objects.filter(task_id=pk).count() == scenario.ends_as.count("signal_sent")
    rows.assert_sound(pk)


def _story(pk: UUID) -> list[str]:
    """The log without what the recovery had to record: a lost or stopped worker, the take after it, that it unwinds."""
    told: list[str] = []
    is_recovered = False
    for entry in LogEntry.objects.filter(task_id=pk).order_by("sequence_num"):
        if entry.event == "task_parked" and entry.payload.get("worker") != "gone":
            is_recovered = True
        elif entry.event == "task_taken" and is_recovered:
            is_recovered = False
        elif entry.event == "unwinding_started" and entry.event in told:
            continue
        elif entry.event == "task_parked":
            told.append(entry.payload["reason"])
        else:
            told.append(entry.name if entry.event == "task_checkpointed" else entry.event)
    return told

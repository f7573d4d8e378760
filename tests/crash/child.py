"""A process of its own that does one thing to a task: ``python -m tests.crash.child VERB [ARGUMENT...]``.

Prints what came of it as a line of JSON. SUPERVISION_CRASH_AT arms a crash point, SUPERVISION_TEST has the settings.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import django

django.setup()

from django.core.management import call_command  # noqa: E402
from django.db import DatabaseError, connection  # noqa: E402

from supervision.engines import retry, start  # noqa: E402
from supervision.errors import DriveEnded, SupervisionError  # noqa: E402
from supervision.kernel import ends, lease, lifecycle, notices, questions, retention, signals_in  # noqa: E402
from supervision.kernel.models import LogEntry, Question, Task  # noqa: E402
from supervision.kernel.question_form import Ask  # noqa: E402
from supervision.kernel.states import LIVE, State  # noqa: E402
from supervision.testing import run_until_idle, travel  # noqa: E402
from supervision.worker.drive import drive_one  # noqa: E402
from supervision.worker.schedules import schedule  # noqa: E402
from supervision.worker.scheduling import start_due  # noqa: E402
from tests.crash import bodies  # noqa: E402, F401 - registers them

ANSWER = "blue"


def drive(pk: str, *more: str) -> bool:
    """As a worker does it, with a beating heart; ``stopping``: a worker that is asked to stop. More tasks after a line
    on stdin each."""
    taken = drive_one(pk, Task.objects.get(pk=pk).lease, stopping=lambda: "stopping" in more, thread=True)
    for each in more:
        if each != "stopping":
            print("idle", flush=True)  # noqa: T201
            sys.stdin.readline()
            taken = drive_one(each, 0, stopping=lambda: False, thread=True) and taken
    return taken


def answer(pk: str) -> str:
    question = Question.objects.get(task_id=pk, key="colour")
    return str(questions.answer(question.pk, ANSWER, by="ann").answer)


def consume(pk: str) -> str:
    """Takes the task, consumes its signal and completes it with the payload; what is recorded is not consumed again."""
    taken = lease.take(pk, Task.objects.get(pk=pk).lease)
    assert taken is not None
    recorded = LogEntry.objects.filter(task_id=pk, event="signal_consumed").first()
    if recorded is not None:
        paid = recorded.payload["payload"]
    else:
        waited = signals_in.consume_or_park(taken.task_id, taken.lease, "paid")
        assert waited.signal is not None
        paid = waited.signal.payload
    ends.complete(taken.task_id, taken.lease, paid)
    return str(paid)


def notify() -> None:
    """Tells Ann of all that is due, and of what a dead process had claimed a minute ago."""
    for later in (timedelta(0), 2 * notices.CLAIM):
        with travel(later):
            for notice in notices.claim(10):
                notices.delivered(notice, "test ann")
                notices.settle(notice)


def run_schedule(name: str) -> int:
    """Of a schedule that says each time anew when it begins: only its runs' keys tell what was started."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    schedule(name, "crash.story", every=timedelta(minutes=32_767), first_run=begin)
    return start_due()


def recover(*tasks: str) -> None:
    """What a fresh cluster and its people do: reap the dead, call again what was refused no answer, drive to the end.

    Each task as JSON: ``{"pk", "dead": pid of the worker, "again": [verb, argument...]}``.
    """
    for each in map(json.loads, tasks):
        lease.reap_process(host=lease.host_identity(), pid=each["dead"])
        if each["again"]:
            result = attempt(*each["again"])
            assert "DatabaseError" not in str(result), result
    for _ in range(10):
        run_until_idle()
        pending = list(Question.objects.pending().filter(task__pause_requested_at=None))
        for question in pending:
            questions.answer(question.pk, ANSWER, by="ann")
        if not pending:
            return


def stale(pk: str) -> dict[str, str]:
    """Takes the task, waits for a line on stdin, then tries each kind of a worker's write under its lease."""
    taken = lease.take(pk, Task.objects.get(pk=pk).lease)
    assert taken is not None
    key, number = taken.task_id, taken.lease
    print("ready", flush=True)  # noqa: T201
    sys.stdin.readline()
    writes: dict[str, Callable[[], Any]] = {
        "checkpoint": lambda: lease.checkpoint(key, number, name="stale"),
        "beat": lambda: lease.beat(key, number, done=99, text="stale"),
        "ask": lambda: questions.ask(key, number, [Ask("stale", "?")]),
        "park": lambda: lease.park(key, number, "worker_stopping", wake_after=timedelta(0)),
        "consume": lambda: signals_in.consume_or_park(key, number, "paid"),
        "complete": lambda: ends.complete(key, number, "stale"),
        "fail": lambda: ends.fail(key, number, "failed:Stale", "stale", {}),
        "end": lambda: ends.end(key, number),
    }
    return {name: outcome(write) for name, write in writes.items()}


VERBS: dict[str, Callable[..., Any]] = {
    "create": lambda key: str(start("crash.story", idempotency_key=key).pk),
    "follow": lambda: str(start("crash.follows").pk),
    "drive": drive,
    "answer": answer,
    "consume": consume,
    "reap": lambda pk: lease.reap(pk),
    "pause": lambda pk: lifecycle.pause(pk, by="ann").current_state,
    "resume": lambda pk: lifecycle.resume(pk, by="ann").current_state,
    "cancel": lambda pk: lifecycle.cancel(pk, by="ann").current_state,
    "expire": lambda pk: lifecycle.expire(pk).current_state,
    "terminate": lambda pk: lifecycle.terminate(pk, by="ann").current_state,
    "signal": lambda pk: str(signals_in.send(pk, "paid", "400 EUR", key="invoice-7").pk),
    "fork": lambda pk: str(retry(pk, by="ann").pk),
    "prune": lambda pk: [str(each) for each in retention.prune(pk)],
    "notice": lambda pk: notify(),
    "erase": lambda pk: retention.erase(pk, by="ann"),
    "archive": lambda pk, path: call_command("supervision_prune", "--older-than=0d", "--archive", path, verbosity=0),
    "schedule": run_schedule,
    "recover": recover,
    "stale": stale,
}


def attempt(verb: str, *arguments: str) -> Any:
    return outcome(lambda: VERBS[verb](*arguments))


def outcome(act: Callable[[], Any]) -> Any:
    """What it returned, or the name of its refusal."""
    try:
        return act()
    except (SupervisionError, DriveEnded) as refusal:
        return type(refusal).__name__
    except DatabaseError as error:
        return f"DatabaseError: {error}"


if __name__ == "__main__":
    assert State.RUNNING in LIVE
    said = VERBS["recover"](*sys.argv[2:]) if sys.argv[1] == "recover" else attempt(*sys.argv[1:])
    connection.close()
    print(json.dumps(said), flush=True)  # noqa: T201

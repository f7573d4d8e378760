"""A worker that is stopped past its lease: ``python -m tests.chaos.stale``, told task ids by lines of JSON.

It takes a task for each kind of write, says so, is stopped and continued by the test, and tries each write. Prints what
came of each.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import django

django.setup()

from django.db import transaction  # noqa: E402

from supervision.errors import DriveEnded, LeaseLost, SupervisionError  # noqa: E402
from supervision.kernel import children, ends, lease, questions, signals_in, waits  # noqa: E402
from supervision.kernel.lease import Taken  # noqa: E402
from supervision.kernel.question_form import Ask  # noqa: E402


def atomic_step(task: Taken) -> None:
    with transaction.atomic():
        transaction.get_connection().atomic_blocks[-1]._from_testcase = True  # as the context's own transaction is
        lease.record_in_transaction(task.task_id, task.lease, event="step_completed", name="stale", payload="{}")


def beat(task: Taken) -> None:
    if not lease.beat(task.task_id, task.lease, done=99, text="stale"):
        raise LeaseLost


WRITES: dict[str, Callable[[Taken], Any]] = {
    "checkpoint": lambda task: lease.checkpoint(task.task_id, task.lease, decisions='{"stale": true}'),
    "step": lambda task: lease.checkpoint(task.task_id, task.lease, event="step_completed", name="stale"),
    "atomic step": atomic_step,
    "beat": lambda task: beat(task),
    "ask": lambda task: questions.ask(task.task_id, task.lease, [Ask("stale", "?")]),
    "park": lambda task: lease.park(task.task_id, task.lease, "worker_stopping", wake_after=timedelta(0)),
    "sleep": lambda task: waits.sleep(task.task_id, task.lease, "stale", duration=timedelta(0)),
    "new round": lambda task: waits.continue_as_new(task.task_id, task.lease, {"stale": True}),
    "consume": lambda task: signals_in.consume_or_park(task.task_id, task.lease, "stale"),
    "children": lambda task: children.start(task.task_id, task.lease, "stale", "noop", [{}], payload={}),
    "complete": lambda task: ends.complete(task.task_id, task.lease, "stale"),
    "fail": lambda task: ends.fail(task.task_id, task.lease, "failed:Stale", "stale", {}),
    "intend": lambda task: ends.intend(task.task_id, task.lease, "failed:Stale", "stale", {}),
    "end": lambda task: ends.end(task.task_id, task.lease),
}


def _outcome(write: Callable[[Taken], Any], task: Taken) -> str:
    try:
        return f"accepted: {write(task)}"
    except (SupervisionError, DriveEnded) as refusal:
        return type(refusal).__name__


def main() -> None:
    for line in sys.stdin:
        taken = {kind: lease.take(pk, 0) for kind, pk in json.loads(line).items()}
        _say(sorted(kind for kind, task in taken.items() if task is not None))
        sys.stdin.readline()
        _say({kind: _outcome(WRITES[kind], task) for kind, task in taken.items() if task is not None})


def _say(what: Any) -> None:
    print(json.dumps(what), flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

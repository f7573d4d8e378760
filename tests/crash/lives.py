"""Processes that live for one task and die at a named crash point: forks of the warm test process.

A life drives the task without a cluster, and plays the world between the drives: it answers what the task asks, sends
the signals that it waits for, and lets time pass. It ends when the task has ended, or where it was told to die.
"""

import importlib
import json
import os
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from uuid import UUID

from django.db import connections

from supervision.kernel import crash, lease
from supervision.kernel.models import LogEntry, Task
from supervision.testing import travel
from supervision.worker.drive import drive_one

World = Callable[[Task], bool]
"""Acts on an idle task; whether there was anything to do."""

_MANY = 200


def live(task_id: UUID, world: World, *, dies_at: str = "") -> bool:
    """One life. Whether it died at ``dies_at`` (``name@n``) rather than ending with the task; its loss is reaped then,
    as the cluster that saw it end would."""

    def arm() -> None:
        os.environ["SUPERVISION_CRASH_AT"] = dies_at
        importlib.reload(crash)

    return in_a_fork(arm, lambda: _drive_to_the_end(task_id, world))


def live_for(task_id: UUID, world: World, *, points: int) -> bool:
    """One life that ends at the ``points``-th crash point that it comes to, whichever that is."""
    passed = Counter[str]()

    def point(name: str) -> None:
        passed["all"] += 1
        if passed["all"] == points:
            os._exit(crash.EXIT_STATUS)

    return in_a_fork(lambda: setattr(crash, "point", point), lambda: _drive_to_the_end(task_id, world))


def count_points(task_id: UUID, world: World, scratch: Path) -> dict[str, int]:
    """An undisturbed life: how often it passes each crash point."""
    passed = Counter[str]()

    def work() -> None:
        _drive_to_the_end(task_id, world)
        scratch.write_text(json.dumps(passed))

    in_a_fork(lambda: setattr(crash, "point", lambda name: passed.update([name])), work)
    counted: dict[str, int] = json.loads(scratch.read_text())
    return counted


def in_a_fork(arm: Callable[[], None], work: Callable[[], None]) -> bool:
    """Does the work in a fork, armed; whether it died at a crash point. An error of it is an AssertionError here."""
    connections.close_all()  # a connection must not be shared by two processes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a thread of another test may live, and none is needed
        pid = os.fork()
    if pid == 0:
        status = 1
        try:
            arm()
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    status = os.waitstatus_to_exitcode(ended)
    if status not in (0, crash.EXIT_STATUS):
        raise AssertionError(f"The process ended with {status}; its error is on stderr.")
    lease.reap_process(host=lease.host_identity(), pid=pid)
    return status == crash.EXIT_STATUS


def _drive_to_the_end(task_id: UUID, world: World) -> None:
    with ExitStack() as journey:
        # time goes on where the last life left it
        latest = LogEntry.objects.filter(task=task_id).latest("created_at").created_at
        journey.enter_context(travel(max(timedelta(0), latest - Task.objects.with_clock().get(pk=task_id).db_now)))
        for _ in range(_MANY):
            task = Task.objects.with_clock().get(pk=task_id)
            if task.is_terminal:
                return
            if task.wake_at is not None and task.wake_at <= task.db_now:
                drive_one(task.pk, task.lease, stopping=lambda: False, thread=False)
            elif not world(task):
                if task.wake_at is None:
                    raise AssertionError(f"{task.watchdog_stop_reason!r} waits for nobody")
                journey.enter_context(travel(task.wake_at - task.db_now + timedelta(seconds=1)))
    raise AssertionError(f"still {task.current_state} ({task.watchdog_stop_reason}) after {_MANY} turns")

"""What the processes under a sentinel do: django-q2's own loops, tied to their parent and without locks."""

import contextlib
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django_q.monitor import monitor
from django_q.pusher import pusher
from django_q.worker import worker

from supervision.worker import drive, ordinary, orphans, stop
from supervision.worker.broker import Broker
from supervision.worker.handover import Countdown, ResultQueue, TaskQueue
from supervision.worker.pulse import Pulse
from supervision.worker.roster import Roster


class StopEvent:
    """The stop flag in the place of a ``multiprocessing.Event``, which has a lock."""

    def is_set(self) -> bool:
        return stop.stopping()

    def set(self) -> None:
        stop.request_stop()


class Mark:
    """An event of one process, set once, without a lock."""

    def __init__(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True


OTHER_SEATS = ("sentinel", "pusher", "monitor")
"""Beside the workers' slots."""


@dataclass(frozen=True)
class Equipment:
    """What the processes of one cluster share. Made before the first of them is forked."""

    task_queue: TaskQueue
    result_queue: ResultQueue
    roster: Roster
    broker: Broker
    pulse: Pulse

    def seat(self, seat: int | str) -> int:
        """The place in ``pulse`` of a worker's slot, or of one of the OTHER_SEATS."""
        return len(OTHER_SEATS) + seat if isinstance(seat, int) else OTHER_SEATS.index(seat)

    def close(self) -> None:
        """Give this process's ends back."""
        self.task_queue.close()
        self.result_queue.close()
        self.roster.close()


def be_worker(sentinel: int, gear: Equipment, slot: int, countdown: Countdown, timeout: int | None) -> None:
    """Run packages until the stop. A SIGTERM to this process alone ends it after its current package."""
    orphans.tie_to_parent(sentinel)
    on_stop_signals(stop.request_stop_here)
    gear.pulse.show(gear.seat(slot))
    drive.serve(drive.Lane(gear.broker.queues))
    gear.task_queue.serve(slot, on_ready=lambda: gear.roster.ready("worker"))
    worker(gear.task_queue, gear.result_queue, countdown, timeout)


def be_pusher(sentinel: int, gear: Equipment) -> None:
    """Hand due work to the free workers until the stop."""
    orphans.tie_to_parent(sentinel)
    on_stop_signals(stop.request_stop_here)
    gear.pulse.show(gear.seat("pusher"))
    gear.broker.capacity = gear.task_queue
    gear.roster.ready("pusher")
    pusher(gear.task_queue, StopEvent(), gear.broker)
    for package in gear.task_queue.leftovers():
        if package["ack_id"] is not None:
            # Else the message would only be handed out again after `retry`. An offered task just is, in a moment.
            with contextlib.suppress(Exception):
                ordinary.free(package["ack_id"])


def be_monitor(sentinel: int, gear: Equipment) -> None:
    """Save and acknowledge results. Ends when the sentinel says so, behind the last worker's result."""
    orphans.tie_to_parent(sentinel)
    on_stop_signals(lambda: None)
    gear.pulse.show(gear.seat("monitor"))
    gear.roster.ready("monitor")
    monitor(gear.result_queue, gear.broker)


def on_stop_signals(act: Callable[[], Any]) -> None:
    """Have SIGTERM and SIGINT do that, which must be safe in a handler: no lock, no log."""
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: act())

"""The process that keeps a cluster's workers, pusher and monitor alive, and ends them."""

import logging
import os
import signal
import time
from multiprocessing.process import BaseProcess
from typing import Any
from uuid import UUID, uuid4

from django import db
from django.utils.translation import gettext as _
from django_q import cluster as django_q_cluster
from django_q.conf import Conf, prometheus_multiprocess
from django_q.status import Stat

from supervision.conf import settings
from supervision.kernel.identity import started_of
from supervision.worker import orphans, stop
from supervision.worker.handover import STOP, Countdown
from supervision.worker.processes import (
    Equipment,
    Mark,
    StopEvent,
    be_monitor,
    be_pusher,
    be_worker,
    on_stop_signals,
)
from supervision.worker.pulse import Watch
from supervision.worker.readiness import readable
from supervision.worker.roster import Role

logger = logging.getLogger(__name__)

Seat = int | str
"""A worker's slot, "pusher" or "monitor": what is filled again when its process ends."""
_PUSHER, _MONITOR = "pusher", "monitor"


def be_sentinel(main: int, gear: Equipment, workers: int, cluster_id: UUID, timeout: int | None) -> None:
    """Guard a cluster until the stop. Ends by ``os._exit``, with 0 after a stop, and never leaves a child behind."""
    status = 1
    try:
        orphans.tie_to_parent(main)
        sentinel = Sentinel(gear, workers, cluster_id, timeout)
        gear.pulse.show(gear.seat("sentinel"))
        on_stop_signals(stop.request_stop)
        gear.roster.ready("sentinel")
        sentinel.start()
        status = 0
    except BaseException:
        logger.exception(_("The sentinel failed, and its cluster ends."))
    finally:
        orphans.sweep()
        os._exit(status)


class Sentinel(django_q_cluster.Sentinel):  # type: ignore[misc]  # django-q2 is untyped
    """django-q2's sentinel, without a lock that a killed process could hold, and without the database.

    A process that ends is replaced at once. One that ends before it was of use is replaced after a growing pause.
    """

    PAUSES_SECONDS = (0.0, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
    AFTER_GRACE_SECONDS = 2.0
    STATUS_SECONDS = 1.0

    def __init__(self, gear: Equipment, workers: int, cluster_id: UUID, timeout: int | None) -> None:
        super().__init__(StopEvent(), Mark(), cluster_id, gear.broker, timeout, start=False)
        self._gear = gear
        self._workers = self.pool_size = workers
        self.task_queue, self.result_queue = gear.task_queue, gear.result_queue
        self._seated: dict[Seat, BaseProcess] = {}
        self._since: dict[Seat, float] = {}
        self._failures: dict[Seat, int] = {}
        self._countdowns: dict[Seat, Countdown] = {}
        self._started: dict[Seat, str] = {}
        self._killed_for: dict[Seat, str] = {}
        self._watch = Watch(gear.pulse)
        self._status_at = 0.0

    # --- django-q2's life of a sentinel: start() pings, spawns, guards ---

    def spawn_cluster(self) -> None:
        self._fill_seats()
        if Conf.CPU_AFFINITY:
            django_q_cluster.set_cpu_affinity(Conf.CPU_AFFINITY, [process.pid for process in self.pool])

    def guard(self) -> None:
        """Replace what ends and end what is overdue, until the stop; then stop."""
        self.start_event.set()
        while not stop.stopping():
            self._clear_seats()
            self._fill_seats()
            self._end_overdue()
            self._end_silent()
            self._save_status()
            files = [process.sentinel for process in self._seated.values()]
            stop.wait(files, Conf.GUARD_CYCLE if len(files) == self._workers + 2 else 0.05)
        self.stop()

    def stop(self) -> None:
        """Wait until the workers have let go, then for the monitor; kill what needs longer than the grace time."""
        until = time.monotonic() + settings.STOP_GRACE_SECONDS
        self._await([seat for seat in self._seated if seat != _MONITOR], until)
        self._kill([seat for seat in self._seated if seat != _MONITOR])
        self.result_queue.put(STOP)
        self._await([_MONITOR], max(until, time.monotonic() + self.AFTER_GRACE_SECONDS))
        self._kill(list(self._seated))
        Stat(self).save()

    # --- seats ---

    def _fill_seats(self) -> None:
        for seat in (*range(self._workers), _MONITOR, _PUSHER):
            if seat not in self._seated and time.monotonic() >= self._since.get(seat, 0.0) + self._pause(seat):
                self._seated[seat] = self._spawn(seat)
                self._since[seat] = time.monotonic()
        self._show_seats()

    def _pause(self, seat: Seat) -> float:
        return self.PAUSES_SECONDS[min(self._failures.get(seat, 0), len(self.PAUSES_SECONDS) - 1)]

    def _spawn(self, seat: Seat) -> BaseProcess:
        db.connections.close_all()  # a connection must not cross the fork
        target: Any
        arguments: tuple[Any, ...] = (os.getpid(), self._gear)
        if isinstance(seat, int):
            self._countdowns[seat] = Countdown()
            target, arguments = be_worker, (*arguments, seat, self._countdowns[seat], self.timeout)
        else:
            target = be_pusher if seat == _PUSHER else be_monitor
        process = django_q_cluster.get_mp_context().Process(
            target=target, args=arguments, name=f"Process-{uuid4().hex}"
        )
        process.daemon = Conf.DAEMONIZE_WORKERS if isinstance(seat, int) else True
        process.start()
        self._started[seat] = started_of(process.pid or 0)
        self._watch.begin(self._gear.seat(seat))
        spawned: BaseProcess = process
        return spawned

    def _clear_seats(self) -> None:
        for seat, process in list(self._seated.items()):
            if not process.is_alive():
                self._clear(seat)

    def _clear(self, seat: Seat) -> None:
        """Note that the process of that seat has ended, and tell main, which makes due what it was driving."""
        process = self._seated.pop(seat)
        pid = process.pid or 0
        how = self._killed_for.pop(seat, "") or _how(process.exitcode)
        self._gear.roster.ended(_role(seat), pid, self._started[seat], how)
        if isinstance(seat, int):
            was_of_use = self.task_queue.is_served(seat)
            self.task_queue.vacate(seat)
            _forget_metrics(pid)
        else:
            was_of_use = time.monotonic() - self._since[seat] > 1.0
        self._failures[seat] = 0 if was_of_use else self._failures.get(seat, 0) + 1
        self._show_seats()
        if process.exitcode == 0:
            logger.info(_("The %(role)s %(pid)s has ended."), {"role": _role(seat), "pid": pid})
        else:
            self.reincarnations += 1
            logger.error(
                _("The %(role)s %(pid)s ended unexpectedly (%(how)s)."),
                {"role": _role(seat), "pid": pid, "how": how},
            )

    def _show_seats(self) -> None:
        """For django-q2's statistics, which want the last monitor and pusher even when they have ended."""
        self.pool = [process for seat, process in self._seated.items() if isinstance(seat, int)]
        for seat in (_MONITOR, _PUSHER):
            if seat in self._seated:
                setattr(self, seat, self._seated[seat])

    def _end_overdue(self) -> None:
        """Kill workers whose ordinary package outran its ``timeout`` and the exception for it. Supervised ones have
        no timeout."""
        for seat, countdown in self._countdowns.items():
            if seat in self._seated and countdown.is_over():
                logger.error(_("The worker %(pid)s didn't heed its timeout."), {"pid": self._seated[seat].pid})
                self._kill([seat])

    def _end_silent(self) -> None:
        """Kill what lives and does nothing: it is stopped, or C code holds its interpreter's lock. After the lease
        time, so that whatever it drove is another's by then."""
        seats = {self._gear.seat(seat): seat for seat in self._seated}
        for place in self._watch.silent(set(seats), seconds=settings.LEASE_SECONDS):
            seat = seats[place]
            self._killed_for[seat] = f"no sign of life for {settings.LEASE_SECONDS:g} s"
            logger.error(
                _("The %(role)s %(pid)s shows no sign of life: it is replaced."),
                {"role": _role(seat), "pid": self._seated[seat].pid},
            )
            self._kill([seat])

    def _save_status(self) -> None:
        if time.monotonic() >= self._status_at:
            self._status_at = time.monotonic() + self.STATUS_SECONDS
            Stat(self).save()

    # --- the end ---

    def _await(self, seats: list[Seat], until: float) -> None:
        """Wait until those processes have ended, the time is over, or a second signal wants no waiting."""
        while True:
            self._clear_seats()
            left = [self._seated[seat].sentinel for seat in seats if seat in self._seated]
            if not left or time.monotonic() > until or stop.stopping_at_once():
                return
            readable(left, 0.1)

    def _kill(self, seats: list[Seat]) -> None:
        for seat in seats:
            self._seated[seat].kill()
        for seat in seats:
            self._seated[seat].join()
            self._clear(seat)


def _role(seat: Seat) -> Role:
    return "worker" if isinstance(seat, int) else "pusher" if seat == _PUSHER else "monitor"


def _how(exitcode: int | None) -> str:
    """For the log: a signal's name, or the status."""
    if exitcode is not None and exitcode < 0:
        known = [signum.name for signum in signal.Signals if signum == -exitcode]
        return known[0] if known else f"signal {-exitcode}"
    return _("exit status %(status)s") % {"status": exitcode}


def _forget_metrics(pid: int) -> None:
    if prometheus_multiprocess and (
        os.getenv("PROMETHEUS_MULTIPROC_DIR") or os.getenv("prometheus_multiproc_dir")  # noqa: SIM112 (its old name)
    ):
        prometheus_multiprocess.mark_process_dead(pid)

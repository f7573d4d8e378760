"""What a cluster does about its tasks beside running them: the tick, dead processes, and schedules."""

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Collection
from typing import NamedTuple

from django.db import Error as DatabaseError
from django.db import connections
from django.utils.translation import gettext as _
from django_q.brokers import Broker
from django_q.conf import Conf
from django_q.scheduler import scheduler

from supervision.conf import settings
from supervision.kernel import reaping
from supervision.kernel.identity import host_identity
from supervision.worker import slots
from supervision.worker.presence import Presence
from supervision.worker.scheduling import start_due
from supervision.worker.tick import ADOPT_BATCH, adopt, tick
from supervision.worker.trouble import Trouble

logger = logging.getLogger(__name__)


class Ended(NamedTuple):
    """A process that has ended; see ``reaping.reap_process``."""

    pid: int
    started: str
    how: str


class Housekeeping(threading.Thread):
    """One thread with a connection of its own, which outlasts the database's restarts.

    Start it after the last fork of its process. It is a daemon: no hanging database keeps the process from ending.
    ``scheduling`` is the broker for which it also looks at django-q2's schedules, as often as django-q2 does.
    ``presence`` announces the cluster; ``children`` are the processes whose end is told to ``reap``.
    """

    SCHEDULE_SECONDS = 30.0
    ADOPT_SECONDS = 60.0

    def __init__(
        self,
        presence: Presence,
        scheduling: Broker | None = None,
        children: Callable[[], Collection[int]] = tuple,
    ) -> None:
        super().__init__(name="supervision-housekeeping", daemon=True)
        self._presence = presence
        self._children = children
        self._broker = scheduling if Conf.SCHEDULER else None
        self._ended: queue.SimpleQueue[Ended | None] = queue.SimpleQueue()
        self._unreaped: list[Ended] = []
        self._finishing = False
        self._schedule_at = time.monotonic() + self.SCHEDULE_SECONDS
        self._adopt_at = time.monotonic()
        self._trouble = Trouble(logger, _("keeping house"))

    def reap(self, pid: int, started: str, how: str) -> None:
        """A process of this host has ended: make due at once what it was driving. Returns at once."""
        self._ended.put(Ended(pid, started, how))

    def finish(self, seconds: float) -> None:
        """Reap what is still to be reaped, and end; wait for that at most so long."""
        self._ended.put(None)
        self.join(seconds)

    def run(self) -> None:
        tick_at = time.monotonic()
        while not (self._finishing and not self._unreaped):
            self._await_news(max(0.0, tick_at - time.monotonic()))
            # In this order: whoever is not among the children any more has been told of, and is read of next.
            children = self._children()
            self._await_news(0.0)
            try:
                self._reap_ended()
                if time.monotonic() >= tick_at and not self._finishing:
                    tick_at = time.monotonic() + settings.TICK_SECONDS
                    self._presence.announce()
                    tick(children=children)
                    self._presence.ticked()
                    self._schedule()
                    self._adopt()
            except Exception as error:
                self._trouble.met(error)
                connections.close_all()
                tick_at = time.monotonic() + min(settings.TICK_SECONDS, 1.0)
            else:
                self._trouble.over()
        with contextlib.suppress(DatabaseError):  # the row ages, then
            self._presence.withdraw()
        connections.close_all()

    def _await_news(self, seconds: float) -> None:
        try:
            while True:
                ended = self._ended.get(timeout=seconds)
                seconds = 0.0
                if ended is None:
                    self._finishing = True
                else:
                    self._unreaped.append(ended)
        except queue.Empty:
            pass

    def _reap_ended(self) -> None:
        while self._unreaped:
            pid, started, how = self._unreaped[0]
            count = reaping.reap_process(host=host_identity(), pid=pid, started=started, how=how)
            self._unreaped.pop(0)
            if count:
                slots.sweep()
                logger.warning(
                    _("Process %(pid)s ended (%(how)s) while it drove a task: the task is due again."),
                    {"pid": pid, "how": how or "?"},
                )

    def _schedule(self) -> None:
        """Ours are looked at with each tick, django-q2's own as often as it does itself."""
        if Conf.SCHEDULER:
            start_due()
        if self._broker is not None and time.monotonic() >= self._schedule_at:
            self._schedule_at = time.monotonic() + self.SCHEDULE_SECONDS
            scheduler(broker=self._broker)

    def _adopt(self) -> None:
        """Once a minute; while there is much of it, a portion after each tick."""
        if time.monotonic() >= self._adopt_at:
            self._adopt_at = time.monotonic() + self.ADOPT_SECONDS
            if adopt() >= ADOPT_BATCH:
                self._adopt_at = time.monotonic()

"""The main process of our cluster: it starts the sentinel, watches it, keeps house, and is the last to leave."""

import logging
import os
import sys
import time
from multiprocessing.process import BaseProcess
from typing import Any
from uuid import uuid4

from django import db
from django.utils.translation import gettext as _
from django_q import cluster as django_q_cluster
from django_q.conf import Conf

from supervision.conf import settings
from supervision.worker import orphans, stop
from supervision.worker.broker import Broker
from supervision.worker.handover import ResultQueue, TaskQueue
from supervision.worker.housekeeping import Housekeeping
from supervision.worker.outside import Outside
from supervision.worker.postman import Postman
from supervision.worker.presence import Presence
from supervision.worker.processes import OTHER_SEATS, Equipment, Mark, StopEvent
from supervision.worker.pulse import Pulse, Watch
from supervision.worker.readiness import readable
from supervision.worker.roster import News, Roster
from supervision.worker.sentinel import be_sentinel

logger = logging.getLogger(__name__)


def is_supported() -> bool:
    """Whether this system has what the promises rest on: fork and local sockets. (Windows has neither.)"""
    return hasattr(os, "fork") and sys.platform != "win32"


class Cluster(django_q_cluster.Cluster):  # type: ignore[misc]  # django-q2 is untyped
    """django-q2's cluster, which ends in time when it is asked to, and never half.

    SIGTERM or SIGINT, to this process or its whole group: nothing new is taken, bodies see ``stop.stopping()`` at
    their next checkpoint, and what needs longer than the grace time is killed; a second signal kills at once. If the
    sentinel ends by itself, all else is ended too.
    """

    AFTER_GRACE_SECONDS = 5.0
    AT_ONCE_SECONDS = 2.0
    REAP_AT_END_SECONDS = 2.0
    POST_AT_END_SECONDS = 1.0

    def __init__(
        self, broker: Broker | None = None, workers: int | None = None, outside: Outside | None = None
    ) -> None:
        stop.share()
        self._outside = outside or Outside()
        self._on_signal = stop.Signals()
        super().__init__(broker or Broker())
        self.workers = workers or int(Conf.WORKERS)
        self._gear = Equipment(
            TaskQueue(self.workers), ResultQueue(), Roster(), self.broker, Pulse(self.workers + len(OTHER_SEATS))
        )
        self._present: dict[int, News] = {}
        """What each process said that is ready and has not ended, by its pid."""
        self._is_ready = False

    def sig_handler(self, *_: object) -> None:
        self._on_signal()

    def run(self) -> int:
        """Run until the stop, or until the sentinel fails; the exit status. No process is left after it."""
        self.start()
        presence = Presence(queues=self.broker.queues, workers=self.workers, free=self._gear.task_queue.count_waiting)
        self._house, self._postman = Housekeeping(presence, self.broker, lambda: list(self._present)), Postman()
        try:
            self._house.start()
            self._postman.start()
            self._watch()
        finally:
            self._end()
        return 0 if stop.stopping() else 1

    def start(self) -> int:
        """Fork the sentinel. Returns this process's pid."""
        orphans.adopt_orphans()
        db.connections.close_all()
        self.stop_event, self.start_event = StopEvent(), Mark()
        self.sentinel = django_q_cluster.get_mp_context().Process(
            target=be_sentinel,
            args=(os.getpid(), self._gear, self.workers, self.cluster_id, self.timeout),
            name=f"Process-{uuid4().hex}",
        )
        self.sentinel.start()
        return os.getpid()

    def stop(self) -> bool:
        """Ask for the stop; ``run`` ends soon after."""
        stop.request_stop()
        return True

    def _watch(self) -> None:
        sentinel: BaseProcess = self.sentinel
        files = [sentinel.sentinel, self._gear.roster.fileno()]
        kill_at: float | None = None
        watch, seat = Watch(self._gear.pulse), self._gear.seat("sentinel")
        while sentinel.is_alive():
            if watch.silent({seat}, seconds=settings.LEASE_SECONDS):
                logger.critical(_("The sentinel %(pid)s shows no sign of life: it is ended."), {"pid": sentinel.pid})
                sentinel.kill()
            self._outside.alive()
            self._hear()
            orphans.bury_adopted(but=sentinel.pid)
            if not stop.stopping():
                stop.wait(files, 1.0)
                continue
            if kill_at is None:
                logger.info(_("supervision worker stopping pid=%(pid)d"), {"pid": os.getpid()})
                self._outside.stopping()
                kill_at = time.monotonic() + settings.STOP_GRACE_SECONDS + self.AFTER_GRACE_SECONDS
            if stop.stopping_at_once():
                kill_at = min(kill_at, time.monotonic() + self.AT_ONCE_SECONDS)
            if time.monotonic() > kill_at:
                sentinel.kill()
            readable(files, 0.1)
        if not stop.stopping():
            logger.critical(_("The sentinel %(pid)s has ended by itself: the cluster ends."), {"pid": sentinel.pid})

    def _hear(self) -> None:
        for news in self._gear.roster.news():
            if not news.has_ended:
                self._present[news.pid] = news
                continue
            if news.role == "worker":
                self._house.reap(news.pid, news.started, news.how)
            self._present.pop(news.pid, None)
        roles = [news.role for news in self._present.values()]
        if not self._is_ready and roles.count("worker") == self.workers and {"pusher", "monitor"} <= {*roles}:
            self._is_ready = True
            self.start_event.set()
            self._gear.roster.ready("main")
            self._outside.ready()

    def _end(self) -> None:
        self._hear()
        workers = [news for news in self._present.values() if news.role == "worker"]
        if not orphans.sweep(self._present.keys() - {os.getpid()}):
            logger.critical(_("Processes are left that can't be killed."))
        for worker in workers:
            self._house.reap(worker.pid, worker.started, _("its cluster ended"))
        self._house.finish(self.REAP_AT_END_SECONDS)
        if self._postman.is_alive():
            self._postman.finish(self.POST_AT_END_SECONDS)
        self._gear.close()
        self._outside.over()


def run_stock(broker: Broker) -> int:
    """Run django-q2's own cluster, where ours isn't supported: its promises, and our tick. The exit status."""
    house = Housekeeping(Presence(queues=broker.queues, workers=int(Conf.WORKERS)))
    cluster: Any = django_q_cluster.Cluster(broker)
    cluster.start()
    house.start()
    postman = Postman()
    postman.start()
    cluster.sentinel.join()
    house.finish(1.0)
    postman.finish(1.0)
    return int(cluster.sentinel.exitcode or 0)

"""The beat of a worker process: one daemon thread with a connection of its own."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import UUID

from django.db import connections

from supervision.conf import settings
from supervision.kernel import lease

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("supervision.worker")


class Heart:
    """Beats for the task that this process drives, from take to end, and carries its progress.

    The local clock only measures how long ago a beat got through; what is stale is judged by the database's.
    """

    def __init__(self, task_id: UUID, task_lease: int) -> None:
        self._task_id, self._lease = task_id, task_lease
        self._progress: tuple[int | None, int | None, str | None] | None = None
        self._last = time.monotonic()
        self._lost = False
        self._hurry: threading.Event | None = None
        self._writing = threading.Lock()

    def is_fresh(self) -> bool:
        return time.monotonic() - self._last < settings.LEASE_SECONDS * 2 / 3

    def is_lost(self) -> bool:
        return self._lost

    def beat(self) -> bool:
        """Beats on the calling thread's connection, with the newest progress."""
        with self._writing:
            done, total, text = self._progress or (None, None, None)
            self._progress = None
            before = time.monotonic()
            lives = lease.beat(self._task_id, self._lease, done=done, total=total, text=text)
        if lives:
            self._last = before
        else:
            self._lost = True
        return lives

    def progress(self, done: int | None, total: int | None, text: str | None) -> None:
        self._progress = (done, total, text)
        if self._hurry is not None:
            self._hurry.set()


class _Beater:
    """The thread of this process; started with the first drive, after the fork.

    It wakes every BEAT_SECONDS whether or not there is anything to beat for: telling it of each drive cost short ones
    more than their work. So the first beat of a drive comes within BEAT_SECONDS, like every other.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.heart: Heart | None = None
        self.hurry = threading.Event()
        """Set when there is progress to show."""
        threading.Thread(target=self._run, name="supervision-heart", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._wait()
            heart = self.heart
            if heart is None or heart.is_lost():
                continue
            try:
                heart.beat()
            except Exception:
                # the database is away: the next beat tries a new connection, and the context sees that none got through
                logger.warning("a beat failed", exc_info=True)
                connections[settings.DATABASE].close()

    def _wait(self) -> None:
        """Until the next beat is due: sooner when there is progress to show, but not sooner than PROGRESS_SECONDS."""
        if self.hurry.wait(settings.BEAT_SECONDS):
            time.sleep(max(0.0, min(settings.BEAT_SECONDS, settings.PROGRESS_SECONDS)))
            self.hurry.clear()


_beater: _Beater | None = None


@contextmanager
def beating(task_id: UUID, task_lease: int, *, thread: bool = True) -> Iterator[Heart]:
    """A heart for one drive. ``thread=False`` beats only when the context asks: for tests inside one transaction."""
    global _beater
    heart = Heart(task_id, task_lease)
    if not thread:
        yield heart
        return
    if _beater is None or _beater.pid != os.getpid():
        _beater = _Beater()
    beater = _beater
    heart._hurry = beater.hurry
    beater.heart = heart
    try:
        yield heart
    finally:
        beater.heart = None

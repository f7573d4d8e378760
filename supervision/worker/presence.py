"""A cluster's announcements of itself, made by its housekeeping."""

import platform
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import uuid4

from supervision.conf import settings
from supervision.engines.registry import drivable
from supervision.kernel import clusters
from supervision.kernel.clusters import Announcement
from supervision.kernel.identity import Worker


class Presence:
    """Announces this process's cluster every BEAT_SECONDS, with the time of its last tick."""

    FORGET_SECONDS = 60.0

    def __init__(self, *, queues: Sequence[str] | None, workers: int, free: Callable[[], int] | None = None) -> None:
        self._id = uuid4()
        self._queues, self._workers, self._free = queues, workers, free
        self._announce_at = 0.0
        self._forget_at = 0.0
        self._ticked_at: float | None = None

    def ticked(self) -> None:
        """A tick got through."""
        self._ticked_at = time.monotonic()

    def announce(self) -> None:
        """Announces the cluster, when that is due. May raise database errors."""
        now = time.monotonic()
        if now < self._announce_at:
            return
        me = Worker.current()
        clusters.announce(
            Announcement(
                id=self._id, node=platform.node(), host=me.host, pid=me.pid, process_started=me.started,
                queues=self._queues, bodies=drivable(), workers=self._workers,
                free=self._free() if self._free is not None else None,
                ticked_before=None if self._ticked_at is None else timedelta(seconds=now - self._ticked_at),
            )
        )  # fmt: skip
        self._announce_at = now + settings.BEAT_SECONDS
        if now >= self._forget_at:
            self._forget_at = now + self.FORGET_SECONDS
            clusters.forget_old()

    def withdraw(self) -> None:
        """The cluster ends. May raise database errors."""
        clusters.withdraw(self._id)

"""A connection of its own that listens for wake-ups."""

import contextlib
import logging
import os
import time
from typing import Any

from django.db import connections
from django.utils.translation import gettext as _

from supervision.conf import settings

logger = logging.getLogger(__name__)


class Listener:
    """LISTENs on a channel, so that a wait ends with the notification and not with the poll.

    What has no session that lasts (a transaction-pooling proxy) never delivers: the poll does it all, then. Nothing
    here raises.
    """

    RETRY_SECONDS = 1.0
    PATIENCE = 5
    """Failures in a row before a warning: a restart of the database is reported by whoever looks at the rows."""

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._connection: Any = None
        self._pid = os.getpid()
        self._retry_at = 0.0
        self._failures = 0

    def subscribe(self) -> None:
        """Be subscribed, if it can be had, and forget the notifications so far: look at the rows *after* this."""
        if self._pid != os.getpid():  # another process's connection, over the fork: not ours to touch
            self._connection, self._pid = None, os.getpid()
        if self._connection is not None and self._drained():
            return
        if time.monotonic() >= self._retry_at:
            self._connect()

    def fileno(self) -> int | None:
        """The file descriptor that is readable after a notification; None without a subscription."""
        if self._connection is None:
            return None
        file: int = self._connection.fileno()
        return file

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(Exception):
                connection.close()

    def _connect(self) -> None:
        try:
            wrapper = connections[settings.DATABASE].copy()
            wrapper.connect()
            self._connection = wrapper.connection
            self._connection.execute(f"LISTEN {self._channel}")
            self._failures = 0
        except Exception as error:
            self.close()
            self._retry_at = time.monotonic() + self.RETRY_SECONDS
            self._failures += 1
            if self._failures == self.PATIENCE:
                logger.warning(_("Can't listen for wake-ups, so they wait for the poll: %(error)s"), {"error": error})

    def _drained(self) -> bool:
        try:
            link = self._connection.pgconn
            link.consume_input()
            while link.notifies():
                pass
        except Exception:
            self.close()  # the server went away; whoever looks at the rows next reports it
            return False
        return True

"""A connection of its own that listens for wake-ups."""

import contextlib
import logging
import os
import time
from typing import Any

from django.db import Error as DatabaseError
from django.db import connections
from django.utils.translation import gettext as _

from supervision.conf import settings

logger = logging.getLogger(__name__)


class Listener:
    """LISTENs on a channel, so that a wait ends with the notification and not with the poll.

    What has no session that lasts (a transaction-pooling proxy) never delivers: the poll does it all, then. Nothing
    here raises.
    """

    RETRY_SECONDS = 5.0

    def __init__(self, channel: str) -> None:
        self._channel = channel
        self._wrapper: Any = None
        self._pid = os.getpid()
        self._retry_at = 0.0
        self._complained = False

    def subscribe(self) -> None:
        """Be subscribed, if it can be had, and forget the notifications so far: look at the rows *after* this."""
        if self._pid != os.getpid():  # another process's connection, over the fork: not ours to touch
            self._wrapper, self._pid = None, os.getpid()
        if self._wrapper is not None and self._drained():
            return
        if time.monotonic() >= self._retry_at:
            self._connect()

    def fileno(self) -> int | None:
        """The file descriptor that is readable after a notification; None without a subscription."""
        if self._wrapper is None:
            return None
        file: int = self._wrapper.connection.fileno()
        return file

    def close(self) -> None:
        wrapper, self._wrapper = self._wrapper, None
        if wrapper is not None:
            with contextlib.suppress(Exception):
                wrapper.close()

    def _connect(self) -> None:
        try:
            self._wrapper = connections[settings.DATABASE].copy()
            self._wrapper.connect()
            self._wrapper.connection.execute(f"LISTEN {self._channel}")
            # psycopg 2 has another interface, and keeps working by the poll.
            self._wrapper.connection.pgconn.consume_input()
        except Exception as error:
            self.close()
            self._retry_at = time.monotonic() + self.RETRY_SECONDS
            if not self._complained and not isinstance(error, DatabaseError):
                self._complained = True
                logger.warning(_("Can't listen for wake-ups, so they wait for the poll: %(error)s"), {"error": error})

    def _drained(self) -> bool:
        try:
            link = self._wrapper.connection.pgconn
            link.consume_input()
            while link.notifies():
                pass
        except Exception:
            self.close()  # the server went away; whoever looks at the rows next reports it
            return False
        return True

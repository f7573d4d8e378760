"""What a cluster's main process tells whoever runs it: systemd by its socket, others by the time of a file.

It tells while it and its sentinel live and answer, and no longer; whether work is done is the health check's question.
"""

import contextlib
import os
import socket
import time
from pathlib import Path


class Outside:
    """systemd's ``sd_notify`` where NOTIFY_SOCKET is set; ``alive_file`` is touched, and removed at the end."""

    SECONDS = 1.0

    def __init__(self, alive_file: Path | None = None) -> None:
        self._file = alive_file
        self._socket = os.environ.pop("NOTIFY_SOCKET", "")  # not for the children
        self._alive_at = 0.0

    def ready(self) -> None:
        """All processes of the cluster are ready."""
        self._notify("READY=1")

    def alive(self) -> None:
        """The main process has looked after its sentinel. Cheap: tells once a second."""
        now = time.monotonic()
        if now < self._alive_at:
            return
        self._alive_at = now + self.SECONDS
        self._notify("WATCHDOG=1")
        if self._file is not None:
            with contextlib.suppress(OSError):  # a full disk is no reason to stop
                self._file.touch()

    def stopping(self) -> None:
        self._notify("STOPPING=1")

    def over(self) -> None:
        if self._file is not None:
            self._file.unlink(missing_ok=True)

    def _notify(self, what: str) -> None:
        if not self._socket:
            return
        address = "\0" + self._socket[1:] if self._socket.startswith("@") else self._socket
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
            there.sendto(what.encode(), address)

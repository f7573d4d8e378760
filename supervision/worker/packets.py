"""Kill-safe channels between the processes of a cluster.

A ``multiprocessing.Queue`` has locks, and a process that is killed holding one (an idle worker does hold the read
lock) freezes all others for ever. Here a message is one packet of a socket pair: the kernel hands it over whole, and
there is nothing to hold.
"""

import errno
import os
import socket
import sys
import tempfile
import time
from typing import IO

from supervision.worker.readiness import readable, writable

_ON_LINUX = sys.platform.startswith("linux")
_KIND = socket.SOCK_SEQPACKET if _ON_LINUX else socket.SOCK_DGRAM
_INLINE_BYTES = 32 * 1024 if _ON_LINUX else 1024
"""A packet has to fit the socket's buffer; a longer message travels as an open file that nobody else can name."""
_INLINE, _IN_FILE = b"\0", b"\1"


class Packets:
    """Messages of any length, in order, from any process to any one process, after forks from a common parent.

    A message that a dying process had received is gone; one that it was sending arrives whole or not at all.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair(socket.AF_UNIX, _KIND)
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """The file descriptor that is readable while a message waits."""
        return self._reader.fileno()

    def is_empty(self) -> bool:
        return not readable([self.fileno()], 0)

    def send(self, message: bytes, *, seconds: float = 0.0) -> bool:
        """Whether the message is on its way. Waits up to ``seconds`` for room."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                self._send(message)
            except BlockingIOError:
                pass
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # macOS's word for a full buffer
                    raise
                time.sleep(0.005)
            else:
                return True
            left = deadline - time.monotonic()
            if left <= 0 or not writable(self._writer.fileno(), left):
                return False

    def receive(self) -> bytes | None:
        """The next message, or None if none waits. Never blocks."""
        try:
            packet, files, _, _ = socket.recv_fds(self._reader, _INLINE_BYTES + 1, 1)
        except BlockingIOError:
            return None
        if packet[:1] == _INLINE:
            return packet[1:]
        with os.fdopen(files[0], "rb") as file:
            file.seek(0)
            return file.read()

    def close(self) -> None:
        """Give this process's ends back."""
        self._reader.close()
        self._writer.close()

    def _send(self, message: bytes) -> None:
        if len(message) <= _INLINE_BYTES:
            self._writer.send(_INLINE + message)
            return
        with _nameless_file() as file:
            file.write(message)
            file.flush()
            socket.send_fds(self._writer, [_IN_FILE], [file.fileno()])


def _nameless_file() -> IO[bytes]:
    if _ON_LINUX:
        return os.fdopen(os.memfd_create("supervision"), "wb")
    return tempfile.TemporaryFile()

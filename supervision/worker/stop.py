"""The wish to stop, as one byte that every process of a cluster sees.

It is set from signal handlers, and read by each body at its checkpoints: nothing here takes a lock, so no dead process
can hold one. (django-q2's own handler logs and sets an ``Event``; of 30 stops of a process group 27 hung in it.)
"""

import contextlib
import mmap
import os
import time
from collections.abc import Iterable

from supervision.worker.readiness import readable

_SOON, _AT_ONCE = 1, 2


class _Shared:
    """What a cluster's processes inherit: the byte, and a pipe that is readable for ever once the byte is set."""

    def __init__(self) -> None:
        self.byte = mmap.mmap(-1, 1)
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)

    def raise_to(self, level: int) -> None:
        self.byte[0] = max(level, self.byte[0])
        with contextlib.suppress(BlockingIOError):  # full of earlier wishes: readable all the same
            os.write(self.writer, b"\0")


_local = 0
_shared: _Shared | None = None


def share() -> None:
    """Begin afresh, with a flag that the processes forked from now on have in common."""
    forget()
    global _shared
    _shared = _Shared()


def stopping() -> bool:
    """Whether this process, or its whole cluster, was asked to stop. Cheap; a body's every checkpoint asks."""
    return bool(_local) or (_shared is not None and _shared.byte[0] > 0)


def stopping_at_once() -> bool:
    """Whether the cluster was asked twice: no step is waited for any more."""
    return _shared is not None and _shared.byte[0] >= _AT_ONCE


def request_stop(*, at_once: bool = False) -> None:
    """Ask the whole cluster to stop, or this process if it shares no flag. Safe in a signal handler."""
    if _shared is None:
        request_stop_here()
    else:
        _shared.raise_to(_AT_ONCE if at_once else _SOON)


def request_stop_here() -> None:
    """Ask this process alone to stop. Safe in a signal handler."""
    global _local
    _local = 1


def forget() -> None:
    """Take the wish back, and share it no more. For tests that set it in their own process."""
    global _local, _shared
    _local, shared, _shared = 0, _shared, None
    if shared is not None:
        os.close(shared.reader)
        os.close(shared.writer)


def wait(files: Iterable[int], timeout: float | None) -> set[int]:
    """Wait until one of the file descriptors is readable, or a stop is requested: which of them are readable.

    Waits at most ``timeout`` seconds (None: for ever). An empty set: the time is over, or a stop was requested.
    """
    files = set(files)
    watched = files if _shared is None else files | {_shared.reader}
    return readable(watched, 0 if stopping() else timeout) & files


class Signals:
    """The handler of SIGTERM and SIGINT in the main process. A second signal stops at once.

    What follows within half a second of the first is the same wish: Ctrl-C reaches the whole process group, and
    whoever started us passes its own on as SIGTERM.
    """

    SAME_WISH_SECONDS = 0.5

    def __init__(self) -> None:
        self._first: float | None = None

    def __call__(self, *_: object) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
        request_stop(at_once=now - self._first > self.SAME_WISH_SECONDS)

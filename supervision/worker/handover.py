"""What stands in the places of django-q2's task queue, result queue and countdown: the same calls, without locks.

Packages travel as django-q2's own signed packages: nothing unsigned is unpickled.
"""

import ctypes
import logging
import mmap
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from django.utils.translation import gettext as _
from django_q.signing import SignedPackage

from supervision.worker import stop
from supervision.worker.packets import Packets
from supervision.worker.readiness import readable

logger = logging.getLogger(__name__)

Package: TypeAlias = dict[str, Any]
STOP = "STOP"
"""django-q2's word for the end of a queue."""
_ABSENT, _WAITING, _BUSY = 0, 1, 2


class TaskQueue:
    """From the pusher to whichever worker is free.

    Each worker has a slot, one byte in shared memory, that says whether it waits for a package. The pusher counts
    those (``free``) instead of keeping accounts, so that nothing a killed process leaves behind can make it wrong.
    """

    def __init__(self, slots: int) -> None:
        self._packets = Packets()
        self._bell = Packets()
        self._slots = mmap.mmap(-1, max(1, slots))
        self._kept: list[Package] = []
        self._slot = 0
        self._on_ready: Callable[[], None] | None = None

    # --- the pusher ---

    def put(self, package: Package) -> None:
        """Hand a package over. Once a stop is requested it is one of the ``leftovers``."""
        message = _encoded(package)
        while not stop.stopping():
            if self._packets.send(message, seconds=1.0):
                return
        self._kept.append(package)

    def leftovers(self) -> Iterator[Package]:
        """After the stop: what was on its way to a worker, and no worker takes any more."""
        yield from self._kept
        while (message := self._packets.receive()) is not None:
            yield _decoded(message)

    def free(self) -> int:
        """How many workers wait with nothing on its way to them. If 0, ``bell`` rings when that changes."""
        while self._bell.receive() is not None:
            pass
        # In this order: a worker that has emptied the queue had said before that it no longer waits.
        return self._slots[:].count(_WAITING) if self._packets.is_empty() else 0

    def count_waiting(self) -> int:
        """How many workers wait. For any process; changes nothing."""
        return self._slots[:].count(_WAITING)

    def bell(self) -> int:
        """The file descriptor that is readable when ``free`` may have changed."""
        return self._bell.fileno()

    # --- a worker ---

    def serve(self, slot: int, on_ready: Callable[[], None]) -> None:
        """Have this process be the worker of that slot. ``on_ready`` is called when it first waits."""
        self._slot, self._on_ready = slot, on_ready

    def get(self) -> Package | str:
        """Wait for the next package, or for the stop."""
        while not stop.stopping():
            self._say(_WAITING)
            if self._on_ready is not None:
                self._on_ready()
                self._on_ready = None
            # A second at most: a SIGTERM to this process alone is only seen between two waits.
            while not stop.wait([self._packets.fileno()], timeout=1.0):
                if stop.stopping():
                    return STOP
            # First say that we don't wait, then take: see free(). Another worker may have been faster.
            self._say(_BUSY)
            if (message := self._packets.receive()) is not None:
                self._ring()
                return _decoded(message)
        return STOP

    def _say(self, what: int) -> None:
        self._slots[self._slot] = what
        if what == _WAITING:
            self._ring()

    def _ring(self) -> None:
        self._bell.send(b"")  # a full bell rings already

    # --- the sentinel ---

    def vacate(self, slot: int) -> None:
        """The worker of that slot has ended."""
        self._slots[slot] = _ABSENT

    def is_served(self, slot: int) -> bool:
        """Whether the worker of that slot has become ready."""
        return self._slots[slot] != _ABSENT

    def empty(self) -> bool:
        return self._packets.is_empty()

    def qsize(self) -> int:
        """For django-q2's statistics: there is never more than the free workers can take."""
        return int(not self.empty())

    def close(self) -> None:
        self._packets.close()
        self._bell.close()


class ResultQueue:
    """From the workers to the monitor, which saves and acknowledges ordinary django-q2 tasks."""

    def __init__(self) -> None:
        self._packets = Packets()

    def put(self, package: Package | str) -> None:
        """Hand a result over; what nobody would save or acknowledge is left out."""
        if isinstance(package, dict):
            if package["success"] and package.get("ack_id") is None and not package.get("save", True):
                return
            self._packets.send(_encoded_result(package), seconds=60.0)
        else:
            self._packets.send(package.encode(), seconds=1.0)

    def get(self) -> Package | str:
        """Wait for the next result. The sentinel puts ``STOP`` behind the last."""
        while (message := self._packets.receive()) is None:
            readable([self._packets.fileno()], None)
        return STOP if message == STOP.encode() else _decoded(message)

    def empty(self) -> bool:
        return self._packets.is_empty()

    def qsize(self) -> int:
        return int(not self.empty())

    def close(self) -> None:
        self._packets.close()


class Countdown:
    """A worker's ``timer``: how long what it runs may take. Written by that worker alone, read by the sentinel.

    django-q2 shares a locked value, on which a worker killed in the wrong place leaves its sentinel waiting for ever.
    """

    AT_EXIT_SECONDS = 3.0

    def __init__(self) -> None:
        # Two aligned doubles in shared memory, the value and its deadline: each is read and written in one piece.
        self._cells = (ctypes.c_double * 2).from_buffer(mmap.mmap(-1, 16))
        self._cells[0] = -1.0

    @property
    def value(self) -> float:
        """Above zero: may run for so many seconds. 0: has timed out and ends itself. -1: no limit. -2: recycled."""
        return self._cells[0]

    @value.setter
    def value(self, value: float) -> None:
        # The deadline first: whoever reads the new value must not meet the old deadline.
        self._cells[1] = time.monotonic() + (value or self.AT_EXIT_SECONDS)
        self._cells[0] = value

    def is_over(self) -> bool:
        return self._cells[0] >= 0 and self._cells[1] < time.monotonic()

    def get_lock(self) -> AbstractContextManager[None]:
        """There is none: django-q2's worker asks for it."""
        return nullcontext()


def _encoded(package: Package) -> bytes:
    return str(SignedPackage.dumps(package)).encode()


def _encoded_result(package: Package) -> bytes:
    try:
        return _encoded(package)
    except Exception as error:
        # django-q2 loses such a result in a thread and runs the task again, for ever.
        logger.exception(_("The result of “%(name)s” can't be pickled."), {"name": package["name"]})
        why = f"{type(error).__name__}: {error}"
        return _encoded({**package, "result": f"The result can't be pickled: {why}", "success": False})


def _decoded(message: bytes) -> Package:
    package: Package = SignedPackage.loads(message.decode())
    return package

"""Ways in which a body takes its worker down."""

import ctypes
import itertools
import os
import resource
import signal
from pathlib import Path

_hoard: list[bytes] = []


def kill() -> None:
    """As the system's out-of-memory killer does."""
    os.kill(os.getpid(), signal.SIGKILL)


def segfault() -> None:
    ctypes.string_at(0)


def leave() -> None:
    os._exit(3)


def out_of_memory() -> None:
    """Takes all memory up to a limit and gives none of it back."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 64 * 2**20,) * 2)
    size = 2**24
    while size > 16:
        try:
            while True:
                _hoard.append(bytes(size))
        except MemoryError:
            size //= 2
    while True:
        _hoard.append(bytes(64))


def endless() -> None:
    """A loop in C that never lets another thread of the process run."""
    sum(itertools.repeat(0))

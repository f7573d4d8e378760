"""Waiting for file descriptors."""

import selectors
import time
from collections.abc import Iterable

# Cheaper than epoll for a set that is built for each wait. Windows has neither, but select().
_Selector = getattr(selectors, "PollSelector", selectors.SelectSelector)


def readable(files: Iterable[int], timeout: float | None) -> set[int]:
    """Which of the file descriptors are readable, after at most ``timeout`` seconds (None: as long as it takes)."""
    with _Selector() as selector:
        for file in files:
            selector.register(file, selectors.EVENT_READ)
        if not selector.get_map():  # select() of nothing is an error on Windows
            time.sleep(timeout or 0)
            return set()
        return {key.fd for key, _ in selector.select(None if timeout is None else max(0.0, timeout))}


def writable(file: int, timeout: float) -> bool:
    """Whether the file descriptor takes more, after at most ``timeout`` seconds."""
    with _Selector() as selector:
        selector.register(file, selectors.EVENT_WRITE)
        return bool(selector.select(max(0.0, timeout)))

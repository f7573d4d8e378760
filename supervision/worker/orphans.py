"""No process is left behind: children die with their parent, and the main process sweeps up what they leave."""

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

logger = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def tie_to_parent(parent: int) -> None:
    """Have the kernel kill this process when ``parent``, which forked it, ends. Call first thing in the child.

    Where the system can't (macOS), a thread looks once a second.
    """
    if not _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL):
        threading.Thread(target=_watch, args=(parent,), name="parent-watch", daemon=True).start()
    if os.getppid() != parent:  # it had ended before the tie was made
        os._exit(1)


def adopt_orphans() -> bool:
    """Become the parent of every descendant whose own parent ends, so that ``sweep`` finds it. Linux only."""
    return _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def bury_adopted(but: int | None) -> None:
    """Reap ended children, except ``but``, whose exit status somebody else waits for. Never blocks."""
    if sys.platform == "win32":
        return
    try:
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and ended.si_pid != but:
            os.waitpid(ended.si_pid, os.WNOHANG)
    except ChildProcessError:
        pass


def sweep(known: Iterable[int] = (), *, seconds: float = 5.0) -> bool:
    """Kill every child, their children, and the ``known`` descendants, and wait until they are gone: whether they are.

    Call after the last fork. A killed child's own children come to us (``adopt_orphans``), hence the loop.
    """
    deadline = time.monotonic() + seconds
    known = set(known)
    while True:
        bury_adopted(None)
        alive = children() | {pid for pid in known if _kill(pid, 0)}
        if not alive:
            return True
        if time.monotonic() > deadline:
            return False
        for pid in alive:
            _kill(pid, signal.SIGKILL)
        time.sleep(0.01)


def children() -> set[int]:
    """The pids of this process's children, zombies too; empty where /proc doesn't tell."""
    found: set[int] = set()
    for listing in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        try:
            found |= {int(pid) for pid in listing.read_text().split()}
        except OSError:
            continue  # that thread ended, or the system keeps no such list
    return found


def _kill(pid: int, signum: int) -> bool:
    try:
        os.kill(pid, signum)
    except ProcessLookupError:
        return False
    return True


def _prctl(option: int, argument: int) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    failed: int = ctypes.CDLL(None).prctl(option, argument, 0, 0, 0)
    return not failed


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)

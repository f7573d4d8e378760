"""Which process drives: a host, a pid, and the start time that tells a process from a later one of the same pid."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Worker:
    """The process that drives: what the beat row says of it. ``started`` is empty where the system doesn't tell."""

    name: str
    host: str
    pid: int
    started: str = ""

    @classmethod
    def current(cls) -> Worker:
        return _worker(os.getpid())


@cache
def _worker(pid: int) -> Worker:
    return Worker(f"{platform.node()}:{pid}", host_identity(), pid, started_of(pid))


@cache
def host_identity() -> str:
    """This boot of this machine and pid namespace: where a pid means something. Host names repeat among containers."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return platform.node()
    return f"{boot} {namespace}"


def started_of(pid: int) -> str:
    """When the process started, for comparison only; empty: there is no such process, or the system doesn't tell."""
    state_and_start = _stat(pid)
    return state_and_start[1] if state_and_start else ""


def is_gone(pid: int, started: str) -> bool:
    """Whether the process of that pid and start, on this host, has ended. A zombie has; a later process of its pid is
    another one.

    Where the system shows no start times (or to nobody else), a living process of that pid is taken for the same; where
    it can't be asked at all (Windows), every process is taken to live, and the lease time decides.
    """
    if sys.platform == "win32":  # os.kill(pid, 0) would be a Ctrl-C there
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # another user's: it lives
    found = _stat(pid)
    if found is None:
        return False
    state, start = found
    return state in "ZX" or bool(started and start != started)


def _stat(pid: int) -> tuple[str, str] | None:
    """(state, start in clock ticks since boot) from /proc. The name in parentheses before them may hold anything."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], fields[19]

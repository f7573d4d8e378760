"""A real cluster for tests: ``manage.py supervision_worker`` in processes and a session of its own.

Use the fixtures of ``tests/acceptance/conftest.py`` (or import them into yours):

    def test_something(cluster: Cluster) -> None:              # ready, two workers
        task = ...create...                                    # committed: the test needs a transactional database
        wait_for(lambda: is_completed(task), "the task completes")
        cluster.kill("worker")                                 # any one of that role, by SIGKILL
        assert cluster.stop(signal.SIGTERM) == 0

    def test_other(start_cluster: StartCluster) -> None:
        cluster = start_cluster("--queue", "slow", workers=1, supervision={"STOP_GRACE_SECONDS": 1})

Whatever a test does, all processes of the session are killed after it, and before the database is flushed: a leaked
cluster would silently eat the next test's tasks.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import quote

import psutil
from django.conf import settings
from django.db import connection

ROOT = Path(__file__).resolve().parent.parent
Role = Literal["main", "sentinel", "worker", "pusher", "monitor"]
T = TypeVar("T")


def wait_for(condition: Callable[[], T], what: str, seconds: float = 10.0) -> T:
    """What the condition returns once that is true. Fails with ``what`` when it doesn't become true in time."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"Waited {seconds} s in vain until {what}.")
        time.sleep(0.01)
    return value


def database_url() -> str:
    """The URL of the database that this test uses."""
    database = {key: quote(str(value), safe="") for key, value in connection.settings_dict.items()}
    port = f":{database['PORT']}" if database["PORT"] else ""
    return f"postgres://{database['USER']}:{database['PASSWORD']}@{database['HOST']}{port}/{database['NAME']}"


def cluster_environment(workers: int, supervision: Mapping[str, object] | None) -> dict[str, str]:
    """The environment of a cluster on this test's database."""
    return {
        **os.environ,
        "DATABASE_URL": database_url(),
        "DJANGO_SECRET_KEY": settings.SECRET_KEY,
        "DJANGO_SETTINGS_MODULE": "tests.cluster_settings",
        "SUPERVISION_TEST": json.dumps(dict(supervision or {})),
        "SUPERVISION_TEST_WORKERS": str(workers),
    }


class Process(Protocol):
    """What a cluster needs of a ``subprocess.Popen``."""

    pid: int
    returncode: int | Any

    def poll(self) -> int | None: ...
    def wait(self) -> int: ...


class Cluster:
    """A cluster that was started, and all processes of its session."""

    def __init__(self, log: Path, *arguments: str, workers: int = 2, supervision: Mapping[str, object] | None = None,
                 command: str = "supervision_worker") -> None:  # fmt: skip
        """Start it; ``wait_until_ready`` waits for it. ``supervision`` are SUPERVISION settings, as JSON allows."""
        self._log = log
        self._process = self._launch([command, *_workers(command, workers), *arguments],
                                     cluster_environment(workers, supervision))  # fmt: skip
        self.pid = self._process.pid
        """Of the main process; also the id of the session and of the process group."""

    def _launch(self, command: list[str], environment: dict[str, str]) -> Process:
        with self._log.open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-W", "error", "manage.py", *command], cwd=ROOT, env=environment,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def wait_until_ready(self, seconds: float = 30.0) -> None:
        """Wait until all its processes have said that they are ready."""
        wait_for(lambda: self.pids("main") or self._has_ended(), "the cluster is ready", seconds)
        if self._has_ended():
            raise AssertionError(f"The cluster ended with {self._process.returncode}:\n{self.output()}")

    def pids(self, role: Role) -> list[int]:
        """The processes of that role that live, the oldest first."""
        said = re.findall(rf"supervision worker ready pid=(\d+) role={role}$", self.output(), re.MULTILINE)
        return [pid for pid in map(int, said) if pid in self.alive()]

    def pid_of(self, role: Role) -> int:
        """A living process of that role, waited for: it may just be replaced."""
        return wait_for(lambda: self.pids(role), f"there is a {role}")[0]

    def kill(self, role: Role, signum: int = signal.SIGKILL) -> int:
        """Send the signal to one process of that role; its pid. After SIGKILL it is gone."""
        pid = self.pid_of(role)
        os.kill(pid, signum)
        if signum == signal.SIGKILL:
            wait_for(lambda: pid not in self.alive(), f"the {role} {pid} is gone")
        return pid

    def stop(self, signum: int = signal.SIGTERM, *, group: bool = False, seconds: float = 10.0) -> int:
        """Signal the main process, or the whole process group; wait until no process is left. The exit status."""
        (os.killpg if group else os.kill)(self.pid, signum)
        return self.wait_until_gone(seconds)

    def wait_until_gone(self, seconds: float = 10.0) -> int:
        """Wait until no process of the session is left; the exit status of the main process."""
        wait_for(lambda: self._has_ended() and not self.alive(), "no process of the cluster is left", seconds)
        return self._process.wait()

    def alive(self) -> set[int]:
        """The pids of its session that live; not by name, since django-q2 renames its processes."""
        found = set()
        for pid in psutil.pids():
            with contextlib.suppress(ProcessLookupError, PermissionError, psutil.NoSuchProcess):
                if os.getsid(pid) == self.pid and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                    found.add(pid)
        return found

    def output(self) -> str:
        """What it has written so far, stdout and stderr together."""
        return self._log.read_text(errors="replace")

    def complaints(self) -> list[str]:
        """The lines of its output that tell of an error, a warning of Python, or an exception."""
        return re.findall(r"^.*(?:Traceback|Warning|Exception|ERROR|CRITICAL).*$", self.output(), re.MULTILINE)

    def clean_up(self) -> None:
        """Kill every process of the session, and wait until they are gone."""

        def none_left() -> bool:
            for pid in self.alive():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not self.alive()

        wait_for(none_left, "the killed cluster is gone")
        self._process.wait()

    def _has_ended(self) -> bool:
        return self._process.poll() is not None


class StartCluster(Protocol):
    """Starts a cluster, waits until it is ready, and cleans it up after the test."""

    def __call__(
        self,
        *arguments: str,
        workers: int = 2,
        supervision: Mapping[str, object] | None = None,
        command: str = "supervision_worker",
    ) -> Cluster: ...


def _workers(command: str, workers: int) -> list[str]:
    return ["--workers", str(workers)] if command == "supervision_worker" else []

"""Clusters by the dozen: forked from one process that has everything imported, since importing is most of a start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.processes import ROOT, Cluster, Process, cluster_environment

_CODE = """
import json, os, sys
import django
django.setup()
from django.core import management
for line in sys.stdin:
    order = json.loads(line)
    if "wait" in order:
        print(os.waitstatus_to_exitcode(os.waitpid(order["wait"], 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid:
        print(pid, flush=True)
        continue
    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(order["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.dup2(log, 1)
    os.dup2(log, 2)
    try:
        management.execute_from_command_line(order["argv"])
        status = 0
    except SystemExit as left:
        status = int(left.code or 0)
    sys.stdout.flush()
    os._exit(status)
"""


class Nursery:
    """Forks clusters of one worker each; all with the same settings."""

    def __init__(self, supervision: dict[str, object]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", _CODE], cwd=ROOT, env=cluster_environment(1, supervision), text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip

    def ask(self, **order: Any) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


class Born:
    """A forked process: as much of a ``Popen`` as a cluster needs."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid, self.returncode = nursery, pid, None

    returncode: int | Any

    def poll(self) -> int | None:
        if self.returncode is None and psutil.Process(self.pid).status() == psutil.STATUS_ZOMBIE:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        if self.returncode is None:
            self.returncode = self._nursery.ask(wait=self.pid)
        return int(self.returncode)


class BornCluster(Cluster):
    """A cluster that was forked, not executed."""

    def __init__(self, nursery: Nursery, log: Path) -> None:
        self._nursery = nursery
        super().__init__(log, workers=1)

    def _launch(self, command: list[str], environment: dict[str, str]) -> Process:
        argv = ["manage.py", *command]
        return Born(self._nursery, self._nursery.ask(log=str(self._log), argv=argv))

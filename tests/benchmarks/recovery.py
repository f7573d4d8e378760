"""100 tasks running, everything killed, a cluster started again: until all have finished.

They run in one process, which takes them and is killed; a new cluster of two workers, of the same host, is started at
that moment. Beside it: the start of an idle cluster, which no recovery can beat.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from supervision.kernel import creation
from supervision.kernel.models import Task
from tests.benchmarks.run import Figure
from tests.processes import ROOT, Cluster, database_url, wait_for

COUNT = 100
_DRIVER = """
import django, sys
django.setup()
from supervision.kernel import lease
from supervision.kernel.models import Task
for pk in Task.objects.filter(current_state="pending").values_list("pk", flat=True):
    taken = lease.take(pk, 0)
    lease.checkpoint(pk, taken.lease)
print("running", flush=True)
sys.stdin.read()
"""


def measure() -> Iterator[Figure]:
    idle = _start_and_wait(lambda: True)
    recovered = _recovered()
    yield Figure("recovery", "100 running tasks killed, until all have finished", round(recovered, 2), "s",
                 round(recovered / idle, 2), "start of an idle cluster")  # fmt: skip
    yield Figure("recovery", "start of an idle cluster", round(idle, 2), "s")


def _recovered() -> float:
    creation.create_many("noop", [{}] * COUNT)
    environment = {**os.environ, "DATABASE_URL": database_url(), "DJANGO_SETTINGS_MODULE": "tests.cluster_settings"}
    with subprocess.Popen([sys.executable, "-c", _DRIVER], cwd=ROOT, env=environment, text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as driver:  # fmt: skip
        assert driver.stdout is not None
        assert driver.stdout.readline() == "running\n"
        assert Task.objects.filter(current_state="running").count() == COUNT
        driver.kill()
    return _start_and_wait(lambda: Task.objects.filter(current_state="completed").count() == COUNT)


def _start_and_wait(condition: Callable[[], bool]) -> float:
    with tempfile.TemporaryDirectory() as directory:
        started = time.perf_counter()
        cluster = Cluster(Path(directory) / "log")
        try:
            cluster.wait_until_ready()
            wait_for(condition, "all have finished", 60)
            return time.perf_counter() - started
        finally:
            cluster.clean_up()

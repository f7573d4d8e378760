"""From a committed answer to the resumed body's first line in another process, beside a bare NOTIFY to a LISTEN."""

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection
from psycopg.conninfo import make_conninfo

from supervision.kernel import creation, questions
from supervision.kernel.models import Question, Task
from tests.benchmarks.clusters import running
from tests.benchmarks.run import Figure
from tests.processes import wait_for

BARE = "INSERT and NOTIFY to LISTEN"
COUNT = 150
WARM_UP = 10


def measure() -> Iterator[Figure]:
    bare = Bare()
    ours, theirs = [], []
    with running(workers=2):
        for turn in range(COUNT + WARM_UP):
            pair = _answered(), bare()
            if turn >= WARM_UP:
                ours.append(pair[0])
                theirs.append(pair[1])
    bare.close()
    for name, at in (("p50", 0.5), ("p95", 0.95)):
        mine, floor = _quantile(ours, at), _quantile(theirs, at)
        yield Figure(
            "wakeup", f"{name} answer to body", round(mine, 2), "ms", round(mine / floor, 1), "NOTIFY to LISTEN"
        )
        yield Figure("wakeup", f"{name} NOTIFY to LISTEN", round(floor, 2), "ms")


def _answered() -> float:
    """Milliseconds for one task; its cluster is idle, as the clusters of people's questions are."""
    task = creation.create("approval").pk
    question = wait_for(lambda: _question(task), "it asks")
    assert question is not None
    questions.answer(question, "yes", by="benchmark")
    answered_at = time.time()
    wait_for(lambda: Task.objects.filter(pk=task, current_state="completed").exists(), "it completes")
    went_on_at: Any = Task.objects.values_list("result", flat=True).get(pk=task)
    return float((went_on_at - answered_at) * 1000)


def _question(task: UUID) -> UUID | None:
    return Question.objects.filter(task=task).values_list("pk", flat=True).first()


class Bare:
    """INSERT and NOTIFY in one transaction of a plain connection; a process that listens tells when it heard."""

    def __init__(self) -> None:
        parameters = {
            key: value for key, value in connection.get_connection_params().items()
            if key in ("dbname", "user", "password", "host", "port")
        }  # fmt: skip
        self._connection = psycopg.connect(**parameters, autocommit=True)
        self._connection.execute("CREATE TABLE bench_bare (id int)")
        self._listener = subprocess.Popen(
            [sys.executable, "-c", _LISTEN, make_conninfo("", **parameters)], stdout=subprocess.PIPE, text=True
        )
        self._heard()

    def __call__(self) -> float:
        """From the INSERT on, in milliseconds. The server notifies before its COMMIT returns."""
        began_at = time.time()
        with self._connection.transaction():
            self._connection.execute("INSERT INTO bench_bare VALUES (1)")
            self._connection.execute("NOTIFY bench_bare")
        return (self._heard() - began_at) * 1000

    def close(self) -> None:
        self._listener.kill()
        self._listener.communicate()
        self._connection.close()

    def _heard(self) -> float:
        assert self._listener.stdout is not None
        return float(self._listener.stdout.readline())


_LISTEN = """
import sys, time, psycopg
listening = psycopg.connect(sys.argv[1], autocommit=True)
listening.execute("LISTEN bench_bare")
print(0, flush=True)
for _ in listening.notifies():
    print(time.time(), flush=True)
"""


def _quantile(values: Sequence[float], at: float) -> float:
    return statistics.quantiles(values, n=100)[round(at * 100) - 1]

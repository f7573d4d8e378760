"""A server of the suite's own with the tables on it, and this process's Django pointed at it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from django.db import DatabaseError, InterfaceError, connection

from supervision.kernel import creation
from supervision.kernel.models import Task
from tests.processes import Cluster, wait_for

IS_LONG = os.environ.get("SUPERVISION_CHAOS") == "long"
T = TypeVar("T")

WITNESS = """
CREATE TABLE IF NOT EXISTS chaos_witness (
    task uuid NOT NULL, step int NOT NULL, mark text NOT NULL, pid int NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
)
"""


def times(short: int, long: int | None = None) -> int:
    """How often: ``short`` in CI, five times as often (or ``long``) in a long run."""
    return (5 * short if long is None else long) if IS_LONG else short


class World:
    """One run: its seed, its clusters, and what was done to them."""

    def __init__(self, directory: Path) -> None:
        self.seed = int(os.environ.get("SUPERVISION_CHAOS_SEED", random.SystemRandom().randrange(10**9)))
        self.random = random.Random(self.seed)
        print(f"\nSUPERVISION_CHAOS_SEED={self.seed}")  # noqa: T201
        self.faults: dict[str, int] = {}
        """What was injected, and seen to have happened, by kind."""
        self._directory = directory
        self._clusters: list[Cluster] = []

    def did(self, fault: str) -> None:
        self.faults[fault] = self.faults.get(fault, 0) + 1

    def start_cluster(self, *, workers: int = 2, **supervision: object) -> Cluster:
        """A cluster that is being started; not waited for."""
        return self.adopt(lambda log: Cluster(log, workers=workers, supervision={**SUPERVISION, **supervision}))

    def adopt(self, start: Callable[[Path], Cluster]) -> Cluster:
        """What ``start`` starts, with that log; ended with the others."""
        cluster = start(self._directory / f"cluster-{len(self._clusters)}.log")
        self._clusters.append(cluster)
        return cluster

    def create(self, count: int, **arguments: object) -> list[Any]:
        return steadily(lambda: creation.create_many("chaos.steps", [arguments] * count))

    def count_live(self, tasks: Iterable[Any] | None = None) -> int:
        live = Task.objects.live()
        return steadily(lambda: (live if tasks is None else live.filter(pk__in=list(tasks))).count())

    def wait_until_done(self, seconds: float, tasks: Iterable[Any] | None = None) -> float:
        """Until no task (of these) lives; how long that took."""
        began = time.monotonic()
        wait_for(lambda: not self.count_live(tasks), "all tasks have ended", seconds)
        return time.monotonic() - began

    def clean_up(self) -> None:
        for cluster in self._clusters:
            cluster.clean_up()

    def output(self) -> str:
        """The ends of the clusters' logs, for a failure."""
        return "\n".join(cluster.output()[-3000:] for cluster in self._clusters[-3:])


SUPERVISION: dict[str, object] = {"LEASE_SECONDS": 5, "BEAT_SECONDS": 1, "TICK_SECONDS": 0.5, "MAX_RECOVERIES": 50}


def steadily(read: Callable[[], T], seconds: float = 30.0) -> T:
    """What ``read`` returns, however often the server goes away meanwhile."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return read()
        except (DatabaseError, InterfaceError):
            if time.monotonic() > deadline:
                raise
            connection.close()
            time.sleep(0.05)

"""Nodes per second of layered DAGs of no-op nodes, each of which waits for three of the layer before it: as children
through one cluster of two workers, and inline, as steps of the run."""

import statistics
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

from django.db import connection

from supervision.engines import Dag
from supervision.kernel.models import Task
from supervision.testing import run_until_idle
from tests.benchmarks.clusters import number, running
from tests.benchmarks.run import Figure

COUNTS = (200, 2_000)
LAYER = 20
TURNS = 3


def measure() -> Iterator[Figure]:
    for kind, seconds_for in (("children", _as_children), ("inline", _inline)):
        seconds = {count: seconds_for(count) for count in COUNTS}
        few, many = COUNTS
        ratio = seconds[many] / seconds[few]
        for count in COUNTS:
            yield Figure("dag", f"{count} nodes, {kind}", round(count / seconds[count], 1), "nodes/s")
        yield Figure("dag", f"time({many}) / time({few}), {kind}", round(ratio, 2), "", round(ratio / 12, 3), "at most 12")


def layered(name: str, count: int, *, inline: bool = False) -> Dag:
    """``count`` nodes in layers of 20."""
    dag = Dag(name)
    for at in range(count):
        layer, place = divmod(at, LAYER)
        after = {f"n{(layer - 1) * LAYER + (place + step) % LAYER}" for step in range(3)} if layer else set()
        dag.node(f"n{at}", after=sorted(after), inline=inline)(nothing)
    return dag


def nothing(task: Any) -> None:
    """What a node does."""


def _as_children(count: int) -> float:
    return statistics.median(_one(count) for _ in range(TURNS))


def _one(count: int) -> float:
    """From the first take of the run to its end, by the database's clock; the cluster is warm."""
    with running():
        warm = layered_in_the_cluster(LAYER)
        _wait(warm)
        task = layered_in_the_cluster(count)
        _wait(task)
    task.refresh_from_db()
    assert task.current_state == "completed", task.failure
    assert task.finished_at is not None
    assert task.started_at is not None
    return (task.finished_at - task.started_at).total_seconds()


def layered_in_the_cluster(count: int) -> Task:
    """A run of the DAG of that size which ``tests/bodies/supervised.py`` registers in every process."""
    from supervision.engines import start

    return start(f"bench.layered.{count}")


def _wait(task: Task) -> None:
    live = partial(number, f"SELECT count(*) FROM supervision_task WHERE id = '{task.pk}' AND finished_at IS NULL")
    while live():
        time.sleep(0.02)


def _inline(count: int) -> float:
    dag = layered(f"bench.inline.{count}", count, inline=True)
    seconds = []
    for _ in range(TURNS):
        task = dag.start()
        began = time.perf_counter()
        run_until_idle()
        seconds.append(time.perf_counter() - began)
        task.refresh_from_db()
        assert task.current_state == "completed", task.failure
    connection.close()
    return statistics.median(seconds)

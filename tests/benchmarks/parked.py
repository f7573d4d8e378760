"""What 100,000 parked tasks cost: a tick and a dequeue, beside the same with none, and the memory of a cluster."""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import psutil
from django.db import connection

from supervision.engines import registry
from supervision.kernel import creation, due
from supervision.worker import health
from supervision.worker.tick import tick
from tests.benchmarks.clusters import running
from tests.benchmarks.run import Figure
from tests.processes import Cluster, wait_for

COUNT = 100_000
PARK = """
UPDATE supervision_task
   SET current_state = 'parked', started_at = created_at,
       watchdog_stop_reason = CASE WHEN n % 3 = 0 THEN 'sleeping' ELSE 'awaiting_signal:go' END,
       wake_at = CASE WHEN n % 3 = 0 THEN supervision_now_v1() + interval '1 hour' * (1 + n % 100) END
  FROM (SELECT id, row_number() OVER () AS n FROM supervision_task WHERE current_state = 'pending') AS numbered
 WHERE supervision_task.id = numbered.id
"""


def measure() -> Iterator[Figure]:
    empty = {name: cost(work) for name, work in COSTS.items()}
    with running() as cluster:
        wait_for(lambda: _has_settled(cluster), "the cluster has settled", 30)
        before = _memory(cluster)
        creation.create_many("noop", [{}] * COUNT, queue="nobody's")
        with connection.cursor() as cursor:
            cursor.execute(PARK)
            cursor.execute("UPDATE supervision_task SET queue = 'default'")
            cursor.execute("VACUUM ANALYZE supervision_task")
        ticks = time.monotonic() + 10
        wait_for(lambda: time.monotonic() > ticks, "it has ticked ten times over them", 20)
        after = _memory(cluster)
    for name, work in COSTS.items():
        (ms, queries), (floor, _) = cost(work), empty[name]
        yield Figure("parked", name, round(ms, 2), "ms", round(ms / floor, 2), f"{name} with no task")
        yield Figure("parked", f"{name} with no task", round(floor, 2), "ms")
        yield Figure("parked", f"queries of {name}", queries, "queries")
    yield Figure("parked", "memory of a cluster", round(after, 1), "MB", round(after / before, 3), "before them")
    yield Figure("parked", "before them", round(before, 1), "MB")


def _dequeue() -> None:
    due.offer(2, queues=None, bodies=registry.drivable())
    due.seconds_until_next(queues=None)


COSTS: dict[str, Callable[[], Any]] = {"tick": tick, "dequeue": _dequeue, "health": health.report}


def cost(work: Callable[[], Any], times: int = 30) -> tuple[float, int]:
    """(median milliseconds, number of queries)."""
    taken = []
    for _ in range(times):
        started = time.perf_counter()
        work()
        taken.append((time.perf_counter() - started) * 1000)
    queries: list[str] = []

    def counted(execute: Any, query: str, *rest: Any) -> Any:
        queries.append(query)
        return execute(query, *rest)

    with ExitStack() as stack:
        stack.enter_context(connection.execute_wrapper(counted))
        work()
    return statistics.median(taken), len(queries)


def _memory(cluster: Cluster) -> float:
    """Megabytes that the cluster's processes have of their own and in shares of what they share."""
    return float(sum(psutil.Process(pid).memory_full_info().pss for pid in cluster.alive())) / 2**20


def _has_settled(cluster: Cluster) -> bool:
    before = _memory(cluster)
    pause = time.monotonic() + 2
    wait_for(lambda: time.monotonic() > pause, "a moment has passed")
    return abs(_memory(cluster) - before) < 0.5

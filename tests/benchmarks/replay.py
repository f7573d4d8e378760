"""From take to the step after 1,000 recorded ones, and what 100,000 recorded ones cost in memory."""

import json
import statistics
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any

from django.db import connection
from django.test.utils import CaptureQueriesContext

from supervision.engines import Context, start
from supervision.engines.bodies import body
from supervision.kernel import lease
from supervision.kernel.models import Task
from supervision.worker.heart import beating
from tests.benchmarks.run import Figure

TURNS = 15


def measure() -> Iterator[Figure]:
    @body("bench.replay")
    def nothing(task: Context) -> None: ...

    times = []
    queries = 0
    for _ in range(TURNS):
        task = _recorded(1_000)
        started = time.perf_counter()
        _to_the_next_step(task, 1_000)
        times.append((time.perf_counter() - started) * 1000)
    with CaptureQueriesContext(connection) as captured:
        _to_the_next_step(_recorded(1_000, captured=True), 1_000)
        queries = sum("supervision_logentry" in each["sql"] and "SELECT sequence_num" in each["sql"]
                      for each in captured.captured_queries)  # fmt: skip
    yield Figure("replay", "take_to_step_1001_p50", round(statistics.median(times), 1), "ms")
    yield Figure("replay", "take_to_step_1001_max", round(max(times), 1), "ms")
    yield Figure("replay", "replay_queries", queries, "1")
    task = _recorded(100_000)
    tracemalloc.start()
    started = time.perf_counter()
    _to_the_next_step(task, 100_000)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    yield Figure("replay", "take_to_step_100001_traced", round(time.perf_counter() - started, 1), "s")
    yield Figure("replay", "peak_memory_100000", round(peak / 2**20, 1), "MiB")


def _recorded(count: int, *, captured: bool = False) -> Task:
    """A task with so many recorded steps, as a drive would have left it."""
    task = start("bench.replay")
    function, digest = _call()
    call = json.dumps({"result": {"row": 7, "name": "of usual size"}, "function": function, "digest": digest})
    with connection.cursor() as cursor:
        cursor.execute(
            """
            INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
            SELECT %s, 1 + n, 'step_completed', CASE n WHEN 1 THEN 'row' ELSE 'row#' || n END, %s::jsonb, 1, ''
              FROM generate_series(1, %s) AS n
            """,
            [task.pk, call, count],
        )
        cursor.execute("UPDATE supervision_task SET log_length = 1 + %s WHERE id = %s", [count, task.pk])
        cursor.execute("ANALYZE supervision_logentry")
    return task


def _call() -> tuple[str, str]:
    from supervision.engines import steps

    described = steps.describe(_work, (), {})
    return described["function"], described["digest"]


def _work() -> dict[str, Any]:
    return {"row": 7}


def _to_the_next_step(task: Task, count: int) -> None:
    taken = lease.take(task.pk, 0)
    assert taken is not None
    with beating(taken.task_id, taken.lease, thread=False) as heart:
        context = Context(taken, pulse=heart, stopping=lambda: False)
        for _ in range(count):
            context.step("row", _work)
        context.step("next", _work)

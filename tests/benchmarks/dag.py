"""Nodes per second of layered DAGs of no-op nodes, each of which waits for three of the layer before it: as children
through one cluster of two workers, and inline, as steps of the run."""

import os
import statistics
import time
from collections.abc import Callable, Iterator

from supervision.engines import start
from supervision.kernel.models import Task
from supervision.testing import run_until_idle
from tests.benchmarks.clusters import number, running
from tests.benchmarks.run import Figure

COUNTS = (200, 2_000)
TURNS = 3


def measure() -> Iterator[Figure]:
    os.environ["SUPERVISION_TEST_LAYERS"] = " ".join(map(str, COUNTS))
    from tests.bodies.layers import layered

    for count in COUNTS:
        layered(f"inline.{count}", count, inline=True)
    few, many = COUNTS
    for kind, measured in (("children", _as_children), ("inline", _inline)):
        seconds = measured()
        for count in COUNTS:
            yield Figure("dag", f"{count} nodes, {kind}", round(count / seconds[count], 1), "nodes/s")
        ratio = seconds[many] / seconds[few]
        yield Figure("dag", f"time({many}), {kind}", round(seconds[many], 2), "s", round(ratio, 2), f"time({few})")


def _as_children() -> dict[int, float]:
    """From the first take of the run to its end, by the database's clock; the cluster is warm."""
    with running():
        return _in_turns(_run)


def _run(count: int) -> float:
    task = start(f"layered.{count}")
    while number(f"SELECT count(*) FROM supervision_task WHERE id = '{task.pk}' AND finished_at IS NULL"):
        time.sleep(0.02)
    ended = _ended(task)
    assert ended.finished_at is not None
    assert ended.started_at is not None
    return (ended.finished_at - ended.started_at).total_seconds()


def _inline() -> dict[int, float]:
    return _in_turns(_run_here)


def _in_turns(run: Callable[[int], float]) -> dict[int, float]:
    """Few and many by turns: speeds drift."""
    seconds = [{count: run(count) for count in COUNTS} for _ in range(TURNS)]
    return {count: statistics.median(turn[count] for turn in seconds) for count in COUNTS}


def _run_here(count: int) -> float:
    task = start(f"inline.{count}")
    began = time.perf_counter()
    run_until_idle()
    seconds = time.perf_counter() - began
    _ended(task)
    return seconds


def _ended(task: Task) -> Task:
    task.refresh_from_db()
    assert task.current_state == "completed", task.failure
    return task

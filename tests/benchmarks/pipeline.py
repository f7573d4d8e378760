"""Transitions per second of one run, beside the floor: a durable write of one row and its entry, while a transition
also moves the pointer and records a visit."""

import sys
import time
from collections.abc import Iterator
from typing import Any

from supervision.engines import Pipeline, Run, State, registry, start
from supervision.engines.bodies import body
from supervision.kernel import ends, lease
from supervision.worker.heart import beating
from tests.benchmarks.floor import Floor
from tests.benchmarks.run import Figure
from tests.benchmarks.turns import in_turns

COUNT = 2000
MANY = 100_000
_PAYLOAD = '{"visit": 1000, "outcome": "success", "to": "A"}'


def measure() -> Iterator[Figure]:
    @body("bench.floor")
    def nothing(task: Any) -> None: ...

    left = 0
    blocks = {MANY // 10: 0, MANY - 1: 0}

    def turn(run: Run) -> str | None:
        nonlocal left
        left -= 1
        if MANY - left in blocks:
            blocks[MANY - left] = sys.getallocatedblocks()
        return None if left > 0 else "stop"

    work = Pipeline("bench.pipeline", initial="A", terminal={"DONE": "completed"}, states={
        "A": State(turn, "B", "DONE", True, max_visits=None, branches={"stop": "DONE"}),
        "B": State(turn, "A", "DONE", True, max_visits=None, branches={"stop": "DONE"}),
    })  # fmt: skip
    known = registry.get("bench.pipeline")
    floor = Floor(start("bench.floor").pk, "state_visited", payload=_PAYLOAD)

    def ours(count: int) -> None:
        nonlocal left
        left = count
        taken = lease.take(work.start("subject").pk, 0)
        assert taken is not None
        with beating(taken.task_id, taken.lease, thread=False) as heart:
            result = known.engine.run(known, Run(taken, pulse=heart, stopping=lambda: False))
        ends.complete(taken.task_id, taken.lease, result)

    rate, floor_rate, ratio = in_turns(ours, floor, count=COUNT)
    floor.close()
    yield Figure("pipeline", "transitions", round(rate, 1), "1/s", round(ratio, 3), "floor")
    yield Figure("pipeline", "floor", round(floor_rate, 1), "1/s")
    started = time.perf_counter()
    ours(MANY)
    yield Figure("pipeline", "one_run_of_100000", round(MANY / (time.perf_counter() - started), 1), "1/s")
    first, last = blocks.values()
    yield Figure("pipeline", "objects_more_after_100000_than_after_10000", last - first, "1")

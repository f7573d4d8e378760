"""Durable steps per second of one body, beside the floor."""

import json
from collections.abc import Iterator

from supervision.engines import Context, start, steps
from supervision.engines.bodies import body
from supervision.kernel import lease
from supervision.worker.heart import beating
from tests.benchmarks.floor import Floor
from tests.benchmarks.run import Figure
from tests.benchmarks.turns import in_turns

COUNT = 2000


def measure() -> Iterator[Figure]:
    @body("bench.steps")
    def nothing(task: Context) -> None: ...

    mine, floor_task = lease.take(start("bench.steps").pk, 0), start("bench.steps")
    assert mine is not None
    floor = Floor(floor_task.pk, "step_completed", payload=_payload())
    with beating(mine.task_id, mine.lease, thread=False) as heart:
        context = Context(mine, pulse=heart, stopping=lambda: False)

        def ours(count: int) -> None:
            for _ in range(count):
                context.step("row", _work, 7)

        rate, floor_rate, ratio = in_turns(ours, floor, count=COUNT)
    floor.close()
    yield Figure("steps", "steps", round(rate, 1), "1/s", round(ratio, 3), "floor")
    yield Figure("steps", "floor", round(floor_rate, 1), "1/s")


def _work(value: int) -> int:
    return value


def _payload() -> str:
    """What our entry holds, so that the floor writes as much."""
    return json.dumps({"result": 7, **steps.describe(_work, (7,), {})})

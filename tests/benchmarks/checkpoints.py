"""Checkpoints per second of one body, beside the floor."""

from collections.abc import Iterator

from supervision.engines import Context, start
from supervision.engines.bodies import body
from supervision.kernel import lease
from supervision.worker.heart import beating
from tests.benchmarks.floor import Floor
from tests.benchmarks.run import Figure
from tests.benchmarks.turns import in_turns

COUNT = 2000


def measure() -> Iterator[Figure]:
    @body("bench.checkpoints")
    def nothing(task: Context) -> None: ...

    mine, floor_task = lease.take(start("bench.checkpoints").pk, 0), start("bench.checkpoints")
    assert mine is not None
    floor = Floor(floor_task.pk, "task_checkpointed")
    with beating(mine.task_id, mine.lease, thread=False) as heart:
        context = Context(mine, pulse=heart, stopping=lambda: False)

        def ours(count: int) -> None:
            row = context.decisions.get("row", 0)
            for at in range(row, row + count):
                context.checkpoint(row=at + 1)

        rate, floor_rate, ratio = in_turns(ours, floor, count=COUNT)
    floor.close()
    yield Figure("checkpoints", "checkpoints", round(rate, 1), "1/s", round(ratio, 3), "floor")
    yield Figure("checkpoints", "floor", round(floor_rate, 1), "1/s")

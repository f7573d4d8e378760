"""Bodies for the clusters that tests start."""

import time

from supervision.engines import Context
from supervision.engines.bodies import body
from tests.bodies import laps, releases

__all__ = ["laps", "releases"]


@body("steps")
def steps(task: Context, *, steps: int = 1, seconds: float = 0.0) -> int:
    """So many steps of so many seconds each, with a checkpoint after each."""
    for done in range(task.decisions.get("done", 0), steps):
        time.sleep(seconds)
        task.checkpoint(done=done + 1)
    return steps

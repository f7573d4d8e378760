"""Bodies for the clusters that tests start."""

import time

from supervision.engines import Context
from supervision.engines.bodies import body
from tests.bodies import chaos, laps, layers, limited, poisons, releases, storm, witnesses

__all__ = ["chaos", "laps", "layers", "limited", "poisons", "releases", "storm", "witnesses"]


@body("steps")
def steps(task: Context, *, steps: int = 1, seconds: float = 0.0) -> int:
    """So many steps of so many seconds each, with a checkpoint after each."""
    for done in range(task.decisions.get("done", 0), steps):
        time.sleep(seconds)
        task.checkpoint(done=done + 1)
    return steps


@body("poison")
def poison(task: Context, *, how: str) -> None:
    """Ends its worker, or holds it for ever, in the way of that name."""
    task.log("I am about to do it")
    getattr(poisons, how)()


@body("noop")
def noop(task: Context) -> None:
    """Nothing at all."""


@body("approval")
def approval(task: Context) -> float:
    """Asks, and returns the moment at which it went on after the answer."""
    task.ask("go", "Go on?")
    return time.time()


@body("fan-out")
def fan_out(task: Context, *, count: int) -> int:
    """The sum of what so many children returned."""
    return sum(task.map("one", [{"n": n} for n in range(count)]))


@body("one")
def one(task: Context, *, n: int) -> int:
    """A child."""
    return task.step("one", lambda: 1)

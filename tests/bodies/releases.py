"""The same work in two releases. Which of them a process has is told by its environment, as a deployment would."""

import os

from supervision.engines import Context
from supervision.engines.bodies import body

RELEASE = os.environ.get("SUPERVISION_TEST_RELEASE", "")


def release(turn: int) -> str:
    return RELEASE


def report(task: Context) -> list[str]:
    """Which release ran the first half of the work, and which the second, and what the task began with."""
    first = task.step("first", release, 1)
    task.wait_for_signal("go")
    return [first, task.step("second", release, 2), str(task.version_at_start)]


if RELEASE == "old":
    body("compatible")(report)
    body("incompatible")(report)
elif RELEASE == "new":
    body("compatible", version=2, compatible_with=[1])(report)
    body("incompatible", version=2)(report)
    body("added", version=2)(report)

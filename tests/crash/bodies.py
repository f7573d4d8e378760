"""Work that the crash tests drive in child processes."""

import sys
from typing import Any

from supervision.engines import Cancelled, Context, Failure, body


@body("crash.story")
def story(task: Context) -> dict[str, Any]:
    """Two rows, a question, and a last step."""
    for row in range(task.decisions.get("row", 0), 2):
        task.checkpoint(f"row {row}", row=row + 1)
    try:
        colour = task.ask("colour", "Which colour?", choices=["red", "blue"])
    except Cancelled:
        if "cleaned" not in task.decisions:
            task.checkpoint("cleaned up", cleaned=True)
        raise
    if "painted" not in task.decisions:
        task.checkpoint("painted", painted=colour)
    return {"rows": task.decisions["row"], "painted": task.decisions["painted"]}


@body("crash.fails")
def fails(task: Context) -> None:
    if "row" not in task.decisions:
        task.checkpoint("row 0", row=1)
    raise Failure("The file is empty.")


@body("crash.follows")
def follows(task: Context) -> str:
    """Does what it is told on stdin, and says on stdout where it is: so that a test can stop it in between."""
    print("driving", flush=True)  # noqa: T201
    for line in sys.stdin:
        match line.strip():
            case "checkpoint":
                task.checkpoint("told")
            case "ask":
                task.ask("colour", "Which colour?")
            case "fail":
                raise Failure("told to fail")
            case "complete":
                return "told"
        print("done", flush=True)  # noqa: T201
    return "end of input"

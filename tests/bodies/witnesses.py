"""A DAG whose nodes bear witness to each other: neither of the middle ones ends before the other has begun."""

import os
import time
from pathlib import Path
from typing import Any

from supervision.engines import Context, Dag

overlapping = Dag("overlapping")
_PATIENCE = 15.0


@overlapping.node()
def begin(task: Context, *, directory: str) -> str:
    return directory


def _witness(task: Context, *, begin: str) -> dict[str, Any]:
    """Its own record: when it began and ended, and where."""
    began = time.monotonic()
    mine = Path(begin) / f"{task.subject}"
    mine.touch()
    while len(list(Path(begin).iterdir())) < 2:
        if time.monotonic() > began + _PATIENCE:
            raise TimeoutError("the other one never began")
        time.sleep(0.005)
    return {"began": began, "ended": time.monotonic(), "pid": os.getpid()}


for _side in ("left", "right"):
    overlapping.node(_side, after=[begin])(_witness)


@overlapping.node(after=["left", "right"])
def both(task: Context, *, left: Any, right: Any) -> list[Any]:
    return [left, right]

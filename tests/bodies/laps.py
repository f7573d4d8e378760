"""A quick pipeline that notices company: each visit takes a mark of its subject that only one process can hold."""

import os
import time
from datetime import timedelta
from pathlib import Path

from supervision.engines import Pipeline, Run, State


def alone(run: Run) -> None:
    """Raises FileExistsError, which its visit records, while another process is in a visit of the same subject."""
    mark = Path(os.environ["SUPERVISION_TEST_MARKS"]) / run.subject
    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    time.sleep(0.001)
    mark.unlink()


def wait(run: Run) -> bool:
    alone(run)
    return run.visit > 1


laps = Pipeline(
    "laps",
    initial="OUT",
    terminal={"HOME": "completed"},
    states={
        "OUT": State(alone, "WAIT", "HOME", True),
        "WAIT": State(wait, "BACK", "WAIT", False, poll_every=timedelta(milliseconds=1), max_visits=5),
        "BACK": State(alone, "HOME", "HOME", True),
    },
)

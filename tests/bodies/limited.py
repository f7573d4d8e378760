"""Limited bodies, and a witness of how many run: each holds the first free of numbered files, as long as it lives."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from pathlib import Path

from supervision.engines import Context
from supervision.engines.bodies import body


@contextmanager
def _holding(directory: str) -> Iterator[int]:
    """The number of the file that this process holds until the end, or until it is killed."""
    for number in count(1):
        file = os.open(Path(directory) / str(number), os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
        else:
            try:
                yield number
            finally:
                os.close(file)
            return


@body("witnessed", max_running=3)
def witnessed(task: Context, *, directory: str, seconds: float) -> None:
    """Has run beside as many as its number says: the files are what the test counts."""
    for half in (1, 2):
        with _holding(directory):
            task.step(f"half {half}", time.sleep, seconds)
        task.sleep(seconds)


@body("rated", at_most=10, per=timedelta(seconds=1))
def rated(task: Context) -> None:
    """Nothing at all, so often a second."""

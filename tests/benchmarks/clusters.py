"""A real cluster for a benchmark."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from django.db import connection

from tests.processes import Cluster


@contextmanager
def running(*arguments: str, workers: int = 2, **supervision: object) -> Iterator[Cluster]:
    """A cluster that is ready, on the benchmark's database; killed at the end."""
    with tempfile.TemporaryDirectory() as directory:
        cluster = Cluster(Path(directory) / "log", *arguments, workers=workers, supervision=supervision)
        try:
            cluster.wait_until_ready()
            yield cluster
        finally:
            cluster.clean_up()


def seconds_to_drain(count: Callable[[], int], full: int) -> float:
    """From the first of ``full`` that is gone until none is left; starting up isn't counted."""
    while count() >= full:
        time.sleep(0.002)
    started = time.perf_counter()
    while count():
        time.sleep(0.01)
    return time.perf_counter() - started


def number(query: str) -> int:
    """The one number that the query returns."""
    with connection.cursor() as cursor:
        cursor.execute(query)
        return int(cursor.fetchone()[0])

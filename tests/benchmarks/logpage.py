"""A page of the log of a task with 1,000,000 entries by the API, beside that of a task with 100."""

import statistics
import time
from collections.abc import Callable, Iterator

from django.contrib.auth.models import User
from django.test import Client, override_settings

from supervision.kernel import creation, log
from tests.benchmarks.run import Figure
from tests.scale import long_log

TURNS = 200
LONG, SHORT = 1_000_000, 100


def measure() -> Iterator[Figure]:
    """p50 and p95 of the newest page and of one from the middle; the kernel's query alone, and the whole request."""
    ann = User.objects.create(username="ann")
    client = Client(SERVER_NAME="localhost")
    client.force_login(ann)
    long, short = (creation.create("bench.nothing", owner=ann).pk for _each in range(2))
    long_log(short, SHORT)
    long_log(long, LONG)
    with override_settings(SUPERVISION={"API_READS": None}):
        yield from _pair("query", lambda: log.page(long), lambda: log.page(short))
        yield from _pair("query_middle", lambda: log.page(long, before=LONG // 2), lambda: log.page(short, before=60))
        yield from _pair(
            "request", lambda: client.get(f"/api/tasks/{long}/log/"), lambda: client.get(f"/api/tasks/{short}/log/")
        )


def _pair(name: str, of_long: Callable[[], object], of_short: Callable[[], object]) -> Iterator[Figure]:
    """In turns, so that both meet the same moods of the machine."""
    times: tuple[list[float], list[float]] = ([], [])
    for _turn in range(TURNS):
        for taken, page in zip(times, (of_long, of_short), strict=True):
            started = time.perf_counter()
            page()
            taken.append((time.perf_counter() - started) * 1000)
    long, short = (statistics.median(each) for each in times)
    yield Figure("logpage", f"{name}_p50", round(long, 2), "ms", round(long / short, 2), f"{name}_of_{SHORT}_p50")
    yield Figure("logpage", f"{name}_of_{SHORT}_p50", round(short, 2), "ms")
    yield Figure("logpage", f"{name}_p95", round(statistics.quantiles(times[0], n=20)[-1], 2), "ms")

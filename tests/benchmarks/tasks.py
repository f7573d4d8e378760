"""Supervised no-op tasks per second through one cluster of two workers, beside bare django-q2 tasks.

Preloaded; the same command, broker, workers and settings. A supervised one is taken, beaten for, completed and logged;
a bare one is run and acknowledged.
"""

import statistics
from collections.abc import Iterator

from django.db import connection
from django_q.tasks import async_task

from supervision.kernel import creation
from tests.benchmarks.clusters import number, running, seconds_to_drain
from tests.benchmarks.run import Figure

COUNT = 1500
TURNS = 3


def measure() -> Iterator[Figure]:
    rates = [(_supervised(), _bare()) for _ in range(TURNS)]
    ours, theirs = (statistics.median(column) for column in zip(*rates, strict=True))
    ratio = statistics.median(a / b for a, b in rates)
    yield Figure("tasks", "supervised no-op tasks", round(ours, 1), "1/s", round(ratio, 3), "bare django-q2 tasks")
    yield Figure("tasks", "bare django-q2 tasks", round(theirs, 1), "1/s")


def _supervised() -> float:
    creation.create_many("noop", [{}] * COUNT)
    _analyze("supervision_task")
    with running():
        seconds = seconds_to_drain(
            lambda: number(
                "SELECT count(*) FROM supervision_task WHERE wake_at IS NOT NULL OR current_state = 'running'"
            ),
            COUNT,
        )
    return COUNT / seconds


def _bare() -> float:
    for _ in range(COUNT):
        async_task("tests.benchmarks.tasks.nothing")
    _analyze("django_q_ormq")
    with running():
        seconds = seconds_to_drain(lambda: number("SELECT count(*) FROM django_q_ormq"), COUNT)
    return COUNT / seconds


def nothing() -> None:
    """What a bare task does."""


def _analyze(table: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"VACUUM ANALYZE {table}")

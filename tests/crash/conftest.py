"""Fixtures of the crash tests."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.crash import bodies  # noqa: F401 - registers them
from tests.crash.processes import Child


@pytest.fixture
def child(transactional_db: None) -> Iterator[Any]:
    """Starts children on the test's database; those that still run are killed after the test."""
    started: list[Child] = []

    def start(*arguments: str, **options: Any) -> Child:
        started.append(Child(*arguments, **options))
        return started[-1]

    yield start
    for each in started:
        each.clean_up()

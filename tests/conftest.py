"""Fixtures that every test may use."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from supervision.engines import registry
from supervision.testing import prune_all


@pytest.fixture(autouse=True)
def _prune_before_flush(request: pytest.FixtureRequest) -> Iterator[None]:
    """What ``PruneBeforeFlush`` does for a TransactionTestCase: the log refuses the flush while it has entries."""
    marker = request.node.get_closest_marker("django_db")
    is_transactional = (marker is not None and marker.kwargs.get("transaction")) or (
        "transactional_db" in request.fixturenames
    )
    if not is_transactional:
        yield
        return
    request.getfixturevalue("transactional_db")
    yield
    prune_all()


@pytest.fixture
def other_connection(transactional_db: None) -> Iterator[Any]:
    """A second session on the test database, as another process would have."""
    connection = connections.create_connection("default")
    yield connection
    connection.close()


@pytest.fixture
def own_bodies() -> Iterator[None]:
    """Bodies that the test registers are taken out again after it."""
    before = set(registry.known_versions())
    yield
    for name in set(registry.known_versions()) - before:
        registry.unregister(name)

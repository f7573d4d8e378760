"""Fixtures of the integration tests."""

from collections.abc import Iterator

import pytest

from supervision.kernel import crash
from tests.integration import races


@pytest.fixture
def stage(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[races.Stage]:
    """Verbs in sessions of their own, stopped inside their transactions: see ``tests.integration.races``."""
    monkeypatch.setattr(crash, "point", races.point)
    stage = races.Stage()
    yield stage
    stage.close()

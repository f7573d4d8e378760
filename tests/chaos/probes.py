"""Tests that only the sabotages run: what the suite's other tests say in more words."""

import pytest

from supervision.engines import Context, start
from supervision.engines.bodies import body
from supervision.testing import run_until_idle


@pytest.mark.django_db
def test_author_that_catches_every_exception_lets_a_suspension_pass() -> None:
    swallowed = []

    @body("probe.careless")
    def careless(task: Context) -> None:
        try:
            task.ask("q", "?")
        except Exception:
            swallowed.append(True)
            raise

    task = start("probe.careless")
    run_until_idle()
    task.refresh_from_db()
    assert task.watchdog_stop_reason == "awaiting_user_answer:q"
    assert not swallowed

"""The nightly report of the example project, on the data that the README names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.core.files.storage import default_storage

from project.nightly import nightly_report
from supervision.kernel.models import Question, Task
from supervision.kernel.nodes import Node
from supervision.testing import answer, run_until_idle

pytestmark = pytest.mark.django_db

DATA = Path(__file__).resolve().parents[2] / "project" / "data"


@pytest.fixture(autouse=True)
def _media(settings: Any, tmp_path: Path) -> None:
    settings.MEDIA_ROOT = tmp_path


def states(task: Task) -> dict[str, str]:
    return dict(Node.objects.filter(run=task, item=None).values_list("name", "state"))


def started() -> tuple[Task, Task]:
    """A run that has done all that it can without a person, and its node that asks."""
    task = nightly_report.start({"day": "2026-05-04"})
    run_until_idle()
    return task, Task.objects.get(pk=Question.objects.get().task_id)


def test_it_counts_while_a_person_is_asked_and_publishes_the_expected_report() -> None:
    task, asking = started()
    assert asking.subject == "approve"
    assert Question.objects.get().prompt == "3 orders of 25 were rejected. Publish the report all the same?"
    found = states(task)
    assert (found.pop("approve"), found.pop("publish")) == ("running", "pending")
    assert set(found.values()) == {"succeeded"}
    answer(asking, {"publish": "yes"})
    run_until_idle()
    task.refresh_from_db()
    assert task.result is not None, (task.failure, states(task))
    published = task.result["outputs"]["publish"]
    expected = (DATA / "orders-report.txt").read_text()
    assert published["text"] == expected
    with default_storage.open(published["file"]["stored_file"]) as file:
        assert file.read().decode() == expected


def test_it_is_not_published_against_a_persons_word() -> None:
    task, asking = started()
    answer(asking, {"publish": "no"})
    run_until_idle()
    task.refresh_from_db()
    assert task.watchdog_stop_reason == "nodes_failed:approve"
    assert states(task)["publish"] == "skipped"


def test_a_day_without_orders_says_so() -> None:
    task = nightly_report.start({"day": "1999-01-01"})
    run_until_idle()
    task.refresh_from_db()
    assert "There are no orders of 1999-01-01 in project/data/orders.csv." in task.failure

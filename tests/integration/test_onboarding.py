"""The onboarding of the example project, five days in a moment, judged by the mails that it sent."""

import socket
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from supervision.engines import start
from supervision.kernel import lifecycle, signals_in
from supervision.kernel.models import Task
from supervision.testing import run_until_idle, travel
from tests import mails

pytestmark = pytest.mark.django_db

HOURS = timedelta(hours=1)


@pytest.fixture
def outbox(settings: Any, tmp_path: Path) -> Iterator[Path]:
    mails.use_files(settings, tmp_path / "mail")
    yield tmp_path / "mail"
    assert {mail["to"] for mail in mails.sent(tmp_path / "mail")} == {"ada@example.org"}


@pytest.fixture
def task(outbox: Path) -> Task:
    task = start("onboarding", {"email": "ada@example.org"})
    run_until_idle()
    assert mails.subjects(outbox) == ["Welcome"]
    return fresh(task)


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


def ada() -> User:
    return User.objects.get(username="ada@example.org")


def test_verified_at_once_is_provisioned(task: Task, outbox: Path) -> None:
    signals_in.send(task.pk, "email_verified")
    run_until_idle()
    assert fresh(task).result == {
        "outcome": "provisioned", "user_id": ada().pk, "workspace": "workspace of ada@example.org"
    }  # fmt: skip
    assert mails.subjects(outbox) == ["Welcome", "Your workspace is ready"]
    assert ada().groups.get().name == "workspace of ada@example.org"


def test_verified_after_the_reminder_is_provisioned(task: Task, outbox: Path) -> None:
    with travel(71 * HOURS):
        assert run_until_idle() == 0
    with travel(73 * HOURS):
        run_until_idle()
        assert mails.subjects(outbox) == ["Welcome", "Please verify your address"]
        signals_in.send(task.pk, "email_verified")
        run_until_idle()
    assert (fresh(task).result or {}).get("outcome") == "provisioned"
    assert mails.subjects(outbox) == ["Welcome", "Please verify your address", "Your workspace is ready"]


def test_never_verified_is_deactivated_five_days_later(task: Task, outbox: Path) -> None:
    with travel(73 * HOURS):
        run_until_idle()
        with travel(47 * HOURS):
            assert run_until_idle() == 0
        with travel(49 * HOURS):
            run_until_idle()
    assert fresh(task).result == {"outcome": "deactivated", "user_id": ada().pk}
    assert mails.subjects(outbox) == ["Welcome", "Please verify your address", "Your account was closed"]
    assert not ada().is_active
    assert not Group.objects.exists()


def test_cancelled_cleans_up_and_says_so(task: Task, outbox: Path) -> None:
    lifecycle.cancel(task.pk, by="alice")
    run_until_idle()
    assert (fresh(task).current_state, fresh(task).watchdog_stop_reason) == ("cancelled", "cancelled:alice")
    assert mails.subjects(outbox) == ["Welcome", "Your account was closed"]
    assert not ada().is_active


def test_a_mail_server_that_is_away_is_asked_again_with_the_same_message(
    task: Task, outbox: Path, settings: Any
) -> None:
    signals_in.send(task.pk, "email_verified")
    with socket.socket() as nobody_listens:
        nobody_listens.bind(("127.0.0.1", 0))
        mails.use_server(settings, *nobody_listens.getsockname())
        run_until_idle()
    assert fresh(task).watchdog_stop_reason == "retrying:notify"
    mails.use_files(settings, outbox)
    with travel(timedelta(minutes=5)):
        run_until_idle()
    assert fresh(task).current_state == "completed"
    assert mails.subjects(outbox) == ["Welcome", "Your workspace is ready"]
    assert [mail["message-id"] for mail in mails.sent(outbox)] == [
        f"<{task.pk}.{step}@supervision.example>" for step in ("welcome", "notify")
    ]

"""The onboarding of the example project in a real cluster, judged by the mails that its workers wrote."""

from pathlib import Path
from uuid import UUID

import pytest
from django.contrib.auth.models import User

from supervision.engines import start
from supervision.kernel import lifecycle, signals_in
from supervision.kernel.models import Task
from tests import mails
from tests.acceptance import tasks
from tests.processes import Cluster, StartCluster, wait_for

pytestmark = pytest.mark.cluster

SOON = 0.2 / 3600
"""A fifth of a second, in hours."""


@pytest.fixture
def outbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DJANGO_MAIL_DIR", str(tmp_path / "mail"))
    return tmp_path / "mail"


@pytest.fixture
def workers(outbox: Path, start_cluster: StartCluster) -> Cluster:
    return start_cluster()


def onboard(name: str, *, verify_hours: float = 72, remind_hours: float = 48) -> UUID:
    """A started onboarding that waits for the address to be verified, or has waited in vain."""
    arguments = {"email": f"{name}@example.org", "verify_hours": verify_hours, "remind_hours": remind_hours}
    return start("onboarding", arguments).pk


def subjects(outbox: Path, name: str) -> list[str]:
    """Of the mails to that person, in their order."""
    return [str(mail["subject"]) for mail in mails.sent(outbox) if mail["to"] == f"{name}@example.org"]


def wait_for_mails(outbox: Path, name: str, count: int) -> None:
    wait_for(lambda: len(subjects(outbox, name)) == count, f"{name} has got {count} mails")


def wait_for_reason(task_id: UUID, reason: str) -> None:
    wait_for(lambda: tasks.reason(task_id) == reason, f"the task is parked {reason}")


def test_four_users_four_ways(workers: Cluster, outbox: Path) -> None:
    prompt, slow = onboard("prompt"), onboard("slow", verify_hours=SOON)
    absent, unwanted = onboard("absent", verify_hours=SOON, remind_hours=SOON), onboard("unwanted")

    signals_in.send(prompt, "email_verified")  # early or not: it is kept
    wait_for_mails(outbox, "slow", 2)
    signals_in.send(slow, "email_verified")
    wait_for_reason(unwanted, "awaiting_signal:email_verified")
    lifecycle.cancel(unwanted, by="alice")

    for task_id in (prompt, slow, absent):
        tasks.wait_for_state(task_id, "completed")
    tasks.wait_for_state(unwanted, "cancelled")
    assert workers.stop() == 0
    assert workers.complaints() == []

    assert subjects(outbox, "prompt") == ["Welcome", "Your workspace is ready"]
    assert subjects(outbox, "slow") == ["Welcome", "Please verify your address", "Your workspace is ready"]
    assert subjects(outbox, "absent") == ["Welcome", "Please verify your address", "Your account was closed"]
    assert subjects(outbox, "unwanted") == ["Welcome", "Your account was closed"]
    outcomes = {task.pk: task.result and task.result["outcome"] for task in Task.objects.all()}
    assert outcomes == {prompt: "provisioned", slow: "provisioned", absent: "deactivated", unwanted: None}
    assert dict(User.objects.values_list("username", "is_active")) == {
        "prompt@example.org": True, "slow@example.org": True, "absent@example.org": False, "unwanted@example.org": False
    }  # fmt: skip


def test_a_worker_that_is_killed_while_users_wait_sends_no_mail_twice(workers: Cluster, outbox: Path) -> None:
    waiting = onboard("patient")
    wait_for_reason(waiting, "awaiting_signal:email_verified")
    for _ in range(2):
        workers.kill("worker")
    signals_in.send(waiting, "email_verified")
    tasks.wait_for_state(waiting, "completed")
    assert subjects(outbox, "patient") == ["Welcome", "Your workspace is ready"]
    identities = [mail["message-id"] for mail in mails.sent(outbox)]
    assert len(set(identities)) == len(identities) == 2

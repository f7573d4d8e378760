"""Schedules on django-q2's own rows: refused when broken, started once for each time, skipped beside a live one."""

import ast
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django_q.models import OrmQ, Schedule
from django_q.scheduler import scheduler
from django_q.signing import SignedPackage

from supervision.engines import Context, registry
from supervision.engines.bodies import body
from supervision.errors import InvalidArguments, UnknownBody
from supervision.kernel.models import Task
from supervision.testing import run_until_idle
from supervision.worker import schedules
from supervision.worker.broker import Broker
from supervision.worker.schedules import SupervisedSchedule, schedule

pytestmark = pytest.mark.django_db(transaction=True)  # django-q2's scheduler closes connections


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    @body("clock.report")
    def report(task: Context, *, region: str, scheduled_for: str = "") -> Any:
        return [region, scheduled_for]

    @body("clock.asks")
    def asks(task: Context) -> Any:
        return task.ask("go", "Go?")

    yield
    registry.unregister("clock.report")
    registry.unregister("clock.asks")


def deliver() -> list[Task]:
    """What django-q2 does: its scheduler makes messages of due schedules, a worker calls them."""
    scheduler(broker=Broker())
    for row in OrmQ.objects.order_by("pk"):
        package = SignedPackage.loads(row.payload)
        assert package["func"] == schedules.FUNCTION
        schedules.run(*package["args"], **package["kwargs"])
        schedules.run(*package["args"], **package["kwargs"])  # delivered twice
        row.delete()
    return list(Task.objects.order_by("pk"))


def test_a_due_schedule_starts_one_task_that_knows_its_time() -> None:
    meant = timezone.now().replace(microsecond=0) - timedelta(minutes=5)
    row = schedule("nightly", "clock.report", {"region": "EU"}, every=timedelta(hours=24), first_run=meant)
    assert len(deliver()) == 1
    run_until_idle()
    task = Task.objects.get()
    assert task.result == ["EU", meant.isoformat()]
    row.refresh_from_db()
    assert row.next_run == meant + timedelta(hours=24)


def test_a_live_one_is_left_alone_unless_another_is_allowed() -> None:
    for overlap in ("skip", "allow"):
        schedule(overlap, "clock.asks", every=timedelta(minutes=1), overlap=overlap)
    deliver()
    run_until_idle()
    Schedule.objects.update(next_run=timezone.now() - timedelta(seconds=1))
    deliver()
    assert Task.objects.filter(subject="skip").count() == 1
    assert Task.objects.filter(subject="allow").count() == 2


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"body": "clock.reprot"}, UnknownBody),
        ({"arguments": {"regoin": "EU"}}, InvalidArguments),
        ({"every": timedelta(seconds=90)}, ValidationError),
        ({"every": None, "cron": "61 * * * *"}, ValidationError),
        ({"every": None, "cron": "* * * * * *"}, ValidationError),
        ({"every": None}, ValidationError),
        ({"cron": "0 6 * * *"}, ValidationError),
        ({"overlap": "maybe"}, ValidationError),
    ],
)
def test_what_would_never_run_is_refused_when_it_is_saved(arguments: dict[str, Any], error: type[Exception]) -> None:
    call = {"body": "clock.report", "arguments": {"region": "EU"}, "every": timedelta(hours=1), **arguments}
    with pytest.raises(error):
        schedule("broken", call.pop("body"), call.pop("arguments"), **call)
    assert not Schedule.objects.exists()


def test_cron_runs_in_the_projects_time_zone() -> None:
    row = schedule("weekly", "clock.report", {"region": "EU"}, cron="30 6 * * 1")
    assert (row.next_run.weekday(), row.next_run.hour, row.next_run.minute) == (0, 6, 30)
    assert ast.literal_eval(row.kwargs)["body"] == "clock.report"


def test_a_body_that_is_gone_blocks_nobody(caplog: pytest.LogCaptureFixture) -> None:
    schedule("gone", "clock.asks", every=timedelta(minutes=1))
    schedule("stays", "clock.report", {"region": "EU"}, every=timedelta(minutes=1))
    registry.unregister("clock.asks")
    assert [task.subject for task in deliver()] == ["stays"]
    assert "schedule gone: nothing was started" in caplog.text


def test_the_admin_lists_the_next_runs_and_writes_the_same_rows(client: Client) -> None:
    user = User.objects.create_user("ann", is_staff=True)
    client.force_login(user)
    add = reverse("admin:supervision_supervisedschedule_add")
    data = {
        "name": "nightly",
        "body": "clock.report",
        "arguments": '{"region": "EU"}',
        "every": "60",
        "overlap": "skip",
    }
    assert client.post(add, data).status_code == 403
    for action in ("add", "view", "change"):
        user.user_permissions.add(Permission.objects.get(codename=f"{action}_supervisedschedule"))
    refused = client.post(add, {**data, "arguments": '{"regoin": "EU"}'})
    assert "regoin" in refused.content.decode()
    assert client.post(add, data).status_code == 302
    row = SupervisedSchedule.objects.get()
    assert row.plan == {"name": "nightly", "body": "clock.report", "arguments": {"region": "EU"}, "overlap": "skip"}
    listed = client.get(reverse("admin:supervision_supervisedschedule_changelist")).content.decode()
    assert "every 60 min" in listed
    change = reverse("admin:supervision_supervisedschedule_change", args=[row.pk])
    assert client.post(change, {**data, "every": "", "cron": "0 6 * * *"}).status_code == 302
    assert SupervisedSchedule.objects.get().cron == "0 6 * * *"

"""The health check: red with the reason for each way in which work isn't done, and green when it is."""

import json
from datetime import timedelta
from io import StringIO
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.contrib.auth import get_user_model
from django.core.exceptions import PermissionDenied
from django.core.management import call_command
from django.db import OperationalError
from django.test import RequestFactory

from supervision.admin.health import health_page
from supervision.kernel import clusters, creation, ends, holds, lease, questions, signals_in
from supervision.kernel.clock import Now
from supervision.kernel.clusters import Announcement, Cluster
from supervision.kernel.models import Heartbeat, Question, Signal, Task
from supervision.kernel.question_form import Ask
from supervision.worker import health
from supervision.worker.health import Limits

pytestmark = pytest.mark.django_db


def announced(
    *, bodies: tuple[tuple[str, int], ...] = (("work", 1),), queues: list[str] | None = None, free: int | None = 2
) -> UUID:
    """A cluster that has just said that it lives."""
    pk = uuid4()
    clusters.announce(Announcement(pk, "here", "host", 7, "", queues, bodies, 2, free, timedelta(seconds=0.1)))
    return pk


def found() -> dict[str, str]:
    """Check -> severity of what is found."""
    return {finding.check: finding.severity.name for finding in health.report().findings}


def running() -> lease.Taken:
    task = creation.create("work")
    taken = lease.take(task.pk, 0)
    assert taken is not None
    return taken


def made_due(task: Any, ago: float) -> None:
    Task.objects.filter(pk=task.pk).update(wake_at=Now() - timedelta(seconds=ago))


def test_idle_cluster_is_healthy() -> None:
    announced()
    made_due(creation.create("work"), 5)
    running()
    assert found() == {}


def test_no_cluster_is_critical() -> None:
    assert found() == {"clusters": "CRITICAL"}


def test_killed_cluster_is_a_warning_while_another_lives_and_is_forgotten() -> None:
    announced()
    Cluster.objects.filter(pk=announced()).update(beat_at=Now() - timedelta(seconds=31))
    assert found() == {"silent_cluster": "WARNING"}
    Cluster.objects.filter(beat_at__lt=Now() - timedelta(seconds=30)).update(beat_at=Now() - timedelta(hours=1))
    clusters.forget_old()
    assert found() == {}


def test_stopped_cluster_is_no_finding() -> None:
    announced()
    clusters.withdraw(announced())
    assert found() == {}


@pytest.mark.parametrize("ticked", [False, True])
def test_late_tick_is_critical(ticked: bool) -> None:
    pk = announced()
    long_ago = Now() - timedelta(seconds=40)
    Cluster.objects.filter(pk=pk).update(started_at=long_ago, ticked_at=long_ago if ticked else None)
    assert found() == {"tick": "CRITICAL"}


def test_due_task_that_free_workers_do_not_take_means_a_frozen_cluster() -> None:
    announced(free=1)
    made_due(creation.create("work"), 31)
    assert found() == {"frozen": "CRITICAL"}


def test_due_task_is_a_backlog_only_after_long_while_all_are_busy() -> None:
    announced(free=0)
    task = creation.create("work")
    made_due(task, 31)
    assert found() == {}
    made_due(task, 901)
    assert found() == {"backlog": "WARNING"}


def test_body_and_version_that_no_cluster_knows_are_critical() -> None:
    announced()
    made_due(creation.create("unheard_of"), 31)
    made_due(creation.create("work", body_version=2), 31)
    report = health.report()
    assert [finding.check for finding in report.findings] == ["unknown_body"] * 2
    assert {(finding.facts["body"], finding.facts["version"]) for finding in report.findings} == {
        ("unheard_of", 1),
        ("work", 2),
    }


def test_old_version_that_waits_for_an_operator_is_a_warning() -> None:
    announced(bodies=(("work", 2),))
    task = creation.create("work")
    Task.objects.filter(pk=task.pk).update(current_state="parked", watchdog_stop_reason="version_changed:1->2")
    made_due(task, 31)
    assert found() == {"operator": "WARNING"}


def test_queue_that_no_cluster_serves_is_critical() -> None:
    announced(queues=["fast"])
    made_due(creation.create("work", queue="slow"), 31)
    assert found() == {"unserved_queue": "CRITICAL"}


def test_what_is_on_hold_or_paused_is_no_finding() -> None:
    announced()
    made_due(creation.create("work"), 100)
    holds.hold("body", "work", by="somebody", note="incident")
    assert found() == {}


def test_stale_beat_that_nobody_reaps_is_critical() -> None:
    announced()
    taken = running()
    Heartbeat.objects.filter(task=taken.task_id).update(beat_at=Now() - timedelta(seconds=46))
    assert found() == {"beats": "CRITICAL"}


def test_expiry_that_nobody_writes_is_critical() -> None:
    announced()
    task = creation.create("work", expires_after=timedelta(days=1))
    Task.objects.filter(pk=task.pk).update(expires_at=Now() - timedelta(seconds=31))
    assert found() == {"expiry": "CRITICAL"}


def test_dead_letters_are_a_warning_above_what_is_let_pass() -> None:
    announced()
    taken = running()
    ends.fail(taken.task_id, taken.lease, "retries_exhausted:x", "no", {})
    assert found() == {"dead_letters": "WARNING"}
    limits = Limits(timedelta(seconds=30), timedelta(seconds=900), dead_letters=1)
    assert health.report(limits).findings == []


# --- stuck: made by force, since the verbs don't allow it -------------------------------------------------------------


def asking() -> Task:
    taken = running()
    questions.ask(taken.task_id, taken.lease, [Ask("a", "A?")])
    return Task.objects.get(pk=taken.task_id)


def test_waits_that_are_due_to_somebody_are_no_finding() -> None:
    announced()
    asking()
    taken = running()
    signals_in.consume_or_park(taken.task_id, taken.lease, "go", timeout=timedelta(days=1))
    taken = running()
    lease.park(taken.task_id, taken.lease, "sleeping", wake_after=timedelta(days=1))
    assert found() == {}


def test_task_whose_question_was_answered_behind_its_back_is_stuck() -> None:
    announced()
    task = asking()
    Question.objects.filter(task=task).update(status="withdrawn")
    assert found() == {"stuck": "CRITICAL"}


def test_task_that_waits_for_a_stored_signal_is_stuck() -> None:
    announced()
    taken = running()
    signals_in.consume_or_park(taken.task_id, taken.lease, "go")
    Signal.objects.create(task_id=taken.task_id, name="stay", position=100)
    assert found() == {}
    Signal.objects.create(task_id=taken.task_id, name="go", position=101)
    assert found() == {"stuck": "CRITICAL"}


@pytest.mark.parametrize(
    ("reason", "columns"),
    [("awaiting_children", {"children_awaited": 1}), ("sleeping", {}), ("worker_lost", {})],
)
def test_task_that_waits_for_nobody_is_stuck(reason: str, columns: dict[str, Any]) -> None:
    announced()
    taken = running()
    lease.park(taken.task_id, taken.lease, reason, wake_after=None)
    Task.objects.filter(pk=taken.task_id).update(**columns)
    assert found() == {"stuck": "CRITICAL"}


def test_task_that_waits_for_an_operator_is_not_stuck() -> None:
    announced()
    taken = running()
    lease.park(taken.task_id, taken.lease, "replay_mismatch:x")
    assert found() == {"operator": "WARNING"}


# --- the command and the page -----------------------------------------------------------------------------------------


def called(*arguments: str) -> tuple[int, str]:
    output = StringIO()
    try:
        call_command("supervision_health", *arguments, stdout=output, no_color=True)
    except SystemExit as left:
        return int(str(left.code)), output.getvalue()
    return 0, output.getvalue()


def test_command_says_healthy_and_leaves_with_0() -> None:
    announced()
    status, output = called()
    assert status == 0
    assert output.startswith("Healthy.")
    assert "here:7: 2 workers, 2 free, all queues" in output


def test_command_leaves_with_the_gravest_severity_and_says_why() -> None:
    announced(free=0)
    task = creation.create("work")
    made_due(task, 950)
    assert called()[0] == 1
    assert called("--only-critical") == (0, "Healthy.\nhere:7: 2 workers, 0 free, all queues\n")
    assert called("--backlog", "1000")[0] == 0
    made_due(creation.create("unheard_of"), 31)
    status, output = called("--json")
    told = json.loads(output)
    assert status == told["status"] == 2
    assert [finding["check"] for finding in told["findings"]] == ["unknown_body", "backlog"]
    assert told["findings"][0]["severity"] == "critical"


def test_command_without_a_database_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def report(_: Limits) -> None:
        raise OperationalError("the server\nis gone")

    monkeypatch.setattr(health, "report", report)
    status, output = called()
    assert (status, output.strip()) == (2, "CRITICAL The database can't be asked: the server is gone")


def test_page_is_for_people_who_may_view_tasks() -> None:
    announced()
    user = get_user_model()(username="u", is_staff=True)
    request = RequestFactory().get("/health/")
    request.user = user
    user.save()
    with pytest.raises(PermissionDenied):
        health_page(request)
    user.is_superuser = True
    response = health_page(request)
    text = response.render().content.decode()  # type: ignore[attr-defined]
    assert "Healthy" in text
    assert "here:7" in text


def test_report_takes_few_queries(django_assert_max_num_queries: Any) -> None:
    announced()
    for _ in range(5):
        asking()
    with django_assert_max_num_queries(12):
        health.report()

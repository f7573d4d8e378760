"""Schedules on django-q2's own rows: refused when broken, each run started once, as its two policies say."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.exceptions import ValidationError
from django.core.management import CommandError, call_command
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone
from django_q.models import OrmQ, Schedule
from django_q.scheduler import scheduler

from supervision.engines import Context, registry
from supervision.engines.bodies import body
from supervision.errors import InvalidArguments, UnknownBody
from supervision.kernel import clock, lifecycle, retention
from supervision.kernel.models import LogEntry, Task
from supervision.testing import answer, run_until_idle, travel
from supervision.worker import health, schedules, scheduling
from supervision.worker.broker import Broker
from supervision.worker.schedules import SupervisedSchedule, schedule
from supervision.worker.scheduling import start_due
from tests.integration.races import Stage
from tests.integration.test_health import announced, found

pytestmark = pytest.mark.django_db(transaction=True)  # a kill and another cluster are other connections


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    @body("clock.report")
    def report(task: Context, *, region: str, scheduled_for: str = "") -> Any:
        return [region, scheduled_for]

    @body("clock.asks")
    def asks(task: Context, *, scheduled_for: str = "") -> Any:
        return task.ask("go", "Go?")

    yield
    registry.unregister("clock.report")
    registry.unregister("clock.asks")


def test_a_due_schedule_starts_one_task_that_knows_its_time() -> None:
    meant = timezone.now().replace(microsecond=0) - timedelta(minutes=5)
    row = schedule("nightly", "clock.report", {"region": "EU"}, every=timedelta(hours=24), first_run=meant)
    assert start_due() == 1
    assert start_due() == 0
    run_until_idle()
    task = Task.objects.get()
    assert task.result == ["EU", meant.isoformat()]
    assert task.idempotency_key == f"schedule:{row.pk}:{meant.isoformat()}"
    assert LogEntry.objects.get(task=task, sequence_num=1).payload == {"note": f"meant for {meant.isoformat()}"}
    row.refresh_from_db()
    assert row.next_run == meant + timedelta(hours=24)


def test_a_deploy_leaves_the_next_run_where_it_is() -> None:
    begin = clock.now() - timedelta(days=2, minutes=5)
    for rhythm in ({"every": timedelta(days=1)}, {"cron": "0 3 * * *"}):
        options: dict[str, Any] = {**rhythm, "first_run": begin, "overlap": "allow"}
        schedule("nightly", "clock.asks", **options)
        start_due()
        next_run = schedules.get("nightly").next_run
        assert next_run > clock.now()
        assert schedule("nightly", "clock.asks", **options).next_run == next_run
        later = next_run + timedelta(hours=1)
        assert schedule("nightly", "clock.asks", **{**options, "first_run": later}).next_run >= later


def test_django_q2_leaves_the_rows_to_us() -> None:
    schedule("ours", "clock.report", {"region": "EU"}, every=timedelta(minutes=1))
    scheduler(broker=Broker())
    assert not OrmQ.objects.exists()
    assert start_due() == 1


# --- every policy, to the second --------------------------------------------------------------------------------------

NOON = datetime(2030, 6, 3, 12, tzinfo=UTC)
"""Of the database's clock, in these tests."""


class Day:
    """A day on which somebody looks at the given times of it, and at no other: no cluster runs in between."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._inner: AbstractContextManager[None] | None = None

    def look(self, at: str) -> list[str]:
        """The times of the runs that are started at that time."""
        hour, minute, second = map(int, at.split(":"))
        self._at(NOON.replace(hour=hour, minute=minute, second=second))
        before = set(Task.objects.values_list("pk", flat=True))
        start_due()
        new = Task.objects.exclude(pk__in=before).order_by("pk")
        return [datetime.fromisoformat(task.arguments["scheduled_for"]).strftime("%H:%M") for task in new]

    def finish(self) -> None:
        """What lives comes to its end."""
        run_until_idle()
        for task in Task.objects.awaiting_answer():
            answer(task, {"go": "yes"})
        run_until_idle()

    def _at(self, moment: datetime) -> None:
        self._stack.enter_context(travel(moment - clock.now()))


@pytest.fixture
def day() -> Iterator[Day]:
    with ExitStack() as stack:
        yield Day(stack)


# what starts at 12:00:00, then at 15:00:30 after no cluster ran from 12:01 on (the first one lives), then at 15:00:31
# when the first one has ended, at 15:00:32 when the next one has, and at 16:00:00
POLICIES: dict[tuple[str, str], list[list[str]]] = {
    ("skip", "one"): [["12:00"], [], [], [], ["16:00"]],
    ("skip", "all"): [["12:00"], [], [], [], ["16:00"]],
    ("skip", "none"): [["12:00"], [], [], [], ["16:00"]],
    ("queue", "one"): [["12:00"], [], ["15:00"], [], ["16:00"]],
    ("queue", "all"): [["12:00"], [], ["13:00"], ["14:00"], []],
    ("queue", "none"): [["12:00"], [], ["15:00"], [], ["16:00"]],
    ("allow", "one"): [["12:00"], ["15:00"], [], [], ["16:00"]],
    ("allow", "all"): [["12:00"], ["13:00", "14:00", "15:00"], [], [], ["16:00"]],
    ("allow", "none"): [["12:00"], ["15:00"], [], [], ["16:00"]],
}


@pytest.mark.parametrize("overlap", schedules.OVERLAPS)
@pytest.mark.parametrize("missed", schedules.MISSED)
def test_each_overlap_and_missed_policy_to_the_second(day: Day, overlap: str, missed: str) -> None:
    schedule("hourly", "clock.asks", every=timedelta(hours=1), first_run=NOON, overlap=overlap, missed=missed)
    assert day.look("11:59:59") == []
    started = [day.look("12:00:00")]
    run_until_idle()
    started.append(day.look("15:00:30"))
    day.finish()
    started.append(day.look("15:00:31"))
    assert start_due() == 0
    day.finish()
    started.append(day.look("15:00:32"))
    assert day.look("15:59:59") == []
    started.append(day.look("16:00:00"))
    assert started == POLICIES[overlap, missed]


# the same with nothing alive after no cluster ran until 15:20:00
LATE = {"one": ["15:00"], "all": ["13:00", "14:00", "15:00"], "none": []}


@pytest.mark.parametrize("overlap", schedules.OVERLAPS)
@pytest.mark.parametrize("missed", schedules.MISSED)
def test_what_was_missed_is_started_as_the_policy_says(day: Day, overlap: str, missed: str) -> None:
    schedule("hourly", "clock.asks", every=timedelta(hours=1), first_run=NOON, overlap=overlap, missed=missed)
    assert day.look("12:00:00") == ["12:00"]
    day.finish()
    expected = LATE[missed] if overlap == "allow" else LATE[missed][:1]  # one after the other, or no other
    assert day.look("15:20:00") == expected
    rest = []
    for second in range(1, 4):
        day.finish()
        rest += day.look(f"15:20:0{second}")
    assert rest == (LATE[missed][1:] if overlap == "queue" else [])
    assert day.look("16:00:00") == ["16:00"]


def test_a_waiting_run_is_given_up_a_minute_late_where_none_is_wanted(day: Day) -> None:
    schedule("hourly", "clock.asks", every=timedelta(hours=1), first_run=NOON, overlap="queue", missed="none")
    assert day.look("12:00:00") == ["12:00"]
    run_until_idle()
    assert day.look("13:00:00") == []
    assert day.look("13:00:59") == []
    last = Task.objects.get()
    assert schedules.get("hourly").situation() == f"waits until task {last.pk} has ended"
    assert day.look("13:01:00") == []
    day.finish()
    assert day.look("13:01:01") == []
    assert day.look("14:00:00") == ["14:00"]


@override_settings(SUPERVISION={"SCHEDULE_CATCH_UP": 3})
def test_catching_up_is_bounded_and_says_so(day: Day, caplog: pytest.LogCaptureFixture) -> None:
    schedule("often", "clock.asks", cron="*/10 * * * *", first_run=NOON, overlap="allow", missed="all")
    assert day.look("15:00:00") == ["14:40", "14:50", "15:00"]
    assert "more than SCHEDULE_CATCH_UP" in caplog.text
    assert day.look("15:10:00") == ["15:10"]


def test_years_without_a_cluster_are_looked_through_at_once(day: Day) -> None:
    row = schedule("often", "clock.asks", cron="* * * * *", overlap="allow")
    Schedule.objects.filter(pk=row.pk).update(next_run=NOON - timedelta(days=3650))
    assert day.look("15:00:00") == ["15:00"]


def test_what_passed_during_a_pause_was_not_missed(day: Day) -> None:
    hourly: dict[str, Any] = {"every": timedelta(hours=1), "first_run": NOON, "missed": "all", "overlap": "allow"}
    schedule("hourly", "clock.asks", **hourly)
    schedules.pause("hourly")
    assert day.look("14:30:00") == []
    schedule("hourly", "clock.asks", **hourly)  # a deploy
    assert day.look("14:40:00") == []
    assert schedules.resume("hourly").next_run == NOON + timedelta(hours=3)
    assert day.look("15:00:00") == ["15:00"]


# --- what is refused --------------------------------------------------------------------------------------------------


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
        ({"missed": "some"}, ValidationError),
        ({"every": None, "cron": "0 0 30 2 *"}, ValidationError),  # never
        ({"every": None, "cron": "R * * * *"}, ValidationError),  # croniter's dice
        ({"first_run": datetime(2030, 1, 1)}, ValidationError),  # noqa: DTZ001 - that is the fault
    ],
)
def test_what_would_never_run_is_refused_when_it_is_saved(arguments: dict[str, Any], error: type[Exception]) -> None:
    call = {"body": "clock.report", "arguments": {"region": "EU"}, "every": timedelta(hours=1), **arguments}
    with pytest.raises(error):
        schedule("broken", call.pop("body"), call.pop("arguments"), **call)
    assert not Schedule.objects.exists()


@pytest.mark.parametrize("spoilt", [{"kwargs": "{"}, {"kwargs": "{}"}, {"cron": "x", "schedule_type": "C"}])
def test_a_broken_row_is_refused_however_it_is_saved(spoilt: dict[str, Any]) -> None:
    row = Schedule.objects.get(pk=schedule("fine", "clock.asks", every=timedelta(hours=1)).pk)
    for name, value in spoilt.items():
        setattr(row, name, value)
    with pytest.raises(ValidationError):
        row.save()  # as django-q2's own admin does
    row.refresh_from_db()
    row.cluster = None
    row.save()
    assert Schedule.objects.get().cluster == schedules.LANE


def test_a_row_that_was_spoilt_keeps_no_other_waiting(caplog: pytest.LogCaptureFixture) -> None:
    schedule("gone", "clock.asks", every=timedelta(minutes=1))
    schedule("spoilt", "clock.report", {"region": "EU"}, every=timedelta(minutes=1))
    schedule("never", "clock.report", {"region": "EU"}, cron="* * * * *", first_run=NOON - timedelta(days=9999))
    schedule("stays", "clock.report", {"region": "EU"}, every=timedelta(minutes=1))
    registry.unregister("clock.asks")
    Schedule.objects.filter(name="spoilt").update(kwargs="{")
    Schedule.objects.filter(name="never").update(cron="0 0 30 2 *")
    assert [start_due(), start_due()] == [1, 0]
    assert [task.subject for task in Task.objects.all()] == ["stays"]
    for name in ("gone", "spoilt", "never"):
        assert caplog.text.count(f"schedule {name}: nothing was started") == 1  # not once a second


def test_a_cluster_that_does_not_know_the_body_leaves_the_run_to_one_that_does() -> None:
    schedule("new", "clock.asks", every=timedelta(minutes=1))
    known = registry.get("clock.asks")
    registry.unregister("clock.asks")
    assert start_due() == 0
    registry.register(known)
    assert start_due() == 1


def test_cron_runs_in_the_projects_time_zone() -> None:
    with override_settings(TIME_ZONE="Asia/Kathmandu"):
        row = schedule("weekly", "clock.report", {"region": "EU"}, cron="30 6 * * 1")
    assert (row.next_run.weekday(), row.next_run.hour, row.next_run.minute) == (0, 0, 45)


def test_health_finds_a_schedule_that_nobody_starts_and_not_one_that_waits(day: Day) -> None:
    for name in ("gone", "waits", "paused"):
        schedule(name, "clock.asks", every=timedelta(hours=1), first_run=NOON, overlap="queue")
    day.look("12:00:00")
    schedules.pause("paused")
    Task.objects.filter(subject="gone").update(current_state="cancelled", wake_at=None)
    known = registry.get("clock.asks")
    registry.unregister("clock.asks")
    announced()
    assert day.look("13:00:29") == []
    assert "schedules" not in found()
    assert day.look("13:00:31") == []
    announced()
    finding = next(each for each in health.report().findings if each.check == "schedules")
    assert finding.facts == {"count": 1, "examples": ["gone"]}
    registry.register(known)


# --- two at once ------------------------------------------------------------------------------------------------------


def test_two_clusters_at_once_start_a_run_once(stage: Stage) -> None:
    schedule("nightly", "clock.asks", every=timedelta(hours=1), overlap="allow", missed="all")
    first = stage.begin(start_due)  # has done everything but the commit
    assert first.is_stopped
    assert start_due() == 0  # and waits for nobody
    assert first.commit() == 1
    assert start_due() == 0
    assert Task.objects.count() == 1
    # it was due when the other one looked, and isn't any more when that has the lock
    assert scheduling._look_at(schedules.get("nightly").pk) == 0


def test_a_run_has_one_key_even_where_its_row_is_as_it_was_before() -> None:
    """As after a restore, or with the schedules in another database than the tasks."""
    row = schedule("nightly", "clock.asks", every=timedelta(hours=1), overlap="allow")
    start_due()
    Schedule.objects.update(next_run=row.next_run)
    start_due()
    retention.prune(lifecycle.cancel(Task.objects.get().pk, by="ann").pk)
    Schedule.objects.update(next_run=row.next_run)
    start_due()
    assert not Task.objects.exists()


def test_a_change_waits_for_the_run_that_is_being_started(stage: Stage) -> None:
    schedule("nightly", "clock.asks", every=timedelta(hours=1))
    run = stage.begin(start_due)
    pause = stage.begin(lambda: schedules.pause("nightly"))
    assert pause.is_blocked_by(run)
    run.commit()
    assert pause.commit().is_paused
    assert schedules.get("nightly").next_run > clock.now()


# --- by hand ----------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> str:
    output = StringIO()
    call_command("supervision_schedule", *arguments, stdout=output)
    return output.getvalue()


def test_the_command_adds_lists_pauses_resumes_and_removes() -> None:
    assert "No schedules" in command("list")
    add = ("add", "nightly", "clock.report", "--arguments", '{"region": "EU"}')
    said = command(*add, "--cron", "0 3 * * *", "--overlap", "queue", "--missed", "all", "--first-run", "2030-01-01")
    assert said == "nightly: next at 2030-01-01T03:00:00+00:00.\n"
    plan = SupervisedSchedule.objects.get().plan
    assert (plan["overlap"], plan["missed"], plan["arguments"]) == ("queue", "all", {"region": "EU"})
    assert command("next", "nightly", "--count", "2").split() == [f"2030-01-0{d}T03:00:00+00:00" for d in (1, 2)]
    command("pause", "nightly")
    assert "paused" in command("list")
    assert '"is_paused": true' in command("list", "--json")
    assert "next at" in command("resume", "nightly")
    command(*add, "--every", "6h")
    assert "every 360 min" in command("list")
    command("remove", "nightly")
    assert not Schedule.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["remove", "nightlt"], "no schedule “nightlt”. Known: nightly"),
        (["add", "x", "clock.reprot", "--every", "1h"], "No body “clock.reprot”"),
        (["add", "x", "clock.asks", "--every", "soon"], "for example 15m"),
        (["add", "x", "clock.asks", "--cron", "* *"], "five fields"),
        (["add", "x", "clock.asks", "--every", "1h", "--arguments", "{"], "no JSON"),
        (["add", "x", "clock.asks", "--every", "1h", "--first-run", "noon"], "is no time"),
    ],
)
def test_the_commands_errors_say_what_to_do(arguments: list[str], said: str) -> None:
    schedule("nightly", "clock.asks", every=timedelta(hours=1))
    with pytest.raises(CommandError, match=said):
        command(*arguments)
    assert SupervisedSchedule.objects.count() == 1


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
        "missed": "all",
    }
    assert client.post(add, data).status_code == 403
    for action in ("add", "view", "change"):
        user.user_permissions.add(Permission.objects.get(codename=f"{action}_supervisedschedule"))
    refused = client.post(add, {**data, "arguments": '{"regoin": "EU"}'})
    assert "regoin" in refused.content.decode()
    assert client.post(add, data).status_code == 302
    row = SupervisedSchedule.objects.get()
    assert row.plan == {"name": "nightly", "body": "clock.report", "arguments": {"region": "EU"}, "overlap": "skip",
                        "missed": "all"}  # fmt: skip
    listed = client.get(reverse("admin:supervision_supervisedschedule_changelist")).content.decode()
    assert "every 60 min" in listed
    change = reverse("admin:supervision_supervisedschedule_change", args=[row.pk])
    assert client.post(change, {**data, "every": "", "expression": "0 6 * * *"}).status_code == 302
    assert SupervisedSchedule.objects.get().cron == "0 6 * * *"
    act = {"action": "pause", "_selected_action": [row.pk]}
    listing = reverse("admin:supervision_supervisedschedule_changelist")
    client.post(listing, act)
    assert schedules.get("nightly").is_paused
    client.post(listing, {**act, "action": "resume"})
    assert not schedules.get("nightly").is_paused
    schedule("waits", "clock.asks", every=timedelta(minutes=1), first_run=timezone.now() - timedelta(seconds=1),
             overlap="queue")  # fmt: skip
    start_due()
    Schedule.objects.filter(name="waits").update(next_run=timezone.now())
    shown = client.get(listing).content.decode()
    assert '<a href="/admin/supervision/task/?q=waits">the last one</a>' in shown
    assert str(Task.objects.get().pk) not in shown
    user.user_permissions.remove(Permission.objects.get(codename="change_supervisedschedule"))
    client.post(listing, act)
    assert not schedules.get("nightly").is_paused

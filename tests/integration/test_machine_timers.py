"""Timed transitions: by the database's clock, once, in a worker, unless the state was left."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from supervision.engines import Machine, Transition, retry
from supervision.engines.machines import machine, timers
from supervision.engines.machines.errors import SubjectBusy
from supervision.engines.machines.models import MachineEvent, Standing, Timer
from supervision.kernel import lifecycle
from supervision.kernel.models import Task
from supervision.testing import run_until_idle, travel
from supervision.worker import health
from supervision.worker.tick import adopt, tick
from tests.integration.machine_work import Ticket, Urgent, forgetting, path, tables

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    with forgetting(), tables():
        yield


def waiting(**options: Any) -> Machine:
    late: dict[str, Any] = {"after": 3 * HOUR, **options}
    return Machine("timed", model=Ticket, transitions=[
        Transition("new", "REMIND", "new", after=HOUR),
        Transition("new", "GIVE_UP", "closed", **late),
        Transition("new", "OPEN", "open"),
        Transition("open", "BACK", "new"),
    ])  # fmt: skip


def events() -> list[str]:
    return [event for _source, event, _target in path("timed", Ticket.objects.get().pk)]


def test_time_sends_the_event_once_and_in_the_order_of_the_times() -> None:
    waiting()
    Ticket.objects.create()
    run_until_idle()
    assert events() == []
    with travel(HOUR + timedelta(seconds=1)):
        assert run_until_idle() == 1
        assert run_until_idle() == 0
        assert events() == ["REMIND"]
    with travel(3 * HOUR + timedelta(seconds=1)):
        run_until_idle()
    assert events() == ["REMIND", "GIVE_UP"], "the reminder is no departure: the later timer stood"
    assert Ticket.objects.get().state == "closed"
    assert not Timer.objects.exists()
    entry = MachineEvent.objects.latest("sequence_num")
    assert (entry.is_timed, entry.actor_ref) == (True, "timer")
    task = Task.objects.latest("id")
    assert (task.body, task.subject_pk, task.current_state) == ("machine:timed", entry.standing.subject, "completed")


def test_a_state_that_was_left_times_nothing_out() -> None:
    tickets, row = waiting(), Ticket.objects.create()
    tickets.send(row, "OPEN")
    assert not Timer.objects.exists()
    with travel(4 * HOUR):
        run_until_idle()
        assert not Task.objects.exists()
        tickets.send(row, "BACK")
        run_until_idle()
        assert events() == ["OPEN", "BACK"], "it counts from when it came back"
        with travel(HOUR + timedelta(seconds=1)):
            run_until_idle()
    assert events() == ["OPEN", "BACK", "REMIND"]


def test_a_state_left_between_the_tick_and_the_worker_times_nothing_out() -> None:
    tickets, row = waiting(), Ticket.objects.create()
    with travel(HOUR + timedelta(seconds=1)):
        tick()
        tickets.send(row, "OPEN")
        tickets.send(row, "BACK")
        run_until_idle()
    assert Task.objects.get().result == "it has left the state"
    assert events() == ["OPEN", "BACK"]
    assert Timer.objects.filter(due_at__isnull=False).count() == 2, "the timers of the new stay stand"


def test_a_guard_that_says_no_is_asked_again_after_the_same_time() -> None:
    waiting(guard=lambda row: not row.is_locked)
    Ticket.objects.create(is_locked=True)
    with travel(3 * HOUR + timedelta(seconds=1)):
        run_until_idle()
        assert events() == ["REMIND"]
        Ticket.objects.update(is_locked=False)
        run_until_idle()
        assert events() == ["REMIND"]
        with travel(3 * HOUR + timedelta(seconds=1)):
            run_until_idle()
            assert events() == ["REMIND", "GIVE_UP"]


def test_an_action_that_fails_is_retried_and_ends_as_a_dead_letter_that_can_be_retried() -> None:
    broken = [True]

    def act(subject: str) -> None:
        if broken:
            raise OSError("the warehouse is away")

    doors = Machine("door", initial="open", transitions=[Transition("open", "SHUT", "shut", after=HOUR, action=act)])
    doors.begin("front")
    with travel(2 * HOUR):
        run_until_idle()
        task = Task.objects.get()
        assert task.watchdog_stop_reason == "retrying:fire"
        while not task.is_terminal:
            Task.objects.filter(pk=task.pk).update(wake_at=task.created_at)
            run_until_idle()
            task.refresh_from_db()
        assert task in Task.objects.dead_lettered()
        assert doors.state("front") == "open"
        broken.clear()
        retry(task.pk)
        run_until_idle()
    assert path("door", "front") == [("open", "SHUT", "shut")]


def test_a_row_that_is_gone_times_nothing_out() -> None:
    waiting()
    row = Ticket.objects.create()
    key = row.pk
    row.delete()
    with travel(4 * HOUR):
        run_until_idle()
    assert path("timed", key) == []
    assert not Timer.objects.exists()
    assert set(Task.objects.values_list("current_state", flat=True)) == {"completed"}


def test_rows_that_came_unseen_are_adopted() -> None:
    tickets = waiting()
    Ticket.objects.bulk_create([Ticket(), Ticket(), Ticket(state="open")])
    assert Timer.objects.count() == 0
    assert adopt() == 2
    assert adopt() == 0
    moved = Ticket.objects.get(state="open")
    tickets.begin(moved)
    Ticket.objects.filter(pk=moved.pk).update(state="new")
    assert adopt() == 1
    assert path("timed", moved.pk) == [("open", "", "new")]
    assert Timer.objects.count() == 6


def test_rows_that_somebody_holds_do_not_hold_up_the_tick() -> None:
    tickets = waiting()
    Ticket.objects.bulk_create([Ticket() for _ in range(14)])
    asked: list[float | None] = []

    def busy(key: Any, *, wait: float | None = None) -> None:
        asked.append(wait)
        raise SubjectBusy("timed", str(key))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tickets, "begin", busy)
        assert adopt() == 0
    assert asked == [0.1] * 10
    assert adopt() == 14


def test_other_times_of_a_deploy_reach_those_that_wait_and_nothing_comes_twice() -> None:
    waiting()
    row = Ticket.objects.create()
    with travel(HOUR + timedelta(seconds=1)):
        run_until_idle()
        assert events() == ["REMIND"]
        machine.unregister("timed")
        tickets = Machine("timed", model=Ticket, transitions=[
            Transition("new", "REMIND", "new", after=HOUR / 2),
            Transition("new", "GIVE_UP", "closed", after=2 * HOUR),
            Transition("new", "NUDGE", "new", after=HOUR / 2),
        ])  # fmt: skip
        assert adopt() == 1
        run_until_idle()
        assert events() == ["REMIND", "NUDGE"]
        with travel(HOUR):
            run_until_idle()
            assert events() == ["REMIND", "NUDGE", "GIVE_UP"]
    assert tickets.state(row) == "closed"


def test_a_timer_that_the_code_lost_is_dropped() -> None:
    waiting()
    Ticket.objects.create()
    with travel(4 * HOUR):
        tick()
        machine.unregister("timed")
        Machine("timed", model=Ticket, transitions=[
            Transition("new", "REMIND", "new"), Transition("new", "GIVE_UP", "closed"),
            Transition("closed", "LATER", "new", after=HOUR),
        ])  # fmt: skip
        run_until_idle()
    assert events() == []
    assert {task.result for task in Task.objects.all()} == {"it has left the state"}


def test_many_that_are_due_become_tasks_in_portions() -> None:
    waiting()
    Ticket.objects.bulk_create([Ticket() for _ in range(120)])
    adopt()
    with travel(2 * HOUR):
        assert timers.sweep(machine.machines(), 110) == 110
        assert timers.sweep(machine.machines(), 110) == 10
    assert Task.objects.count() == 120


def test_timers_of_a_machine_that_this_process_lacks_are_left_to_others() -> None:
    waiting()
    Ticket.objects.create()
    machine.unregister("timed")
    with travel(4 * HOUR):
        assert tick().timed == 0
        (finding,) = [each for each in health.report().findings if each.check == "timers"]
    assert Timer.objects.filter(due_at__isnull=False).count() == 2
    assert finding.severity.name == "CRITICAL"
    assert "2 timed events of the machine “timed” are late: no cluster knows it." in finding.message


def test_pointers_are_timed_from_their_beginning() -> None:
    doors = Machine("door", initial="open", transitions=[Transition("open", "SHUT", "shut", after=HOUR)])
    doors.begin("front")
    with travel(2 * HOUR):
        run_until_idle()
    assert doors.state("front") == "shut"
    assert doors.state("back") == "open"


def test_children_and_fixtures_begin_as_others_do() -> None:
    waiting()
    Urgent.objects.create()
    assert Timer.objects.count() == 2
    Ticket(pk=77, state="new").save_base(raw=True)
    assert Timer.objects.count() == 2
    assert adopt() == 1


def test_a_person_may_cancel_a_timed_event() -> None:
    waiting()
    Ticket.objects.create()
    with travel(HOUR * 4):
        tick()
        for task in Task.objects.all():
            lifecycle.cancel(task.pk, by="ann")
        run_until_idle()
    assert events() == []


def test_machines_without_timers_ask_nothing_of_them() -> None:
    plain = Machine("plain", model=Ticket, transitions=[Transition("new", "OPEN", "open")])
    row = Ticket.objects.create()
    with CaptureQueriesContext(connection) as captured:
        plain.send(row, "OPEN")
    assert not [query for query in captured if "supervision_timer" in query["sql"]]
    assert not Standing.objects.exclude(machine="plain").exists()
    with CaptureQueriesContext(connection) as captured:
        assert timers.sweep({"plain": plain}, 10) == 0
    assert len(captured) == 0

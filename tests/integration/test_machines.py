"""Machines on rows and on pointers: what an event changes, and what a refused one doesn't."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.core.files.base import ContentFile
from django.db import IntegrityError, InternalError, connection, transaction
from django.test import TestCase, override_settings

from supervision.engines import GuardRejected, InvalidTransition, Machine, Transition, body, registry, start
from supervision.engines.machines import (
    Event,
    InvalidMachine,
    NotPermitted,
    ProtectedField,
    SubjectMoved,
    SubjectNotFound,
    histories,
)
from supervision.engines.machines.errors import Tangled, WrongDatabase
from supervision.engines.machines.models import MachineEvent, Standing
from supervision.errors import NotStorable, TooLarge, WrongIsolation
from supervision.kernel import ends, files, retention
from supervision.kernel.models import ERASED, Task
from supervision.signals import machine_moved
from tests.integration import rows
from tests.integration.admin_work import person
from tests.integration.machine_work import Key, Seen, Ticket, Urgent, assert_sound, forgetting, path, tables

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _world() -> Iterator[None]:
    with forgetting(), tables():
        yield


def simple(**options: Any) -> Machine:
    return Machine("ticket", model=Ticket, transitions=[
        Transition("new", "OPEN", "open"),
        Transition("open", "CLOSE", "closed", guard=lambda ticket: not ticket.is_locked),
        Transition("closed", "OPEN", "open"),
    ], **options)  # fmt: skip


def nothing_changed(before: list[Any]) -> bool:
    return everything() == before


def everything() -> list[Any]:
    rows: list[Any] = [Ticket, Standing, MachineEvent]
    return [list(model.objects.order_by("pk").values()) for model in rows]


def test_an_accepted_event_moves_the_row_and_is_put_down() -> None:
    tickets, row, boss = simple(), Ticket.objects.create(), User.objects.create(username="boss")
    entry = tickets.send(row, "OPEN", actor=boss, payload={"why": "asked"}, note="by phone")
    assert row.state == "open"
    assert Ticket.objects.get(state="open").pk == row.pk
    assert (entry.sequence_num, entry.source, entry.event, entry.target) == (1, "new", "OPEN", "open")
    assert (entry.actor_ref, entry.payload, entry.note) == ("boss", {"why": "asked"}, "by phone")
    assert entry.created_at is not None
    assert tickets.generation(row) == 1
    assert tickets.state(row.pk) == "open"
    assert list(tickets.history(row)) == [entry]
    tickets.send(str(row.pk), "CLOSE")
    assert path("ticket", row.pk) == [("new", "OPEN", "open"), ("open", "CLOSE", "closed")]


def test_a_refused_event_says_what_would_be_allowed_and_changes_nothing() -> None:
    tickets, row = simple(), Ticket.objects.create(is_locked=True)
    before = everything()
    with pytest.raises(InvalidTransition, match=r"is “new”, where the event “CLOSE” leads nowhere. Allowed now: OPEN"):
        tickets.send(row, "CLOSE")
    assert nothing_changed(before)
    tickets.send(row, "OPEN")
    before = everything()
    with pytest.raises(GuardRejected, match=r"is “open”, and a guard rejects the event “CLOSE”. Allowed now: nothing"):
        tickets.send(row, "CLOSE", payload={"a": 1}, idempotency_key="k")
    with pytest.raises(InvalidTransition):
        tickets.send(row, "nonsense")
    assert nothing_changed(before)
    assert row.state == "open"


def test_an_action_that_raises_rolls_back_everything() -> None:
    def burn(row: Ticket) -> None:
        row.text = "half done"
        row.save()
        start("machine.work", subject="half done")
        raise RuntimeError("no")

    @body("machine.work")
    def work(task: Any) -> None: ...

    tickets = Machine("burning", model=Ticket, transitions=[Transition("new", "BURN", "ash", action=burn)])
    row = Ticket.objects.create()
    before = everything()
    with pytest.raises(RuntimeError):
        tickets.send(row, "BURN")
    assert nothing_changed(before)
    assert row.state == "new"
    assert not Task.objects.exists()
    registry.unregister("machine.work")


def test_hooks_run_in_order_with_the_fresh_row_and_the_event() -> None:
    said: list[Any] = []

    def say(word: str) -> Any:
        return lambda row, event: said.append((word, row.state, event.name, event.number, event.payload))

    tickets = Machine("said", model=Ticket, on_exit={"new": say("exit")}, on_enter={"open": say("enter")}, transitions=[
        Transition("new", "OPEN", "open", action=say("action"), after_commit=say("after")),
        Transition("open", "NOTE", "open", action=say("noted")),
    ])  # fmt: skip
    row = Ticket.objects.create()
    Ticket.objects.filter(pk=row.pk).update(text="fresh")
    with pytest.MonkeyPatch.context() as patch:
        hooks: list[Any] = []
        patch.setattr(transaction, "on_commit", lambda hook, **_: hooks.append(hook))
        tickets.send(row, "OPEN", payload=7)
        assert [word for word, *_ in said] == ["exit", "action", "enter"]
        for hook in hooks:
            hook()
    assert said == [("exit", "new", "OPEN", 1, 7), ("action", "new", "OPEN", 1, 7), ("enter", "open", "OPEN", 1, 7),
                    ("after", "open", "OPEN", 1, 7)]  # fmt: skip
    assert row.text == "", "what the caller holds is left alone, but for the state"
    tickets.send(row, "NOTE")
    assert said[-1][0] == "noted", "a transition to itself neither enters nor leaves"
    assert path("said", row.pk)[-1] == ("open", "NOTE", "open")


def test_guards_are_tried_in_order_and_the_star_comes_last() -> None:
    tickets = Machine("guarded", model=Ticket, transitions=[
        Transition("*", "GO", "lost"),
        Transition("new", "GO", "locked", guard=lambda row: row.is_locked),
        Transition("new", "GO", "long", guard=lambda row: len(row.text) > 3),
        Transition(["locked", "long"], "BACK", "new"),
    ])  # fmt: skip
    ends = []
    for options in ({"is_locked": True, "text": "long"}, {"text": "long"}, {}):
        row = Ticket.objects.create(**options)
        ends.append(tickets.send(row, "GO").target)
    assert ends == ["locked", "long", "lost"]
    assert tickets.allowed_events(row) == [], "the star doesn't lead from a state to itself"
    assert tickets.send(Ticket.objects.get(state="locked"), "GO").target == "lost"


def test_the_same_key_is_one_event_whatever_came_after() -> None:
    tickets, row = simple(), Ticket.objects.create()
    first = tickets.send(row, "OPEN", idempotency_key="w1")
    tickets.send(row, "CLOSE")
    again = tickets.send(row, "OPEN", idempotency_key="w1")
    assert (again.pk, again.is_repeated, first.is_repeated) == (first.pk, True, False)
    assert row.state == "closed"
    assert tickets.send(row, "OPEN", idempotency_key="w2").sequence_num == 3
    other = Ticket.objects.create()
    assert not tickets.send(other, "OPEN", idempotency_key="w1").is_repeated, "a key is its row's"


def test_a_client_that_saw_something_else_is_told() -> None:
    tickets, row = simple(), Ticket.objects.create()
    tickets.send(row, "OPEN", expected_generation=0)
    with pytest.raises(SubjectMoved, match="it is “open” now"):
        tickets.send(row, "CLOSE", expected_generation=0)
    tickets.send(row, "CLOSE", expected_generation=1)


def test_the_field_cannot_be_assigned_and_save_leaves_it_alone() -> None:
    tickets, row = simple(), Ticket.objects.create()
    stale = Ticket.objects.get(pk=row.pk)
    tickets.send(row, "OPEN")
    for wrong in (row, Ticket()):
        with pytest.raises(ProtectedField, match=r"Ticket.state belongs to the machine 'ticket'"):
            wrong.state = "closed"
    with pytest.raises(AttributeError):
        Ticket.objects.update_or_create(pk=row.pk, defaults={"state": "closed"})
    stale.text = "kept"
    stale.save()
    stale.save(update_fields=["state", "text"])
    row.refresh_from_db()
    assert (row.state, row.text) == ("open", "kept")
    stale.refresh_from_db()
    assert stale.state == "open"
    deferred = Ticket.objects.defer("state").get(pk=row.pk)
    with pytest.raises(ProtectedField):
        deferred.state = "closed"
    assert deferred.state == "open"
    deferred.full_clean()
    row.state = "open"  # what it is already: as a form writes it
    Ticket(pk=row.pk, state="closed").save_base(raw=True)
    assert Ticket.objects.get(pk=row.pk).state == "closed", "a fixture is written as it is"
    assert Ticket.objects.create(state="open").state == "open", "a new row may begin anywhere"
    assert Ticket._base_manager.bulk_create([Ticket(state="closed")])[0].state == "closed"


def test_a_default_of_the_database_may_come_back() -> None:
    keys = Machine("turned", model=Key, field="kind", transitions=[Transition("plain", "CUT", "cut")])
    row = Key.objects.create(pk=uuid4())
    assert row.kind == "plain"
    keys.send(row, "CUT")
    row.refresh_from_db()
    assert row.kind == "cut"


class Word(StrEnum):
    OPEN = "OPEN"


class Mixed(str, Enum):  # noqa: UP042 - whose str() isn't its value
    NEW = "new"


def test_members_of_enumerations_are_their_texts() -> None:
    tickets = Machine("members", model=Ticket, transitions=[Transition(Mixed.NEW, Word.OPEN, "open")])
    assert tickets.send(Ticket.objects.create(), Word.OPEN).event == "OPEN"
    assert tickets.table.states == ("new", "open")


def test_an_unprotected_field_is_an_ordinary_one() -> None:
    simple(protected=False)
    row = Ticket.objects.create()
    row.state = "closed"
    row.save()
    assert Ticket.objects.get().state == "closed"


def test_a_state_written_by_other_means_is_found_and_put_down() -> None:
    tickets, row = simple(), Ticket.objects.create()
    tickets.send(row, "OPEN")
    assert not histories.written_elsewhere(tickets).exists()
    Ticket.objects.update(state="closed")
    with pytest.raises(SubjectMoved):
        tickets.send(row, "OPEN", expected_generation=0)
    assert [found.pk for found in histories.written_elsewhere(tickets)] == [row.pk]
    tickets.send(row, "OPEN", expected_generation=1)
    assert path("ticket", row.pk) == [("new", "OPEN", "open"), ("open", "", "closed"), ("closed", "OPEN", "open")]
    assert not histories.written_elsewhere(tickets).exists()


def test_only_rows_that_are_there_can_be_moved() -> None:
    tickets, row = simple(), Ticket.objects.create()
    for nobody in (Ticket(), Ticket(pk=99), 99, "abc", "", None):
        with pytest.raises((SubjectNotFound, NotStorable)):
            tickets.send(nobody, "OPEN")
    with pytest.raises(TypeError, match="moves rows of Ticket, not of Key"):
        tickets.send(Key(pk=uuid4()), "OPEN")
    tickets.send(row, "OPEN")
    key = row.pk
    row.delete()
    with pytest.raises(SubjectNotFound):
        tickets.send(key, "CLOSE")
    assert path("ticket", key) == [("new", "OPEN", "open")], "the history survives the row"
    assert [entry.event for entry in tickets.history(key)] == ["OPEN"]
    assert histories.page("ticket", str(key)).total_count == 1


def test_bad_values_are_named_and_change_nothing() -> None:
    tickets, row = simple(), Ticket.objects.create()
    before = everything()
    for options in ({"payload": {"a": float("nan")}}, {"payload": "\x00"}, {"idempotency_key": "x" * 201}):
        with pytest.raises(NotStorable):
            tickets.send(row, "OPEN", **options)
    with pytest.raises(TooLarge):
        tickets.send(row, "OPEN", payload="x" * 300_000)
    for event in ("", "x\x00", "x" * 300):
        with pytest.raises((NotStorable, InvalidTransition)):
            tickets.send(row, event)
    assert nothing_changed(before)
    tickets.send(row, "OPEN", note="a\x00b" * 100_000)


def test_permissions_are_asked_of_users_alone() -> None:
    tickets = Machine("permitted", model=Ticket, transitions=[
        Transition("new", "OPEN", "open", permission="supervision.pause_task"),
        Transition("new", "DROP", "open", permission=lambda user, row: row.text == user.get_username()),
    ])  # fmt: skip
    row = Ticket.objects.create(text="ann")
    ann, ben = person("ann"), person("ben", "pause_task")
    gone = person("gone", "pause_task")
    gone.is_active = False
    assert tickets.allowed_events(row) == ["OPEN", "DROP"]
    assert tickets.allowed_events(row, ann) == ["DROP"]
    assert tickets.allowed_events(row, ben) == ["OPEN"]
    assert tickets.allowed_events(row, AnonymousUser()) == tickets.allowed_events(row, gone) == []
    before = everything()
    with pytest.raises(NotPermitted, match=r"you may not send the event “OPEN”\. Allowed now: DROP"):
        tickets.send(row, "OPEN", actor=ann)
    assert nothing_changed(before)
    tickets.send(row, "OPEN", actor=ben)
    tickets.send(Ticket.objects.create(), "OPEN", actor="payment service")


def test_an_event_may_follow_from_on_enter_but_not_from_an_action() -> None:
    def onward(row: Ticket) -> None:
        tickets.send(row, "NEXT")

    moves = [Transition("new", "OPEN", "open"), Transition("open", "NEXT", "closed")]
    tickets = Machine("chained", model=Ticket, transitions=moves, on_enter={"open": onward})
    row = Ticket.objects.create()
    tickets.send(row, "OPEN")
    assert row.state == "closed"
    assert_sound("chained", row.pk, begun="new")
    again = Machine("knot", transitions=[Transition("new", "OPEN", "open", action=lambda s: again.send(s, "SIDE")),
                                         Transition("new", "SIDE", "open")], initial="new")  # fmt: skip
    with pytest.raises(Tangled, match="Send the following event from on_enter"):
        again.send("x", "OPEN")
    assert path("knot", "x") == []


def test_a_pointer_needs_no_model() -> None:
    seen: list[Any] = []
    doors = Machine("door", initial="shut", transitions=[
        Transition("shut", "PUSH", "open", action=lambda subject, event: seen.append((subject, event.source))),
        Transition("open", "PULL", "shut"),
    ])  # fmt: skip
    assert doors.state("front") == "shut"
    assert doors.allowed_events("front") == ["PUSH"]
    with pytest.raises(InvalidTransition):
        doors.send("front", "PULL")
    assert not Standing.objects.exists(), "a refused event leaves nothing"
    doors.send("front", "PUSH")
    assert seen == [("front", "shut")]
    assert doors.state("front") == "open"
    assert doors.state("back") == "shut"
    for wrong in ("", 7, None, "x" * 201, "a\x00"):
        with pytest.raises(NotStorable):
            doors.send(wrong, "PUSH")
    assert_sound("door", "front", begun="shut")


def test_proxies_and_children_are_moved_by_their_tables_machine() -> None:
    kinds: list[str] = []
    tickets = Machine("seen", model=Seen, transitions=[
        Transition("new", "OPEN", "open", action=lambda row: kinds.append(row.shout())),
    ])  # fmt: skip
    ticket, urgent = Ticket.objects.create(text="a"), Urgent.objects.create(text="b")
    tickets.send(ticket, "OPEN")
    tickets.send(urgent, "OPEN")
    assert kinds == ["A", "B"]
    assert urgent.state == "open"
    with pytest.raises(ProtectedField):
        urgent.state = "new"
    urgent.text = "c"
    urgent.save()
    urgent.refresh_from_db()
    assert (urgent.state, urgent.text) == ("open", "c")
    escalations = Machine("escalation", model=Urgent, field="escalation", transitions=[
        Transition("none", "UP", "high", guard=lambda row: row.state == "open"),
    ])  # fmt: skip
    escalations.send(urgent, "UP")
    assert Urgent.objects.get(escalation="high").state == "open"
    with pytest.raises(TypeError):
        escalations.send(ticket, "UP")


def test_keys_of_any_kind() -> None:
    keys = Machine("key", model=Key, transitions=[Transition("new", "TURN", "open")])
    row = Key.objects.create(pk=uuid4())
    keys.send(str(row.pk).upper(), "TURN")
    assert path("key", row.pk) == [("new", "TURN", "open")]
    with pytest.raises(SubjectNotFound):
        keys.send("no uuid", "TURN")


def test_what_a_field_must_be_is_said_where_the_machine_is_written() -> None:
    from tests.integration.machine_work import Abstract, Dated, Odd

    def fault(model: Any, field: Any, **options: Any) -> str:
        with pytest.raises(InvalidMachine) as refused:
            Machine("odd", model=model, field=field, transitions=[Transition("new", "GO", "gone")], **options)
        return refused.value.faults[0]

    assert "machine_tests.Odd.maybe must be a CharField or TextField that is neither null" in fault(Odd, "maybe")
    assert "machine_tests.Odd.number must be" in fault(Odd, "number", initial="new")
    assert "machine_tests.Odd.other must be" in fault(Odd, "other", initial="new")
    assert "holds 2 characters, and a state has 4" in fault(Odd, "short")
    with pytest.raises(InvalidMachine) as refused:
        Machine("odd", model=Odd, field="chosen", transitions=[Transition("new", "GO", "gone")])
    assert refused.value.faults == [
        "machine_tests.Odd.chosen has no choice 'gone', which the table names",
        "machine_tests.Odd.chosen has the choice 'old', which the table doesn't name",
    ]
    assert "no initial state" in fault(Odd, "bare")
    assert "is abstract" in fault(Abstract, "state")
    assert "the primary key of machine_tests.Dated must be a number, a text or a UUID" in fault(Dated, "state")
    assert "is a field of machine_tests.Ticket" in fault(Urgent, "state")
    assert "model must be a Django model" in fault("app.Model", "state", initial="new")
    for name in ("nothing", "pk", "state__in", "other__state", "id) OR 1=1 --", "", 7, "key"):
        assert "has no field" in fault(Odd, name)
    simple()
    with pytest.raises(InvalidMachine, match=r"'ticket' moves machine_tests\.Seen\.state already"):
        Machine("second", model=Seen, transitions=[Transition("new", "GO", "gone")])
    with pytest.raises(InvalidMachine, match="of this name is registered already"):
        Machine("ticket", initial="new", transitions=[Transition("new", "GO", "gone")])
    row = Ticket.objects.create()
    with pytest.raises(ProtectedField):
        row.state = "the first machine's protection stands"


def test_a_history_is_append_only_but_for_its_two_doors() -> None:
    tickets, row = simple(), Ticket.objects.create()
    tickets.send(row, "OPEN", payload={"who": "Ann"}, note="Ann said so", actor="ann")
    entries, standings = MachineEvent.objects.all(), Standing.objects.all()
    for attempt in (
        lambda: entries.update(payload=ERASED),
        lambda: entries.update(target="closed"),
        lambda: entries._raw_delete("default"),
        lambda: standings._raw_delete("default"),
        lambda: connection.cursor().execute("TRUNCATE supervision_machineevent"),
        lambda: connection.cursor().execute("TRUNCATE supervision_standing CASCADE"),
    ):
        with (
            pytest.raises((IntegrityError, InternalError), match=r"append-only|would be lost"),
            transaction.atomic(),
        ):
            attempt()
    histories.erase("ticket", str(row.pk))
    entry = entries.get()
    assert (entry.payload, entry.note, entry.event, entry.actor_ref) == (ERASED, "[erased]", "OPEN", "ann")
    with pytest.raises((IntegrityError, InternalError)), transaction.atomic():
        entries.update(target="closed")
    with pytest.raises((IntegrityError, InternalError), match="removed in part"), transaction.atomic():
        _remove_in_part()


def _remove_in_part() -> None:
    Standing.objects.update(is_leaving=True)
    MachineEvent.objects.all()._raw_delete("default")
    connection.cursor().execute("SET CONSTRAINTS ALL IMMEDIATE")


def test_a_history_may_leave_whole() -> None:
    tickets, row = simple(), Ticket.objects.create()
    tickets.send(row, "OPEN")
    assert histories.prune("ticket", str(row.pk)) == 1
    connection.cursor().execute("SET CONSTRAINTS ALL IMMEDIATE")
    assert not Standing.objects.exists()
    with pytest.raises(SubjectNotFound):
        histories.prune("ticket", str(row.pk))
    assert tickets.send(row, "CLOSE").sequence_num == 1


@pytest.mark.parametrize("door", [histories.erase, histories.prune])
def test_files_of_a_history_leave_with_it_and_not_before(door: Any, tmp_path: Path) -> None:
    tickets, row = simple(), Ticket.objects.create()
    with override_settings(MEDIA_ROOT=tmp_path):
        kept, lost = (files.store(ContentFile(b"x", name)) for name in ("kept.txt", "lost.txt"))
        task = rows.running(arguments={"document": lost.reference})
        tickets.send(row, "OPEN", payload={"documents": [kept.reference, lost.reference]})
        tickets.send(Ticket.objects.create(), "OPEN", payload=kept.reference)
        ends.complete(task.pk, task.lease)
        with TestCase.captureOnCommitCallbacks(execute=True):
            retention.prune(task.pk)
        assert (tmp_path / lost.path).exists(), "the history knows it still"
        with TestCase.captureOnCommitCallbacks(execute=True):
            door("ticket", str(row.pk))
    assert not (tmp_path / lost.path).exists()
    assert (tmp_path / kept.path).exists(), "the other row's history knows it"


def test_a_history_comes_in_pages() -> None:
    doors = Machine("pages", initial="a", transitions=[Transition("a", "GO", "a")])
    for _ in range(7):
        doors.send("x", "GO")
    first = histories.page("pages", "x", limit=3)
    assert ([entry.sequence_num for entry in first.events], first.total_count, first.older) == ([7, 6, 5], 7, 5)
    last = histories.page("pages", "x", before=3, limit=3)
    assert ([entry.sequence_num for entry in last.events], last.older) == ([2, 1], None)
    assert histories.page("pages", "nobody").events == []
    assert histories.counts(doors) == {"a": 1}


def test_receivers_are_told_after_the_commit(django_capture_on_commit_callbacks: Any) -> None:
    told: list[dict[str, Any]] = []

    def receive(sender: Any, signal: Any, **facts: Any) -> None:
        told.append(facts)

    machine_moved.connect(receive)
    tickets, row = simple(), Ticket.objects.create()
    with django_capture_on_commit_callbacks(execute=True):
        tickets.send(row, "OPEN")
        assert told == []
    machine_moved.disconnect(receive)
    assert told == [{"machine": "ticket", "subject": str(row.pk), "event": "OPEN", "source": "new", "target": "open",
                     "sequence_num": 1}]  # fmt: skip


def test_what_happens_after_the_commit_cannot_fail_the_event(django_capture_on_commit_callbacks: Any) -> None:
    def fail(row: Ticket, event: Event) -> None:
        raise RuntimeError("mail server away")

    tickets = Machine("after", model=Ticket, transitions=[Transition("new", "OPEN", "open", after_commit=fail)])
    row = Ticket.objects.create()
    with django_capture_on_commit_callbacks(execute=True) as hooks:
        tickets.send(row, "OPEN")
    assert len(hooks) == 1
    assert tickets.state(row) == "open"


class Elsewhere:
    def db_for_write(self, model: Any, **hints: Any) -> str | None:
        return "elsewhere" if model._meta.app_label == "machine_tests" else None


def test_another_database_is_refused() -> None:
    tickets, row = simple(), Ticket.objects.create()
    with override_settings(DATABASE_ROUTERS=[f"{__name__}.Elsewhere"]):
        for subject in (row, row.pk):
            with pytest.raises(WrongDatabase, match="can't move a row of the database 'elsewhere'"):
                tickets.send(subject, "OPEN")
    row._state.db = "elsewhere"
    with pytest.raises(WrongDatabase):
        tickets.send(row, "OPEN")


@pytest.mark.django_db(transaction=True)
def test_another_isolation_level_is_refused() -> None:
    tickets, row = simple(), Ticket.objects.create()
    with transaction.atomic():
        connection.cursor().execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        with pytest.raises(WrongIsolation):
            tickets.send(row, "OPEN")


def test_in_a_callers_transaction_an_event_goes_with_it_and_a_refusal_leaves_the_rest() -> None:
    tickets, row = simple(), Ticket.objects.create()
    with transaction.atomic():
        other = Ticket.objects.create(text="kept")
        with pytest.raises(InvalidTransition):
            tickets.send(row, "CLOSE")
        tickets.send(other, "OPEN")
    assert Ticket.objects.get(text="kept").state == "open"
    with transaction.atomic():
        tickets.send(row, "OPEN")
        transaction.set_rollback(True)
    assert tickets.state(row.pk) == "new"
    assert path("ticket", row.pk) == []

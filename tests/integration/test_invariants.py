"""What must never happen (DESIGN section 7): each test is one of its lines, or one way to break it."""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import time_machine
from django.contrib.auth import get_user_model
from django.contrib.contenttypes.models import ContentType
from django.db import IntegrityError, InternalError, connection, transaction
from django.test import override_settings
from django.utils import timezone
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings

import supervision
from supervision import signals as supervision_signals
from supervision.errors import (
    AlreadyPruned,
    IllegalTransition,
    InsideTransaction,
    LeaseLost,
    QuestionExpired,
    Refused,
    SupervisionError,
    WrongIsolation,
)
from supervision.kernel import (
    creation,
    due,
    ends,
    lease,
    lifecycle,
    log,
    questions,
    retention,
    signals_in,
    sql,
    waits,
)
from supervision.kernel.models import ERASED, Erasure, Heartbeat, LogEntry, Question, Signal, Task, Tombstone
from supervision.kernel.question_form import Ask
from supervision.kernel.states import PARK_REASONS, TERMINAL, TRANSITIONS, Reason, State
from supervision.kernel.transition import committing, locked, write
from supervision.testing import travel
from supervision.worker.tick import tick
from tests.integration import rows
from tests.integration.races import Stage
from tests.integration.rows import BODY, OTHER, Running, events, fresh

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
PACKAGE = Path(supervision.__file__).parent
CANARY = "c4n4ry-s3cr3t"
slow_database = hypothesis_settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def refused(statement: str, *parameters: Any) -> str:
    """What the database says to a raw statement that it refuses."""
    with pytest.raises((IntegrityError, InternalError)) as refusal, transaction.atomic():
        raw(statement, *parameters)
    return str(refusal.value)


def raw(statement: str, *parameters: Any) -> int:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return int(cursor.rowcount)


WORKER_WRITES: dict[str, Callable[[UUID, int], Any]] = {
    "checkpoint": lambda pk, held: lease.checkpoint(pk, held, name="stale"),
    "park": lambda pk, held: lease.park(pk, held, "worker_stopping"),
    "ask": lambda pk, held: questions.ask(pk, held, [Ask("stale", "?")]),
    "consume": lambda pk, held: signals_in.consume_or_park(pk, held, "paid"),
    "sleep": lambda pk, held: waits.sleep(pk, held, "nap", duration=HOUR),
    "continue_as_new": lambda pk, held: waits.continue_as_new(pk, held, {}),
    "complete": lambda pk, held: ends.complete(pk, held, "stale"),
    "fail": lambda pk, held: ends.fail(pk, held, "failed:Stale", "stale", {}),
    "end": lambda pk, held: ends.end(pk, held),
}


# --- 1. one owner -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", WORKER_WRITES)
def test_a_stale_worker_records_nothing(kind: str) -> None:
    running = rows.running()
    rows.lose_worker(running.pk)
    assert lease.reap(running.pk)
    assert lease.take(running.pk, running.lease + 1, OTHER) is not None
    before = rows.whole(running.pk)
    with pytest.raises(LeaseLost):
        WORKER_WRITES[kind](running.pk, running.lease)
    assert lease.beat(running.pk, running.lease, done=9) is False
    assert rows.whole(running.pk) == before
    assert events(running.pk) == ["task_created", "task_taken", "task_parked", "task_taken"]


@pytest.mark.parametrize("kind", WORKER_WRITES)
def test_a_worker_whose_task_has_parked_records_nothing(kind: str) -> None:
    running = rows.running()
    lease.park(running.pk, running.lease, "worker_stopping", wake_after=timedelta(0))
    with pytest.raises(LeaseLost):
        WORKER_WRITES[kind](running.pk, running.lease)
    assert events(running.pk) == ["task_created", "task_taken", "task_parked"]


def test_a_worker_whose_task_was_terminated_learns_it_at_its_next_beat() -> None:
    running = rows.running()
    lifecycle.terminate(running.pk, by="ann")
    assert lease.beat(running.pk, running.lease) is False


# --- 2. nothing is lost, and nothing is there that was not committed --------------------------------------------------


def test_a_rolled_back_outer_transaction_leaves_no_ghost_task_and_wakes_nobody(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Any] = []

    def receiver(**facts: Any) -> None:
        told.append(facts)

    supervision_signals.task_created.connect(receiver)
    caplog.set_level(logging.INFO, "supervision.events")
    try:
        with stage.counting_wakes() as wakes, transaction.atomic():
            pk = creation.create(BODY).pk
            transaction.set_rollback(True)
    finally:
        supervision_signals.task_created.disconnect(receiver)
    assert not Task.objects.filter(pk=pk).exists()
    assert not LogEntry.objects.filter(task_id=pk).exists()
    assert (wakes, told, caplog.records) == ([], [], [])


def test_what_an_outer_transaction_does_is_told_after_its_commit(stage: Stage) -> None:
    told: list[UUID] = []

    def receiver(task_id: UUID, **facts: Any) -> None:
        told.append(task_id)

    supervision_signals.task_created.connect(receiver)
    try:
        with stage.counting_wakes() as wakes:
            with transaction.atomic():
                pk = creation.create(BODY).pk
                assert told == []
            assert told == [pk]
    finally:
        supervision_signals.task_created.disconnect(receiver)
    assert len(wakes) == 1


def test_a_receiver_that_raises_fails_no_verb(transactional_db: None, caplog: pytest.LogCaptureFixture) -> None:
    def receiver(**facts: Any) -> None:
        raise RuntimeError("a receiver of the host's")

    supervision_signals.task_created.connect(receiver)
    try:
        pk = creation.create(BODY).pk
    finally:
        supervision_signals.task_created.disconnect(receiver)
    assert fresh(pk).current_state == "pending"


@pytest.mark.parametrize("verb", [*WORKER_WRITES, "take", "offer"])
def test_inside_atomic_a_workers_verb_is_refused(verb: str) -> None:
    running = rows.running()
    verbs: dict[str, Callable[[], Any]] = {
        "take": lambda: lease.take(running.pk, running.lease),
        "offer": lambda: due.offer(1, queues=None, bodies=[(BODY, 1)]),
    }
    act = verbs.get(verb) or (lambda: WORKER_WRITES[verb](running.pk, running.lease))
    before = events(running.pk)
    with pytest.raises(InsideTransaction), transaction.atomic():
        act()
    assert events(running.pk) == before


CLIENT_VERBS: dict[str, Callable[[rows.Waiting], Any]] = {
    "pause": lambda waiting: lifecycle.pause(waiting.pk),
    "cancel": lambda waiting: lifecycle.cancel(waiting.pk),
    "expire": lambda waiting: lifecycle.expire(waiting.pk, by="ann"),
    "terminate": lambda waiting: lifecycle.terminate(waiting.pk, by="ann"),
    "answer": lambda waiting: questions.answer(waiting.questions["q"], "yes", by="ann"),
    "signal": lambda waiting: signals_in.send(waiting.pk, "paid"),
}


@pytest.mark.parametrize("verb", [*CLIENT_VERBS, "create", "take"])
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_transaction_that_is_not_read_committed_is_refused(transactional_db: None, verb: str, level: str) -> None:
    waiting = rows.waiting()
    verbs: dict[str, Callable[[], Any]] = {
        "create": lambda: creation.create(BODY),
        "take": lambda: lease.take(waiting.pk, waiting.lease),
    }
    act = verbs.get(verb, lambda: CLIENT_VERBS[verb](waiting))
    before, count = events(waiting.pk), Task.objects.count()
    raw(f"SET default_transaction_isolation = '{level.lower()}'")
    try:
        with pytest.raises(WrongIsolation, match=level):
            act()
    finally:
        raw("RESET default_transaction_isolation")
    assert (events(waiting.pk), Task.objects.count()) == (before, count)


# --- 3. recorded once -------------------------------------------------------------------------------------------------


def test_an_answered_question_is_not_asked_again() -> None:
    waiting = rows.waiting()
    questions.answer(waiting.questions["q"], "yes", by="ann")
    taken = lease.take(waiting.pk, waiting.lease, OTHER)
    assert taken is not None
    questions.ask(waiting.pk, taken.lease, [Ask("q", "again?")])
    task = fresh(waiting.pk)
    assert Question.objects.get(task_id=waiting.pk).status == "answered"
    assert task.wake_at is not None


# --- 4. nobody waits for what has happened ----------------------------------------------------------------------------


def test_a_task_does_not_wait_for_a_signal_that_came_early() -> None:
    running = rows.running()
    signals_in.send(running.pk, "paid", 1)
    signals_in.send(running.pk, "paid", 2)
    got = [signals_in.consume_or_park(running.pk, running.lease, "paid").signal for _ in range(2)]
    assert [signal.payload for signal in got if signal is not None] == [1, 2]
    assert signals_in.consume_or_park(running.pk, running.lease, "paid").parked


def test_a_task_that_is_being_ended_never_parks_asleep() -> None:
    running = rows.running()
    lifecycle.cancel(running.pk)
    lease.park(running.pk, running.lease, "worker_stopping")
    assert fresh(running.pk).wake_at is not None


@pytest.mark.parametrize("verb", ["pause", "cancel", "expire", "answer", "signal", "resume"])
def test_a_task_that_is_being_ended_is_changed_by_nobody_else(verb: str) -> None:
    waiting = rows.waiting()
    lifecycle.pause(waiting.pk)
    lifecycle.cancel(waiting.pk, by="ann")
    before, length = rows.whole(waiting.pk), len(events(waiting.pk))
    act: Callable[[Any], Any] = CLIENT_VERBS.get(verb, lambda task: lifecycle.resume(task.pk))
    with pytest.raises(SupervisionError):
        act(waiting)
    assert rows.whole(waiting.pk) == before
    assert len(events(waiting.pk)) == length
    assert Question.objects.get(task_id=waiting.pk).status == "pending"
    taken = lease.take(waiting.pk, waiting.lease)
    assert taken is not None, "an ending beats a pause"
    assert taken.requests.ending == "cancelled"


def test_a_signal_wins_over_a_timeout_that_has_passed() -> None:
    running = rows.running()
    signals_in.send(running.pk, "paid", 1)
    with travel(HOUR):
        deadline = timezone.now() - timedelta(minutes=1)
        assert signals_in.consume_or_park(running.pk, running.lease, "paid", deadline=deadline).signal is not None
        assert signals_in.consume_or_park(running.pk, running.lease, "paid", deadline=deadline).timed_out


# --- 5. a terminal task never changes ---------------------------------------------------------------------------------

ANOTHER = {
    "boolean": "NOT {column}",
    "text": "{column} || 'x'",
    "character varying": "{column} || 'x'",
    "bigint": "COALESCE({column}, 0) + 1",
    "integer": "COALESCE({column}, 0) + 1",
    "smallint": "COALESCE({column}, 0) + 1",
    "jsonb": """'{{"forged": true}}'""",
    "timestamp with time zone": "COALESCE({column}, '2000-01-01') + interval '1 s'",
    "uuid": "gen_random_uuid()",
}


def _columns() -> list[tuple[str, str]]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'supervision_task'"
        )
        return list(cursor.fetchall())


def _ended_as(state: State) -> UUID:
    running = rows.running()
    if state == State.COMPLETED:
        ends.complete(running.pk, running.lease, {"ok": True})
    elif state == State.FAILED:
        ends.fail(running.pk, running.lease, "failed:X", "x", {})
    else:
        lifecycle.terminate(running.pk, by="ann", state=state)
    return running.pk


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_a_terminal_task_never_changes(state: State) -> None:
    pk = _ended_as(state)
    columns = _columns()
    assert len(columns) == len(Task._meta.concrete_fields)
    for column, kind in columns:
        value = ANOTHER[kind].format(column=column)
        said = refused(f"UPDATE supervision_task SET {column} = {value} WHERE id = %s", pk)
        assert "never change" in said, column
    assert "can't be deleted" in refused("DELETE FROM supervision_task WHERE id = %s", pk)


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "expire", "terminate", "signal", "reap"])
def test_a_terminal_task_absorbs_every_late_verb(verb: str) -> None:
    pk = rows.ended()
    before = rows.whole(pk)
    late: dict[str, Callable[[], Any]] = {
        "pause": lambda: lifecycle.pause(pk),
        "resume": lambda: lifecycle.resume(pk),
        "cancel": lambda: lifecycle.cancel(pk),
        "expire": lambda: lifecycle.expire(pk, by="ann"),
        "terminate": lambda: lifecycle.terminate(pk, by="ann"),
        "signal": lambda: signals_in.send(pk, "paid"),
        "reap": lambda: lease.reap(pk),
    }
    if verb == "reap":
        assert late[verb]() is False
    else:
        with pytest.raises(Refused):
            late[verb]()
    assert rows.whole(pk) == before


def test_deleting_a_user_takes_the_key_from_an_ended_task_and_leaves_who_it_was() -> None:
    owner = get_user_model().objects.create_superuser("ann")
    running = rows.running(owner=owner, subject_object=owner)
    waiting = rows.waiting(owner=owner)
    questions.answer(waiting.questions["q"], "yes", by=owner)
    ends.complete(running.pk, running.lease)
    name = f"user:{owner.pk}"
    owner.delete()
    task = fresh(running.pk)
    assert (task.owner_id, task.owner_ref) == (None, name)
    question = Question.objects.get(task_id=waiting.pk)
    assert (question.answered_by_id, question.answered_by_ref, question.status) == (None, "ann", "answered")


def test_deleting_a_content_type_leaves_an_ended_task_its_subject() -> None:
    owner = get_user_model().objects.create_user("ann")
    running = rows.running(subject_object=owner)
    ends.complete(running.pk, running.lease)
    ContentType.objects.get_for_model(owner).delete()
    task = fresh(running.pk)
    assert (task.subject_type_id, task.subject_pk, task.subject) == (None, str(owner.pk), "ann")


@pytest.mark.parametrize("before", State)
@pytest.mark.parametrize("after", State)
def test_only_the_transitions_of_the_table_are_written(before: State, after: State) -> None:
    pk = rows.due()
    raw("UPDATE supervision_task SET current_state = %s, watchdog_stop_reason = 'x', wake_at = NULL", before)

    def change() -> None:
        with committing("test"), locked(pk) as task:
            write(task, to=after, reason="sleeping", event="test")

    if (before, after) in TRANSITIONS:
        change()
        assert fresh(pk).current_state == after
    else:
        with pytest.raises(IllegalTransition):
            change()
        assert (fresh(pk).current_state, fresh(pk).log_length) == (before, 1)


def test_the_database_knows_the_states_and_that_a_parked_task_says_why() -> None:
    pk = rows.due()
    assert "state_known" in refused("UPDATE supervision_task SET current_state = 'lost' WHERE id = %s", pk)
    assert "parked_says_why" in refused("UPDATE supervision_task SET current_state = 'parked' WHERE id = %s", pk)
    running = rows.running()
    assert "wakes_only_idle" in refused("UPDATE supervision_task SET wake_at = now() WHERE id = %s", running.pk)


def test_every_reason_that_the_code_writes_begins_with_a_word_of_the_vocabulary() -> None:
    """Reasons are built from ``Reason``: no literal text stands where one is written."""
    literals = []
    for path in _sources():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                literals += [f"{path.name}:{node.lineno}" for each in _reasons(node) if _is_literal(each)]
    assert literals == []
    assert {reason.value for reason in PARK_REASONS} <= {reason.value for reason in Reason}
    assert not any(":" in reason for reason in Reason)


def _sources() -> list[Path]:
    return [path for path in sorted(PACKAGE.rglob("*.py")) if "migrations" not in path.parts]


def _reasons(call: ast.Call) -> Iterator[ast.expr]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    yield from (word.value for word in call.keywords if word.arg in ("reason", "ending_reason", "watchdog_stop_reason"))
    third = {"park": 2, "_park": 0, "fail": 2, "finish": 2, "_ask_to_end": 2}
    if name in third and len(call.args) > third[name]:
        yield call.args[third[name]]


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != ""
    )


# --- 6. the log -------------------------------------------------------------------------------------------------------


def test_a_log_entry_never_changes_leaves_a_gap_or_disappears(transactional_db: None) -> None:
    pk = rows.ended()
    for column in ("event", "name", "actor_ref"):
        assert "append-only" in refused(f"UPDATE supervision_logentry SET {column} = 'x' WHERE task_id = %s", pk)
    assert "append-only" in refused("UPDATE supervision_logentry SET payload = '{}' WHERE task_id = %s", pk)
    assert "append-only" in refused("UPDATE supervision_logentry SET created_at = now() WHERE task_id = %s", pk)
    assert "append-only" in refused("DELETE FROM supervision_logentry WHERE task_id = %s", pk)
    number = "INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref) VALUES "
    assert "unique" in refused(number + "(%s, 1, 'x', '', '{}', 0, '')", pk)
    for truncate in ("supervision_logentry", "supervision_task CASCADE", "supervision_question CASCADE",
                     "supervision_signal", "supervision_tombstone", "supervision_erasure"):  # fmt: skip
        assert "truncated" in refused(f"TRUNCATE {truncate}"), truncate
    assert events(pk) == ["task_created", "task_taken", "task_completed"]


def test_a_pruned_task_leaves_whole_through_its_door(transactional_db: None) -> None:
    waiting = rows.waiting(idempotency_key="order-7")
    signals_in.send(waiting.pk, "paid")
    lifecycle.terminate(waiting.pk, by="ann")
    assert retention.prune(waiting.pk) == [waiting.pk]
    for model in (LogEntry, Question, Signal, Heartbeat):
        assert not model._default_manager.filter(task_id=waiting.pk).exists()
    tombstone = Tombstone.objects.get()
    assert (tombstone.task_id, tombstone.idempotency_key, tombstone.log_length) == (waiting.pk, "order-7", 5)
    with pytest.raises(AlreadyPruned):
        creation.create(BODY, idempotency_key="order-7")
    assert "tombstones stay" in refused("DELETE FROM supervision_tombstone")
    assert "tombstones stay" in refused("UPDATE supervision_tombstone SET idempotency_key = ''")


def _tombstone(pk: UUID) -> None:
    Tombstone.objects.create(task_id=pk, body=BODY, final_state="completed", log_length=3)


def test_a_prune_in_part_is_refused_at_the_commit() -> None:
    def all_but_the_last_entry(pk: UUID) -> None:
        raw("DELETE FROM supervision_logentry WHERE task_id = %s AND sequence_num < 3", pk)
        raw("DELETE FROM supervision_heartbeat WHERE task_id = %s", pk)
        raw("DELETE FROM supervision_task WHERE id = %s", pk)

    def all_but_the_task(pk: UUID) -> None:
        raw("DELETE FROM supervision_logentry WHERE task_id = %s", pk)

    for part in (all_but_the_last_entry, all_but_the_task, lambda pk: None):
        pk = rows.ended()
        with transaction.atomic():
            _tombstone(pk)
            part(pk)
            assert "pruned in part" in refused("SET CONSTRAINTS ALL IMMEDIATE")  # as the commit would
            transaction.set_rollback(True)
        assert events(pk) == ["task_created", "task_taken", "task_completed"]


def test_a_task_that_lives_is_not_pruned() -> None:
    pk = rows.due()
    with pytest.raises(Refused, match="not ended"):
        retention.prune(pk)
    with pytest.raises((IntegrityError, InternalError), match="has ended"), transaction.atomic():
        _tombstone(pk)
    assert events(pk) == ["task_created"]


def test_a_family_is_pruned_together_or_not_at_all() -> None:
    parent = rows.running()
    child = creation.create(BODY, parent_id=parent.pk, parent_step="child").pk
    taken = lease.take(child, 0)
    assert taken is not None
    ends.complete(parent.pk, parent.lease)
    assert fresh(child).ending == "cancelled"
    with pytest.raises(Refused, match="not ended"):
        retention.prune(parent.pk)
    ends.end(child, taken.lease)
    with pytest.raises(Refused, match="parent"):
        retention.prune(child)
    assert retention.prune(parent.pk) == [parent.pk, child]


def test_erasure_replaces_a_persons_data_by_the_marker_and_by_nothing_else() -> None:
    waiting = rows.waiting(arguments={"name": "Ann"})
    questions.answer(waiting.questions["q"], "my data", by="ann", note="private")
    lifecycle.terminate(waiting.pk, by="ann")
    skeleton = LogEntry.objects.filter(task_id=waiting.pk).values_list("sequence_num", "event", "actor_ref", "lease")
    before = list(skeleton)
    retention.erase(waiting.pk, by="dpo")
    task = fresh(waiting.pk)
    assert (task.arguments, task.result, task.failure) == (ERASED, None, "")
    kept = list(LogEntry.objects.filter(task_id=waiting.pk).values_list("payload", flat=True))
    assert kept == [ERASED] * len(before)
    assert list(skeleton.all()) == before
    forged = """'{"forged": true}'"""
    for change in (f"payload = {forged}", "actor_ref = 'x'", "created_at = now()"):
        assert "append-only" in refused(f"UPDATE supervision_logentry SET {change} WHERE task_id = %s", waiting.pk)
    assert "append-only" in refused("DELETE FROM supervision_logentry WHERE task_id = %s", waiting.pk)
    for column, value in (("arguments", forged), ("result", forged), ("locked_decisions", forged), ("failure", "'x'")):
        said = refused(f"UPDATE supervision_task SET {column} = {value} WHERE id = %s", waiting.pk)
        assert "never change" in said, column


def test_the_data_of_a_live_task_is_not_erased() -> None:
    pk = rows.due(arguments={"name": "Ann"})
    with pytest.raises(Refused):
        retention.erase(pk, by="dpo")
    with pytest.raises((IntegrityError, InternalError), match="has ended"), transaction.atomic():
        Erasure.objects.create(task_id=pk, actor_ref="x")


def test_the_newest_number_of_a_log_is_its_exact_count() -> None:
    running = rows.running()
    for n in range(120):
        lease.checkpoint(running.pk, running.lease, name=f"row {n}")
    page = log.page(running.pk, size=50)
    assert page.total_count == LogEntry.objects.filter(task_id=running.pk).count() == 122
    assert (page.returned_count, page.withheld_count, page.truncated) == (50, 72, True)


def test_there_is_no_write_path_outside_the_kernel() -> None:
    """Nobody but the kernel (and ``testing``, for a test database) writes its rows, in ORM or in SQL."""
    writing = {"update", "save", "create", "bulk_create", "bulk_update", "delete", "get_or_create", "update_or_create",
               "_raw_delete"}  # fmt: skip
    ours = {"Task", "Question", "Signal", "LogEntry", "Heartbeat", "Tombstone", "Erasure"}
    found = []
    for path in _sources():
        if "kernel" in path.relative_to(PACKAGE).parts or path.name == "testing.py":
            continue
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in writing:
                names = {each.id for each in ast.walk(node.func) if isinstance(each, ast.Name)}
                found += [f"{path.name}:{node.lineno}"] if names & ours else []
        found += [
            f"{path.name}: {statement}" for table in ("task", "logentry", "question", "signal", "heartbeat")
            for statement in ("UPDATE", "INSERT INTO", "DELETE FROM") if f"{statement} supervision_{table}" in text
        ]  # fmt: skip
    assert found == []


def _pending() -> Running:
    return Running(rows.due(), 0)


def _paused() -> Running:
    return Running(lifecycle.pause(rows.due()).pk, 0)


def _waiting() -> Running:
    waiting = rows.waiting()
    return Running(waiting.pk, waiting.lease)


def _orphaned() -> Running:
    running = rows.running()
    rows.lose_worker(running.pk)
    return running


def _answer(task: Running) -> Question:
    return questions.answer(Question.objects.get(task_id=task.pk).pk, "yes", by="ann")


LOGGED: dict[str, tuple[Callable[[], Running], Callable[[Running], Any]]] = {
    "take": (_pending, lambda task: lease.take(*task)),
    "checkpoint": (rows.running, lambda task: lease.checkpoint(*task, decisions='{"a": 1}')),
    "park": (rows.running, lambda task: lease.park(*task, "worker_stopping")),
    "ask": (rows.running, lambda task: questions.ask(*task, [Ask("q", "?")])),
    "answer": (_waiting, _answer),
    "signal": (_pending, lambda task: signals_in.send(task.pk, "paid")),
    "pause": (_pending, lambda task: lifecycle.pause(task.pk)),
    "resume": (_paused, lambda task: lifecycle.resume(task.pk)),
    "cancel": (rows.running, lambda task: lifecycle.cancel(task.pk)),
    "expire": (_waiting, lambda task: lifecycle.expire(task.pk, by="ann")),
    "terminate": (_waiting, lambda task: lifecycle.terminate(task.pk, by="ann")),
    "reap": (_orphaned, lambda task: lease.reap(task.pk)),
    "complete": (rows.running, lambda task: ends.complete(*task)),
    "fail": (rows.running, lambda task: ends.fail(*task, "failed:X", "x", {})),
    "sleep": (rows.running, lambda task: waits.sleep(*task, "nap", duration=HOUR)),
    "continue_as_new": (rows.running, lambda task: waits.continue_as_new(*task, {})),
}


@pytest.mark.parametrize("verb", LOGGED)
def test_every_change_of_a_task_has_its_entry(verb: str) -> None:
    prepare, act = LOGGED[verb]
    task = prepare()
    before, length = rows.whole(task.pk), len(events(task.pk))
    act(task)
    assert rows.whole(task.pk) != before
    assert len(events(task.pk)) == length + 1
    rows.assert_sound(task.pk)


# --- 7. what has expired does not go on -------------------------------------------------------------------------------


def test_nothing_goes_on_after_its_expiry() -> None:
    pending, held = rows.due(expires_after=HOUR), rows.due(expires_after=HOUR)
    running, waiting = rows.running(expires_after=HOUR), rows.waiting(expires_after=HOUR)
    lifecycle.pause(held)
    with travel(2 * HOUR):
        assert lease.beat(running.pk, running.lease)
        assert lease.take(pending, 0) is None
        with pytest.raises(Refused, match="time ran out"):
            lifecycle.resume(held)
        assert questions.ask(running.pk, running.lease, [Ask("q", "?")]).is_overdue
        assert lease.checkpoint(running.pk, running.lease).is_overdue, "what was done is recorded even then"
        with pytest.raises(QuestionExpired):
            questions.answer(waiting.questions["q"], "yes", by="ann")
        assert tick().expired == 4
    assert {fresh(pk).current_state for pk in (pending, held, waiting.pk)} == {"expired"}
    assert (fresh(running.pk).current_state, fresh(running.pk).ending) == ("running", "expired")


@pytest.mark.parametrize("skew", [HOUR, -HOUR])
def test_a_hosts_wrong_clock_reaps_nobody_and_moves_no_expiry(skew: timedelta) -> None:
    running = rows.running()
    soon, past = rows.due(expires_after=timedelta(minutes=10)), rows.due(expires_after=timedelta(minutes=10))
    Task.objects.filter(pk=past).update(expires_at=fresh(past).created_at)
    with time_machine.travel(timezone.now() + skew, tick=True):
        assert lease.beat(running.pk, running.lease)
        swept = tick()
        assert (swept.reaped, swept.expired) == (0, 1)
        taken = lease.take(soon, 0)
        assert taken is not None
        assert not lease.checkpoint(taken.task_id, taken.lease).is_overdue
        born = rows.due()
        asked = rows.waiting()
    assert (fresh(running.pk).current_state, fresh(past).current_state) == ("running", "expired")
    now = timezone.now()
    stamps = [fresh(born).created_at, fresh(born).wake_at, *Question.objects.filter(task_id=asked.pk).values_list(
        "asked_at", flat=True), Heartbeat.objects.get(task_id=running.pk).beat_at]  # fmt: skip
    assert all(stamp is not None and abs(stamp - now) < timedelta(minutes=5) for stamp in stamps)


# --- 8. whose task it is ----------------------------------------------------------------------------------------------


def test_an_idempotency_key_says_nothing_about_somebody_elses_task() -> None:
    users = get_user_model().objects
    ann, bob = users.create_user("ann"), users.create_user("bob")
    his = creation.create(BODY, {"n": 2}, owner=bob, idempotency_key="order-7")
    hers = creation.create(BODY, {"n": 1}, owner=ann, idempotency_key="order-7")
    other = creation.create("test.other", {"n": 3}, owner=ann, idempotency_key="order-7")
    assert len({hers.pk, his.pk, other.pk}) == 3
    assert creation.create(BODY, owner=bob, idempotency_key="order-7").pk == his.pk
    lifecycle.cancel(hers.pk)
    retention.prune(hers.pk)
    assert creation.create(BODY, owner=bob, idempotency_key="order-7").pk == his.pk
    with pytest.raises(AlreadyPruned):
        creation.create(BODY, owner=ann, idempotency_key="order-7")


# --- 10. workers that are lost ----------------------------------------------------------------------------------------


def test_a_poison_task_is_a_dead_letter_after_exactly_its_recoveries() -> None:
    pk = rows.due()
    takes = 0
    with override_settings(SUPERVISION={"MAX_RECOVERIES": 3}):
        while fresh(pk).current_state != "failed":
            assert lease.take(pk, fresh(pk).lease) is not None
            takes += 1
            rows.lose_worker(pk)
            assert lease.reap(pk)
    assert takes == 4
    assert fresh(pk).watchdog_stop_reason == "recoveries_exhausted:4"
    assert list(Task.objects.dead_lettered()) == [fresh(pk)]


def test_progress_between_losses_is_no_poison() -> None:
    running = rows.running()
    with override_settings(SUPERVISION={"MAX_RECOVERIES": 1}):
        for _ in range(4):
            held = fresh(running.pk).lease
            lease.checkpoint(running.pk, held, decisions=f'{{"lease": {held}}}')
            rows.lose_worker(running.pk)
            assert lease.reap(running.pk)
            assert lease.take(running.pk, held + 1) is not None
    assert fresh(running.pk).recoveries == 1


def test_a_running_task_without_a_beat_row_is_seen_and_reaped() -> None:
    running = rows.running()
    raw("DELETE FROM supervision_heartbeat WHERE task_id = %s", running.pk)
    assert list(Task.objects.orphaned()) == [fresh(running.pk)]
    assert tick().reaped == 1
    assert fresh(running.pk).watchdog_stop_reason == "worker_lost"


# --- the statements of the hot path -----------------------------------------------------------------------------------


def test_the_kernels_clock_is_the_databases() -> None:
    """No Python clock in the kernel, and not PostgreSQL's now(), which stands still in a transaction."""
    banned = ("timezone.now", "datetime.now", "time.time()", "CURRENT_TIMESTAMP", "transaction_timestamp", " now()")
    found = [
        f"{path.name}: {each}" for path in (PACKAGE / "kernel").glob("*.py") for each in banned
        if each in path.read_text(encoding="utf-8") and path.name != "clock.py"
    ]  # fmt: skip
    assert found == []


def test_the_kernel_retries_what_may_be_retried() -> None:
    assert sorted(sql.RETRYABLE) == ["40001", "40P01", "55P03", "57014"]

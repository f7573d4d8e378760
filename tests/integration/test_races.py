"""Two (or eight) at once: exactly one outcome each. The second is seen waiting for the first's lock; nothing sleeps."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.test import override_settings

from supervision.errors import (
    AlreadyAnswered,
    AlreadyPruned,
    Busy,
    ConcurrencyKeyHeld,
    Conflict,
    LeaseLost,
    QuestionExpired,
    QuestionWithdrawn,
    Refused,
    SupervisionError,
)
from supervision.kernel import creation, due, ends, forks, lease, lifecycle, questions, retention, signals_in
from supervision.kernel.models import Heartbeat, LogEntry, Question, Signal, Task, Tombstone
from supervision.kernel.question_form import Ask
from supervision.worker.tick import tick
from tests.integration import rows
from tests.integration.races import Stage, held
from tests.integration.rows import BODY, OTHER, WORKER, assert_sound, events, fresh

KNOWN = [(BODY, 1)]


def offered() -> list[UUID]:
    """What a broker would be handed now, without handing it out."""
    return list(Task.objects.due().values_list("pk", flat=True))


# --- take -------------------------------------------------------------------------------------------------------------


def test_two_takers_of_one_package_make_one_owner(stage: Stage) -> None:
    pk = rows.due()
    (package,) = due.offer(1, queues=None, bodies=KNOWN)
    first = stage.begin(held(lambda: lease.take(pk, package.lease, WORKER)))
    second = stage.begin(lambda: lease.take(pk, package.lease, OTHER))
    assert second.is_blocked_by(first)
    assert first.commit().lease == 1
    assert second.commit() is None
    assert events(pk) == ["task_created", "task_taken"]
    assert fresh(pk).lease == 1
    assert Heartbeat.objects.get(task_id=pk).worker == WORKER.name
    assert_sound(pk)


def test_an_old_package_of_an_earlier_lease_takes_nothing(stage: Stage) -> None:
    running = rows.running()
    lease.park(running.pk, running.lease, "worker_stopping", wake_after=timedelta(0))
    assert lease.take(running.pk, running.lease - 1, OTHER) is None
    assert lease.take(running.pk, running.lease, OTHER) is not None


def test_a_task_whose_expiry_passes_while_its_taker_waits_for_the_lock_is_not_taken(stage: Stage) -> None:
    def scene(seconds: float) -> tuple[UUID, datetime, Callable[[], Any]]:
        task = creation.create(BODY, expires_after=timedelta(seconds=seconds))
        assert task.expires_at is not None
        return task.pk, task.expires_at, lambda: lease.take(task.pk, 0, WORKER)

    pk, result = _run_past(stage, scene)
    assert result is None
    assert fresh(pk).current_state == "pending"
    assert events(pk) == ["task_created"]


def _run_past(stage: Stage, scene: Callable[[float], tuple[UUID, datetime, Callable[[], Any]]]) -> tuple[UUID, Any]:
    """Runs a verb that begins to wait for the lock before a moment and gets it after; its result or its error."""
    for seconds in (0.4, 1.0, 4.0):  # a machine may be too slow to begin in time
        pk, moment, verb = scene(seconds)
        with stage.holding_task(pk) as holder:
            waiter = stage.run(verb)
            assert waiter.is_blocked_by(holder)
            began_in_time = stage.now() < moment
            stage.wait_until_past(moment)
        try:
            result = waiter.commit()
        except SupervisionError as refusal:
            result = refusal
        if began_in_time:
            return pk, result
    raise AssertionError("this machine is too slow")


# --- people -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("with_generation", [False, True])
def test_two_resumes_are_one(stage: Stage, with_generation: bool) -> None:
    pk = rows.due()
    generation = lifecycle.pause(pk).generation
    expected = generation if with_generation else None
    first = stage.begin(lambda: lifecycle.resume(pk, by="ann", expected_generation=expected))
    second = stage.begin(lambda: lifecycle.resume(pk, by="bob", expected_generation=expected))
    assert second.is_blocked_by(first)
    first.commit()
    assert isinstance(second.refusal(), Conflict if with_generation else Refused)
    assert events(pk) == ["task_created", "pause_requested", "task_resumed"]
    assert fresh(pk).generation == generation + 1


def test_two_pauses_are_one(stage: Stage) -> None:
    running = rows.running()
    first = stage.begin(lambda: lifecycle.pause(running.pk, by="ann"))
    second = stage.begin(lambda: lifecycle.pause(running.pk, by="bob"))
    assert second.is_blocked_by(first)
    first.commit()
    assert isinstance(second.refusal(), Refused)
    assert events(running.pk).count("pause_requested") == 1


def test_a_verb_that_waits_too_long_says_busy_and_writes_nothing(stage: Stage) -> None:
    pk = rows.due()
    with override_settings(SUPERVISION={"LOCK_TIMEOUT_SECONDS": 0.05}), stage.holding_task(pk):
        assert isinstance(stage.run(lambda: lifecycle.pause(pk)).refusal(), Busy)
    assert events(pk) == ["task_created"]


@pytest.mark.parametrize("verb", [lifecycle.pause, lifecycle.cancel], ids=["pause", "cancel"])
def test_a_completion_that_commits_first_wins_and_the_later_request_writes_nothing(
    stage: Stage, verb: Callable[..., Task]
) -> None:
    running = rows.running()
    completion = stage.begin(held(lambda: ends.complete(running.pk, running.lease, {"ok": 1})))
    request = stage.begin(lambda: verb(running.pk, by="ann"))
    assert request.is_blocked_by(completion)
    completion.commit()
    assert isinstance(request.refusal(), Refused)
    task = fresh(running.pk)
    assert (task.current_state, task.result) == ("completed", {"ok": 1})
    assert (task.pause_requested_at, task.cancel_requested_at, task.ending) == (None, None, "")
    assert events(running.pk) == ["task_created", "task_taken", "task_completed"]


@pytest.mark.parametrize(("verb", "request_name"), [(lifecycle.pause, "pause"), (lifecycle.cancel, "cancel")])
def test_a_completion_that_commits_second_wins_too_and_logs_the_request_it_did_not_see(
    stage: Stage, verb: Callable[..., Task], request_name: str
) -> None:
    running = rows.running()
    request = stage.begin(lambda: verb(running.pk, by="ann"))
    completion = stage.begin(lambda: ends.complete(running.pk, running.lease, {"ok": 1}))
    assert completion.is_blocked_by(request)
    request.commit()
    completion.commit()
    assert fresh(running.pk).current_state == "completed"
    assert list(rows.payload(running.pk, "task_completed")["unobserved"]) == [request_name]
    assert_sound(running.pk)


@pytest.mark.parametrize("pause_first", [True, False])
def test_a_pause_of_a_task_that_awaits_an_answer_holds_it_and_loses_no_answer(stage: Stage, pause_first: bool) -> None:
    waiting = rows.waiting()
    verbs: list[Callable[[], Any]] = [
        lambda: lifecycle.pause(waiting.pk, by="ann"),
        lambda: questions.answer(waiting.questions["q"], "yes", by="bob"),
    ]
    first = stage.begin(verbs[not pause_first])
    second = stage.begin(verbs[pause_first])
    assert second.is_blocked_by(first)
    first.commit()
    second.commit()
    task = fresh(waiting.pk)
    assert (task.current_state, task.watchdog_stop_reason) == ("parked", "awaiting_user_answer:q")
    assert task.wake_at is not None
    assert offered() == []
    assert lease.take(waiting.pk, waiting.lease, OTHER) is None
    lifecycle.resume(waiting.pk)
    assert offered() == [waiting.pk]
    assert lease.take(waiting.pk, waiting.lease, OTHER) is not None
    assert_sound(waiting.pk)


@pytest.mark.parametrize("ask_first", [True, False])
def test_a_pause_while_a_task_asks_leaves_it_parked_for_the_answer_and_held(stage: Stage, ask_first: bool) -> None:
    running = rows.running()
    verbs: list[Callable[[], Any]] = [
        lambda: questions.ask(running.pk, running.lease, [Ask("q", "?")]),
        lambda: lifecycle.pause(running.pk),
    ]
    first = stage.begin(verbs[not ask_first])
    second = stage.begin(verbs[ask_first])
    assert second.is_blocked_by(first)
    first.commit()
    second.commit()
    task = fresh(running.pk)
    assert (task.watchdog_stop_reason, task.is_held, task.wake_at) == ("awaiting_user_answer:q", True, None)


def test_a_task_that_is_being_cancelled_asks_nothing_more(stage: Stage) -> None:
    running = rows.running()
    cancel = stage.begin(lambda: lifecycle.cancel(running.pk, by="ann"))
    ask = stage.begin(lambda: questions.ask(running.pk, running.lease, [Ask("q", "?")]))
    assert ask.is_blocked_by(cancel)
    cancel.commit()
    assert ask.commit().ending == "cancelled"
    assert not Question.objects.filter(task_id=running.pk).exists()
    assert fresh(running.pk).current_state == "running"


# --- answers ----------------------------------------------------------------------------------------------------------


def test_of_eight_simultaneous_answers_one_is_accepted_and_wakes_once(stage: Stage) -> None:
    waiting = rows.waiting()
    with stage.counting_wakes() as wakes:
        with stage.holding_task(waiting.pk):
            people = [
                stage.run(lambda name=f"person {n}": questions.answer(waiting.questions["q"], name, by=name))  # type: ignore[misc]
                for n in range(8)
            ]
            assert all(person.is_blocked() for person in people)
        outcomes = []
        for person in people:
            try:
                outcomes.append(person.commit())
            except AlreadyAnswered as refusal:
                outcomes.append(refusal)
    (accepted,) = [outcome for outcome in outcomes if isinstance(outcome, Question)]
    question = Question.objects.get(task_id=waiting.pk)
    assert question.answer == question.answered_by_ref == accepted.answer
    assert {str(each) for each in outcomes if each is not accepted} == {
        f"This question was already answered by {accepted.answered_by_ref}."
    }
    assert events(waiting.pk).count("question_answered") == 1
    assert len(wakes) == 1
    assert lease.take(waiting.pk, waiting.lease, OTHER) is not None
    assert offered() == []


def test_two_last_answers_at_once_wake_the_task_exactly_once(stage: Stage) -> None:
    waiting = rows.waiting("one", "two")
    with stage.counting_wakes() as wakes:
        first = stage.begin(lambda: questions.answer(waiting.questions["one"], "1", by="ann"))
        second = stage.begin(lambda: questions.answer(waiting.questions["two"], "2", by="bob"))
        assert second.is_blocked_by(first)
        first.commit()
        second.commit()
    assert not Question.objects.filter(task_id=waiting.pk).pending().exists()
    assert fresh(waiting.pk).wake_at is not None
    assert len(wakes) == 1
    assert_sound(waiting.pk)


def test_an_answer_that_commits_before_the_expiry_is_judged_keeps_the_task_alive(stage: Stage) -> None:
    waiting = rows.waiting()
    Question.objects.filter(task_id=waiting.pk).update(expires_at=stage.now() + timedelta(seconds=0.4))
    moment = Question.objects.get(task_id=waiting.pk).expires_at
    assert moment is not None
    answer = stage.begin(lambda: questions.answer(waiting.questions["q"], "yes", by="ann"))
    assert answer.is_stopped
    stage.wait_until_past(moment)
    expiry = stage.begin(lambda: lifecycle.expire(waiting.pk))
    assert expiry.is_blocked_by(answer)
    answer.commit()
    assert isinstance(expiry.refusal(), Refused)
    assert Question.objects.get(task_id=waiting.pk).status == "answered"
    assert fresh(waiting.pk).wake_at is not None
    assert_sound(waiting.pk)


def test_an_answer_that_comes_after_the_expiry_is_refused_and_writes_nothing(stage: Stage) -> None:
    waiting = rows.waiting()
    expiry = stage.begin(lambda: lifecycle.expire(waiting.pk, by="ann"))
    answer = stage.begin(lambda: questions.answer(waiting.questions["q"], "yes", by="bob"))
    assert answer.is_blocked_by(expiry)
    expiry.commit()
    assert isinstance(answer.refusal(), QuestionWithdrawn)
    task, question = fresh(waiting.pk), Question.objects.get(task_id=waiting.pk)
    assert (task.current_state, task.watchdog_stop_reason) == ("expired", "expired:awaiting_user_answer:q")
    assert (question.status, question.answer, question.answered_by_ref) == ("withdrawn", None, "")
    assert "question_answered" not in events(waiting.pk)


def test_an_answer_whose_question_expires_while_it_waits_for_the_lock_is_refused(stage: Stage) -> None:
    def scene(seconds: float) -> tuple[UUID, datetime, Callable[[], Any]]:
        waiting = rows.waiting(asks=[Ask("q", "?", expires_after=timedelta(seconds=seconds))])
        question = Question.objects.get(task_id=waiting.pk)
        assert question.expires_at is not None
        return waiting.pk, question.expires_at, lambda: questions.answer(question.pk, "yes", by="ann")

    pk, outcome = _run_past(stage, scene)
    assert isinstance(outcome, QuestionExpired)
    assert Question.objects.get(task_id=pk).status == "pending"
    assert fresh(pk).wake_at is None
    assert tick().expired == 1


def test_a_resume_whose_task_expires_while_it_waits_for_the_lock_is_refused(stage: Stage) -> None:
    def scene(seconds: float) -> tuple[UUID, datetime, Callable[[], Any]]:
        task = creation.create(BODY, expires_after=timedelta(seconds=seconds))
        assert task.expires_at is not None
        lifecycle.pause(task.pk)
        return task.pk, task.expires_at, lambda: lifecycle.resume(task.pk)

    pk, outcome = _run_past(stage, scene)
    assert isinstance(outcome, Refused)
    assert fresh(pk).is_held


@pytest.mark.parametrize("cancel_first", [True, False])
def test_an_answer_beside_a_cancel_is_refused_or_recorded_and_the_task_is_unwound(
    stage: Stage, cancel_first: bool
) -> None:
    waiting = rows.waiting()
    verbs: list[Callable[[], Any]] = [
        lambda: lifecycle.cancel(waiting.pk, by="ann"),
        lambda: questions.answer(waiting.questions["q"], "yes", by="bob"),
    ]
    first = stage.begin(verbs[not cancel_first])
    second = stage.begin(verbs[cancel_first])
    assert second.is_blocked_by(first)
    first.commit()
    if cancel_first:
        assert isinstance(second.refusal(), QuestionWithdrawn)
    else:
        second.commit()
    taken = lease.take(waiting.pk, waiting.lease, OTHER)
    assert taken is not None
    assert taken.requests.ending == "cancelled"
    assert_sound(waiting.pk)


# --- signals ----------------------------------------------------------------------------------------------------------


def test_a_signal_that_waits_for_a_parking_task_wakes_it(stage: Stage) -> None:
    running = rows.running()
    park = stage.begin(
        lambda: signals_in.consume_or_park(running.pk, running.lease, "paid", timeout=None, deadline=None)
    )
    send = stage.begin(lambda: signals_in.send(running.pk, "paid", {"n": 1}))
    assert send.is_blocked_by(park)
    assert park.commit().parked
    send.commit()
    task = fresh(running.pk)
    assert (task.current_state, task.watchdog_stop_reason) == ("parked", "awaiting_signal:paid")
    assert task.wake_at is not None
    assert offered() == [running.pk]


def test_a_task_that_would_park_behind_a_signal_consumes_it_instead(stage: Stage) -> None:
    running = rows.running()
    send = stage.begin(lambda: signals_in.send(running.pk, "paid", {"n": 1}))
    park = stage.begin(
        lambda: signals_in.consume_or_park(running.pk, running.lease, "paid", timeout=None, deadline=None)
    )
    assert park.is_blocked_by(send)
    send.commit()
    waited = park.commit()
    assert waited.signal is not None
    assert waited.signal.payload == {"n": 1}
    assert fresh(running.pk).current_state == "running"
    assert Signal.objects.get(task_id=running.pk).consumed_in == fresh(running.pk).log_length
    assert_sound(running.pk)


def test_two_signals_with_one_key_are_one(stage: Stage) -> None:
    pk = rows.due()
    first = stage.begin(lambda: signals_in.send(pk, "paid", 1, key="invoice-7"))
    second = stage.begin(lambda: signals_in.send(pk, "paid", 2, key="invoice-7"))
    assert second.is_blocked_by(first)
    assert first.commit().pk == second.commit().pk
    assert events(pk).count("signal_sent") == 1


def test_a_signal_beside_the_end_is_refused_or_kept_and_never_lost_silently(stage: Stage) -> None:
    running = rows.running()
    completion = stage.begin(held(lambda: ends.complete(running.pk, running.lease)))
    send = stage.begin(lambda: signals_in.send(running.pk, "paid"))
    assert send.is_blocked_by(completion)
    completion.commit()
    assert isinstance(send.refusal(), Refused)
    assert not Signal.objects.filter(task_id=running.pk).exists()


# --- reaping ----------------------------------------------------------------------------------------------------------


def test_a_task_that_finishes_between_the_sweeps_read_and_its_update_stays_finished(stage: Stage) -> None:
    running = rows.running()
    rows.lose_worker(running.pk)
    completion = stage.begin(held(lambda: ends.complete(running.pk, running.lease, {"ok": 1})))
    sweep = stage.begin(tick)  # has read that the task runs without a beat
    assert sweep.is_blocked_by(completion)
    completion.commit()
    assert sweep.commit().reaped == 0
    task = fresh(running.pk)
    assert (task.current_state, task.result, task.lease, task.recoveries) == ("completed", {"ok": 1}, running.lease, 0)
    assert_sound(running.pk)


def test_a_completion_that_comes_after_the_reap_is_refused(stage: Stage) -> None:
    running = rows.running()
    rows.lose_worker(running.pk)
    reap = stage.begin(lambda: lease.reap(running.pk))
    completion = stage.begin(lambda: ends.complete(running.pk, running.lease, {"ok": 1}))
    assert completion.is_blocked_by(reap)
    assert reap.commit() is True
    assert isinstance(completion.refusal(), LeaseLost)
    task = fresh(running.pk)
    assert (task.current_state, task.watchdog_stop_reason, task.result) == ("parked", "worker_lost", None)
    assert offered() == [running.pk]


def test_two_reapers_bump_the_lease_once(stage: Stage) -> None:
    running = rows.running()
    rows.lose_worker(running.pk)
    first, second = stage.begin(lambda: lease.reap(running.pk)), stage.begin(tick)
    assert second.is_blocked_by(first)
    assert first.commit() is True
    assert second.commit().reaped == 0
    task = fresh(running.pk)
    assert (task.lease, task.recoveries) == (running.lease + 1, 1)
    assert events(running.pk).count("task_parked") == 1


def test_a_beat_passes_a_client_that_holds_the_task_and_the_live_worker_is_not_reaped(stage: Stage) -> None:
    running = rows.running()
    rows.lose_worker(running.pk)  # its last beat is old; the next one comes now
    with stage.holding_task(running.pk) as client:
        reap = stage.run(lambda: lease.reap(running.pk))
        assert reap.is_blocked_by(client)
        assert stage.run(lambda: lease.beat(running.pk, running.lease)).commit() is True
    assert reap.commit() is False
    assert fresh(running.pk).current_state == "running"


def test_a_reaper_that_meets_a_beat_waits_for_it_and_lets_the_worker_live(stage: Stage) -> None:
    running = rows.running()
    rows.lose_worker(running.pk)
    beat = stage.begin(held(lambda: lease.beat(running.pk, running.lease)))
    reap = stage.begin(lambda: lease.reap(running.pk))
    assert reap.is_blocked_by(beat)
    assert beat.commit() is True
    assert reap.commit() is False
    assert fresh(running.pk).lease == running.lease


def test_a_beat_that_waits_for_the_reaper_learns_that_the_lease_is_gone(stage: Stage) -> None:
    running = rows.running()
    rows.lose_worker(running.pk)
    reap = stage.begin(lambda: lease.reap(running.pk))
    beat = stage.begin(lambda: lease.beat(running.pk, running.lease))
    assert beat.is_blocked_by(reap)
    assert reap.commit() is True
    assert beat.commit() is False


def test_a_beat_carries_the_time_after_its_wait_for_a_lock(stage: Stage) -> None:
    running = rows.running()
    with stage.holding("SELECT 1 FROM supervision_heartbeat WHERE task_id = %s FOR UPDATE", running.pk) as holder:
        beat = stage.run(lambda: lease.beat(running.pk, running.lease))
        assert beat.is_blocked_by(holder)
        released = stage.now()
    beat.commit()
    assert Heartbeat.objects.get(task_id=running.pk).beat_at > released


def test_a_checkpoint_beside_a_pause_is_recorded_and_sees_it(stage: Stage) -> None:
    running = rows.running()
    pause = stage.begin(lambda: lifecycle.pause(running.pk))
    checkpoint = stage.begin(lambda: lease.checkpoint(running.pk, running.lease, name="row"))
    assert checkpoint.is_blocked_by(pause)
    pause.commit()
    assert checkpoint.commit().pause
    assert_sound(running.pk)


# --- creation ---------------------------------------------------------------------------------------------------------


def test_two_forks_at_once_are_one(stage: Stage) -> None:
    source = rows.ended()
    first = stage.begin(lambda: forks.fork(source, by="ann"))
    second = stage.begin(lambda: forks.fork(source, by="bob"))
    assert second.is_blocked_by(first)
    assert first.commit().pk == second.commit().pk
    (fork,) = Task.objects.filter(forked_from=source)
    assert events(fork.pk) == ["task_created"]


def test_a_second_click_on_retry_changes_nothing_in_the_fork(stage: Stage) -> None:
    waiting = rows.waiting()
    questions.answer(waiting.questions["q"], "yes", by="ann")
    lifecycle.terminate(waiting.pk, by="ann")
    fork = forks.fork(waiting.pk, from_scratch=True)
    assert forks.fork(waiting.pk).pk == fork.pk
    assert not Question.objects.filter(task_id=fork.pk).exists()


def test_two_creations_with_one_idempotency_key_make_one_task(stage: Stage) -> None:
    first = stage.begin(lambda: creation.create(BODY, {"n": 1}, idempotency_key="order-7"))
    second = stage.begin(lambda: creation.create(BODY, {"n": 2}, idempotency_key="order-7"))
    assert second.is_blocked_by(first)
    assert first.commit().pk == second.commit().pk
    assert Task.objects.get().arguments == {"n": 1}
    assert LogEntry.objects.count() == 1


def test_a_creation_that_is_rolled_back_leaves_its_idempotency_key_to_the_next(stage: Stage) -> None:
    def rolled_back() -> None:
        from django.db import transaction

        with transaction.atomic():
            creation.create(BODY, {"n": 1}, idempotency_key="order-7")
            raise RuntimeError

    first = stage.begin(rolled_back)
    second = stage.begin(lambda: creation.create(BODY, {"n": 2}, idempotency_key="order-7"))
    assert second.is_blocked_by(first)
    assert isinstance(first.refusal(), RuntimeError)
    second.commit()
    assert Task.objects.get().arguments == {"n": 2}


def test_two_creations_with_one_concurrency_key_make_one_live_task(stage: Stage) -> None:
    first = stage.begin(lambda: creation.create(BODY, concurrency_key="customer-7"))
    second = stage.begin(lambda: creation.create(BODY, concurrency_key="customer-7"))
    assert second.is_blocked_by(first)
    winner = first.commit()
    refusal = second.refusal()
    assert isinstance(refusal, ConcurrencyKeyHeld)
    assert refusal.task.pk == winner.pk
    assert Task.objects.count() == 1


def test_a_concurrency_key_that_is_freed_meanwhile_admits_the_next(stage: Stage) -> None:
    running = rows.running(concurrency_key="customer-7")
    completion = stage.begin(held(lambda: ends.complete(running.pk, running.lease)))
    creation_ = stage.begin(lambda: creation.create(BODY, concurrency_key="customer-7"))
    assert creation_.is_blocked_by(completion)
    completion.commit()
    assert creation_.commit().pk != running.pk


def test_a_creation_beside_the_pruning_of_its_key_finds_the_tombstone(stage: Stage) -> None:
    pk = rows.ended(idempotency_key="order-7")
    prune = stage.begin(lambda: retention.prune(pk))
    create = stage.begin(lambda: creation.create(BODY, idempotency_key="order-7"))
    assert create.is_blocked_by(prune)
    assert prune.commit() == [pk]
    assert isinstance(create.refusal(), AlreadyPruned)
    assert not Task.objects.exists()
    assert Tombstone.objects.get().idempotency_key == "order-7"


def test_a_pruning_that_is_rolled_back_leaves_the_task_to_the_waiting_creation(stage: Stage) -> None:
    pk = rows.ended(idempotency_key="order-7")

    def rolled_back() -> None:
        from django.db import transaction

        with transaction.atomic():
            retention.prune(pk)
            raise RuntimeError

    prune = stage.begin(rolled_back)
    create = stage.begin(lambda: creation.create(BODY, idempotency_key="order-7"))
    assert create.is_blocked_by(prune)
    prune.refusal()
    assert create.commit().pk == pk


def test_two_prunings_at_once_are_one(stage: Stage) -> None:
    from supervision.errors import TaskNotFound

    pk = rows.ended()
    first, second = stage.begin(lambda: retention.prune(pk)), stage.begin(lambda: retention.prune(pk))
    assert second.is_blocked_by(first)
    first.commit()
    assert isinstance(second.refusal(), TaskNotFound)


def test_a_fork_beside_the_pruning_of_its_source_is_refused_or_complete(stage: Stage) -> None:
    from supervision.errors import TaskNotFound

    pk = rows.ended()
    prune = stage.begin(lambda: retention.prune(pk))
    fork = stage.begin(lambda: forks.fork(pk))
    assert fork.is_blocked_by(prune)
    prune.commit()
    assert isinstance(fork.refusal(), TaskNotFound)
    assert not Task.objects.exists()

"""Faults that bodies had: each found by a hostile test, each said once."""

import asyncio
import contextlib
import itertools
import os
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from functools import partial
from typing import Any

import pytest
from django.contrib.auth.models import Group

from supervision.engines import Context, Failure, Retry, StepFailed, registry, retry, start
from supervision.engines.bodies import body
from supervision.engines.bodies.asynchronous import AsyncContext
from supervision.engines.steps import within
from supervision.errors import LeaseLost, NotStorable, StepTimedOut
from supervision.kernel import due, lease, lifecycle, signals_in
from supervision.kernel.models import LogEntry, Question, Task
from supervision.testing import answer, run_until_idle, travel
from supervision.worker.drive import drive_one
from supervision.worker.heart import Heart

pytestmark = pytest.mark.django_db

CALLS: Counter[str] = Counter()
_NAMES = itertools.count()


class Died(LeaseLost):
    """The process is gone: nothing that it still does is recorded."""


@pytest.fixture(autouse=True)
def _fresh_calls() -> Iterator[None]:
    CALLS.clear()
    before = set(registry.known_versions())
    yield
    for name in set(registry.known_versions()) - before:
        registry.unregister(name)


def count(name: str, value: Any = None) -> Any:
    CALLS[name] += 1
    return value


async def acount(name: str, value: Any = None) -> Any:
    return count(name, value)


def begin(function: Any, arguments: dict[str, Any] | None = None, **options: Any) -> Task:
    name = f"faults.{next(_NAMES)}"
    body(name, form=None, **options)(function)
    return start(name, arguments)


def run(function: Any, arguments: dict[str, Any] | None = None, **options: Any) -> Task:
    task = begin(function, arguments, **options)
    run_until_idle()
    return fresh(task)


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


def lose_the_worker(task: Task) -> None:
    assert lease.reap(task.pk, lost=lease.Worker("", lease.host_identity(), os.getpid()))


# --- async bodies


def test_arguments_of_an_async_body_are_what_its_annotations_say() -> None:
    async def work(task: AsyncContext, *, day: date) -> list[str]:
        return [type(day).__name__, day.isoformat()]

    assert run(work, {"day": date(2024, 2, 29)}).result == ["date", "2024-02-29"]


def test_a_cancelled_call_leaves_no_other_waiting() -> None:
    async def work(task: AsyncContext) -> Any:
        running, asking = asyncio.Barrier(3), asyncio.Event()

        async def stick() -> None:
            await running.wait()
            await asyncio.Event().wait()

        async def fail() -> None:
            await running.wait()
            await asking.wait()
            raise OSError("no")

        async def ask() -> None:
            await running.wait()
            asking.set()
            await task.aask("go", "Go?")  # waits for the stuck step, and is cancelled with it when the other one fails

        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                group.create_task(task.astep("stuck", stick))
                group.create_task(task.astep("fails", fail))
                group.create_task(ask())
        return await task.astep("after", acount, "after", "went on")

    assert run(work).result == "went on"


def test_a_retry_that_was_waited_for_does_not_run_beside_a_suspension() -> None:
    async def flaky(asked: asyncio.Event) -> None:
        CALLS["flaky"] += 1
        asked.set()
        raise OSError("no")

    async def work(task: AsyncContext) -> Any:
        asked = asyncio.Event()

        async def ask() -> Any:
            await asked.wait()
            return await task.aask("go", "Go?")

        return await asyncio.gather(
            task.astep("flaky", flaky, asked, retry=Retry(attempts=9, first_delay=0.01, jitter=0)),
            ask(),
        )

    task = run(work)
    assert task.watchdog_stop_reason == "awaiting_user_answer:go"
    failures = LogEntry.objects.filter(task=task, event="step_attempt_failed")
    assert CALLS["flaky"] == failures.count()


def test_an_async_step_whose_result_cannot_be_stored_is_recorded_as_failed_by_name() -> None:
    async def work(task: AsyncContext) -> None:
        await task.astep("odd", acount, "odd", {1, 2})

    task = run(work)
    assert task.watchdog_stop_reason == "retries_exhausted:odd"
    assert "the result of step odd can't be stored" in task.failure


def test_a_step_that_failed_in_a_task_group_makes_a_dead_letter() -> None:
    async def fail() -> None:
        raise OSError("no")

    async def work(task: AsyncContext) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(task.astep("call", fail))

    task = run(work)
    assert task.watchdog_stop_reason == "retries_exhausted:call"
    assert list(Task.objects.dead_lettered()) == [task]


def test_an_async_worker_that_cannot_beat_starts_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(task: AsyncContext) -> None:
        await task.astep("first", acount, "first")
        monkeypatch.setattr(Heart, "is_fresh", lambda heart: False)
        monkeypatch.setattr(Heart, "beat", lambda heart: False)
        await task.astep("second", acount, "second")

    task = begin(work)
    drive_one(task.pk, task.lease, stopping=lambda: False, thread=False)
    assert CALLS == {"first": 1}


# --- at most once


def test_a_verdict_is_of_one_intention_and_no_other_round_uses_it() -> None:
    def pay() -> str:
        CALLS["pay"] += 1
        if CALLS["pay"] in (1, 3):  # the worker dies in each round's first attempt
            raise Died
        return f"paid {CALLS['pay']}"

    def work(task: Context, *, round: int = 1) -> Any:
        paid = task.step("pay", pay, once=True)
        if round == 1:
            task.continue_as_new(round=2)
        return paid

    task = run(work)
    lose_the_worker(task)
    run_until_idle()
    answer(task, {"uncertain:pay:1": "run"})
    run_until_idle()
    lose_the_worker(task)
    run_until_idle()
    assert CALLS["pay"] == 3
    (question,) = Question.objects.filter(task=task).pending()
    answer(task, {question.key: "run"})
    run_until_idle()
    assert fresh(task).result == "paid 4"


def test_long_names_have_questions_of_their_own() -> None:
    names = [f"{'pay ' * 60}{which}" for which in "ab"]

    def pay() -> None:
        CALLS["pay"] += 1
        if CALLS["pay"] < 3:
            raise Died

    def work(task: Context) -> None:
        for name in names:
            with contextlib.suppress(StepFailed):
                task.step(name, pay, once=True)

    task = run(work)
    for _ in names:
        lose_the_worker(task)
        run_until_idle()
        (question,) = Question.objects.filter(task=task).pending()
        answer(task, {question.key: "give_up"})
        run_until_idle()
    assert fresh(task).current_state == "completed"
    assert CALLS == {"pay": 2}


# --- decisions


def test_decisions_before_a_refused_call_are_recorded_by_the_next() -> None:
    def work(task: Context) -> None:
        task.decisions["seen"] = 1
        with pytest.raises(NotStorable):
            task.ask("k" * 500, "Too long a key")
        task.checkpoint("next")
        raise Died

    assert run(work).locked_decisions == {"seen": 1}


def test_an_atomic_step_records_decisions_like_any_other_or_rolls_them_back_with_it() -> None:
    def work(task: Context) -> None:
        task.decisions["seen"] = 1
        with pytest.raises(StepFailed):
            task.step("fails", os.stat, "/nonexistent", key=1, atomic=True)
        task.decisions["seen"] = 2
        task.step("group", lambda: Group.objects.create(name="x").pk, key=1, atomic=True)
        raise Died

    assert run(work).locked_decisions == {"seen": 2}


# --- continue_as_new


def test_continue_as_new_inside_a_step_is_refused() -> None:
    def work(task: Context, *, round: int = 0) -> None:
        task.step("outer", lambda: task.continue_as_new(round=1))

    assert "inside the step" in run(work).failure


def test_continue_as_new_checks_the_arguments_where_they_are_given() -> None:
    def work(task: Context, *, day: date | None = None) -> Any:
        if day is None:
            task.continue_as_new(day=date(2024, 2, 29))
        try:
            task.continue_as_new(dya=1)
        except Exception as error:
            return f"{day} {error}"

    assert str(run(work).result).startswith("2024-02-29 The arguments don't fit")


# --- retries of ended tasks


def test_a_retry_finds_the_signals_that_its_source_had_not_consumed() -> None:
    broken = {"is": True}

    def work(task: Context) -> Any:
        first = task.wait_for_signal("paid")
        if broken["is"]:
            raise Failure("broken")
        second = task.wait_for_signal("paid")
        third = task.wait_for_signal("paid")
        return [signal and signal.payload for signal in (first, second, third)]

    task = begin(work)
    for number in (1, 2):
        signals_in.send(task.pk, "paid", number)
    run_until_idle()
    broken["is"] = False
    fork = retry(task.pk)
    signals_in.send(fork.pk, "paid", 3)
    run_until_idle()
    assert fresh(fork).result == [1, 2, 3]

    fork_of_fork = retry(fork.pk, from_step="signal:paid#2")
    run_until_idle()
    assert fresh(fork_of_fork).result == [1, 2, 3]

    afresh = retry(fork.pk, from_scratch=True)
    run_until_idle()
    assert fresh(afresh).watchdog_stop_reason == "awaiting_signal:paid"


# --- recoveries


def test_a_task_that_makes_progress_without_steps_may_lose_many_workers() -> None:
    lost = set()

    def work(task: Context) -> int:
        for turn in range(9):
            signal = task.wait_for_signal("tick")
            assert signal is not None
            if turn not in lost:
                lost.add(turn)
                raise Died
        return len(lost)

    task = run(work)
    for turn in range(9):
        signals_in.send(task.pk, "tick", turn)
        run_until_idle()
        lose_the_worker(task)
    run_until_idle()
    assert fresh(task).result == 9


# --- timeouts


def test_an_alarm_at_the_very_end_of_a_step_is_no_other_error() -> None:
    """The alarm rings at every instruction around the function's return; one that escaped would look like a crash."""
    ended = Counter[bool]()

    def work(seconds: float) -> None:
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            pass

    for attempt in range(1500):
        try:
            within("step", 0.0002, partial(work, 0.00017 + attempt % 60 * 1e-6))
        except StepTimedOut:
            ended[True] += 1
        else:
            ended[False] += 1
    assert min(ended[True], ended[False]) > 10


def test_a_timeout_of_nothing_is_refused_rather_than_ignored() -> None:
    assert "must be more than nothing" in run(lambda task: task.step("x", count, "x", timeout=0)).failure


# --- versions


def test_a_task_of_an_old_version_is_left_to_old_workers_then_parked_and_still_theirs() -> None:
    task = begin(lambda task: task.ask("go", "Go?"))
    old, new = [(task.body, 1)], [(task.body, 2)]
    assert due.offer(9, queues=None, bodies=new) == []
    with travel(timedelta(minutes=2)):
        (offer,) = due.offer(9, queues=None, bodies=new)
        registry.unregister(task.body)
        body(task.body, version=2)(lambda task: task.ask("go", "Go?"))
        drive_one(offer.task_id, offer.lease, stopping=lambda: False, thread=False)
        assert fresh(task).watchdog_stop_reason == "version_changed:1->2"
    with travel(timedelta(hours=2)):
        assert due.offer(9, queues=None, bodies=new) == []
        assert [each.task_id for each in due.offer(9, queues=None, bodies=old)] == [task.pk]


def test_an_old_worker_gives_back_a_task_that_became_a_newer_one_after_it_was_offered() -> None:
    task = begin(lambda task: task.ask("go", "Go?"))
    Task.objects.filter(pk=task.pk).update(body_version=2)
    drive_one(task.pk, task.lease, stopping=lambda: False, thread=False)
    task = fresh(task)
    assert (task.current_state, task.watchdog_stop_reason) == ("parked", "yielded:newer_version")
    assert task.wake_at is not None


def test_an_old_task_that_is_cancelled_is_unwound_by_the_new_code_when_nobody_else_does() -> None:
    task = run(lambda task: task.wait_for_signal("never"))
    registry.unregister(task.body)
    body(task.body, version=2)(lambda task: task.wait_for_signal("never"))
    signals_in.send(task.pk, "never")
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "version_changed:1->2"
    lifecycle.cancel(task.pk, by="alice")
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "cancelled:alice"

"""Compensations: what was done is undone in reverse before a task's end is written, whatever ends it."""

import itertools
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from supervision.engines import Cancelled, Context, Failure, Retry, registry, retry, start
from supervision.engines.bodies import body
from supervision.engines.bodies.asynchronous import AsyncContext
from supervision.errors import LeaseLost
from supervision.kernel import lease, lifecycle, log
from supervision.kernel.models import LogEntry, Task
from supervision.testing import run_until_idle, travel

pytestmark = pytest.mark.django_db

DONE: list[str] = []
_NAMES = itertools.count()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    DONE.clear()
    before = set(registry.known_versions())
    yield
    for name in set(registry.known_versions()) - before:
        registry.unregister(name)


def do(name: str) -> str:
    DONE.append(f"+{name}")
    return name


def undo(name: str) -> None:
    DONE.append(f"-{name}")


def run(function: Any, **options: Any) -> Task:
    name = f"undo.{next(_NAMES)}"
    body(name, **options)(function)
    task = start(name)
    run_until_idle()
    return fresh(task)


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


def two_steps(task: Context) -> None:
    task.step("a", do, "a", compensate=undo)
    task.step("plain", do, "plain")
    task.step("b", do, "b", compensate=undo)


def test_a_failure_undoes_completed_steps_in_reverse() -> None:
    def work(task: Context) -> None:
        two_steps(task)
        raise Failure("no stock")

    task = run(work)
    assert DONE == ["+a", "+plain", "+b", "-b", "-a"]
    assert (task.current_state, task.watchdog_stop_reason, task.failure) == ("failed", "failed:Failure", "no stock")
    assert task.compensations_outstanding == 0


def test_a_completed_task_undoes_nothing() -> None:
    task = run(two_steps)
    assert (task.current_state, task.compensations_outstanding) == ("completed", 0)
    assert DONE == ["+a", "+plain", "+b"]


def test_a_cancelled_task_is_undone_after_its_body_was_told() -> None:
    def work(task: Context) -> None:
        two_steps(task)
        try:
            task.ask("go", "Go?")
        except Cancelled:
            do("told")
            raise

    task = run(work)
    lifecycle.cancel(task.pk, by="alice")
    run_until_idle()
    assert DONE == ["+a", "+plain", "+b", "+told", "-b", "-a"]
    assert fresh(task).watchdog_stop_reason == "cancelled:alice"


def test_an_expired_task_with_something_to_undo_is_undone_first() -> None:
    def work(task: Context) -> None:
        two_steps(task)
        task.ask("go", "Go?")

    task = run(work, expires_after=timedelta(hours=1))
    with travel(timedelta(hours=2)):
        run_until_idle()
    assert DONE[3:] == ["-b", "-a"]
    assert fresh(task).watchdog_stop_reason == "expired:awaiting_user_answer:go"


@pytest.mark.parametrize("dies_at", [0, 1, 2, 3])
def test_killed_in_the_middle_it_goes_on_in_reverse(dies_at: int) -> None:
    class Died(BaseException): ...

    left = [dies_at]

    def fragile(name: str) -> None:
        undo(name)
        if left[0] == len([each for each in DONE if each.startswith("-")]):
            left[0] = -1
            raise Died

    def work(task: Context) -> None:
        for name in ("a", "b", "c"):
            task.step(name, do, name, compensate=fragile)
        raise Failure("no")

    import supervision.worker.drive as driving

    name = f"undo.{next(_NAMES)}"
    body(name)(work)
    task = start(name)
    with pytest.MonkeyPatch.context() as patched:
        # nothing is written after the death
        original = driving._unwound

        def dying(*args: Any) -> None:
            try:
                original(*args)
            except Died:
                raise LeaseLost from None

        patched.setattr(driving, "_unwound", dying)
        run_until_idle()
    lease.reap_process(host=lease.host_identity(), pid=os.getpid())
    run_until_idle()
    undone = [each for each in DONE if each.startswith("-")]
    assert [each for at, each in enumerate(undone) if each not in undone[:at]] == ["-c", "-b", "-a"]
    assert len(undone) == (4 if dies_at else 3)
    assert [each for each in DONE if each.startswith("+")] == ["+a", "+b", "+c"]
    task = fresh(task)
    assert (task.current_state, task.watchdog_stop_reason) == ("failed", "failed:Failure")


def test_a_compensation_is_retried_and_then_a_dead_letter_that_says_what_stays_done() -> None:
    def broken(name: str) -> None:
        DONE.append(f"!{name}")
        raise OSError("gone")

    def work(task: Context) -> None:
        task.step("a", do, "a", compensate=undo)
        task.step("b", do, "b", compensate=broken, compensate_retry=Retry(attempts=2, first_delay=60, jitter=0))
        task.step("c", do, "c", compensate=undo)
        raise Failure("no")

    task = run(work)
    assert task.watchdog_stop_reason == "retrying:undo:b"
    assert task.wake_at is not None
    assert run_until_idle() == 0
    with travel(timedelta(minutes=2)):
        run_until_idle()
    task = fresh(task)
    assert (task.current_state, task.watchdog_stop_reason) == ("failed", "compensation_exhausted:b")
    assert DONE == ["+a", "+b", "+c", "-c", "!b", "!b"]
    payload = log.page(task.pk).entries[-1].payload
    assert (payload["not_undone"], payload["intended"]) == ("b, a", "failed:Failure")
    assert list(Task.objects.dead_lettered()) == [task]
    assert task.compensations_outstanding == 2


def test_a_fork_does_again_what_was_undone() -> None:
    fails = [True]

    def work(task: Context) -> None:
        task.step("kept", do, "kept")
        task.step("a", do, "a", compensate=undo)
        if fails[0]:
            raise Failure("no")

    task = run(work)
    fails[0] = False
    fork = retry(task.pk)
    run_until_idle()
    assert fresh(fork).current_state == "completed"
    assert DONE == ["+kept", "+a", "-a", "+a"]


def test_code_that_lost_its_compensation_is_a_dead_letter() -> None:
    def old(task: Context) -> None:
        task.step("a", do, "a", compensate=undo)
        task.ask("go", "Go?")

    task = run(old)
    registry.unregister(task.body)
    body(task.body)(lambda task: task.ask("go", "Go?"))
    lifecycle.cancel(task.pk, by="alice")
    run_until_idle()
    task = fresh(task)
    assert task.watchdog_stop_reason == "compensation_exhausted:not found"
    assert log.page(task.pk).entries[-1].payload["intended"] == "cancelled:alice"


def test_poison_with_something_to_undo_is_undone() -> None:
    class Died(BaseException): ...

    def work(task: Context) -> None:
        task.step("a", do, "a", compensate=undo)
        if task.answers is not None:
            raise Died

    import supervision.worker.drive as driving

    with pytest.MonkeyPatch.context() as patched:
        original = driving._raised

        def dying(error: BaseException, *rest: Any) -> None:
            if isinstance(error, Died):
                raise LeaseLost from None
            original(error, *rest)

        patched.setattr(driving, "_raised", dying)
        task = run(work)
        for _ in range(6):
            lease.reap_process(host=lease.host_identity(), pid=os.getpid())
            if fresh(task).ending:
                break
            run_until_idle()
    assert fresh(task).ending_reason == "recoveries_exhausted:6"
    run_until_idle()
    assert DONE == ["+a", "-a"]
    assert fresh(task).watchdog_stop_reason == "recoveries_exhausted:6"
    assert list(Task.objects.dead_lettered()) == [task]


def test_async_steps_are_undone_alike() -> None:
    async def ado(name: str) -> str:
        return do(name)

    async def aundo(name: str) -> None:
        undo(name)

    async def work(task: AsyncContext) -> None:
        await task.astep("a", ado, "a", compensate=aundo)
        await task.astep("b", ado, "b", compensate=undo)
        raise Failure("no")

    task = run(work)
    assert DONE == ["+a", "+b", "-b", "-a"]
    events = LogEntry.objects.filter(task=task, event="step_compensated").order_by("sequence_num")
    assert list(events.values_list("name", flat=True)) == ["b", "a"]

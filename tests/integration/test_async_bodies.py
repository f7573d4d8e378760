"""``async def`` bodies: gathered steps are recorded as they finish, and one suspension stops the new ones."""

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from supervision.engines import Cancelled, Retry, registry, start
from supervision.engines.bodies import body
from supervision.engines.bodies.asynchronous import AsyncContext
from supervision.kernel import lifecycle, signals_in
from supervision.kernel.models import LogEntry, Task
from supervision.testing import answer, run_until_idle, travel

pytestmark = pytest.mark.django_db

CALLS: Counter[str] = Counter()
_NAMES = itertools.count()


@pytest.fixture(autouse=True)
def _fresh_calls() -> Iterator[None]:
    CALLS.clear()
    before = set(registry.known_versions())
    yield
    for name in set(registry.known_versions()) - before:
        registry.unregister(name)


async def count(name: str, value: Any = None) -> Any:
    CALLS[name] += 1
    return value


def run(function: Any) -> Task:
    name = f"async.{next(_NAMES)}"
    body(name)(function)
    task = start(name)
    run_until_idle()
    return fresh(task)


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


def test_an_async_body_steps_asks_and_returns() -> None:
    async def work(task: AsyncContext) -> Any:
        first = await task.astep("first", count, "first", 1)
        said = await task.aask("go", "Go?")
        plain = await task.astep("plain", str.upper, "abc")
        return [first, said, plain]

    task = run(work)
    assert task.watchdog_stop_reason == "awaiting_user_answer:go"
    answer(task, {"go": "yes"})
    run_until_idle()
    assert fresh(task).result == [1, "yes", "ABC"]
    assert CALLS == {"first": 1}


def test_gathered_steps_are_recorded_whatever_order_they_finish_in() -> None:
    async def turn(at: int, gates: list[asyncio.Event]) -> int:
        if at + 1 < len(gates):
            await gates[at + 1].wait()
        gates[at].set()
        CALLS[f"turn{at}"] += 1
        return at

    async def work(task: AsyncContext) -> Any:
        gates = [asyncio.Event() for _ in range(5)]
        return await asyncio.gather(*(task.astep("turn", turn, at, gates, key=at) for at in range(5)))

    task = run(work)
    assert task.result == [0, 1, 2, 3, 4]
    names = list(LogEntry.objects.filter(task=task, event="step_completed").values_list("name", flat=True))
    assert set(names) == {f"turn[{at}]" for at in range(5)}


def test_the_first_suspension_lets_running_steps_finish_and_starts_no_new_ones() -> None:
    async def slow(started: asyncio.Event, asked: asyncio.Event) -> str:
        started.set()
        await asked.wait()
        CALLS["slow"] += 1
        return "slow"

    async def work(task: AsyncContext) -> Any:
        started, asked = asyncio.Event(), asyncio.Event()

        async def asker() -> Any:
            if not CALLS["slow"]:
                await started.wait()
            asked.set()
            return await task.aask("go", "Go?")

        async def late() -> Any:
            await asked.wait()
            await asyncio.sleep(0)
            return await task.astep("late", count, "late", "late")

        return await asyncio.gather(task.astep("slow", slow, started, asked), asker(), late())

    task = run(work)
    assert task.watchdog_stop_reason == "awaiting_user_answer:go"
    assert CALLS["slow"] == 1
    assert CALLS["late"] == 0
    answer(task, {"go": "yes"})
    run_until_idle()
    assert fresh(task).result == ["slow", "yes", "late"]
    assert CALLS == {"slow": 1, "late": 1}


def test_a_task_group_may_be_suspended() -> None:
    async def work(task: AsyncContext) -> Any:
        async with asyncio.TaskGroup() as group:
            step = group.create_task(task.astep("a", count, "a", 1))
            said = group.create_task(task.aask("go", "Go?"))
        return [step.result(), said.result()]

    task = run(work)
    assert task.watchdog_stop_reason == "awaiting_user_answer:go"
    answer(task, {"go": "yes"})
    run_until_idle()
    assert fresh(task).result == [1, "yes"]
    assert CALLS == {"a": 1}


def test_async_steps_are_retried_and_timed() -> None:
    async def flaky() -> str:
        CALLS["flaky"] += 1
        if CALLS["flaky"] < 3:
            raise OSError("no")
        return "ok"

    async def stuck() -> None:
        await asyncio.Event().wait()

    async def work(task: AsyncContext) -> Any:
        result = await task.astep("flaky", flaky, retry=Retry(attempts=5, first_delay=60, jitter=0))
        await task.astep("stuck", stuck, timeout=0.01)
        return result

    task = run(work)
    assert task.watchdog_stop_reason == "retrying:flaky"
    with travel(timedelta(minutes=10)):
        run_until_idle()
        with travel(timedelta(minutes=10)):
            run_until_idle()
    assert fresh(task).watchdog_stop_reason == "retries_exhausted:stuck"
    assert CALLS["flaky"] == 3


def test_waits_and_clean_up_work_in_async_bodies() -> None:
    async def work(task: AsyncContext) -> Any:
        await task.asleep(60)
        try:
            signal = await task.await_for_signal("go")
        except Cancelled:
            await task.astep("undo", count, "undo")
            raise
        return signal.payload if signal else None

    first, second = run(work), run(work)
    with travel(timedelta(minutes=2)):
        run_until_idle()
        signals_in.send(first.pk, "go", 7)
        lifecycle.cancel(second.pk, by="alice")
        run_until_idle()
    assert fresh(first).result == 7
    assert fresh(second).watchdog_stop_reason == "cancelled:alice"
    assert CALLS == {"undo": 1}


def test_a_timeout_that_cannot_be_armed_is_refused() -> None:
    async def work(task: AsyncContext) -> Any:
        return await task.astep("plain", str.upper, "abc", timeout=1)

    assert "can't be armed" in run(work).failure


def test_an_async_step_inside_a_step_is_refused() -> None:
    async def work(task: AsyncContext) -> Any:
        async def outer() -> None:
            await task.astep("inner", count, "inner")

        await task.astep("outer", outer)

    assert "steps don't nest" in run(work).failure
    assert not CALLS


def test_siblings_take_no_new_steps_while_the_body_cleans_up() -> None:
    async def work(task: AsyncContext) -> None:
        async def forward() -> None:
            for at in range(5):
                await task.astep("forward", slow, at, key=at)

        async def slow(at: int) -> None:
            CALLS[f"forward{at}"] += 1
            if at == 0:
                gate.set()
                lifecycle_cancelled.set()
            await asyncio.sleep(0)

        async def asks() -> None:
            await gate.wait()
            await task.aask("go", "Go?")

        gate, lifecycle_cancelled = asyncio.Event(), asyncio.Event()
        try:
            await asyncio.gather(forward(), asks())
        except Cancelled:
            await task.astep("undo", count, "undo")
            raise

    name = f"async.{next(_NAMES)}"
    body(name)(work)
    task = start(name)
    from supervision.kernel import lease

    taken = lease.take(task.pk, 0)
    assert taken is not None
    lifecycle.cancel(task.pk, by="alice")
    lease.park(taken.task_id, taken.lease, "worker_stopping")
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "cancelled:alice"
    assert CALLS["undo"] == 1
    assert sum(calls for name, calls in CALLS.items() if name.startswith("forward")) <= 1

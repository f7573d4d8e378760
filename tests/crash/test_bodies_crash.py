"""A body of a dozen different steps, its process ended at every crash point in turn, ends as if undisturbed."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection, connections

from supervision.engines import Cancelled, Context, Retry, StepFailed, registry, start
from supervision.engines.bodies import body
from supervision.engines.bodies.asynchronous import AsyncContext
from supervision.kernel import crash, lifecycle, questions, signals_in
from supervision.kernel.models import LogEntry, Question, Task
from supervision.kernel.question_form import Ask
from supervision.worker.drive import drive_one
from tests.crash.lives import count_points, live, live_for

pytestmark = pytest.mark.django_db(transaction=True)

VERBS = ("take", "checkpoint", "ask", "answer", "park", "signal", "consume", "complete")
POINTS = [f"{verb}:{moment}" for verb in VERBS for moment in ("before_commit", "after_commit")]
RESULT = [
    ["plain", "flaky at 2", "soon at 1", "effect of insert", "paid 1"],
    ["yes", {"amount": 3}, ["hopeless", "OSError", 1], None, ["effect of row0", "effect of row1"], ["a", "b"]],
    ["effect of insert again", "paid 2"],
]


# --- what the steps leave behind, on connections that the kernel knows nothing of


@pytest.fixture(autouse=True)
def _tables() -> Iterator[None]:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE crash_witness (place serial, what text, intentions int)")
        cursor.execute("CREATE TABLE crash_effect (what text)")
    yield
    with connection.cursor() as cursor:
        cursor.execute("DROP TABLE crash_witness, crash_effect")


def witness(what: str, task: Any) -> None:
    """Tells that ``what`` runs and under which intention, whatever becomes of the caller's transaction and process."""
    with _own_connection(os.getpid(), threading.get_ident()).cursor() as cursor:
        cursor.execute(
            "INSERT INTO crash_witness (what, intentions) SELECT %s, count(*) FROM supervision_logentry"
            " WHERE task_id = %s AND name = %s AND event = 'step_intended'",
            [what, task.id, what],
        )


@cache
def _own_connection(pid: int, thread: int) -> Any:
    """Of this thread of this process; it dies with that."""
    return connections.create_connection("default")


def witnessed() -> list[tuple[str, int]]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT what, intentions FROM crash_witness ORDER BY place")
        return list(cursor.fetchall())


def effects() -> list[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT what FROM crash_effect ORDER BY what")
        return [row[0] for row in cursor.fetchall()]


# --- the body


def plain(task: Context) -> str:
    witness("plain", task)
    return "plain"


def fails(task: Context, name: str, times: int) -> str:
    """Fails until so many failures are recorded."""
    witness(name, task)
    failed = LogEntry.objects.filter(task=task.id, name=name, event="step_attempt_failed").count()
    if failed < times:
        raise OSError(f"no {failed}")
    return f"{name} at {failed}"


def insert(task: Context, name: str, what: str) -> str:
    witness(name, task)
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO crash_effect VALUES (%s)", [what])
    return f"effect of {what}"


def pay(task: Context, amount: int) -> str:
    witness("pay", task)
    return f"paid {amount}"


def dozen(task: Context, *, so_far: list[Any] | None = None) -> Any:
    if so_far is not None:
        # names, intentions and occurrences begin anew in each round
        return [*so_far, [task.step("insert", insert, task, "insert", "insert again", atomic=True),
                          task.step("pay", pay, task, 2, once=True)]]  # fmt: skip
    first = [
        task.step("plain", plain, task),
        task.step("flaky", fails, task, "flaky", 2, retry=Retry(attempts=3, first_delay=30, jitter=0)),
        task.step("soon", fails, task, "soon", 1, retry=Retry(attempts=2, first_delay=0)),
        task.step("insert", insert, task, "insert", "insert", atomic=True),
        task.step("pay", pay, task, 1, once=True),
    ]
    task.log("Asking.", paid=True)
    said = task.ask("go", "Go?")
    signal = task.wait_for_signal("paid")
    assert signal is not None
    task.sleep(timedelta(hours=1))
    task.checkpoint("half way")
    try:
        task.step("hopeless", fails, task, "hopeless", 9)
    except StepFailed as failure:
        failed = [failure.step, failure.error_type, failure.attempts]
    never = task.wait_for_signal("never", timeout=timedelta(hours=1))
    rows = [task.step("row", insert, task, f"row[{n}]", f"row{n}", key=n, atomic=True) for n in range(2)]
    both = task.ask_all([Ask("one", "One?"), Ask("two", "Two?")])
    second = [said, signal.payload, failed, never, rows, [both["one"], both["two"]]]
    task.continue_as_new(so_far=[first, second])


def world(task: Task) -> bool:
    """A person who knows what happened, and a payment service."""
    question = Question.objects.filter(task=task).pending().order_by("pk").first()
    if question is not None:
        questions.answer(question.pk, _said(task, question.key), by="alice")
        return True
    if task.watchdog_stop_reason == "awaiting_signal:paid" and task.wake_at is None:
        signals_in.send(task.pk, "paid", {"amount": 3}, key="w1")
        return True
    return False


def _said(task: Task, key: str) -> str:
    if not key.startswith("uncertain:pay:"):
        return {"go": "yes", "one": "a", "two": "b"}[key]
    intended = LogEntry.objects.filter(task=task, event="step_intended").count()
    if key.endswith(":result"):
        return f'"paid {1 + (task.replay_from > 0)}"'
    return "happened" if ("pay", intended) in witnessed() else "run"


@pytest.fixture
def task() -> Iterator[Task]:
    body("crash.dozen", form=None)(dozen)
    yield start("crash.dozen")
    registry.unregister("crash.dozen")


def fresh(task_id: UUID) -> Task:
    return Task.objects.get(pk=task_id)


def settled(task_id: UUID, *, after: int = 0) -> Counter[str]:
    """The names of the steps that are recorded for good in the present round."""
    settling = LogEntry.objects.filter(task=task_id, event__in=["step_completed", "step_failed"])
    return Counter(settling.filter(sequence_num__gt=after).values_list("name", flat=True))


def assert_it_ended_as_if_nothing_had_happened(task_id: UUID) -> None:
    task = fresh(task_id)
    assert (task.current_state, task.result) == ("completed", RESULT), task.failure
    assert effects() == ["insert", "insert again", "row0", "row1"]
    assert settled(task_id) == {"plain": 1, "flaky": 1, "soon": 1, "insert": 2, "pay": 2, "hopeless": 1,
                                "row[0]": 1, "row[1]": 1}  # fmt: skip
    numbers = list(
        LogEntry.objects.filter(task=task_id).order_by("sequence_num").values_list("sequence_num", flat=True)
    )
    assert numbers == list(range(1, task.log_length + 1))
    executions = [intention for what, intention in witnessed() if what == "pay"]
    assert len(set(executions)) == len(executions), f"one intention was executed twice: {executions}"
    assert len(executions) == 2, "it was paid again without the word of somebody who knew that it had been paid"


def assert_no_recorded_step_ran(seen: int, recorded: Counter[str]) -> None:
    """Among what was witnessed after the first ``seen`` rows. ``insert`` and ``pay`` are steps of both rounds."""
    for what, times in Counter(name for name, _ in witnessed()[seen:]).items():
        if what in ("insert", "pay"):
            assert recorded[what] < 2, f"{what} was recorded twice, and ran again"
        else:
            assert recorded[what] == 0, f"{what} was recorded, and ran again {times} times"


def test_the_points_are_all_that_such_a_body_passes(task: Task, tmp_path: Path) -> None:
    passed = count_points(task.pk, world, tmp_path / "points")
    assert_it_ended_as_if_nothing_had_happened(task.pk)
    assert set(passed) == set(POINTS)


@pytest.mark.parametrize("point", POINTS)
def test_a_death_at_any_crash_point_changes_nothing(task: Task, point: str) -> None:
    number = 1
    task_id = task.pk
    while live(task_id, world, dies_at=f"{point}@{number}"):
        recorded, seen = settled(task_id), len(witnessed())
        assert not live(task_id, world)
        assert_it_ended_as_if_nothing_had_happened(task_id)
        assert_no_recorded_step_ran(seen, recorded)
        _clean()
        task_id = start("crash.dozen").pk
        number += 1
    assert number > 1, f"{point} was never reached"


def _clean() -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE crash_witness, crash_effect")


@pytest.mark.parametrize("points", [9, 11, 14])
def test_processes_that_die_again_and_again_get_it_done(task: Task, points: int) -> None:
    """Each gets a little further than the last: past its take, what it logs anew, and one record."""
    lives = 0
    recorded, seen = Counter[str](), 0
    while live_for(task.pk, world, points=points):
        assert_no_recorded_step_ran(seen, recorded)
        recorded, seen = settled(task.pk), len(witnessed())
        lives += 1
    assert lives > 3
    assert_it_ended_as_if_nothing_had_happened(task.pk)


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_body_that_kills_its_process_is_a_dead_letter_whatever_it_logs_before(is_cancelled: bool) -> None:
    def poison(task: Context) -> None:
        try:
            task.wait_for_signal("never")
        except Cancelled:
            task.log("Cleaning up.")
            os._exit(crash.EXIT_STATUS)

    def log_and_die(task: Context) -> None:
        task.log("Here we go.")
        task.step("kill", os._exit, crash.EXIT_STATUS)

    body("crash.poison")(poison if is_cancelled else log_and_die)
    try:
        task = start("crash.poison")
        if is_cancelled:
            drive_one(task.pk, task.lease, stopping=lambda: False, thread=False)
            lifecycle.cancel(task.pk)
        lives = 0
        while live(task.pk, world):
            lives += 1
    finally:
        registry.unregister("crash.poison")
    assert lives == 6
    assert fresh(task.pk).watchdog_stop_reason == "recoveries_exhausted:6"


class TestGather:
    """Twenty steps at once, of which seven were recorded when the process died."""

    @pytest.mark.parametrize("kind", ["coroutines", "threads"])
    def test_the_recorded_ones_are_not_run_again(self, kind: str) -> None:
        def in_thread(task: AsyncContext, number: int) -> int:
            witness(f"part[{number}]", task)
            return number * number

        async def in_loop(task: AsyncContext, number: int) -> int:
            await asyncio.to_thread(witness, f"part[{number}]", task)
            return number * number

        function: Any = in_loop if kind == "coroutines" else in_thread

        async def gathering(task: AsyncContext) -> list[int]:
            return list(await asyncio.gather(*(task.astep("part", function, task, n, key=n) for n in range(20))))

        body("crash.gather")(gathering)
        try:
            task = start("crash.gather")
            assert live(task.pk, world, dies_at="checkpoint:after_commit@7")
            recorded, seen = settled(task.pk), len(witnessed())
            assert recorded.total() == 7
            assert not live(task.pk, world)
        finally:
            registry.unregister("crash.gather")
        assert fresh(task.pk).result == [n * n for n in range(20)]
        ran_again = Counter(what for what, _ in witnessed()[seen:])
        assert set(ran_again) == {f"part[{n}]" for n in range(20)} - set(recorded)
        assert set(ran_again.values()) == {1}
        assert set(settled(task.pk).values()) == {1}

"""Durable steps: recorded once, found by name, retried, timed, atomic or at most once."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group

from supervision.engines import Cancelled, Context, Failure, Retry, StepFailed, registry, retry, start
from supervision.engines.bodies import body
from supervision.errors import Refused
from supervision.kernel import lifecycle, log, signals_in
from supervision.kernel.models import LogEntry, Question, Task
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


def count(name: str, value: Any = None) -> Any:
    CALLS[name] += 1
    return value


def run(function: Any, arguments: dict[str, Any] | None = None, **options: Any) -> Task:
    """Registers the function as a body, starts it and drives it as far as it goes."""
    name = f"steps.{next(_NAMES)}"
    body(name, **options)(function)
    task = start(name, arguments)
    run_until_idle()
    return fresh(task)


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


def events(task: Task) -> list[str]:
    return list(LogEntry.objects.filter(task=task).order_by("sequence_num").values_list("event", flat=True))


def test_a_recorded_step_is_never_computed_again() -> None:
    def work(task: Context) -> Any:
        first = task.step("first", count, "first", {"id": 7})
        task.ask("go", "Go?")
        return [first, task.step("second", count, "second", [1])]

    task = run(work)
    answer(task, {"go": "yes"})
    run_until_idle()
    assert fresh(task).result == [{"id": 7}, [1]]
    assert CALLS == {"first": 1, "second": 1}


def test_steps_in_a_loop_are_told_apart_by_their_occurrence() -> None:
    def work(task: Context) -> Any:
        values = [task.step("row", count, f"row{at}", at) for at in range(3)]
        task.sleep(60)
        return [*values, task.step("row", count, "row3", 3)]

    task = run(work)
    with travel(timedelta(minutes=2)):
        run_until_idle()
    assert fresh(task).result == [0, 1, 2, 3]
    assert set(CALLS.values()) == {1}


def test_added_and_moved_steps_keep_what_was_recorded() -> None:
    def old(task: Context) -> Any:
        task.step("a", count, "a", 1)
        task.step("b", count, "b", 2)
        return task.ask("go", "Go?")

    def new(task: Context) -> Any:
        b = task.step("b", count, "b", 2)
        added = task.step("added", count, "added", 9)
        return [task.step("a", count, "a", 1), b, added, task.ask("go", "Go?")]

    task = run(old)
    registry.unregister(task.body)
    body(task.body)(new)
    answer(task, {"go": "x"})
    run_until_idle()
    assert fresh(task).result == [1, 2, 9, "x"]
    assert CALLS == {"a": 1, "b": 1, "added": 1}


def test_another_call_under_a_recorded_name_parks_and_hands_on_nothing() -> None:
    def old(task: Context) -> Any:
        task.step("charge", count, "old", 100)
        return task.ask("go", "Go?")

    def new(task: Context) -> Any:
        return task.step("charge", count, "new", 200)

    task = run(old)
    registry.unregister(task.body)
    body(task.body)(new)
    answer(task, {"go": "x"})
    run_until_idle()
    task = fresh(task)
    assert (task.current_state, task.watchdog_stop_reason) == ("parked", "replay_mismatch:charge")
    assert CALLS == {"old": 1}
    lifecycle.resume(task.pk)
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "replay_mismatch:charge"


def test_the_first_result_is_what_every_replay_sees() -> None:
    seen: list[Any] = []

    def work(task: Context) -> Any:
        seen.append(task.step("pair", count, "pair", (1, 2)))
        return task.ask("go", "Go?")

    task = run(work)
    answer(task, {"go": "x"})
    run_until_idle()
    assert seen == [[1, 2], [1, 2]]


def test_a_step_without_retry_fails_at_once_and_is_a_dead_letter() -> None:
    def boom() -> None:
        CALLS["boom"] += 1
        raise ConnectionResetError("peer")

    task = run(lambda task: task.step("call", boom))
    assert (task.current_state, task.watchdog_stop_reason) == ("failed", "retries_exhausted:call")
    assert "ConnectionResetError: peer" in task.failure
    assert CALLS["boom"] == 1
    assert list(Task.objects.dead_lettered()) == [task]


def test_a_step_is_retried_with_growing_delays_and_every_error_is_kept() -> None:
    def flaky() -> str:
        CALLS["flaky"] += 1
        if CALLS["flaky"] < 4:
            raise OSError(f"no {CALLS['flaky']}")
        return "ok"

    policy = Retry(attempts=5, first_delay=10, factor=3, max_delay=40, jitter=0)
    task = run(lambda task: task.step("call", flaky, retry=policy))
    waits = []
    for hop in range(3):
        task = fresh(task)
        assert (task.current_state, task.watchdog_stop_reason) == ("parked", "retrying:call")
        assert task.wake_at is not None
        waits.append(round((task.wake_at - task.state_changed_at).total_seconds()))
        with travel(timedelta(seconds=41 * (hop + 1))):
            run_until_idle()
            # the clock goes back after each hop, so what was parked ahead of it is brought back too
        Task.objects.filter(pk=task.pk, current_state="parked").update(wake_at=task.created_at)
    run_until_idle()
    task = fresh(task)
    assert task.result == "ok"
    errors = [e.payload["error"] for e in LogEntry.objects.filter(task=task, event="step_attempt_failed")]
    assert errors == ["no 1", "no 2", "no 3"]
    assert waits[0] == 10


def test_delays_grow_to_their_cap() -> None:
    policy = Retry(attempts=9, first_delay=2, factor=2, max_delay=60, jitter=0)
    assert [policy.delay(n) for n in range(1, 8)] == [2, 4, 8, 16, 32, 60, 60]
    assert all(1.5 <= Retry(first_delay=2, jitter=0.25).delay(1) <= 2 for _ in range(100))


def test_an_exception_that_is_not_worth_another_attempt_is_not_retried() -> None:
    def wrong() -> None:
        CALLS["wrong"] += 1
        raise KeyError("x")

    task = run(lambda task: task.step("call", wrong, retry=Retry(attempts=5, on=(OSError,))))
    assert task.watchdog_stop_reason == "retries_exhausted:call"
    assert CALLS["wrong"] == 1


def test_a_caught_failure_is_replayed_alike() -> None:
    def boom() -> None:
        CALLS["boom"] += 1
        raise OSError("no")

    def work(task: Context) -> Any:
        try:
            task.step("call", boom)
        except StepFailed as failed:
            how = [failed.step, failed.error_type, failed.error, failed.attempts]
        return [how, task.ask("go", "Go?")]

    task = run(work)
    answer(task, {"go": "x"})
    run_until_idle()
    assert fresh(task).result == [["call", "OSError", "no", 1], "x"]
    assert CALLS["boom"] == 1


def test_a_step_that_runs_too_long_is_a_failed_attempt() -> None:
    def slow() -> None:
        while True:
            CALLS["spins"] += 1

    task = run(lambda task: task.step("slow", slow, timeout=0.05))
    assert task.watchdog_stop_reason == "retries_exhausted:slow"
    assert "longer than 0.05 s" in task.failure


def test_a_result_that_cannot_be_stored_fails_the_step_by_name() -> None:
    task = run(lambda task: task.step("odd", count, "odd", {"at": [1, {2, 3}]}))
    assert task.watchdog_stop_reason == "retries_exhausted:odd"
    assert "the result of step odd.at[1] can't be stored: set is no JSON type" in task.failure


def test_an_atomic_step_commits_its_effects_with_its_record_or_not_at_all() -> None:
    def make(name: str, fails: bool) -> int:
        group = Group.objects.create(name=name)
        if fails:
            raise OSError("after the insert")
        return group.pk

    def work(task: Context) -> Any:
        with contextlib.suppress(StepFailed):
            task.step("bad", make, "bad", True, atomic=True)
        return task.step("good", make, "good", False, atomic=True)

    task = run(work)
    assert task.current_state == "completed"
    assert list(Group.objects.values_list("name", flat=True)) == ["good"]


def test_idempotency_keys_stay_the_same_for_retries_and_forks_but_not_from_scratch() -> None:
    keys: list[str] = []

    def work(task: Context) -> Any:
        def call() -> None:
            keys.append(task.idempotency_key)
            raise OSError("no")

        task.step("call", call, retry=Retry(attempts=2, first_delay=0))

    task = run(work)
    fork = retry(task.pk)
    run_until_idle()
    assert len(keys) == 4
    assert len(set(keys)) == 1
    retry(fork.pk, from_scratch=True)
    run_until_idle()
    assert len(set(keys)) == 2


def test_a_retry_keeps_the_steps_before_the_failure() -> None:
    broken = {"is": True}

    def second() -> str:
        CALLS["second"] += 1
        if broken["is"]:
            raise OSError("no")
        return "b"

    def work(task: Context) -> Any:
        return task.step("first", count, "first", "a") + task.step("second", second)

    task = run(work)
    broken["is"] = False
    fork = retry(task.pk, by="alice")
    run_until_idle()
    assert fresh(fork).result == "ab"
    assert CALLS == {"first": 1, "second": 2}
    assert [e.sequence_num for e in log.page(fork.pk).entries] == list(range(1, log.page(fork.pk).total_count + 1))


def test_a_retry_from_a_step_runs_it_and_what_follows_again() -> None:
    def work(task: Context) -> Any:
        for name in ("a", "b", "c"):
            task.step(name, count, name)
        raise Failure("after c")

    task = run(work)
    retry(task.pk, from_step="b")
    run_until_idle()
    assert CALLS == {"a": 1, "b": 2, "c": 2}
    with pytest.raises(Refused, match="no step “z”"):
        retry(task.pk, from_step="z")


def test_at_most_once_records_its_intention_first() -> None:
    task = run(lambda task: task.step("pay", count, "pay", 7, once=True))
    assert task.result == 7
    assert events(task)[2:4] == ["step_intended", "step_completed"]


@pytest.mark.parametrize(
    ("verdict", "result", "calls"), [("none", None, 1), ("run", "paid", 2), ("give_up", None, 1), ("happened", 42, 1)]
)
def test_an_uncertain_step_is_settled_by_a_person(verdict: str, result: Any, calls: int) -> None:
    class Died(BaseException): ...

    def pay() -> str:
        CALLS["pay"] += 1
        if CALLS["pay"] == 1:
            raise Died
        return "paid"

    def work(task: Context) -> Any:
        return task.step("pay", pay, once=True)

    # a death between intention and record: nothing after the intention is written
    import supervision.worker.drive as driving

    original = driving._raised
    driving._raised = lambda *a: None
    try:
        task = run(work)
    finally:
        driving._raised = original
    assert events(task)[-1] == "step_intended"
    from supervision.kernel import lease

    lease.reap_process(host=lease.host_identity(), pid=__import__("os").getpid())
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "awaiting_user_answer:uncertain:pay:1"
    assert "Last beat" in Question.objects.get(task=task).form["help"]
    answer(task, {"uncertain:pay:1": verdict})
    run_until_idle()
    if verdict == "happened":
        answer(task, {"uncertain:pay:1:result": "42"})
        run_until_idle()
    task = fresh(task)
    assert task.current_state == ("failed" if verdict == "give_up" else "completed")
    assert task.result == result
    assert CALLS["pay"] == calls


def test_a_signal_that_comes_early_is_kept_and_consumed_once() -> None:
    def work(task: Context) -> Any:
        task.ask("go", "Go?")
        first, second = task.wait_for_signal("paid"), task.wait_for_signal("paid", timeout=timedelta(hours=1))
        return [first.payload if first else None, second.payload if second else None]

    task = run(work)
    signals_in.send(task.pk, "paid", {"amount": 3}, key="w1")
    signals_in.send(task.pk, "paid", {"amount": 3}, key="w1")
    answer(task, {"go": "x"})
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "awaiting_signal:paid"
    with travel(timedelta(hours=2)):
        run_until_idle()
    assert fresh(task).result == [{"amount": 3}, None]
    with pytest.raises(Refused):
        signals_in.send(task.pk, "paid")


def test_a_signal_wakes_who_waits_for_it() -> None:
    task = run(lambda task: task.wait_for_signal("go").payload)
    assert run_until_idle() == 0
    signals_in.send(task.pk, "other", 1)
    assert run_until_idle() == 0
    signals_in.send(task.pk, "go", [1, 2])
    run_until_idle()
    assert fresh(task).result == [1, 2]


def test_a_sleep_keeps_its_deadline_over_a_pause() -> None:
    def work(task: Context) -> str:
        task.sleep(timedelta(hours=1))
        return "rested"

    task = run(work)
    wake_at = task.wake_at
    lifecycle.pause(task.pk)
    with travel(timedelta(hours=2)):
        assert run_until_idle() == 0
        lifecycle.resume(task.pk)
        assert fresh(task).wake_at == wake_at
        run_until_idle()
    assert fresh(task).result == "rested"


def test_cancelled_is_raised_at_the_call_that_is_not_recorded_and_clean_up_steps_are_durable() -> None:
    def work(task: Context) -> Any:
        server = task.step("create", count, "create", "srv-1")
        try:
            task.wait_for_signal("ready")
        except Cancelled:
            task.step("destroy", count, f"destroy {server}")
            raise

    task = run(work)
    lifecycle.cancel(task.pk, by="alice")
    run_until_idle()
    task = fresh(task)
    assert (task.current_state, task.watchdog_stop_reason) == ("cancelled", "cancelled:alice")
    assert CALLS == {"create": 1, "destroy srv-1": 1}
    assert "unwinding_started" in events(task)


def test_a_newer_version_parks_old_tasks_for_an_operator_who_says_go_on() -> None:
    def work(task: Context) -> Any:
        task.ask("go", "Go?")
        return task.version_at_start

    task = run(work)
    registry.unregister(task.body)
    body(task.body, version=2)(work)
    answer(task, {"go": "x"})
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "version_changed:1->2"
    lifecycle.resume(task.pk, by="alice")
    run_until_idle()
    assert fresh(task).result == 1


def test_a_compatible_version_goes_on_and_an_older_worker_leaves_newer_tasks_alone() -> None:
    def work(task: Context) -> Any:
        return task.ask("go", "Go?")

    task = run(work, version=2)
    answer(task, {"go": "x"})
    registry.unregister(task.body)
    body(task.body, version=1)(work)
    assert run_until_idle() == 0
    assert fresh(task).watchdog_stop_reason == "awaiting_user_answer:go"
    registry.unregister(task.body)
    body(task.body, version=3, compatible_with=[2])(work)
    run_until_idle()
    assert fresh(task).result == "x"


def test_continue_as_new_closes_the_replay_window() -> None:
    def work(task: Context, *, round: int = 0) -> int:
        task.step("tick", count, f"tick{round}")
        if round < 3:
            task.continue_as_new(round=round + 1)
        return round

    task = run(work)
    assert task.result == 3
    assert set(CALLS.values()) == {1}
    assert task.replay_from > 0


# --- misuse


def test_a_swallowed_suspension_records_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    def work(task: Context) -> str:
        with contextlib.suppress(BaseException):
            task.ask("go", "Go?")
        return "went on"

    task = run(work)
    assert (task.current_state, task.watchdog_stop_reason) == ("parked", "awaiting_user_answer:go")
    assert "swallowed QuestionAsked" in caplog.text


def test_a_call_from_another_thread_is_refused() -> None:
    import threading

    errors: list[str] = []

    def work(task: Context) -> None:
        def call() -> None:
            try:
                task.step("x", count, "x")
            except Exception as error:
                errors.append(str(error))

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    run(work)
    assert "thread" in errors[0]
    assert not CALLS


def test_a_step_inside_a_step_is_refused() -> None:
    task = run(lambda task: task.step("outer", lambda: task.step("inner", count, "inner")))
    assert "steps don't nest" in task.failure
    assert not CALLS


def test_suspending_inside_a_transaction_is_refused_and_nothing_is_half_done() -> None:
    from django.db import transaction

    def work(task: Context) -> None:
        with transaction.atomic():
            Group.objects.create(name="half")
            task.ask("go", "Go?")

    task = run(work)
    assert task.watchdog_stop_reason == "failed:InsideTransaction"
    assert not Group.objects.filter(name="half").exists()
    assert not Question.objects.filter(task=task).exists()


def test_an_unkeyed_step_after_a_skip_by_decisions_is_refused() -> None:
    def work(task: Context) -> None:
        for row in range(task.decisions.get("row", 0), 3):
            task.step("send", count, f"row{row}")
            task.checkpoint(row=row + 1)

    task = run(work)
    assert "needs a key=" in task.failure

    def keyed(task: Context) -> None:
        for row in range(task.decisions.get("row", 0), 3):
            task.step("send", count, f"keyed{row}", key=row)
            task.checkpoint(row=row + 1)

    assert run(keyed).current_state == "completed"


def test_once_and_retry_contradict_each_other() -> None:
    task = run(lambda task: task.step("pay", count, "pay", once=True, retry=Retry()))
    assert "contradict" in task.failure

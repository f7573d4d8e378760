"""Faults that a hostile reading found: each is a claim that once was false."""

import itertools
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group

from supervision.engines import Cancelled, Context, Failure, Retry, StepFailed, registry, retry, start, start_many
from supervision.engines.bodies import body
from supervision.errors import AlreadyPruned, NotStorable, Refused
from supervision.kernel import lease, lifecycle, log, masking, retention, signals_in, storable
from supervision.kernel.models import LogEntry, Task
from supervision.testing import answer, run_until_idle, travel

pytestmark = pytest.mark.django_db

DONE: list[str] = []
_NAMES = itertools.count()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    DONE.clear()
    before = set(registry.known_versions())

    @body("fault.echo")
    def echo(task: Context, *, n: Any) -> Any:
        task.step("note", DONE.append, f"echo {n} {task.version_at_start}")
        return f"echo {n}"

    yield
    for name in set(registry.known_versions()) - before:
        registry.unregister(name)


def do(name: str) -> str:
    DONE.append(f"+{name}")
    return name


def undo(name: str) -> None:
    DONE.append(f"-{name}")


def run(function: Any, arguments: dict[str, Any] | None = None, **options: Any) -> Task:
    name = f"fault.{next(_NAMES)}"
    body(name, **options)(function)
    task = start(name, arguments)
    run_until_idle()
    return fresh(task)


def redefine(task: Task, function: Any) -> None:
    registry.unregister(task.body)
    body(task.body)(function)


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


@pytest.mark.parametrize("value", [{"zeta": 1, "b": [{"yy": 1, "x": 2}]}, 1.2e17, -0.0, 1.5e-7, 3.0])
def test_the_first_drive_and_every_replay_see_the_very_same_result(value: Any) -> None:
    seen: list[str] = []

    def work(task: Context) -> Any:
        seen.append(repr(task.step("value", lambda: value)))
        return task.ask("go", "Go?")

    task = run(work)
    answer(task, {"go": "x"})
    run_until_idle()
    assert fresh(task).current_state == "completed"
    assert seen[0] == seen[1]


def test_a_loop_over_a_dictionary_hands_no_result_to_another_step() -> None:
    def work(task: Context) -> Any:
        totals = task.step("totals", lambda: {"zeta": 1, "b": 2})
        fetched = {name: task.step("fetch", str, name) for name in totals}
        task.ask("go", "Go?")
        return fetched

    task = run(work)
    answer(task, {"go": "x"})
    run_until_idle()
    assert fresh(task).result == {"b": "b", "zeta": "zeta"}


def test_each_round_of_continue_as_new_has_children_and_idempotency_keys_of_its_own() -> None:
    keys: list[str] = []

    def work(task: Context, *, n: int = 1) -> Any:
        task.step("pay", lambda: keys.append(task.idempotency_key))
        said = task.run_child("fault.echo", {"n": n})
        if n < 2:
            task.continue_as_new(n=2)
        return said

    task = run(work)
    assert task.result == "echo 2"
    assert Task.objects.filter(parent=task).count() == 2
    assert len(set(keys)) == 2


def test_another_child_under_a_recorded_name_parks() -> None:
    def old(task: Context) -> Any:
        task.run_child("fault.echo", {"n": 1})
        return task.ask("go", "Go?")

    task = run(old)
    redefine(task, lambda task: task.run_child("fault.echo", {"n": 2}))
    answer(task, {"go": "x"})
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "replay_mismatch:child:fault.echo"


def test_map_gives_every_result_though_at_most_has_changed() -> None:
    def mapped(at_most: int) -> Any:
        return lambda task: task.map("fault.echo", [{"n": n} for n in range(6)], at_most=at_most)

    name = f"fault.{next(_NAMES)}"
    body(name)(mapped(2))
    task = start(name)
    from supervision.worker.drive import drive_one

    drive_one(task.pk, 0, stopping=lambda: False, thread=False)
    redefine(task, mapped(6))
    run_until_idle()
    assert fresh(task).result == [f"echo {n}" for n in range(6)]


def test_children_of_a_fork_keep_the_idempotency_keys_of_their_steps() -> None:
    keys: list[str] = []

    @body("fault.child")
    def child(task: Context) -> None:
        task.step("pay", lambda: keys.append(task.idempotency_key))

    def work(task: Context) -> None:
        task.run_child("fault.child")
        raise Failure("later")

    task = run(work)
    retry(task.pk)
    run_until_idle()
    assert len(keys) == 2
    assert len(set(keys)) == 1


def test_bulk_starts_know_what_was_pruned_and_check_what_they_are_given() -> None:
    task = start("fault.echo", {"n": 1}, idempotency_key="k1")
    run_until_idle()
    retention.prune(task.pk)
    with pytest.raises(AlreadyPruned):
        start_many("fault.echo", [{"n": 1}], idempotency_keys=["k1"])
    with pytest.raises(NotStorable, match=r"idempotency_keys\[0\]"):
        start_many("fault.echo", [{"n": 1}], idempotency_keys=["k" * 300])
    with pytest.raises(NotStorable, match="priority"):
        start("fault.echo", {"n": 1}, priority=12)


def test_a_replayed_signal_is_the_signal() -> None:
    seen: list[tuple[Any, ...]] = []

    def work(task: Context) -> Any:
        signal = task.wait_for_signal("go")
        assert signal is not None
        seen.append((signal.pk, signal.key, signal.sent_by_ref, signal.sent_at, signal.payload, signal.consumed_in))
        return task.ask("go", "Go?")

    task = run(work)
    signals_in.send(task.pk, "go", 7, key="k", by="alice")
    run_until_idle()
    answer(task, {"go": "x"})
    run_until_idle()
    assert seen[0] == seen[1]
    assert seen[0][1:3] == ("k", "alice")


def test_cancelling_a_task_that_does_not_match_its_code_ends_it() -> None:
    def old(task: Context) -> Any:
        task.step("a", do, "a", compensate=undo)
        task.step("charge", do, "old")
        return task.ask("go", "Go?")

    def new(task: Context) -> Any:
        task.step("a", do, "a", compensate=undo)
        return task.step("charge", do, "new")

    task = run(old)
    redefine(task, new)
    answer(task, {"go": "x"})
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "replay_mismatch:charge"
    lifecycle.cancel(task.pk, by="alice")
    assert run_until_idle() == 1
    assert fresh(task).watchdog_stop_reason == "cancelled:alice"
    assert DONE[-1] == "-a"


def test_a_fork_counts_the_compensations_that_it_keeps() -> None:
    def broken(name: str) -> None:
        raise OSError("gone")

    def work(task: Context) -> None:
        task.step("a", do, "a", compensate=broken, compensate_retry=Retry(attempts=1))
        raise Failure("no")

    task = run(work)
    assert task.watchdog_stop_reason == "compensation_exhausted:a"
    fork = retry(task.pk)
    assert fresh(fork).compensations_outstanding == 1
    redefine(task, lambda task: task.step("a", do, "a", compensate=undo) and task.ask("go", "Go?"))
    run_until_idle()
    lifecycle.cancel(fork.pk, by="alice")
    run_until_idle()
    assert (fresh(fork).watchdog_stop_reason, DONE) == ("cancelled:alice", ["+a", "-a"])


def test_what_has_begun_to_unwind_never_completes() -> None:
    tries: list[int] = []

    def stubborn(name: str) -> None:
        tries.append(1)
        if len(tries) < 2:
            raise OSError("not yet")
        undo(name)

    def work(task: Context) -> Any:
        task.step("a", do, "a", compensate=stubborn, compensate_retry=Retry(attempts=9, first_delay=60, jitter=0))
        task.step("b", do, "b", compensate=undo)
        return task.wait_for(task.start_child("fault.waits"))[0].result

    @body("fault.waits")
    def waits(task: Context) -> Any:
        return task.ask("go", "Go?")

    task = run(work)
    lifecycle.cancel(task.pk, by="alice")
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "retrying:undo:a"
    answer(Task.objects.get(parent=task), {"go": "done"})
    run_until_idle()
    with travel(timedelta(minutes=5)):
        run_until_idle()
    assert fresh(task).watchdog_stop_reason == "cancelled:alice"
    assert DONE == ["+a", "+b", "-b", "-a"]


def test_a_clean_up_waits_between_its_attempts_and_no_expiry_cuts_it_short() -> None:
    def flaky() -> None:
        DONE.append("try")
        if len(DONE) < 2:
            raise OSError("busy")

    def work(task: Context) -> None:
        try:
            task.ask("go", "Go?")
        except Cancelled:
            task.step("release", flaky, retry=Retry(attempts=5, first_delay=60, jitter=0))
            raise

    task = run(work)
    lifecycle.cancel(task.pk, by="alice")
    assert run_until_idle() == 1
    assert fresh(task).watchdog_stop_reason == "retrying:release"
    with travel(timedelta(days=30)):
        run_until_idle()
    assert fresh(task).watchdog_stop_reason == "cancelled:alice"
    assert DONE == ["try", "try"]


def test_an_error_before_the_steps_loses_no_compensation() -> None:
    away = [False]

    def work(task: Context) -> None:
        if away[0]:
            away[0] = False
            raise ConnectionError("vault is away")
        task.step("a", do, "a", compensate=undo)
        task.ask("go", "Go?")

    task = run(work)
    away[0] = True
    lifecycle.cancel(task.pk, by="alice")
    run_until_idle()
    task = fresh(task)
    assert (task.current_state, task.watchdog_stop_reason) == ("parked", "retrying:clean-up")
    assert "vault is away" in log.page(task.pk).entries[-1].payload["error"]
    with travel(timedelta(minutes=5)):
        run_until_idle()
    assert (fresh(task).watchdog_stop_reason, DONE) == ("cancelled:alice", ["+a", "-a"])


def test_a_retry_runs_again_what_failed_also_where_the_body_caught_it() -> None:
    broken = [True]

    def call() -> str:
        if broken[0]:
            raise OSError("no")
        return "ok"

    def work(task: Context) -> Any:
        task.step("kept", do, "kept")
        try:
            return task.step("call", call)
        except StepFailed:
            task.step("apologise", do, "sorry")
            raise Failure("it failed") from None

    task = run(work)
    broken[0] = False
    fork = retry(task.pk)
    run_until_idle()
    assert fresh(fork).result == "ok"
    assert DONE == ["+kept", "+sorry"]


def test_a_once_step_that_certainly_failed_runs_again_in_a_fork_without_asking() -> None:
    broken = [True]

    def pay() -> str:
        if broken[0]:
            raise OSError("declined")
        return "paid"

    task = run(lambda task: task.step("pay", pay, once=True))
    broken[0] = False
    fork = retry(task.pk)
    run_until_idle()
    assert fresh(fork).result == "paid"


@pytest.mark.django_db(transaction=True)
def test_a_timeout_during_a_query_is_a_failed_attempt() -> None:
    def slow() -> None:
        from django.db import connection

        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_sleep(30)")

    task = run(lambda task: task.step("slow", slow, timeout=0.2, retry=Retry(attempts=2, first_delay=0)))
    assert task.watchdog_stop_reason == "retries_exhausted:slow"
    assert LogEntry.objects.filter(task=task, event="step_attempt_failed").count() == 1


def test_checkpoints_without_decisions_do_not_hide_poison() -> None:
    def work(task: Context) -> None:
        task.checkpoint()
        raise SystemError

    import supervision.worker.drive as driving

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driving, "_raised", lambda *_: None)
        task = run(work)
        for _ in range(9):
            lease.reap_process(host=lease.host_identity(), pid=os.getpid())
            run_until_idle()
    assert fresh(task).watchdog_stop_reason == "recoveries_exhausted:6"


def test_no_row_of_a_refused_statement_reaches_the_log() -> None:
    def work(task: Context) -> None:
        Group.objects.create(name="twice")
        Group.objects.create(name="twice")

    task = run(lambda task: task.step("insert", work, task, atomic=True))
    said = str(log.page(task.pk).entries) + task.failure + str([e.payload for e in log.page(task.pk).entries])
    assert "duplicate key" in said
    assert "(name)=(twice)" not in said


def test_a_secret_is_masked_also_where_it_is_quoted_escaped_or_cut() -> None:
    key = "-----BEGIN KEY-----\nMIIEvAIBADANBgkqhkiG9w0BAQE\n-----END KEY-----"
    secrets = masking.secrets_of({"key": key}, ["key"])
    for said in (repr(KeyError(key)), key.replace("\n", "\\n"), "line: MIIEvAIBADANBgkqhkiG9w0BAQE"):
        assert "MIIEvAIBADANBgkqhkiG9w0BAQE" not in masking.mask_values(said, secrets)
    task = run(lambda task, key: task.step("x", _raise, "x" * 9_990 + key), {"key": key}, sensitive=("key",))
    assert "MIIE" not in str([entry.payload for entry in log.page(task.pk).entries])


def _raise(text: str) -> None:
    raise ValueError(text)


def test_erased_tasks_are_not_retried_and_a_living_parent_keeps_its_childrens_results() -> None:
    task = start("fault.echo", {"n": 1})
    run_until_idle()
    retention.erase(task.pk, by="ann")
    with pytest.raises(Refused, match="erased"):
        retry(task.pk)

    def work(task: Context) -> Any:
        said = task.run_child("fault.echo", {"n": 1})
        task.ask("go", "Go?")
        return said

    parent = run(work)
    with pytest.raises(Refused, match="parent lives"):
        retention.erase(Task.objects.get(parent=parent).pk, by="ann")


def test_numbers_come_back_as_jsonb_keeps_them() -> None:
    assert storable.as_stored("[1.2e+17, -0.0, 1e-07, 2.50]") == [120000000000000000, 0.0, 1e-07, 2.5]

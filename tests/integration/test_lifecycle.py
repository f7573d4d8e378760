"""One task through its life, driven in this process: what each verb writes, and what it refuses."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from supervision.engines import Ask, Cancelled, Context, Failure, QuestionAsked, registry, retry, start
from supervision.engines.bodies import body
from supervision.errors import (
    AlreadyAnswered,
    ConcurrencyKeyHeld,
    Conflict,
    InvalidAnswer,
    InvalidArguments,
    QuestionExpired,
    QuestionWithdrawn,
    Refused,
    UnknownBody,
)
from supervision.kernel import lifecycle, log, questions
from supervision.kernel.models import Question, Task
from supervision.testing import answer, run_until_idle, travel

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _bodies() -> Any:
    @body("test.adder")
    def adder(task: Context, *, numbers: list[int]) -> dict[str, int]:
        total: int = task.decisions.get("total", 0)
        for at in range(task.decisions.get("at", 0), len(numbers)):
            total += numbers[at]
            task.checkpoint(at=at + 1, total=total)
        return {"total": total}

    @body("test.asker", sensitive=("token",))
    def asker(task: Context, *, token: str = "") -> Any:
        return task.ask("budget", "May we spend 400 EUR?", kind="yes_no")

    @body("test.both")
    def both(task: Context) -> Any:
        return task.ask_all([Ask("one", "First?"), Ask("two", "Second?", choices={"a": "A", "b": "B"})])

    @body("test.raiser")
    def raiser(task: Context, *, message: str) -> None:
        raise ValueError(message)

    @body("test.sorry")
    def sorry(task: Context) -> None:
        raise Failure("The file has no column “country”.")

    @body("test.raises_question")
    def raises_question(task: Context) -> Any:
        if "colour" not in task.answers:
            raise QuestionAsked("colour", "Which colour?", choices=["red", "blue"])
        return task.answers["colour"]

    @body("test.cleaner")
    def cleaner(task: Context) -> Any:
        try:
            return task.ask("go", "Go?")
        except Cancelled as ending:
            task.checkpoint(cleaned=ending.reason)
            raise

    yield
    for name in ("adder", "asker", "both", "raiser", "sorry", "raises_question", "cleaner"):
        registry.unregister(f"test.{name}")


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


def pending(task: Task, key: str = "") -> Question:
    rows = Question.objects.filter(task=task).pending()
    return rows.get(key=key) if key else rows.get()


def test_a_body_runs_to_its_end_and_every_step_is_in_the_log() -> None:
    task = start("test.adder", {"numbers": [1, 2, 3]})
    run_until_idle()
    task = fresh(task)
    assert (task.current_state, task.result) == ("completed", {"total": 6})
    page = log.page(task.pk)
    assert [entry.event for entry in page.entries] == [
        "task_created", "task_taken", "task_checkpointed", "task_checkpointed", "task_checkpointed", "task_completed",
    ]  # fmt: skip
    assert [entry.sequence_num for entry in page.entries] == [1, 2, 3, 4, 5, 6]
    assert (page.total_count, page.withheld_count, page.truncated) == (6, 0, False)


def test_a_log_page_says_exactly_what_it_withholds() -> None:
    task = start("test.adder", {"numbers": list(range(30))})
    run_until_idle()
    page = log.page(task.pk, size=10)
    assert (page.returned_count, page.total_count, page.withheld_count, page.truncated) == (10, 33, 23, True)
    assert [entry.sequence_num for entry in page.entries] == list(range(24, 34))
    older = log.page(task.pk, size=10, before=page.older)
    assert [entry.sequence_num for entry in older.entries] == list(range(14, 24))


def test_a_question_parks_the_task_until_it_is_answered() -> None:
    task = start("test.asker")
    run_until_idle()
    task = fresh(task)
    assert task.current_state == "parked"
    assert task.watchdog_stop_reason == "awaiting_user_answer:budget"
    assert task.wake_at is None
    answer(task, {"budget": "yes"}, by="alice")
    run_until_idle()
    task = fresh(task)
    assert (task.current_state, task.result) == ("completed", True)
    question = Question.objects.get(task=task)
    assert (question.status, question.answered_by_ref, question.answered_via) == ("answered", "alice", "testing")


def test_a_task_with_several_questions_wakes_with_the_last_answer() -> None:
    task = start("test.both")
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "awaiting_user_answers:2"
    answer(task, {"one": "x"})
    assert fresh(task).wake_at is None
    assert run_until_idle() == 0
    answer(task, {"two": "b"})
    run_until_idle()
    assert fresh(task).result == {"one": "x", "two": "b"}


def test_an_answer_outside_the_choices_is_refused_and_nothing_is_written() -> None:
    task = start("test.both")
    run_until_idle()
    before = fresh(task).log_length
    with pytest.raises(InvalidAnswer, match="Select a valid choice"):
        answer(task, {"two": "z"})
    assert fresh(task).log_length == before
    assert pending(task, "two").answer is None


def test_a_question_is_answered_once() -> None:
    task = start("test.asker")
    run_until_idle()
    question = pending(task)
    questions.answer(question.pk, "no", by="alice")
    with pytest.raises(AlreadyAnswered, match="alice"):
        questions.answer(question.pk, "yes", by="bob")
    assert Question.objects.get(pk=question.pk).answer is False


def test_a_body_may_raise_the_question_itself() -> None:
    task = start("test.raises_question")
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "awaiting_user_answer:colour"
    answer(task, {"colour": "blue"})
    run_until_idle()
    assert fresh(task).result == "blue"


def test_what_a_body_raises_is_recorded_whole_even_with_a_nul_and_a_surrogate() -> None:
    task = start("test.raiser", {"message": "x"})
    Task.objects.filter(pk=task.pk).update(arguments={"message": "bad"})
    run_until_idle()
    task = fresh(task)
    assert (task.current_state, task.watchdog_stop_reason) == ("failed", "failed:ValueError")
    assert task.failure == "ValueError: bad"
    payload = log.page(task.pk).entries[-1].payload
    assert "Traceback" in payload["traceback"]
    assert "raise ValueError(message)" in payload["traceback"]


def test_a_failure_for_people_has_no_traceback() -> None:
    task = start("test.sorry")
    run_until_idle()
    task = fresh(task)
    assert task.failure == "The file has no column “country”."
    assert "traceback" not in log.page(task.pk).entries[-1].payload


def test_pause_holds_an_idle_task_and_resume_lets_it_go() -> None:
    task = start("test.adder", {"numbers": [1]})
    due_since = fresh(task).wake_at
    lifecycle.pause(task.pk, by="alice", note="incident 7")
    assert run_until_idle() == 0
    held = fresh(task)
    assert (held.current_state, held.wake_at) == ("pending", due_since)
    with pytest.raises(Refused, match="paused already"):
        lifecycle.pause(task.pk, by="bob")
    lifecycle.resume(task.pk, by="alice")
    run_until_idle()
    assert fresh(task).current_state == "completed"


def test_a_task_paused_while_it_awaits_an_answer_stays_paused_after_it() -> None:
    task = start("test.asker")
    run_until_idle()
    lifecycle.pause(task.pk)
    answer(task, {"budget": "yes"})
    assert run_until_idle() == 0
    lifecycle.resume(task.pk)
    run_until_idle()
    assert fresh(task).result is True


def test_a_task_never_taken_is_cancelled_at_once() -> None:
    task = start("test.adder", {"numbers": [1]})
    lifecycle.cancel(task.pk, by="alice")
    task = fresh(task)
    assert (task.current_state, task.watchdog_stop_reason) == ("cancelled", "cancelled:alice")


def test_a_parked_task_is_unwound_before_it_is_cancelled() -> None:
    task = start("test.cleaner")
    run_until_idle()
    lifecycle.pause(task.pk)
    lifecycle.cancel(task.pk, by="alice")
    assert fresh(task).current_state == "parked"
    with pytest.raises(Refused, match="being ended"):
        lifecycle.pause(task.pk)
    with pytest.raises(QuestionWithdrawn):
        answer(task, {"go": "now"})
    run_until_idle()
    task = fresh(task)
    assert (task.current_state, task.watchdog_stop_reason) == ("cancelled", "cancelled:alice")
    assert task.locked_decisions == {"cleaned": "cancelled:alice"}
    assert Question.objects.get(task=task).status == "withdrawn"


def test_an_expired_question_expires_its_task_and_keeps_the_reason() -> None:
    task = start("test.asker")
    run_until_idle()
    question = pending(task)
    with travel(timedelta(days=8)):
        with pytest.raises(QuestionExpired):
            questions.answer(question.pk, "yes", by="alice")
        run_until_idle()
    task = fresh(task)
    assert (task.current_state, task.watchdog_stop_reason) == ("expired", "expired:awaiting_user_answer:budget")
    assert Question.objects.get(task=task).status == "expired"


def test_an_overdue_task_is_not_taken() -> None:
    task = start("test.adder", {"numbers": [1]}, expires_after=timedelta(hours=1))
    with travel(timedelta(hours=2)):
        run_until_idle()
    task = fresh(task)
    assert (task.current_state, task.started_at) == ("expired", None)


def test_a_delayed_start_waits_for_its_time() -> None:
    from django.utils import timezone

    task = start("test.adder", {"numbers": [1]}, start_at=timezone.now() + timedelta(hours=3))
    assert run_until_idle() == 0
    with travel(timedelta(hours=4)):
        run_until_idle()
    assert fresh(task).current_state == "completed"


def test_a_stale_client_is_told_and_changes_nothing() -> None:
    task = start("test.asker")
    run_until_idle()
    with pytest.raises(Conflict) as conflict:
        lifecycle.pause(task.pk, expected_generation=task.generation)
    assert conflict.value.task.generation == fresh(task).generation
    assert fresh(task).pause_requested_at is None


def test_the_same_idempotency_key_is_the_same_task() -> None:
    first = start("test.adder", {"numbers": [1]}, idempotency_key="order-7")
    run_until_idle()
    again = start("test.adder", {"numbers": [2]}, idempotency_key="order-7")
    assert again.pk == first.pk


def test_a_concurrency_key_admits_one_live_task() -> None:
    first = start("test.adder", {"numbers": [1]}, concurrency_key="customer-7")
    with pytest.raises(ConcurrencyKeyHeld) as held:
        start("test.adder", {"numbers": [1]}, concurrency_key="customer-7")
    assert held.value.task.pk == first.pk
    run_until_idle()
    assert start("test.adder", {"numbers": [1]}, concurrency_key="customer-7").pk != first.pk


def test_a_fork_keeps_the_answers_and_two_clicks_make_one() -> None:
    task = start("test.asker")
    run_until_idle()
    answer(task, {"budget": "yes"})
    lifecycle.terminate(task.pk, by="alice")
    first, second = retry(task.pk, by="alice"), retry(task.pk, by="bob")
    assert first.pk == second.pk
    assert (first.forked_from, first.root_id) == (task.pk, task.pk)
    run_until_idle()
    assert fresh(first).result is True


def test_a_live_task_is_not_retried() -> None:
    task = start("test.asker")
    with pytest.raises(Refused, match="has not ended"):
        retry(task.pk)


def test_unknown_bodies_and_wrong_arguments_are_named() -> None:
    with pytest.raises(UnknownBody, match=r"test\.adder"):
        start("test.addr")
    with pytest.raises(InvalidArguments, match="numbres"):
        start("test.adder", {"numbres": [1]})


def test_a_sensitive_argument_is_masked_for_every_reader() -> None:
    task = start("test.asker", {"token": "s3cr3t-canary"})
    assert task.masked_arguments == {"token": "••••••"}
    assert fresh(task).arguments == {"token": "s3cr3t-canary"}


def test_an_answer_that_is_none_is_no_answer_to_the_database() -> None:
    task = start("test.asker")
    run_until_idle()
    nothing: tuple[Any, ...] = (None, "", [], {})
    for value in nothing:
        with pytest.raises(IntegrityError), transaction.atomic():
            Question.objects.filter(task=task).update(
                status="answered", answer=value, answered_at=task.created_at, answered_by_ref="x"
            )

"""What is stored comes back as it went or is refused by name; failures always fit; secrets are seen by no reader."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.dispatch import Signal as DjangoSignal
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from supervision import signals as supervision_signals
from supervision.engines import Context, Failure, body, registry, start
from supervision.errors import InvalidArguments, NotStorable, SupervisionError
from supervision.kernel import creation, ends, lease, lifecycle, log, questions, retention, signals_in, storable
from supervision.kernel.models import Heartbeat, Question, Task
from supervision.kernel.question_form import Ask
from supervision.testing import run_until_idle
from tests.integration import rows
from tests.integration.rows import BODY, events, fresh

pytestmark = pytest.mark.django_db

CANARY = "c4n4ry-s3cr3t"
slow_database = hypothesis_settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


# --- what jsonb can hold ----------------------------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.sampled_from(
        ["\x00", "\ud800", "\\u0000", math.nan, math.inf, -0.0, 5e-324, 1.7e308])
    | st.sampled_from([400, 4_000, 5_000]).map(lambda digits: 10**digits),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(), max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)  # fmt: skip


def same(a: Any, b: Any) -> bool:
    """As JSON: a float comes back as the number that it stands for, which for 1e23 is an integer in jsonb."""
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float):
        return type(b) in (int, float) and float(b) == a
    return type(a) is type(b) and bool(a == b)


@given(value=anything)
@slow_database
def test_a_value_comes_back_as_it_went_or_is_refused_by_a_typed_error(value: Any) -> None:
    running = rows.running()
    refusal = None
    try:
        ends.complete(running.pk, running.lease, value)
    except NotStorable as refused:
        refusal = refused
    if refusal is None:
        assert same(value, fresh(running.pk).result)
        return
    assert str(refusal).startswith("result")
    assert fresh(running.pk).current_state == "running"
    ends.fail(running.pk, running.lease, "failed:NotStorable", str(refusal), {"error": refusal})
    assert fresh(running.pk).current_state == "failed"


UNSTORABLE = [
    math.nan, math.inf, "\x00", "a\x00b", "\ud800", 10**5000, {1: "x"}, {"a": {"b\x00"}}, object(), b"x", timedelta(1),
    {"deep": [1, {"x": [math.nan]}]},
]  # fmt: skip


@pytest.mark.parametrize("value", UNSTORABLE, ids=lambda value: type(value).__name__)
def test_what_jsonb_can_not_hold_is_refused_by_place(value: Any) -> None:
    running = rows.running()
    length = len(events(running.pk))
    acts: dict[str, Callable[[], Any]] = {
        "arguments": lambda: creation.create(BODY, {"x": value}),
        "result": lambda: ends.complete(running.pk, running.lease, value),
        "signal paid": lambda: signals_in.send(running.pk, "paid", value),
        "decisions": lambda: storable.encode({"x": value}, place="decisions", limit="MAX_DECISIONS_BYTES"),
    }
    for place, act in acts.items():
        with pytest.raises(NotStorable, match=place):
            act()
    assert len(events(running.pk)) == length
    assert Task.objects.count() == 1


@pytest.mark.parametrize("depth", [100, 500, 700, 950, 2_000, 20_000, 200_000])
def test_a_deeply_nested_value_is_stored_and_read_again_or_refused(depth: int) -> None:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    running = rows.running()
    try:
        ends.complete(running.pk, running.lease, value)
    except NotStorable:
        assert fresh(running.pk).current_state == "running"
    else:
        assert fresh(running.pk).result


@pytest.mark.parametrize("text", ["a\x00b", "\ud800", "x" * 10_000], ids=["nul", "surrogate", "long"])
def test_a_persons_name_and_note_are_recorded_or_refused_by_a_typed_error(text: str) -> None:
    """Never an error of the database, which a surface would show as a server error."""
    for act in (
        lambda: lifecycle.pause(rows.due(), by=text),
        lambda: lifecycle.pause(rows.due(), note=text),
        lambda: lifecycle.cancel(rows.running().pk, by=text, note=text),
        lambda: questions.answer(rows.waiting().questions["q"], "yes", by=text),
        lambda: questions.answer(rows.waiting().questions["q"], "yes", by="ann", note=text),
        lambda: questions.answer(rows.waiting().questions["q"], text, by="ann"),
        lambda: signals_in.send(rows.due(), "paid", by=text),
        lambda: creation.create(BODY, by=text, note=text),
        lambda: creation.create(BODY, subject=text),
        lambda: retention.erase(rows.ended(), by=text, note=text),
    ):
        with transaction.atomic():
            try:
                act()
            except SupervisionError:
                transaction.set_rollback(True)


@pytest.mark.parametrize("text", ["[" * 100_000, "1" * 5_000, "NaN", '"\\u0000"', '"\\ud800"', "{", "", "null", "[]"])
def test_an_answer_in_json_is_stored_or_refused_by_a_typed_error(text: str) -> None:
    waiting = rows.waiting(asks=[Ask("q", "?", kind="json")])
    with pytest.raises(SupervisionError):
        questions.answer(waiting.questions["q"], text, by="ann")
    assert Question.objects.get(task_id=waiting.pk).status == "pending"


@pytest.mark.parametrize("value", [{1, 2}, object(), math.nan, 10**5000], ids=lambda value: type(value).__name__)
def test_an_answer_that_a_program_gives_is_stored_or_refused_by_a_typed_error(value: Any) -> None:
    waiting = rows.waiting(asks=[Ask("q", "?", kind="json")])
    with pytest.raises(SupervisionError):
        questions.answer(waiting.questions["q"], value, by="program")


@pytest.mark.parametrize("text", ["1e999999999", "1e400", "NaN", "Infinity", "1e-999999999", "9" * 5_000])
def test_a_number_that_would_take_for_ever_is_no_answer(text: str) -> None:
    waiting = rows.waiting(asks=[Ask("q", "?", kind="number")])
    with pytest.raises(SupervisionError):
        questions.answer(waiting.questions["q"], text, by="ann")


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@given(message=st.text(st.characters()) | st.sampled_from(["\x00", "\ud800", "x" * 3_000_000, "\x00" * 100_000]))
@slow_database
def test_a_failure_is_always_recordable(message: str) -> None:
    running = rows.running()
    ends.fail(running.pk, running.lease, f"failed:{message}", message, {"error": message, "traceback": message})
    assert fresh(running.pk).current_state == "failed"


def _deep() -> Exception:
    error: Exception = ValueError("first")
    for n in range(200):
        following = ValueError(n)
        following.__cause__ = error
        error = following
    return error


RAISED = [
    Unprintable(), Failure("\x00\ud800"), ValueError("\x00" * 1_000_000), _deep(),
    ExceptionGroup("\x00", [Unprintable(), ValueError("\ud800")]), KeyboardInterrupt(), SystemExit(1), RecursionError(),
    Failure(), StopIteration(),
]  # fmt: skip


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_whatever_a_body_raises_is_its_failure(error: BaseException) -> None:
    @body("test.raises")
    def raises(task: Context) -> None:
        raise error

    try:
        pk = start("test.raises").pk
        run_until_idle()
    finally:
        registry.unregister("test.raises")
    task = fresh(pk)
    assert (task.current_state, task.watchdog_stop_reason) == ("failed", f"failed:{type(error).__name__}")
    assert task.failure


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def told() -> Iterator[list[Any]]:
    """What every Django signal of ours says."""
    heard: list[Any] = []

    def receiver(**facts: Any) -> None:
        heard.append(facts)

    every = [each for each in vars(supervision_signals).values() if isinstance(each, DjangoSignal)]
    for each in every:
        each.connect(receiver)
    yield heard
    for each in every:
        each.disconnect(receiver)


def test_a_secret_is_seen_by_the_body_and_by_no_reader(
    transactional_db: None, told: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen = []

    @body("test.secret", sensitive=("token",))
    def secret(task: Context, *, token: str, fail: bool) -> Any:
        seen.append(token)
        task.progress(1, 2, f"using {token}")
        task._pulse.beat()  # as the heart does a moment later
        task.log(f"using {token}", token=token, inner={token: [token]})
        task.checkpoint(f"step {token}", note={"note": token})
        task.ask(f"key {token}", f"May I use {token}?", kind="yes_no")
        if fail:
            raise ValueError(f"refused: {token}")
        raise Failure(f"refused: {token}")

    pks = []
    try:
        for fail in (True, False):
            pks.append(start("test.secret", {"token": CANARY, "fail": fail}, note=f"with {CANARY}").pk)
        run_until_idle()
        for pk in pks:
            lifecycle.pause(pk, by="ann", note=f"about {CANARY}")
            lifecycle.resume(pk, by="ann")
            questions.answer(Question.objects.get(task_id=pk).pk, "yes", by="ann", note=f"go with {CANARY}")
        run_until_idle()
    finally:
        registry.unregister("test.secret")
    assert seen == [CANARY] * 4
    for pk in pks:
        task = fresh(pk)
        assert task.current_state == "failed"
        assert CANARY not in str(task.masked_arguments)
        assert CANARY not in task.failure
        assert CANARY not in str([vars(entry) for entry in log.page(pk).entries])
        assert Heartbeat.objects.get(task_id=pk).progress_text != ""
        assert CANARY not in Heartbeat.objects.get(task_id=pk).progress_text
    assert told
    assert CANARY not in str(told)
    records = [f"{record.getMessage()} {vars(record)}" for record in caplog.records]
    assert [record for record in records if "supervision.events" in record]
    assert [record for record in records if CANARY in record and "django.db" not in record] == []


WRONG = [
    {"priority": 11}, {"priority": -1}, {"priority": 99_999}, {"body_version": -1}, {"queue": "x" * 101},
    {"expires_after": timedelta(days=10**8)},
]  # fmt: skip


@pytest.mark.parametrize("options", WRONG, ids=str)
def test_no_error_of_a_creation_shows_the_arguments(options: dict[str, Any]) -> None:
    with pytest.raises(Exception) as refusal, transaction.atomic():  # noqa: PT011 - any error at all
        creation.create(BODY, {"token": CANARY}, sensitive=["token"], **options)
    assert CANARY not in f"{refusal.value} {refusal.value.__cause__}"


def test_a_sensitive_argument_that_is_no_date_is_refused_without_its_value() -> None:
    @body("test.dated", sensitive=("born",))
    def dated(task: Any, *, born: date) -> None: ...

    with pytest.raises(InvalidArguments, match="born is no date") as refused:
        start("test.dated", {"born": CANARY})
    assert CANARY not in str(refused.value)
    registry.unregister("test.dated")


def test_a_beat_outlives_progress_that_no_column_holds() -> None:
    task = creation.create(BODY)
    taken = lease.take(task.pk, 0)
    assert taken
    assert lease.beat(task.pk, taken.lease, done=10**20, total=-(10**20))
    assert Heartbeat.objects.get(task=task).progress_done == 2**63 - 1

"""``manage.py supervision``: the control room's verbs and refusals, readable and as JSON."""

import json
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from supervision.engines import Context, registry, start
from supervision.engines.bodies import body
from supervision.kernel.models import Question, Task
from supervision.testing import run_until_idle

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    @body("cli.asker", sensitive=("token",))
    def asker(task: Context, *, token: str = "") -> Any:
        task.log(f"using {token}")
        return task.ask("colour", "Which colour?", choices={"r": "Red", "b": "Blue"})

    yield
    registry.unregister("cli.asker")


@pytest.fixture
def task() -> Task:
    task = start("cli.asker", {"token": "s3cr3t-canary"}, subject="order 7")
    run_until_idle()
    return task


def run(*arguments: Any) -> str:
    out = StringIO()
    call_command("supervision", *map(str, arguments), stdout=out, no_color=True)
    return out.getvalue()


def test_list_tells_what_each_task_waits_for(task: Task) -> None:
    line = run("list", "--needs-answer")
    assert str(task.pk) in line
    assert "needs an answer" in line
    assert "waits for an answer to “colour”" in line
    assert run("list", "--dead").startswith("No such tasks")


def test_list_as_json_is_for_programs(task: Task) -> None:
    rows = json.loads(run("list", "--json", "--state", "parked"))
    assert [(row["id"], row["reason"]) for row in rows] == [(str(task.pk), "awaiting_user_answer:colour")]


def test_show_names_the_question_and_its_choices_and_masks_secrets(task: Task) -> None:
    shown = run("show", task.pk)
    assert "? colour: Which colour?" in shown
    assert "b  Blue" in shown
    assert "s3cr3t-canary" not in shown + run("show", task.pk, "--json") + run("list", "--json")


def test_answer_is_validated_and_says_who_gave_it(task: Task) -> None:
    with pytest.raises(CommandError, match="Select a valid choice"):
        run("answer", task.pk, "colour", "green")
    with pytest.raises(CommandError, match="no question “size”"):
        run("answer", task.pk, "size", "b")
    run("answer", task.pk, "colour", "b", "--by", "alice")
    question = Question.objects.get(task=task)
    assert (question.answer, question.answered_by_ref, question.answered_via) == ("b", "alice", "command line")
    run_until_idle()
    assert "completed" in run("tail", task.pk)
    assert json.loads(run("tail", task.pk, "--json").splitlines()[-1])["event"] == "task_completed"


def test_pause_resume_cancel_and_retry(task: Task) -> None:
    assert "paused" in run("pause", task.pk, "--note", "incident")
    with pytest.raises(CommandError, match="paused already"):
        run("pause", task.pk)
    with pytest.raises(CommandError, match="has changed"):
        run("resume", task.pk, "--generation", "1")
    run("resume", task.pk)
    assert json.loads(run("cancel", task.pk, "--by", "alice", "--json"))["ending"] == "cancelled"
    run_until_idle()
    fork = json.loads(run("retry", task.pk, "--json"))
    assert fork["forked_from"] == str(task.pk)


def test_an_unknown_task_is_named() -> None:
    with pytest.raises(CommandError, match="There is no task 00000000"):
        run("show", "00000000-0000-0000-0000-000000000000")


def test_a_signal_may_be_sent_by_hand() -> None:
    @body("cli.waits")
    def waits(task: Context) -> Any:
        signal = task.wait_for_signal("paid")
        return signal.payload if signal else None

    waiting = start("cli.waits")
    run_until_idle()
    with pytest.raises(CommandError, match="no JSON"):
        run("signal", waiting.pk, "paid", "{amount")
    run("signal", waiting.pk, "paid", '{"amount": 3}', "--key", "k", "--by", "alice")
    run("signal", waiting.pk, "paid", '{"amount": 4}', "--key", "k")
    run_until_idle()
    registry.unregister("cli.waits")
    assert Task.objects.get(pk=waiting.pk).result == {"amount": 3}

"""Questions: the inbox, each kind's form, answering together, who may answer, and votes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection, connections
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from supervision.engines import start
from supervision.errors import (
    AlreadyAnswered,
    AlreadyVoted,
    InvalidAnswer,
    NotEntitled,
    QuestionExpired,
    SupervisionError,
)
from supervision.kernel import lifecycle, log, questions
from supervision.kernel.models import Question, Task
from supervision.models import Vote
from supervision.testing import run_until_idle, travel
from tests.integration.admin_work import bodies, fresh, pending, person

pytestmark = pytest.mark.django_db

INBOX = "/admin/supervision/question/"


@pytest.fixture(autouse=True)
def _bodies(tmp_path: Path) -> Iterator[None]:
    with bodies(), override_settings(MEDIA_ROOT=str(tmp_path)):
        yield


@pytest.fixture
def boss(db: None) -> User:
    return User.objects.create(username="boss", is_staff=True, is_superuser=True)


@pytest.fixture
def client(boss: User) -> Client:
    client = Client()
    client.force_login(boss)
    return client


def asked(options: dict[str, Any] | None = None, body: str = "admin.ask", **more: Any) -> tuple[Task, Question]:
    task = start(body, {"options": options or {}}, **more)
    run_until_idle()
    assert fresh(task).failure == ""
    return fresh(task), pending(task)


def page(question: Question) -> str:
    return reverse("admin:supervision_question_change", args=[question.pk])


def said(response: Any) -> str:
    return " ".join(str(message) for message in response.context["messages"])


FEW = {"a": "A", "b": "B"}
MANY = {f"c{n}": f"Country {n}" for n in range(60)}


@pytest.mark.parametrize(
    ("options", "posted", "answer"),
    [
        ({"choices": FEW}, {"answer": "b"}, "b"),
        ({"choices": MANY}, {"answer": "c59"}, "c59"),
        ({"choices": FEW, "kind": "choices"}, {"answer": ["a", "b"]}, ["a", "b"]),
        ({}, {"answer": " words "}, "words"),
        ({"kind": "yes_no"}, {"answer": "no"}, False),
        ({"kind": "number"}, {"answer": "0"}, 0),
        ({"kind": "number"}, {"answer": "1.5"}, 1.5),
        ({"kind": "date"}, {"answer": "2026-12-24"}, "2026-12-24"),
        ({"kind": "json"}, {"answer": '{"a": [1]}'}, {"a": [1]}),
        ({"answer_form": "admin.delivery"}, {"day": "2026-12-24", "items": "3"}, {"day": "2026-12-24", "items": 3}),
    ],
)
def test_every_kind_has_a_form_and_is_answered_by_it(
    client: Client, options: dict[str, Any], posted: dict[str, Any], answer: Any
) -> None:
    task, question = asked(options)
    assert client.get(page(question)).status_code == 200
    client.post(page(question), {f"q-{question.pk}-{name}": value for name, value in posted.items()})
    question.refresh_from_db()
    assert (question.status, question.answer) == ("answered", answer)
    assert (question.answered_by_ref, question.answered_via) == ("boss", "admin")
    run_until_idle()
    assert fresh(task).result == answer
    html = client.get(reverse("admin:supervision_task_change", args=[task.pk])).content.decode()
    assert "Answered" in html
    assert "through</" in html or "through admin" in html


@pytest.mark.parametrize(
    ("options", "posted"),
    [
        ({"choices": FEW}, {"answer": "z"}), ({"choices": FEW, "kind": "choices"}, {"answer": ["a", "z"]}),
        ({}, {"answer": "  "}), ({}, {"answer": "x\x00y"}), ({"kind": "yes_no"}, {"answer": "maybe"}),
        ({"kind": "number"}, {"answer": "NaN"}), ({"kind": "number"}, {"answer": "9e999999"}),
        ({"kind": "date"}, {"answer": "2026-02-30"}), ({"kind": "json"}, {"answer": "{"}),
        ({"kind": "json"}, {"answer": "null"}), ({"kind": "json"}, {"answer": '"\\u0000"'}),
        ({"kind": "file"}, {"answer": "no file"}), ({"answer_form": "admin.delivery"}, {"day": "", "items": "0"}),
        ({}, {"answer": "x" * 300_000}),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_said_where_it_is_wrong_and_what_was_typed_stays(
    client: Client, options: dict[str, Any], posted: dict[str, Any]
) -> None:
    _task, question = asked(options)
    response = client.post(page(question), {f"q-{question.pk}-{name}": value for name, value in posted.items()})
    assert response.status_code == 422
    assert "errorlist" in response.content.decode()
    if "items" not in posted and options.get("kind") in (None, "json") and not options.get("choices"):
        assert str(posted["answer"]).strip()[:50].replace('"', "&quot;") in response.content.decode()
    question.refresh_from_db()
    assert question.status == "pending"


def test_a_file_is_an_answer_and_is_downloaded_from_the_tasks_page(client: Client) -> None:
    task, question = asked({"kind": "file"})
    client.post(page(question), {f"q-{question.pk}-answer": SimpleUploadedFile("contract.pdf", b"signed")})
    question.refresh_from_db()
    assert (question.answer or {})["name"] == "contract.pdf"
    download = client.get(reverse("admin:supervision_task_file", args=[task.pk, 0]))
    assert b"".join(download.streaming_content) == b"signed"  # type: ignore[attr-defined]


def test_an_upload_that_was_refused_is_not_kept(client: Client, tmp_path: Path) -> None:
    task, question = asked({"kind": "file"})
    lifecycle.terminate(task.pk, by="test")
    client.post(page(question), {f"q-{question.pk}-answer": SimpleUploadedFile("contract.pdf", b"signed")})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_inbox_is_oldest_first_and_next_leads_through_it(client: Client) -> None:
    first, second, third = (asked()[1] for _number in range(3))
    found = client.get(INBOX).context["cl"].result_list
    assert [question.pk for question in found] == [first.pk, second.pk, third.pk]
    response = client.post(page(first), {f"q-{first.pk}-answer": "x", "then": "next"})
    assert response["Location"] == page(second)
    response = client.post(page(third), {f"q-{third.pk}-answer": "x", "then": "next"})
    assert response["Location"] == page(second)
    response = client.post(page(second), {f"q-{second.pk}-answer": "x", "then": "next"})
    assert response["Location"] == INBOX


def test_the_same_question_in_many_tasks_is_answered_together(client: Client) -> None:
    pairs = [asked({"choices": FEW}) for _number in range(3)]
    other = asked({"choices": {"a": "another A", "b": "B"}})[1]
    first = pairs[0][1]
    response = client.get(page(first))
    assert {row["question"].pk for row in response.context["same"]} == {pairs[1][1].pk, pairs[2][1].pk}
    questions.answer(pairs[2][1].pk, "a", by="somebody else")
    data = {f"q-{first.pk}-answer": "b", "also": [str(pair[1].pk) for pair in pairs[1:]] + [str(other.pk)]}
    response = client.post(page(first), data, follow=True)
    assert "2 questions answered." in said(response)
    assert "2 ticked questions were not waiting any more." in said(response)
    run_until_idle()
    assert [fresh(task).result for task, _question in pairs] == ["b", "b", "a"]
    other.refresh_from_db()
    assert other.status == "pending"


def test_the_list_opens_the_chosen_ones_together(client: Client) -> None:
    first, second = asked()[1], asked()[1]
    data = {"action": "together", "_selected_action": [str(first.pk), str(second.pk)], "index": "0"}
    response = client.post(INBOX, data)
    assert response["Location"] == f"{page(first)}?with={second.pk}"
    html = client.get(response["Location"]).content.decode()
    assert f'value="{second.pk}" checked' in html


def test_an_answer_that_comes_second_is_told_who_was_first(client: Client) -> None:
    _task, question = asked()
    questions.answer(question.pk, "first", by="alice")
    response = client.post(page(question), {f"q-{question.pk}-answer": "second"}, follow=True)
    assert "already answered by alice" in said(response)


def test_an_expired_and_a_withdrawn_question_say_so(client: Client) -> None:
    _task, question = asked({"choices": FEW})
    with travel(timedelta(days=8)):
        response = client.post(page(question), {f"q-{question.pk}-answer": "a"}, follow=True)
        assert "has expired" in said(response)
    task, question = asked()
    lifecycle.cancel(task.pk, by="alice")
    response = client.post(page(question), {f"q-{question.pk}-answer": "a"}, follow=True)
    assert "withdrawn" in said(response)


def test_the_inbox_takes_the_same_number_of_queries_for_one_question_and_for_thirty(client: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(INBOX).status_code == 200
        return len(captured)

    start("admin.greet", {"name": "Ada", "token": "secret-token"})
    run_until_idle()
    one = queries()
    for number in range(29):
        start("admin.greet", {"name": f"N{number}", "token": "secret-token"})
    run_until_idle()
    assert queries() == one


# --- who may answer ---------------------------------------------------------------------------------------------------


def test_by_default_the_permission_decides_on_every_surface(boss: User) -> None:
    _task, question = asked()
    with pytest.raises(NotEntitled, match="people with the permission"):
        questions.answer(question.pk, "x", by=person("nobody"), via="api")
    questions.answer(question.pk, "x", by=person("somebody", "answer_question"), via="api")


def test_a_group_a_person_or_the_owner_may_be_named() -> None:
    Group.objects.create(name="finance")
    owner, cfo = person("owner"), person("cfo", groups=("finance",))
    clerk = person("clerk", "answer_question")
    for spec, right, wrong in (
        ("group:finance", cfo, [clerk, owner]), ("user:cfo", cfo, [clerk, owner]), ("owner", owner, [clerk, cfo]),
    ):  # fmt: skip
        _task, question = asked({"answerable_by": spec}, owner=owner)
        for user in wrong:
            with pytest.raises(NotEntitled):
                questions.answer(question.pk, "x", by=user)
            assert not _inbox_of(user)
        assert _inbox_of(right) == {question.pk}
        questions.answer(question.pk, "x", by=right)


def _inbox_of(user: User) -> set[Any]:
    client = Client()
    client.force_login(user)
    response = client.get(INBOX)
    return set() if response.status_code == 403 else {q.pk for q in response.context["cl"].result_list}


def test_somebody_who_is_nobody_fails_when_it_asks() -> None:
    task = start("admin.ask", {"options": {"answerable_by": "group:finanze"}})
    run_until_idle()
    assert "is nobody" in fresh(task).failure


@pytest.mark.parametrize("superuser", [False, True])
def test_who_asked_for_the_work_does_not_approve_it(superuser: bool) -> None:
    asker = User.objects.create(username="asker", is_superuser=superuser)
    asker = person("asker2", "answer_question") if not superuser else asker
    other = person("other", "answer_question")
    _task, question = asked({"kind": "yes_no", "not_by": "asker"}, owner=other, by=asker)
    with pytest.raises(NotEntitled, match="you asked for this work"):
        questions.answer(question.pk, "yes", by=asker)
    questions.answer(question.pk, "yes", by=other)
    _task, question = asked({"kind": "yes_no", "not_by": "owner"}, owner=other, by=asker)
    with pytest.raises(NotEntitled, match="the work is yours"):
        questions.answer(question.pk, "yes", by=other)
    questions.answer(question.pk, "yes", by=asker)


def test_a_retry_does_not_launder_the_asker() -> None:
    from supervision.engines import retry

    asker, other = person("asker", "answer_question"), person("other", "answer_question")
    task, _question = asked({"kind": "yes_no", "not_by": "asker"}, owner=asker)
    lifecycle.terminate(task.pk, by="test")
    fork = retry(task.pk, by=other)
    run_until_idle()
    with pytest.raises(NotEntitled):
        questions.answer(pending(fork).pk, "yes", by=asker)


def test_the_page_says_why_one_may_not_answer() -> None:
    viewer = person("viewer", "view_task")
    _task, question = asked()
    client = Client()
    client.force_login(viewer)
    html = client.get(page(question)).content.decode()
    assert "only people with the permission to answer may" in html
    assert "<textarea" not in html


# --- votes ------------------------------------------------------------------------------------------------------------


def voters(count: int) -> list[User]:
    return [person(f"voter{number}", "answer_question") for number in range(count)]


def test_two_approvals_take_two_people() -> None:
    one, two = voters(2)
    task, question = asked({"kind": "yes_no", "approvals": 2})
    questions.answer(question.pk, "yes", by=one)
    task = fresh(task)
    assert (task.current_state, task.wake_at) == ("parked", None)
    assert log.page(task.pk).entries[-1].event == "vote_cast"
    with pytest.raises(AlreadyVoted):
        questions.answer(question.pk, "yes", by=one)
    with pytest.raises(AlreadyVoted):
        questions.answer(question.pk, "no", by=one)
    questions.answer(question.pk, "yes", by=two)
    run_until_idle()
    assert fresh(task).result is True
    assert Vote.objects.filter(question=question).count() == 2


def test_the_first_no_decides() -> None:
    one, two = voters(2)
    task, question = asked({"kind": "yes_no", "approvals": 3})
    questions.answer(question.pk, "yes", by=one)
    questions.answer(question.pk, "no", by=two, note="too dear")
    run_until_idle()
    assert fresh(task).result is False
    with pytest.raises(AlreadyAnswered, match="voter1"):
        questions.answer(question.pk, "yes", by=person("late", "answer_question"))


def test_the_asker_has_no_vote_and_a_vote_after_the_expiry_counts_for_nothing() -> None:
    one, two = voters(2)
    _task, question = asked({"kind": "yes_no", "approvals": 2, "not_by": "asker"}, owner=one)
    with pytest.raises(NotEntitled):
        questions.answer(question.pk, "yes", by=one)
    with travel(timedelta(days=8)), pytest.raises(QuestionExpired):
        questions.answer(question.pk, "yes", by=two)
    assert not Vote.objects.exists()


def test_a_wrong_vote_is_no_vote() -> None:
    (one,) = voters(1)
    _task, question = asked({"kind": "yes_no", "approvals": 2})
    with pytest.raises(InvalidAnswer):
        questions.answer(question.pk, "perhaps", by=one)
    assert not Vote.objects.exists()


def test_the_page_counts_the_votes(client: Client) -> None:
    (one,) = voters(1)
    _task, question = asked({"kind": "yes_no", "approvals": 2})
    client.force_login(one)
    response = client.post(page(question), {f"q-{question.pk}-answer": "yes"}, follow=True)
    assert "Your vote counts. The question waits for others." in said(response)
    html = response.content.decode()
    assert "1 of 2 approvals." in html
    assert "You have voted; others must, too." in html


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("words", "result", "votes"), [(("yes", "yes"), True, 2), (("no", "no"), False, 1)])
def test_two_people_who_vote_at_once_make_one_outcome(words: tuple[str, str], result: bool, votes: int) -> None:
    one, two = voters(2)
    task, question = asked({"kind": "yes_no", "approvals": 2})
    outcomes = _at_once(
        task,
        lambda: questions.answer(question.pk, words[0], by=one),
        lambda: questions.answer(question.pk, words[1], by=two),
    )
    run_until_idle()
    assert fresh(task).result is result
    assert Vote.objects.filter(question=question).count() == votes
    refused = [outcome for outcome in outcomes if isinstance(outcome, SupervisionError)]
    assert len(refused) == 2 - votes
    answered = [entry for entry in log.page(task.pk).entries if entry.event == "question_answered"]
    assert len(answered) == 1


@pytest.mark.django_db(transaction=True)
def test_one_person_who_votes_twice_at_once_has_one_vote() -> None:
    (one,) = voters(1)
    task, question = asked({"kind": "yes_no", "approvals": 2})

    def vote() -> Any:
        return questions.answer(question.pk, "yes", by=one)

    outcomes = _at_once(task, vote, vote)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["AlreadyVoted", "Question"]
    assert Vote.objects.filter(question=question).count() == 1
    assert fresh(task).current_state == "parked"


def _at_once(task: Task, *calls: Callable[[], Any]) -> list[Any]:
    """Runs the calls in threads that are all seen waiting for the task's lock before it is let go."""
    outcomes: list[Any] = []

    def run(call: Callable[[], Any]) -> None:
        try:
            outcomes.append(call())
        except SupervisionError as refusal:
            outcomes.append(refusal)
        finally:
            connections.close_all()

    other = connections.create_connection("default")
    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    try:
        other.set_autocommit(False)
        with other.cursor() as cursor:
            cursor.execute("SELECT 1 FROM supervision_task WHERE id = %s FOR NO KEY UPDATE", [str(task.pk)])
            for thread in threads:
                thread.start()
            _until_waiting(len(calls))
        other.rollback()
    finally:
        other.close()
    for thread in threads:
        thread.join(10)
    return outcomes


def _until_waiting(count: int) -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            if cursor.fetchone()[0] >= count:
                return
        time.sleep(0.01)
    raise AssertionError("they never waited")

"""Signed links: an answer in a person's name without signing in, and an address for a signal. Once, in time, for the
one thing; and never in a log."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import Group, User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from supervision.engines import retry, start
from supervision.errors import LinkImpossible, NotStorable
from supervision.kernel import holds, lifecycle, links
from supervision.kernel.models import Question, Signal, Task
from supervision.testing import run_until_idle, travel
from supervision.worker import postman
from tests.integration.admin_work import bodies, fresh, pending
from tests.integration.own_work import HANDED_OUT, own_bodies
from tests.integration.races import Stage

BASE = "https://example.org"


@pytest.fixture(autouse=True)
def _bodies(db: None, settings: Any, tmp_path: Any) -> Iterator[None]:
    settings.SUPERVISION = {"BASE_URL": BASE}
    settings.MEDIA_ROOT = str(tmp_path)
    with bodies(), own_bodies():
        yield


@pytest.fixture
def ann() -> User:
    return User.objects.create(username="ann", email="ann@example.org")


def asked(owner: User, **arguments: Any) -> Question:
    task = start("own.order", {"what": "tea", **arguments}, owner=owner)
    run_until_idle()
    return pending(task)


def path_of(link: str) -> str:
    assert link.startswith(f"{BASE}/work/")
    parts = urlsplit(link)
    return f"{parts.path}?{parts.query}"


def post(link: str, question: Question, value: str = "small", client: Client | None = None) -> Any:
    return (client or Client()).post(path_of(link), {f"q-{question.pk}-answer": value, "note": "by mail"})


# --- answer links


def test_a_link_opens_a_form_changes_nothing_and_answers_once(ann: User) -> None:
    question = asked(ann)
    link = question.answer_link(ann)
    client = Client(enforce_csrf_checks=True)
    for _each in range(3):  # mail scanners follow links, too
        page = client.get(path_of(link))
        assert page.status_code == 200
    assert client.head(path_of(link)).status_code == 200
    assert "How much tea?" in page.content.decode()
    assert page["Referrer-Policy"] == "strict-origin"
    assert page["Cache-Control"] == "private, no-cache, no-store"
    assert pending(question.task) == question
    assert client.post(path_of(link), {f"q-{question.pk}-answer": "small"}).status_code == 403  # without its token
    token = page.content.decode().partition('name="csrfmiddlewaretoken" value="')[2].partition('"')[0]
    data = {f"q-{question.pk}-answer": "small", "note": "by mail", "csrfmiddlewaretoken": token}
    assert "Thank you" in client.post(path_of(link), data).content.decode()
    question.refresh_from_db()
    assert (question.answer, question.answered_by, question.answered_via) == ("small", ann, "link")
    run_until_idle()
    assert fresh(question.task).result == {"size": "small"}

    second = client.post(path_of(link), {**data, f"q-{question.pk}-answer": "large"})
    assert second.status_code == 409
    assert "already answered by ann. Nothing was changed." in second.content.decode()
    again = client.get(path_of(link))
    assert again.status_code == 410
    assert "already answered by ann" in again.content.decode()
    assert "How much tea?" not in again.content.decode()
    question.refresh_from_db()
    assert question.answer == "small"


@pytest.mark.django_db(transaction=True)
def test_of_two_who_use_one_link_at_once_one_is_taken(stage: Stage, ann: User) -> None:
    question = asked(ann)
    link = question.answer_link(ann)
    first = stage.begin(lambda: post(link, question, "small"))
    second = stage.begin(lambda: post(link, question, "large"))
    assert second.is_blocked_by(first)
    assert first.commit().status_code == 200
    assert second.commit().status_code == 409
    question.refresh_from_db()
    assert question.answer == "small"


def test_a_link_is_a_vote_where_several_must_say_yes(ann: User) -> None:
    bob = User.objects.create(username="bob")
    group = Group.objects.create(name="finance")
    group.user_set.add(ann, bob)
    task = start("admin.approve", {"options": {"approvals": 2, "answerable_by": "group:finance"}})
    run_until_idle()
    question = pending(task)
    said = post(question.answer_link(ann), question, "yes")
    assert "The question waits for others." in said.content.decode()
    assert post(question.answer_link(ann), question, "yes").status_code == 409  # one vote a person
    assert "others must, too" in Client().get(path_of(question.answer_link(ann))).content.decode()
    assert post(question.answer_link(bob), question, "yes").status_code == 200
    question.refresh_from_db()
    assert question.answer is True


@pytest.mark.parametrize("how", ["group left", "deactivated", "deleted"])
def test_a_link_gives_no_right_that_its_person_has_lost(how: str, ann: User) -> None:
    group = Group.objects.create(name="finance")
    ann.groups.add(group)
    task = start("admin.approve", {"options": {"answerable_by": "group:finance"}})
    run_until_idle()
    question = pending(task)
    link = question.answer_link(ann)
    match how:
        case "group left":
            ann.groups.clear()
        case "deactivated":
            User.objects.update(is_active=False)
        case "deleted":
            User.objects.all().delete()
    opened, answered = Client().get(path_of(link)), post(link, question, "yes")
    assert (opened.status_code, answered.status_code) == ((410, 403) if how == "group left" else (404, 404))
    assert "May we spend" not in opened.content.decode() + answered.content.decode()
    assert pending(task) == question


def test_a_link_is_its_persons_and_nobody_elses(ann: User) -> None:
    question = asked(ann)
    bob = User.objects.create(username="bob")
    client = Client()
    client.force_login(bob)
    link = question.answer_link(ann)
    assert client.get(path_of(link)).status_code == 403
    assert post(link, question, client=client).status_code == 403
    assert post(question.answer_link(bob), question).status_code == 403  # entitlement is judged, not assumed
    assert pending(question.task) == question
    client.force_login(ann)
    assert post(link, question, client=client).status_code == 200


def test_a_link_expires_by_the_databases_clock(ann: User) -> None:
    question = asked(ann)
    link, short = question.answer_link(ann), question.answer_link(ann, expires_after=timedelta(hours=1))
    with travel(timedelta(hours=2)):
        late = post(short, question)
        assert late.status_code == 410
        assert "This link has expired." in late.content.decode()
        assert Client().get(path_of(short)).status_code == 410
        assert Client().get(path_of(link)).status_code == 200
    with pytest.raises(ValueError, match="longer than nothing"):
        question.answer_link(ann, expires_after=timedelta(0))


@pytest.mark.parametrize("how", ["expired", "cancelled", "held"])
def test_a_link_to_a_question_that_is_closed_is_told(how: str, ann: User) -> None:
    question = asked(ann)
    link = question.answer_link(ann, expires_after=timedelta(days=60))
    match how:
        case "expired":
            with travel(timedelta(days=8)):
                assert post(link, question).status_code == 410
                assert Client().get(path_of(link)).status_code == 410
        case "cancelled":
            lifecycle.cancel(question.task_id, by="boss")
            run_until_idle()
            assert post(link, question).status_code == 410
            assert "doesn’t wait for an answer" in Client().get(path_of(link)).content.decode()
        case "held":  # a hold stops workers, and nobody's answer
            holds.hold("body", "own.order", by="boss")
            assert post(link, question).status_code == 200


def test_a_refused_answer_doesnt_use_the_link_up(ann: User) -> None:
    question = asked(ann)
    link = question.answer_link(ann)
    response = post(link, question, "enormous")
    assert response.status_code == 422
    assert "enormous is not one of the available choices" in response.content.decode()
    assert post(link, question).status_code == 200


def test_a_file_may_be_the_answer(ann: User) -> None:
    task = start("admin.ask", {"options": {"kind": "file", "answerable_by": "owner"}}, owner=ann)
    run_until_idle()
    question = pending(task)
    upload = SimpleUploadedFile("answer.txt", b"42")
    response = Client().post(path_of(question.answer_link(ann)), {f"q-{question.pk}-answer": upload})
    assert response.status_code == 200
    question.refresh_from_db()
    assert (question.answer or {})["name"] == "answer.txt"


def test_what_was_not_signed_here_for_this_leads_nowhere(ann: User) -> None:
    """Cut, changed, another kind's, another key's, or garbage: one answer, without a query on our tables."""
    question = asked(ann)
    link = question.answer_link(ann)
    token = link.partition("?t=")[2]
    with override_settings(SECRET_KEY="another"):
        foreign = question.answer_link(ann).partition("?t=")[2]
    signal = question.task.signal_url("x").partition("?t=")[2]
    answers = set()
    for bad in ["", "x", token[:-1], token + "A", "A" + token, token.swapcase(), foreign, signal, "%00", "ü", "." * 99,
                "a" * 100_000, token.replace(".", ":")]:  # fmt: skip
        with CaptureQueriesContext(connection) as queries:
            response = Client().get(f"/work/answer/?t={bad}")
        answers.add((response.status_code, response.content, len(queries)))
        assert Client().post(f"/work/answer/?t={bad}", {}).status_code == 404
    assert len(answers) == 1
    status, page, queries_made = answers.pop()
    assert (status, queries_made) == (404, 0)
    assert b"This link leads nowhere" in page
    assert Client().get(path_of(link)).status_code == 200


def test_links_survive_a_rotation_of_the_key_while_the_old_one_falls_back(ann: User, settings: Any) -> None:
    question = asked(ann)
    link, url = question.answer_link(ann), question.task.signal_url("verified")
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "new"
    assert post(link, question).status_code == 200
    assert links.read_signal(url.partition("?t=")[2]) is not None
    settings.SECRET_KEY_FALLBACKS = []
    assert Client().get(path_of(link)).status_code == 404
    assert links.read_signal(url.partition("?t=")[2]) is None


def test_without_an_address_of_the_site_no_link_is_made(ann: User, settings: Any) -> None:
    question = asked(ann)
    settings.SUPERVISION = {}
    with pytest.raises(LinkImpossible, match="BASE_URL"):
        question.answer_link(ann)
    settings.SUPERVISION = {"BASE_URL": BASE}
    with override_settings(ROOT_URLCONF="django.contrib.auth.urls"), pytest.raises(LinkImpossible, match="include"):
        question.task.signal_url("x")


def test_the_longest_name_and_key_come_back(ann: User) -> None:
    url = asked(ann).task.signal_url("\N{SNOWMAN WITHOUT SNOW}\N{GRINNING FACE}" * 100, key="\N{GRINNING FACE}" * 180)
    link = links.read_signal(url.partition("?t=")[2])
    assert link is not None
    assert (len(link.name), len(link.key)) == (200, 180)


@pytest.mark.parametrize(("name", "key"), [("", ""), ("x" * 201, ""), ("a\x00", ""), ("x", "y" * 181)])
def test_a_signal_url_of_a_name_that_none_can_have_is_refused(name: str, key: str, ann: User) -> None:
    with pytest.raises(NotStorable):
        asked(ann).task.signal_url(name, key=key)


# --- in notices


def mails(mailoutbox: list[Any], settings: Any, **more: Any) -> list[str]:
    settings.SUPERVISION = {"NOTIFY": ("mail",), "BASE_URL": BASE, **more}
    start("own.order", {"what": "tea"}, owner=User.objects.get(username="ann"))
    run_until_idle()
    postman.deliver_due()
    return [mail.body for mail in mailoutbox]


def test_a_notice_carries_its_readers_own_answer_link(ann: User, settings: Any, mailoutbox: list[Any]) -> None:
    (mail,) = mails(mailoutbox, settings, ANSWER_LINKS=True)
    link = next(line for line in mail.splitlines() if line.startswith(BASE))
    question = Question.objects.get()
    assert post(link, question).status_code == 200
    question.refresh_from_db()
    assert question.answered_by == ann


def test_a_notice_leads_to_the_owners_page_unless_answer_links_are_wanted(
    ann: User, settings: Any, mailoutbox: list[Any]
) -> None:
    (mail,) = mails(mailoutbox, settings)
    assert f"{BASE}/work/{Task.objects.get().pk}/" in mail
    assert "answer/?t=" not in mail


# --- signals


def told(url: str, body: Any = None, content_type: str = "application/json", **more: Any) -> Any:
    data = body if isinstance(body, str | bytes) else json.dumps(body)
    response = Client(enforce_csrf_checks=True).post(path_of(url), data, content_type=content_type, **more)
    return response.status_code, sorted(response.items()), response.content


def waiting(**arguments: Any) -> tuple[Task, str]:
    task = start("own.verify", arguments)
    run_until_idle()
    return task, HANDED_OUT[-1]


def test_a_post_to_its_address_ends_the_wait_once(ann: User) -> None:
    task, url = waiting()
    assert url == task.signal_url("verified")
    assert Client().get(path_of(url)).status_code == 405
    assert Client().head(path_of(url)).status_code == 405
    assert not Signal.objects.exists()
    answers = [told(url, {"by": "ann"}), told(url, {"by": "eve"})]  # providers repeat themselves
    run_until_idle()
    answers.append(told(url, {"by": "eve"}))  # ended by now
    assert fresh(task).result == {"verified": {"by": "ann"}}
    assert Signal.objects.count() == 1
    assert answers[0][0] == 202
    assert answers[0] == answers[1] == answers[2]


def test_every_post_is_answered_alike(ann: User, settings: Any) -> None:
    """Valid or not, early or late, well formed or not: who sends learns nothing; and what is no signal is none."""
    task, url = waiting()
    token = url.partition("?t=")[2]
    settings.SUPERVISION = {"BASE_URL": BASE, "MAX_PAYLOAD_BYTES": 5000}
    bad_bodies = [
        b"{", b"\xff\xfe", b"[" * 100_000, b'"\\u0000"', b'"\\ud800"', b"NaN", b'"' + b"x" * 6000,
        b"1" + b" " * 6000, b"9" * 6000,
    ]  # fmt: skip
    answers = [told(url, bad) for bad in bad_bodies]
    answers += [told(url, "&".join("a=b" for _ in range(1200)), "application/x-www-form-urlencoded")]
    answers += [told(url, b"--x\r\n", "multipart/form-data; boundary=x")]
    assert not Signal.objects.exists()
    elsewhere = question_token(ann)
    for bad in ["", "x", token[:-1], elsewhere, "%00", "a" * 50_000]:
        answers.append(told(f"{BASE}/work/signal/?t={bad}", {"by": "eve"}))
    assert not Signal.objects.exists()
    answers.append(told(url, {"by": "ann"}))
    assert Signal.objects.count() == 1
    assert len({str(each) for each in answers}) == 1
    run_until_idle()
    assert fresh(task).result == {"verified": {"by": "ann"}}


def question_token(ann: User) -> str:
    return asked(ann).answer_link(ann).partition("?t=")[2]


@pytest.mark.parametrize(
    ("body", "content_type", "payload"),
    [
        (b"", "application/json", None),
        (b" \n", "text/plain", None),
        (b'{"a": [1, "\xc3\xa9"]}', "text/plain", {"a": [1, "é"]}),
        (b"a=1&b=2&b=3&c=", "application/x-www-form-urlencoded", {"a": "1", "b": ["2", "3"], "c": ""}),
        (b"null", "application/json", None),
    ],
)
def test_json_and_forms_become_the_payload(body: bytes, content_type: str, payload: Any) -> None:
    task, url = waiting()
    assert told(url, body, content_type)[0] == 202
    assert Signal.objects.get(task=task).payload == payload


def test_a_key_tells_two_waits_of_one_name_apart() -> None:
    task = start("own.verify")
    for key in ("1", "1", "2"):
        told(task.signal_url("verified", key=key), {"key": key})
    assert [signal.payload for signal in Signal.objects.filter(task=task)] == [{"key": "1"}, {"key": "2"}]


def test_the_retry_hears_what_is_sent_to_the_address_of_its_source() -> None:
    """It has kept the step that handed the address out, and hands out no other."""
    task, url = waiting()
    lifecycle.cancel(task.pk, by="boss")
    run_until_idle()
    heir = retry(task.pk)
    run_until_idle()
    assert len(HANDED_OUT) == 1
    told(url, {"by": "ann"})
    run_until_idle()
    assert fresh(heir).result == {"verified": {"by": "ann"}}
    told(url, {"by": "ann"})
    assert Signal.objects.count() == 1
    grandchild = retry(heir.pk)
    told(url, {"by": "ann"})  # has kept what its source heard
    assert not Signal.objects.filter(task=grandchild).exists()


def test_a_retry_that_has_heard_it_already_isnt_told_again() -> None:
    task, url = waiting(flaky=True)
    told(url, {"by": "ann"})
    run_until_idle()
    assert fresh(task).current_state == "failed"
    heir = retry(task.pk)
    told(url, {"by": "ann"})
    assert not Signal.objects.filter(task=heir).exists()
    run_until_idle()
    grandchild = retry(heir.pk)
    told(url, {"by": "ann"})
    assert not Signal.objects.filter(task=grandchild).exists()


@pytest.mark.django_db(transaction=True)
def test_while_the_task_is_busy_the_sender_is_asked_to_come_again(stage: Stage) -> None:
    task, url = waiting()
    with override_settings(SUPERVISION={"BASE_URL": BASE, "LOCK_TIMEOUT_SECONDS": 0.05}), stage.holding_task(task.pk):
        response = stage.run(lambda: Client().post(path_of(url), "1", content_type="application/json")).commit()
    assert (response.status_code, response["Retry-After"]) == (503, "5")
    assert not Signal.objects.exists()


def test_outside_of_a_step_no_address_is_handed_out() -> None:
    from supervision.engines import Context, registry
    from supervision.engines.bodies import body

    @body("own.early")
    def early(task: Context) -> str:
        return task.signal_url("x")

    task = start("own.early")
    run_until_idle()
    registry.unregister("own.early")
    assert "call it there" in fresh(task).failure


def test_links_work_in_a_project_that_asks_everybody_to_sign_in(ann: User, settings: Any) -> None:
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]
    task, url = waiting()
    assert told(url, {"by": "ann"})[0] == 202
    assert Signal.objects.get().task == task
    question = asked(ann)
    assert post(question.answer_link(ann), question).status_code == 200


# --- what is never logged


def test_no_token_is_ever_logged_or_sent_on(ann: User, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    question = asked(ann)
    link, url = question.answer_link(ann), question.task.signal_url("verified")
    late = question.answer_link(ann, expires_after=timedelta(seconds=1))
    strict = Client(enforce_csrf_checks=True)
    responses = [Client().get(path_of(link)), strict.post(path_of(link), {}), Client().put(path_of(link))]
    responses += [post(link, question, "enormous"), post(link, question), post(link, question)]
    responses += [Client().get(path_of(link) + "x"), Client().get(path_of(url))]
    with travel(timedelta(hours=1)):
        responses.append(Client().get(path_of(late)))
    lifecycle.terminate(question.task_id, by="boss")
    told(url, b"{")
    told(url, {"by": "ann"})
    assert {response.status_code for response in responses} == {200, 403, 404, 405, 409, 410, 422}
    tokens = [each.partition("?t=")[2] for each in (link, url, late)]
    said = caplog.text  # of every logger, at any level
    assert "django.request" in said
    for response in responses:
        said += response.content.decode() + str(dict(response.items()))
    for token in tokens:
        assert token.partition(".")[0] not in said
        assert token.partition(".")[2] not in said

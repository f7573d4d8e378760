"""The owner's pages by raw request: who gets in, what exists for whom, and what a click truthfully did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.files.base import ContentFile
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import get_resolver

from supervision.engines import Context, registry, start, store
from supervision.engines.bodies import body
from supervision.kernel import lease, lifecycle, log, questions
from supervision.kernel.models import LogEntry, Question, Task
from supervision.pages import urls
from supervision.testing import run_until_idle
from tests.integration.admin_work import bodies, fresh, pending, person
from tests.integration.own_work import own_bodies
from tests.integration.races import Stage

CANARY = "c4n4ry-of-ann"

LOOK_UP: dict[str, tuple[str, str]] = {
    "task": ("GET", ""),
    "live": ("GET", "live/"),
    "file": ("GET", "files/0/"),
    "whole": ("GET", "whole/arguments/"),
    "act": ("POST", "act/pause/"),
    "question": ("POST", "questions/{question}/"),
}
"""Every route that names a task, with its method."""
OTHERS = {"tasks", "asked", "answer", "signal"}


@pytest.fixture(autouse=True)
def _bodies(db: None, tmp_path: Any) -> Iterator[None]:
    with bodies(), own_bodies(), override_settings(MEDIA_ROOT=str(tmp_path)):
        yield


@pytest.fixture
def ann() -> User:
    return User.objects.create(username="ann")


@pytest.fixture
def bob() -> User:
    return User.objects.create(username="bob")


def signed_in(user: User | None) -> Client:
    client = Client()
    if user is not None:
        client.force_login(user)
    return client


def asked(owner: User | None, **arguments: Any) -> Task:
    task = start("own.order", {"what": "tea", **arguments}, owner=owner)
    run_until_idle()
    return fresh(task)


def page_of(task: Task, rest: str = "") -> str:
    return f"/work/{task.pk}/{rest}"


def seen(client: Client, method: str, address: str) -> tuple[int, list[tuple[str, str]], bytes, int]:
    """All that a client can tell answers apart by."""
    with CaptureQueriesContext(connection) as queries:
        response = client.generic(method, address)
    headers = sorted((name, value) for name, value in response.items() if name != "Date")
    return response.status_code, headers, b"".join(response), len(queries)


# --- what exists for whom


def test_this_file_knows_every_route() -> None:
    assert {*LOOK_UP, *OTHERS} == {pattern.name for pattern in urls.urlpatterns}
    assert get_resolver("supervision.pages.urls").url_patterns


MALFORMED = ["nonsense", "0", "-1", "%00", "%EF%BF%BD", "٣" * 36, "a" * 300, "..", "{}", "1' OR '1'='1"]


@pytest.mark.parametrize("route", LOOK_UP)
@pytest.mark.parametrize("role", ["bob", "clerk"])
def test_anothers_missing_and_malformed_tasks_are_one_answer(route: str, role: str, ann: User) -> None:
    theirs = asked(ann)
    client = signed_in(person(role, "answer_question", staff=role == "clerk"))
    method, rest = LOOK_UP[route]
    rest = rest.format(question=pending(theirs).pk)
    seen(client, method, page_of(theirs, rest))  # whatever the process learns once
    foreign = seen(client, method, page_of(theirs, rest))
    assert foreign[0] == 404
    for raw in [str(uuid4()), str(theirs.pk).upper(), theirs.pk.hex, *MALFORMED]:
        assert seen(client, method, f"/work/{raw}/{rest}") == foreign, raw
    assert fresh(theirs).generation == theirs.generation
    assert pending(theirs)


@pytest.mark.parametrize("raw", ["files/{n}/", "whole/{n}/", "act/{n}/", "questions/{n}/"])
def test_within_my_own_task_too(raw: str, ann: User, bob: User) -> None:
    """A question, file or verb that isn't there, is of another's task, or is none."""
    mine, theirs = asked(ann), asked(bob)
    client = signed_in(ann)
    method = "POST" if raw.startswith(("act", "questions")) else "GET"
    answers = {
        str(seen(client, method, page_of(mine, raw.format(n=each))))
        for each in [pending(theirs).pk, uuid4(), *MALFORMED]
    }
    assert len(answers) == 1
    assert answers.pop().startswith("(404")


@pytest.mark.parametrize("route", LOOK_UP)
def test_nobody_is_sent_to_sign_in_whatever_the_address(route: str, ann: User) -> None:
    theirs = asked(ann)
    method, rest = LOOK_UP[route]
    for raw in [theirs.pk, uuid4(), "nonsense"]:
        address = f"/work/{raw}/{rest.format(question=uuid4())}"
        response = Client().generic(method, address)
        assert (response.status_code, response["Location"]) == (302, f"/sign-in/?next={address}")
    assert fresh(theirs).generation == theirs.generation


@pytest.mark.parametrize("route", LOOK_UP)
def test_a_method_that_is_none_of_the_routes_is_405_before_anything_is_looked_up(route: str, ann: User) -> None:
    mine = asked(ann)
    method, rest = LOOK_UP[route]
    wrong = "PUT" if method == "POST" else "POST"
    for raw in [mine.pk, uuid4(), "nonsense"]:
        with CaptureQueriesContext(connection) as queries:
            response = signed_in(ann).generic(wrong, f"/work/{raw}/{rest.format(question=uuid4())}")
        assert response.status_code == 405
        assert not [each for each in queries if "supervision_task" in each["sql"]]
    assert fresh(mine).generation == mine.generation


def test_who_comes_to_a_form_by_get_is_led_to_its_page_and_nothing_is_done(ann: User) -> None:
    """As after having had to sign in for a click."""
    mine = asked(ann)
    client = signed_in(ann)
    for raw in [mine.pk, uuid4(), "nonsense"]:
        for rest in ("act/cancel/", "act/nonsense/", f"questions/{pending(mine).pk}/"):
            with CaptureQueriesContext(connection) as queries:
                response = client.get(f"/work/{raw}/{rest}")
            assert (response.status_code, response["Location"]) == (302, f"/work/{raw}/")
            assert not [each for each in queries if "supervision_task" in each["sql"]]
    assert "Nothing was changed. Look at it" in client.get(page_of(mine)).content.decode()
    assert fresh(mine).generation == mine.generation


def test_staff_with_the_permission_look_at_all_and_do_what_they_may(ann: User) -> None:
    theirs = asked(ann)
    viewer = signed_in(person("viewer", "view_task"))
    assert viewer.get(page_of(theirs)).status_code == 200
    assert b"sv-verb-pause" not in viewer.get(page_of(theirs)).content
    said = viewer.post(page_of(theirs, "act/pause/"), {"expected_generation": theirs.generation})
    assert said.status_code == 403
    assert fresh(theirs).generation == theirs.generation
    assert b"An order" not in viewer.get("/work/").content  # my tasks are mine
    everybodys = viewer.get("/work/?whose=all").content
    assert b"An order" in everybodys
    assert b"ann</bdi>" in everybodys
    pauser = signed_in(person("pauser", "view_task", "pause_task"))
    assert pauser.post(page_of(theirs, "act/pause/"), {"expected_generation": theirs.generation}).status_code == 302
    assert fresh(theirs).pause_requested_at is not None


def test_an_organisations_tasks_are_its_peoples(ann: User, bob: User, settings: Any) -> None:
    from django.contrib.auth.models import Group

    group = Group.objects.create(name="Ltd")
    ann.groups.add(group)
    settings.SUPERVISION = {"OWNERS": f"{__name__}.groups_of"}
    task = start("own.order", {"what": "tea"}, owner=group)
    assert signed_in(ann).get(page_of(task)).status_code == 200
    assert b"An order" in signed_in(ann).get("/work/").content
    assert signed_in(bob).get(page_of(task)).status_code == 404
    assert b"An order" not in signed_in(bob).get("/work/").content


def groups_of(user: Any) -> Any:
    return user.groups.all()


def test_what_is_anns_never_appears_to_bob(ann: User, bob: User) -> None:
    """In lists, counts, filters, choices, errors; with a task of his own that asks, and one of hers like it."""

    @body(f"own.{CANARY}", label=CANARY)
    def secret(task: Context, *, what: str) -> Any:
        task.log(CANARY)
        task.ask(CANARY, CANARY, choices=[CANARY, "b"], answerable_by="owner")
        return {"file": store(ContentFile(b"x", name=f"{CANARY}.txt")).reference}

    try:
        hers = start(f"own.{CANARY}", {"what": CANARY}, owner=ann, subject=CANARY, idempotency_key=CANARY)
        mine = asked(bob)
        run_until_idle()
        lifecycle.pause(hers.pk, by=ann, note=CANARY)
        assert CANARY in signed_in(ann).get(page_of(hers)).content.decode()
        client = signed_in(bob)
        question = pending(hers)
        addresses = [
            "/work/", f"/work/?body=own.{CANARY}", f"/work/?subject={CANARY[:5]}", "/work/?whose=all",
            "/work/?needs=resume", "/work/?needs=answer", "/work/?state=parked", "/work/?since=1971-01-01",
            f"/work/?before={hers.pk}", "/work/?before=ffffffff-ffff-ffff-ffff-ffffffffffff&whose=all&needs=resume",
            page_of(mine), page_of(mine, "live/"), page_of(mine, f"whole/question-{question.pk}/"),
            page_of(mine, f"whole/answer-{question.pk}/"), page_of(hers), page_of(hers, "live/"),
            page_of(hers, "files/0/"), page_of(hers, f"whole/question-{question.pk}/"),
            page_of(hers, "whole/arguments/"),
        ]  # fmt: skip
        for address in addresses:
            response = client.get(address)
            shown = b"".join(response) + str(dict(response.items())).encode()
            said = shown.decode().replace(f'value="{CANARY[:5]}"', "").replace(f"own.{CANARY} is not one", "")
            assert CANARY not in said, address
            assert str(hers.pk) not in said, address
        assert b"1 of your tasks needs an answer" in client.get("/work/").content
        data = {f"q-{question.pk}-answer": CANARY}
        for address in (page_of(hers, f"questions/{question.pk}/"), page_of(mine, f"questions/{question.pk}/")):
            response = client.post(address, data)
            assert response.status_code == 404
            assert CANARY not in response.content.decode()
        assert pending(hers).status == "pending"
    finally:
        registry.unregister(f"own.{CANARY}")


def test_owners_see_no_secret_no_machine_and_no_payload(ann: User) -> None:
    task = start("own.order", {"what": "tea", "token": "s3cr3t-token"}, owner=ann, subject="of s3cr3t-token")
    lease.take(task.pk, 0, lease.Worker("secret-host.internal:7", "h", 1))
    lease.park(task.pk, 1, "worker_stopping", wake_after=timedelta(0))
    run_until_idle()
    client = signed_in(ann)
    number = LogEntry.objects.get(task=task, event="question_asked").sequence_num
    for address in ("", "live/", "whole/arguments/", f"whole/question-{pending(task).pk}/"):
        response = client.get(page_of(task, address))
        assert response.status_code == 200
        assert b"s3cr3t" not in response.content
        assert b"s3cr3t" not in client.get("/work/").content
        assert b"secret-host" not in response.content
        assert b"sv-entry-" not in response.content  # what unfolds an entry's payload
    for what in ("decisions", f"entry-{number}"):  # the control room's
        assert client.get(page_of(task, f"whole/{what}/")).status_code == 404


# --- verbs, behind the generation


def test_each_verb_says_what_it_truthfully_did(ann: User) -> None:
    client = signed_in(ann)
    task = start("own.order", {"what": "tea"}, owner=ann)
    lease.take(task.pk, 0, lease.Worker("w", "h", 1))

    def act(name: str, expected: str) -> Any:
        row = fresh(task)
        data = {"expected_generation": row.generation, "note": "because"}
        response = client.post(page_of(row, f"act/{name}/"), data, follow=True)
        assert response.status_code == 200
        assert expected in response.content.decode()
        return response

    act("pause", "An order: pausing after the current step.")
    act("resume", "An order: goes on.")
    act("cancel", "An order: being cancelled after the current step.")
    lifecycle.terminate(task.pk, by="boss")
    response = act("retry", "An order: tried again, as a new task.")
    fork = Task.objects.get(forked_from=task.pk)
    assert response.redirect_chain[-1][0] == page_of(fork)
    assert fork.owner == ann
    noted = LogEntry.objects.filter(task=task, payload__note="because").values_list("actor_ref", flat=True)
    assert set(noted) == {"ann"}


@pytest.mark.parametrize("sent", [None, "", "abc", "-1", "9" * 30, "1e3", "٣"])
def test_without_a_generation_nothing_happens(sent: str | None, ann: User) -> None:
    task = asked(ann)
    data = {} if sent is None else {"expected_generation": sent}
    response = signed_in(ann).post(page_of(task, "act/cancel/"), data)
    assert response.status_code == 428
    assert "didn’t say what it showed" in response.content.decode()
    assert f'value="{task.generation}"' in response.content.decode()  # the fresh page
    assert fresh(task).generation == task.generation


def test_a_stale_click_changes_nothing_and_shows_the_fresh_page(ann: User) -> None:
    task = asked(ann)
    lifecycle.pause(task.pk, by="boss")
    response = signed_in(ann).post(page_of(task, "act/cancel/"), {"expected_generation": task.generation})
    assert response.status_code == 409
    page = response.content.decode()
    assert "has changed since you opened it" in page
    assert "Stays paused until somebody resumes it." in page
    assert f'name="expected_generation" value="{task.generation + 1}"' in page
    assert fresh(task).ending == ""


def test_what_the_state_forbids_is_told_with_the_reason(ann: User) -> None:
    task = asked(ann)
    response = signed_in(ann).post(page_of(task, "act/resume/"), {"expected_generation": task.generation})
    assert response.status_code == 409
    assert "it isn&#x27;t paused" in response.content.decode()


def test_forms_need_their_csrf_token(ann: User) -> None:
    task = asked(ann)
    client = Client(enforce_csrf_checks=True)
    client.force_login(ann)
    addresses = [page_of(task, "act/pause/"), page_of(task, f"questions/{pending(task).pk}/"), "/work/answer/?t=x"]
    for address in addresses:
        assert client.post(address, {"expected_generation": task.generation}).status_code == 403
    assert fresh(task).generation == task.generation


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("verb", ["pause", "resume", "cancel", "expire", "retry"])
def test_of_two_clicks_on_one_generation_one_is_done(verb: str, stage: Stage, ann: User) -> None:
    task = asked(ann)
    if verb == "resume":
        lifecycle.pause(task.pk)
    if verb == "retry":
        lifecycle.terminate(task.pk, by="boss")
    address, data = page_of(task, f"act/{verb}/"), {"expected_generation": fresh(task).generation}
    clients = [signed_in(ann), signed_in(ann)]
    first = stage.begin(lambda: clients[0].post(address, data))
    second = stage.begin(lambda: clients[1].post(address, data))
    assert second.is_blocked_by(first)
    assert first.commit().status_code == 302
    late = second.commit().status_code
    # a retry changes nothing of its source, so both see the same fork
    assert late == (302 if verb == "retry" else 409)
    assert Task.objects.filter(forked_from=task.pk).count() == (verb == "retry")
    wanted = {"pause": "pause_requested", "resume": "task_resumed", "retry": "task_created"}
    if verb in wanted:
        about = Task.objects.get(forked_from=task.pk) if verb == "retry" else task
        assert LogEntry.objects.filter(task=about, event=wanted[verb]).count() == 1


# --- answers


def test_an_answer_is_taken_judged_and_refused_as_everywhere(ann: User) -> None:
    task = asked(ann)
    question, client = pending(task), signed_in(ann)
    address, name = page_of(task, f"questions/{question.pk}/"), f"q-{question.pk}-answer"
    response = client.post(address, {name: "enormous"})
    assert response.status_code == 422
    assert "enormous is not one of the available choices" in response.content.decode()
    response = client.post(address, {name: "small", "note": "as always"})
    assert (response.status_code, response["Location"]) == (302, page_of(task) + f"#question-{question.pk}")
    question.refresh_from_db()
    assert (question.answer, question.answered_by, question.answered_via) == ("small", ann, "page")
    response = client.post(address, {name: "large"})
    assert response.status_code == 409
    assert "already answered by ann" in response.content.decode()


def test_a_refused_answer_keeps_what_was_typed(ann: User) -> None:
    task = start("admin.ask", {"options": {"answer_form": "admin.delivery", "answerable_by": "owner"}}, owner=ann)
    run_until_idle()
    question = pending(task)
    data = {f"q-{question.pk}-day": "tomorrow", f"q-{question.pk}-items": "12"}
    response = signed_in(ann).post(page_of(task, f"questions/{question.pk}/"), data)
    assert response.status_code == 422
    page = response.content.decode()
    assert "Enter a valid date." in page
    assert 'value="tomorrow"' in page
    assert 'value="12"' in page


def test_who_may_answer_has_the_questions_page_whosesoever_the_task_is(ann: User) -> None:
    task = asked(ann, options={"answerable_by": ""})
    question = pending(task)
    clerk = signed_in(person("clerk", "answer_question", staff=False))
    assert clerk.get(page_of(task)).status_code == 404  # the question's is all they see
    address = f"/work/questions/{question.pk}/"
    assert "How much tea?" in clerk.get(address).content.decode()
    eve = signed_in(User.objects.create(username="eve"))
    for method in ("GET", "POST"):
        foreign = seen(eve, method, address)
        assert foreign[0] == 404
        for raw in [uuid4(), *MALFORMED]:
            assert seen(eve, method, f"/work/questions/{raw}/") == foreign, raw
    data = {f"q-{question.pk}-answer": "small"}
    assert "Your answer was recorded." in clerk.post(address, data).content.decode()
    question.refresh_from_db()
    assert (question.answered_by_ref, question.answered_via) == ("clerk", "page")
    assert clerk.post(address, data).status_code == 409
    assert Client().post(address, data).status_code == 302


def test_owning_is_not_answering(ann: User) -> None:
    """Whoever asked for the work may look at the question, and not answer it, if the author wants somebody else."""
    task = asked(ann, options={"answerable_by": "", "not_by": "asker"})
    question = pending(task)
    page = signed_in(ann).get(page_of(task)).content.decode()
    assert "you asked for this work, so somebody else must answer" in page
    assert f"q-{question.pk}-answer" not in page
    data = {f"q-{question.pk}-answer": "small"}
    assert signed_in(ann).post(page_of(task, f"questions/{question.pk}/"), data).status_code == 403
    assert pending(task) == question


# --- the list, the log, the refresh


def test_the_list_is_filtered_by_its_form_and_bad_values_are_said(ann: User) -> None:
    waiting = asked(ann, what="waiting")
    done = start("admin.fail", owner=ann, subject="Été 7")
    run_until_idle()
    lifecycle.pause(start("own.both", owner=ann, subject="summer").pk)
    client = signed_in(ann)

    def found(query: str) -> set[str]:
        response = client.get(f"/work/?{query}")
        assert response.status_code == 200
        return {row["task"].body for row in response.context["rows"]}

    assert found("") == {"own.order", "admin.fail", "own.both"}
    page = client.get("/work/").content.decode()
    assert "It failed." in page
    assert "Été 7" in page
    assert "whose" not in page  # for those who see others' only
    assert found("needs=answer") == {"own.order"}
    assert found("needs=resume") == {"own.both"}
    assert found("state=failed") == {"admin.fail"}
    assert found("body=own.both") == {"own.both"}
    assert found("subject=été") == {"admin.fail"}
    today = waiting.created_at.date()
    assert found(f"since={today}&until={today}") == {"own.order", "admin.fail", "own.both"}
    assert found("until=0001-01-01") == found("since=9999-12-31") == set()
    assert found(f"before={done.pk}") == {"own.order"}
    for query in ("state=nonsense", "body=no.such", "since=x", "needs=%00", "subject=%00", "subject=" + "x" * 300):
        assert found(query) == set()
        assert 'class="errorlist"' in client.get(f"/work/?{query}").content.decode()
    assert found("before=nonsense&unknown=1&whose=all") == {"own.order", "admin.fail", "own.both"}


def test_the_list_is_turned_page_by_page_without_more_queries(ann: User) -> None:
    for number in range(60):
        start("own.order", {"what": "tea"}, owner=ann, subject=f"s{number}")
    client = signed_in(ann)
    address, pages, counts = "/work/?state=pending", [], set()
    while address:
        with CaptureQueriesContext(connection) as queries:
            response = client.get(address)
        counts.add(len(queries))
        pages.append([row["task"].subject for row in response.context["rows"]])
        address = response.context["older"] and f"/work/{response.context['older']}"
    assert [subject for page in pages for subject in page] == [f"s{n}" for n in range(59, -1, -1)]
    assert [len(page) for page in pages] == [25, 25, 10]
    assert len(counts) == 1


def test_the_log_tells_what_it_withholds_and_has_older_pages(ann: User, settings: Any) -> None:
    settings.SUPERVISION = {"LOG_PAGE_SIZE": 4}
    task = start("own.order", {"what": "tea"}, owner=ann)
    for _each in range(5):
        lifecycle.pause(task.pk, by=ann)
        lifecycle.resume(task.pk, by=ann)
    client = signed_in(ann)
    page = client.get(page_of(task))
    assert "4 of 11 entries, 7 not shown" in page.content.decode()
    numbers = [line["number"] for line in page.context["lines"]]
    while (older := page.context["log"].older) is not None:
        page = client.get(page_of(task, f"?before={older}"))
        numbers = [line["number"] for line in page.context["lines"]] + numbers
    assert numbers == [str(n) for n in range(1, 12)]
    assert log.page(task.pk).total_count == 11
    for bad in ("x", "-1", "%00", "9" * 40):
        assert client.get(page_of(task, f"?before={bad}")).status_code == 200


def test_the_fragment_is_304_until_something_can_be_read_on_it(ann: User) -> None:
    task, client = asked(ann), signed_in(ann)
    first = client.get(page_of(task, "live/"))
    assert client.get(page_of(task, "live/"), headers={"If-None-Match": first["ETag"]}).status_code == 304
    questions.answer(pending(task).pk, "small", by="alice")
    again = client.get(page_of(task, "live/"), headers={"If-None-Match": first["ETag"]})
    assert again.status_code == 200
    assert b"Answered meanwhile by alice: small" in again.content


def test_a_tasks_page_asks_the_same_number_of_queries_however_long_its_log(ann: User) -> None:
    task, client = asked(ann), signed_in(ann)

    def count(do: Callable[[], Any]) -> int:
        with CaptureQueriesContext(connection) as queries:
            do()
        return len(queries)

    before = count(lambda: client.get(page_of(task)))
    for _each in range(20):
        lifecycle.pause(task.pk, by=ann)
        lifecycle.resume(task.pk, by=ann)
    assert count(lambda: client.get(page_of(task))) == before
    assert before < 20


def test_files_are_the_tasks_own_and_inert(ann: User) -> None:
    upload = ContentFile(b"name,country\nAda,Korea\n", name="<b>.csv")
    task = start("admin.import", {"upload": store(upload)}, owner=ann)
    run_until_idle()
    question = pending(task)
    questions.answer(question.pk, "country", by="alice")
    run_until_idle()
    client = signed_in(ann)
    page = client.get(page_of(task)).content.decode()
    assert "column.txt" in page
    response = client.get(page_of(task, "files/0/"))
    assert b"".join(response) == b"country"
    assert response["Content-Type"] == "application/octet-stream"
    assert response["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert client.get(page_of(task, "files/2/")).status_code == 404


def test_children_are_shown_to_their_owner(ann: User) -> None:
    task = start("own.family", owner=ann)
    run_until_idle()
    page = signed_in(ann).get(page_of(task)).content.decode()
    assert "Its part:" in page
    children = Task.objects.filter(parent=task)
    assert len(children) == 2
    for child in children:
        assert page_of(child) in page
        assert "Part of:" in signed_in(ann).get(page_of(child)).content.decode()
    assert Question.objects.filter(task__in=children).count() == 2


def test_the_list_has_parts_of_other_work_only_where_something_is_needed_of_them_or_they_are_asked_for(
    ann: User,
) -> None:
    task = start("own.family", owner=ann)
    run_until_idle()
    child = Task.objects.filter(parent=task)[0]
    seen = {
        query: signed_in(ann).get(f"/work/{query}").content.decode() for query in ("", "?needs=answer", "?parts=all")
    }
    assert {query for query, page in seen.items() if page_of(child) in page} == {"?needs=answer", "?parts=all"}
    assert {query for query, page in seen.items() if page_of(task) in page} == {"", "?parts=all"}


def test_reading_changes_nothing(ann: User) -> None:
    task = asked(ann)
    client = signed_in(ann)

    def rows() -> Any:
        models: list[Any] = [Task, Question, LogEntry]
        return [list(model.objects.order_by("pk").values()) for model in models]

    before = rows()
    for address in ["/work/", "/work/?needs=answer", f"/work/questions/{pending(task).pk}/"]:
        assert client.get(address).status_code == client.head(address).status_code == 200
    for _route, (_method, rest) in LOOK_UP.items():
        client.get(page_of(task, rest.format(question=pending(task).pk)), {"expected_generation": task.generation})
    assert rows() == before

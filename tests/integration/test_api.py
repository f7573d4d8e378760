"""The owner's API, route by route: what it takes, what it says, and what it refuses."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import Group
from django.core.cache import cache
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from supervision.engines import start
from supervision.kernel import lifecycle, signals_in
from supervision.kernel.models import LogEntry, Question, Signal, Task
from supervision.testing import answer, run_until_idle
from tests.integration import rows
from tests.integration.admin_work import fresh, pending, person
from tests.integration.api_work import API, Caller, bodies, customer, flow
from tests.integration.test_ownership import ORGANISATIONS

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    cache.clear()
    with bodies():
        yield


@pytest.fixture
def ann() -> Caller:
    return Caller(customer("ann"))


def asked(caller: Caller, **arguments: Any) -> Task:
    task = start("api.greet", {"name": "Ada", **arguments}, owner=caller.user, subject="ada")
    run_until_idle()
    return fresh(task)


def problem(response: Any, status: int, *fields: str) -> dict[str, Any]:
    assert response.status_code == status, response.content
    assert response["Content-Type"] == "application/problem+json"
    said: dict[str, Any] = response.json()
    assert said["status"] == status
    assert sorted(said.get("errors", {})) == sorted(fields)
    return said


# --- reading


def test_a_task_is_shown_with_what_can_be_asked_of_it_and_without_its_secrets(ann: Caller) -> None:
    task = asked(ann, token="canary-token")
    response = ann.get(f"tasks/{task.pk}/")
    shown = response.json()
    assert response["ETag"] == f'"{task.generation}"'
    assert response["Cache-Control"] == "no-store"
    assert (shown["state"], shown["reason"]) == ("parked", "awaiting_user_answer:words")
    assert shown["situation"] == "needs an answer: waits for an answer to “words”"
    assert shown["needs_answer"]
    assert shown["can"] == ["pause", "cancel", "expire"]
    assert shown["arguments"] == {"name": "Ada", "token": "••••••"}
    assert b"canary" not in ann.get("tasks/").content + response.content
    assert ann.get("tasks/").json()["results"][0].items() <= shown.items()


def test_the_list_is_filtered_ordered_and_paged_by_cursor(ann: Caller) -> None:
    waits = asked(ann)
    assert ann.user is not None
    others = [rows.due(owner=ann.user, subject=f"Order {n}") for n in range(5)]
    lifecycle.cancel(others[0], by=ann.user)
    poison = rows.running(owner=ann.user)
    from supervision.kernel import ends

    ends.fail(poison.pk, poison.lease, "retries_exhausted:charge", "It failed.", {})

    def found(**query: Any) -> list[str]:
        response = ann.get("tasks/", **query)
        assert response.status_code == 200, response.content
        return [each["id"] for each in response.json()["results"]]

    everything = [str(pk) for pk in sorted([waits.pk, *others, poison.pk], reverse=True)]
    assert found() == everything
    assert found(ordering="created_at") == everything[::-1]
    assert found(state=["cancelled", "failed"]) == [str(poison.pk), str(others[0])]
    assert found(reason="awaiting_user") == found(needs_answer="true") == found(body="api.greet") == [str(waits.pk)]
    assert len(found(needs_answer="false")) == 6
    assert found(subject="order 3") == [str(others[3])]
    assert found(dead_letter="true") == [str(poison.pk)]
    assert str(poison.pk) not in found(dead_letter="false")
    soon = (timezone.now() + timedelta(hours=1)).isoformat()
    assert found(created_after=soon) == found(finished_after=soon) == []
    assert found(created_before=soon, changed_before=soon) == everything
    seen: list[str] = []
    for ordering in ("-created_at", "state_changed_at"):
        address = f"{API}tasks/?page_size=3&ordering={ordering}"
        seen = []
        while address:
            page = ann.client.get(address).json()
            seen += [each["id"] for each in page["results"]]
            address = page["next"]
        assert sorted(seen) == sorted(everything)


def test_the_list_costs_the_same_however_long_it_is(ann: Caller) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as seen:
            assert ann.get("tasks/").status_code == 200
            assert ann.get("questions/").status_code == 200
        return len(seen)

    asked(ann, token="a secret")
    few = queries()
    for _each in range(5):
        asked(ann, token="a secret")
    assert queries() == few


@pytest.mark.parametrize("query", [
    {"stat": "running"}, {"state": "sleepy"}, {"needs_answer": "perhaps"}, {"created_after": "soon"},
    {"ordering": "owner"}, {"cursor": "garbage"}, {"cursor": "cD1nYXJiYWdl"}, {"cursor": "bz0tMQ=="},
    {"page_size": "0"}, {"page_size": "1e9"}, {"body": "\x00"}, {"subject": "\x00"},
])  # fmt: skip
def test_a_filter_that_means_nothing_is_refused_by_name(ann: Caller, query: dict[str, str]) -> None:
    problem(ann.get("tasks/", **query), 400, *query)


@pytest.mark.parametrize("position", ["7", "x", "\x00", "99999999999999999999", "-1", "1776-07-31T21:48:18+23:59",
                                      "0191a2b3-c4d5-7e6f-8a9b-0123456789ab", "9999-12-31T23:59:59-23:59"])  # fmt: skip
def test_a_forged_cursor_is_refused_or_harmless(ann: Caller, position: str) -> None:
    cursor = b64encode(urlencode({"p": position}).encode()).decode()
    lists: list[tuple[str, dict[str, str]]] = [
        ("tasks/", {}), ("tasks/", {"ordering": "state_changed_at"}), ("questions/", {}), ("pointers/", {}),
    ]  # fmt: skip
    for path, query in lists:
        response = ann.get(path, cursor=cursor, **query)
        assert response.status_code in (200, 400)
        if response.status_code == 400:
            problem(response, 400, "cursor")


def test_the_log_is_honest_about_what_it_withholds(ann: Caller) -> None:
    task = asked(ann, token="canary-token")
    whole = ann.get(f"tasks/{task.pk}/log/").json()
    count = LogEntry.objects.filter(task=task).count()
    assert whole["total_count"] == whole["returned_count"] == len(whole["entries"]) == count
    assert (whole["withheld_count"], whole["truncated"], whole["older"]) == (0, False, None)
    newest = ann.get(f"tasks/{task.pk}/log/", size=2).json()
    assert (newest["withheld_count"], newest["truncated"]) == (count - 2, True)
    numbers = [each["number"] for each in newest["entries"]]
    assert numbers == [count - 1, count]
    older = ann.get(f"tasks/{task.pk}/log/", before=newest["older"]).json()
    assert [each["number"] for each in older["entries"]] == list(range(1, count - 1))
    for bad in ({"before": "0"}, {"size": "201"}, {"size": "x"}, {"after": "1"}):
        problem(ann.get(f"tasks/{task.pk}/log/", **bad), 400, *bad)


def test_the_staff_read_the_whole_log_and_owners_what_is_meant_for_people(ann: Caller) -> None:
    task = asked(ann)
    lifecycle.pause(task.pk, by=ann.user, note="a moment")
    viewer = Caller(person("viewer", "view_task"))
    hers, theirs = (caller.get(f"tasks/{task.pk}/log/").json()["entries"] for caller in (ann, viewer))
    assert [each["event"] for each in hers] == [each["event"] for each in theirs]
    taken = next(at for at, each in enumerate(hers) if each["event"] == "task_taken")
    assert theirs[taken]["actor"]
    assert (hers[taken]["payload"], hers[taken]["actor"]) == ({}, "")
    assert (hers[-1]["payload"], hers[-1]["actor"]) == ({"note": "a moment"}, "ann")
    assert ann.get(f"tasks/{task.pk}/").json()["decisions"] is None
    assert viewer.get(f"tasks/{task.pk}/").json()["decisions"] == {}


# --- starting


def test_a_public_body_is_started_once_per_key(ann: Caller) -> None:
    given = {"body": "api.greet", "arguments": {"name": "Ada"}, "subject": "hers", "idempotency_key": "k",
             "note": "please"}  # fmt: skip
    first = ann.post("tasks/", given)
    assert first.status_code == 201, first.content
    assert first["Location"].endswith(f"/api/tasks/{first.json()['id']}/")
    again = ann.post("tasks/", given)
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])
    task = Task.objects.get()
    assert (task.owner, task.subject, task.created_by_ref) == (ann.user, "hers", task.owner_ref)
    assert Caller(customer("bob")).post("tasks/", given).status_code == 201  # keys are per owner


def test_arguments_are_checked_by_the_bodys_form_and_arrive_as_its_annotations_say(ann: Caller) -> None:
    plain = ann.post("tasks/", {"body": "api.typed", "arguments": {"amount": "1.50", "day": "2026-11-30"}})
    every = {"amount": 2, "day": "2026-11-30", "colour": "BLUE", "size": "large", "count": 7, "tags": ["a", "b"],
             "urgent": False, "anything": {"deep": [1]}}  # fmt: skip
    whole = ann.post("tasks/", {"body": "api.typed", "arguments": every})
    assert (plain.status_code, whole.status_code) == (201, 201), (plain.content, whole.content)
    run_until_idle()
    results = [Task.objects.get(pk=each.json()["id"]).result for each in (plain, whole)]
    assert results[0] == {"amount": "1.50", "day": "2026-11-30", "colour": "RED", "size": "small", "count": 3,
                          "tags": ["kept"], "urgent": True, "anything": None, "who": None}  # fmt: skip
    assert results[1] == {**every, "amount": "2", "who": None}


@pytest.mark.parametrize(("arguments", "field"), [
    ({"amount": True}, "arguments.amount"), ({"amount": "much"}, "arguments.amount"),
    ({"day": 20261130}, "arguments.day"), ({"day": "soon"}, "arguments.day"), ({"colour": "pink"}, "arguments.colour"),
    ({"count": 1.5}, "arguments.count"), ({"count": "7"}, "arguments.count"), ({"tags": "a"}, "arguments.tags"),
    ({"tags": ["a\nb"]}, "arguments.tags"), ({"urgent": "yes"}, "arguments.urgent"), ({"more": 1}, "arguments.more"),
    ({"anything": "\x00"}, "arguments.anything"), ({"anything": ["\ud800"]}, "arguments.anything[0]"),
    ({"who": 1}, "arguments.who"), ({"anything": "x" * 300_000}, "arguments"), ({"day": "\ud800"}, "arguments.day"),
])  # fmt: skip
def test_bad_arguments_are_named_and_start_nothing(ann: Caller, arguments: dict[str, Any], field: str) -> None:
    given = {"amount": 1, "day": "2026-11-30", **arguments}
    problem(ann.post("tasks/", {"body": "api.typed", "arguments": given}), 400, field)
    assert not Task.objects.exists()


@pytest.mark.parametrize(("data", "fields"), [
    ({"body": "api.private", "arguments": {"name": "x"}}, ["body"]), ({"body": "api.nothing"}, ["body"]),
    ({}, ["body"]),
    ({"body": 7}, ["body"]), ({"body": "api.wait", "owner_id": 1}, ["owner_id"]),
    ({"body": "api.wait", "priority": 0, "lease": 7}, ["priority", "lease"]),
    ({"body": "api.wait", "arguments": []}, ["arguments"]), ({"body": "api.wait", "subject": "\x00"}, ["subject"]),
    ({"body": "api.wait", "subject": "\ud800"}, ["subject"]), ({"body": "api.wait", "subject": "x" * 201}, ["subject"]),
    ({"body": "api.wait", "idempotency_key": "\x00"}, ["idempotency_key"]),
    ({"body": "api.wait", "start_at": "9999-12-31T23:59:59-23:59"}, ["start_at"]),
    ({"body": "api.wait", "owner": "user:0"}, ["owner"]), ({"body": "api.wait", "\ud800": 1}, ["?"]),
    ({"body": "api.wait", "note": "x" * 2_000_000}, ["body"]),
])  # fmt: skip
def test_a_bad_body_is_refused_by_field(ann: Caller, data: dict[str, Any], fields: list[str]) -> None:
    problem(ann.post("tasks/", data), 400, *fields)
    assert not Task.objects.exists()


@pytest.mark.parametrize("raw", [
    "", "nonsense", "[]", "7", '{"body": NaN}',
    "[" * 100_000, '{"a": ' * 50_000, "\xff\xfe", '{"n": ' + "9" * 9000 + "}",
])  # fmt: skip
def test_what_is_no_json_object_is_refused(ann: Caller, raw: str) -> None:
    response = ann.client.generic("POST", f"{API}tasks/", raw.encode("latin-1"), "application/json; charset=utf-7")
    assert response.status_code == 400, response.content
    assert ann.client.post(f"{API}tasks/", {"body": "api.wait"}).status_code == 415


@ORGANISATIONS
def test_an_organisations_work_is_started_by_its_members_alone() -> None:
    ann = Caller(person("ann", staff=False, groups=("acme",)))
    bob = Caller(person("bob", staff=False, groups=("other",)))
    acme = f"group:{Group.objects.get(name='acme').pk}"
    given = {"body": "api.greet", "arguments": {"name": "Ada"}, "owner": acme}
    problem(bob.post("tasks/", given), 400, "owner")
    made = ann.post("tasks/", given).json()
    assert made["owner"] == acme
    run_until_idle()
    assert bob.get("tasks/").json()["results"] == bob.get("questions/").json()["results"] == []
    question = pending(Task.objects.get())
    assert bob.post(f"questions/{question.pk}/answer/", {"answer": "Hello"}).status_code == 404
    assert ann.post(f"questions/{question.pk}/answer/", {"answer": "Hello"}).status_code == 200


# --- the gate


def test_who_changes_a_task_says_what_they_have_seen(ann: Caller) -> None:
    task = asked(ann)
    missing = problem(ann.post(f"tasks/{task.pk}/pause/"), 428)
    assert missing["current"]["generation"] == task.generation
    assert problem(ann.post(f"tasks/{task.pk}/pause/", **{"If-Match": "*"}), 428)
    stale = problem(ann.post(f"tasks/{task.pk}/pause/", {"expected_generation": task.generation - 1}), 409)
    assert stale["type"] == "urn:supervision:problem:stale"
    assert stale["current"] == ann.get(f"tasks/{task.pk}/").json()
    for tag in (f'"{task.generation - 1}"', "nonsense", '"x"', f'"{task.generation}", "7"'):
        assert problem(ann.post(f"tasks/{task.pk}/pause/", **{"If-Match": tag}), 412)["current"]
    for bad in ("7", True, -1, 2**63, 1.5, None, [7]):
        problem(ann.post(f"tasks/{task.pk}/pause/", {"expected_generation": bad}), 400, "expected_generation")
    problem(ann.post(f"tasks/{task.pk}/pause/", {"expected_generation": task.generation}, **{"If-Match": '"0"'}), 400,
            "expected_generation")  # fmt: skip
    assert fresh(task).generation == task.generation
    done = ann.post(f"tasks/{task.pk}/pause/", **{"If-Match": f'"{task.generation}"'})
    assert done.status_code == 200
    assert done["ETag"] == f'"{task.generation + 1}"'
    assert done.json()["outcome"] == "paused"


def test_each_verb_says_what_is_true_and_the_log_says_who(ann: Caller) -> None:
    assert ann.user is not None
    running = rows.running(owner=ann.user)

    def act(pk: Any, verb: str, **more: Any) -> dict[str, Any]:
        given = {"expected_generation": rows.fresh(pk).generation, "note": "because", **more}
        response = ann.post(f"tasks/{pk}/{verb}/", given)
        assert response.status_code == 200, response.content
        said: dict[str, Any] = response.json()
        return said

    assert act(running.pk, "pause")["outcome"] == "pausing after the current step"
    assert rows.fresh(running.pk).current_state == "running"
    assert act(running.pk, "resume")["outcome"] == "goes on"
    assert act(running.pk, "cancel")["outcome"] == "being cancelled after the current step"
    task = asked(ann)
    assert act(task.pk, "expire")["outcome"] == "expired"
    forked = act(task.pk, "retry", from_scratch=True)
    assert (forked["outcome"], forked["task"]["forked_from"]) == ("tried again, as a new task", str(task.pk))
    again = problem(ann.post(f"tasks/{task.pk}/retry/", {"expected_generation": fresh(task).generation}), 409)
    assert again["type"].endswith(":refused")
    refused = problem(ann.post(f"tasks/{task.pk}/pause/", {"expected_generation": fresh(task).generation}), 409)
    assert refused["current"]["state"] == "expired"
    entry = LogEntry.objects.get(task_id=running.pk, event="pause_requested")
    assert (entry.actor_ref, entry.payload) == ("ann", {"note": "because"})
    problem(ann.post(f"tasks/{task.pk}/retry/", {"expected_generation": 1, "from_scratch": "yes"}), 400, "from_scratch")
    problem(ann.post(f"tasks/{task.pk}/pause/", {"expected_generation": 1, "reason": ""}), 400, "reason")


# --- questions and signals


def test_a_question_is_answered_once_and_says_so(ann: Caller) -> None:
    task = asked(ann, token="canary-token")
    (shown,) = ann.get(f"tasks/{task.pk}/questions/").json()["results"]
    assert ann.get("questions/", status="pending").json()["results"] == [shown]
    assert (shown["kind"], shown["can_answer"]) == ("choice", True)
    assert shown["choices"] == [["Hello", "Hello"], ["Good day", "Good day"]]
    address = f"questions/{shown['id']}/"
    assert ann.get(address).json() == shown
    for bad in ("Bye", 7, None, ["Hello"], {"answer": "Hello"}, "\x00", "", True):
        problem(ann.post(f"{address}answer/", {"answer": bad}), 400, "answer")
    problem(ann.post(f"{address}answer/", {}), 400, "answer")
    problem(ann.post(f"{address}answer/", {"answer": "Hello", "by": "bob"}), 400, "by")
    done = ann.post(f"{address}answer/", {"answer": "Hello", "note": "fine"})
    assert done.status_code == 200, done.content
    assert (done.json()["status"], done.json()["answer"], done.json()["answered_by"]) == ("answered", "Hello", "ann")
    late = problem(ann.post(f"{address}answer/", {"answer": "Good day"}), 409)
    assert late["current"] == done.json()
    assert Question.objects.get().answered_via == "api"
    run_until_idle()
    assert ann.get(f"tasks/{task.pk}/").json()["result"] == {"greeting": "Hello, Ada"}


def test_an_owner_who_may_not_answer_is_told_so_and_who_may_answer_needs_not_own(ann: Caller) -> None:
    assert ann.user is not None
    from supervision.kernel.question_form import Ask

    asks = [Ask("pay", "Pay?", kind="yes_no", answerable_by="group:finance")]
    fay = Caller(person("fay", staff=False, groups=("finance",)))
    waiting = rows.waiting(asks=asks, owner=ann.user)
    pay = waiting.questions["pay"]
    assert not ann.get(f"questions/{pay}/").json()["can_answer"]
    problem(ann.post(f"questions/{pay}/answer/", {"answer": True}), 403)
    assert fay.get(f"tasks/{waiting.pk}/").status_code == 404
    assert fay.get(f"questions/{pay}/").json()["can_answer"]
    assert fay.post(f"questions/{pay}/answer/", {"answer": True}).json()["answer"] is True


def test_a_signal_is_one_per_key_and_wakes_who_waits(ann: Caller) -> None:
    made = ann.post("tasks/", {"body": "api.wait"}).json()
    run_until_idle()
    address = f"tasks/{made['id']}/signals/"
    for bad in ({}, {"name": ""}, {"name": 7}, {"name": "\x00"}, {"name": "x" * 201}):
        problem(ann.post(address, bad), 400, "name")
    problem(ann.post(address, {"name": "paid", "payload": ["\ud800"]}), 400, "payload[0]")
    problem(ann.post(address, {"name": "paid", "position": 1}), 400, "position")
    first = ann.post(address, {"name": "paid", "payload": {"cents": 1}, "key": "k"})
    again = ann.post(address, {"name": "paid", "payload": {"cents": 2}, "key": "k"})
    assert (first.status_code, first.json()) == (201, again.json())
    assert Signal.objects.get().payload == {"cents": 1}
    run_until_idle()
    assert ann.get(f"tasks/{made['id']}/").json()["result"] == {"cents": 1}
    problem(ann.post(address, {"name": "paid"}), 409)


# --- pipelines


def test_a_pointer_its_visits_and_moving_it(ann: Caller) -> None:
    assert ann.user is not None
    flow("customer 7", ann.user)
    run_until_idle()
    (pointer,) = ann.get("pointers/", pipeline="api.flow", state="SUBMIT").json()["results"]
    address = f"pointers/{pointer['id']}/"
    assert ann.get(address).json() == pointer
    given = {"state": "CHECK", "expected_generation": pointer["generation"], "note": "try"}
    problem(ann.post(f"{address}repoint/", {**given, "state": "NOWHERE"}), 400, "state")
    problem(ann.post(f"{address}repoint/", {"state": "CHECK"}), 428)
    moved = ann.post(f"{address}repoint/", given)
    assert moved.status_code == 200, moved.content
    assert moved.json()["outcome"] == "at CHECK"
    stale = problem(ann.post(f"{address}repoint/", given), 409)
    assert stale["current"]["state"] == "CHECK"
    (visit,) = ann.get(f"{address}visits/").json()["results"]
    assert (visit["state"], visit["next_state"], visit["actor"], visit["note"]) == ("SUBMIT", "CHECK", "ann", "try")


def test_a_subjects_earlier_runs_of_somebody_else_stay_theirs(ann: Caller) -> None:
    bob = Caller(customer("bob"))
    first = flow("shared", bob.user)
    run_until_idle()
    for _state in ("SUBMIT", "CHECK"):
        answer(first, {Question.objects.pending().get().key: "yes"})
        run_until_idle()
    assert len(bob.get(f"pointers/{bob.get('pointers/').json()['results'][0]['id']}/visits/").json()["results"]) == 2
    flow("shared", ann.user)
    run_until_idle()
    (pointer,) = ann.get("pointers/").json()["results"]
    assert ann.get(f"pointers/{pointer['id']}/visits/").json()["results"] == []
    assert bob.get("pointers/").json()["results"] == []


# --- how it is served


def test_methods_csrf_and_signing_in_are_drfs(ann: Caller) -> None:
    task = asked(ann)
    assert ann.client.delete(f"{API}tasks/{task.pk}/").status_code == 405
    assert ann.client.options(f"{API}tasks/").status_code == 405
    strict = Client(enforce_csrf_checks=True)
    assert ann.user is not None
    strict.force_login(ann.user)
    response = strict.post(f"{API}tasks/{task.pk}/pause/", "{}", content_type="application/json")
    assert problem(response, 403)["detail"].startswith("CSRF")
    assert problem(Caller().get("tasks/"), 403)
    assert problem(ann.get("no/such/route"), 404)
    assert ann.get("tasks/../../admin/").status_code == 404


@override_settings(SUPERVISION={"API_READS": "3/hour", "API_WRITES": None})
def test_a_person_who_asks_too_often_is_told_when_to_come_back(ann: Caller) -> None:
    assert [ann.get("tasks/").status_code for _each in range(4)] == [200, 200, 200, 429]
    late = ann.get("tasks/")
    problem(late, 429)
    assert 0 < int(late["Retry-After"]) <= 3600
    assert ann.post("tasks/", {"body": "api.wait"}).status_code == 201
    assert Caller(customer("bob")).get("tasks/").status_code == 200


def test_a_busy_row_is_no_server_error(ann: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    from supervision.errors import Busy

    task = asked(ann)

    def busy(*args: Any, **kwargs: Any) -> None:
        raise Busy(task.pk)

    monkeypatch.setattr(signals_in, "send", busy)
    response = ann.post(f"tasks/{task.pk}/signals/", {"name": "paid"})
    problem(response, 409)
    assert response["Retry-After"] == "1"

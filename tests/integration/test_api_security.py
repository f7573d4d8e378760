"""Two owners, staff and a stranger on every route, with ids that are theirs, another's, nobody's, or none at all.

A route that this file doesn't know fails it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext

from supervision.api.urls import urlpatterns
from supervision.engines import start
from supervision.engines.pipelines.models import Pointer
from supervision.kernel.models import LogEntry, Question, Signal, Task
from supervision.testing import answer, run_until_idle
from tests.integration.admin_work import person
from tests.integration.api_work import API, Caller, bodies, customer, flow

pytestmark = pytest.mark.django_db

MISSING = {"task": "0191a2b3-c4d5-7e6f-8a9b-0123456789ab", "pointer": "999999999"}
MALFORMED = ("garbage", "7", "-1", "%00", "%ED%A0%80", "9" * 400, "%F0%9F%92%A9", "0191a2b3c4d57e6f8a9b0123456789ab",
             "{0191a2b3-c4d5-7e6f-8a9b-0123456789ab}", "’ OR 1=1", "<script>", "..%5c..")  # fmt: skip

# route name -> (method, what its id names, a body that would do something)
ROUTES: dict[str, list[tuple[str, str, Any]]] = {
    "tasks": [("GET", "", None), ("POST", "", {"body": "api.wait"})],
    "task": [("GET", "task", None)],
    "log": [("GET", "task", None)],
    "task_questions": [("GET", "task", None)],
    "signals": [("POST", "task", {"name": "paid"})],
    **{verb: [("POST", "task", {"expected_generation": 1})] for verb in ("pause", "resume", "cancel", "expire")},
    "retry": [("POST", "task", {"expected_generation": 1})],
    "questions": [("GET", "", None)],
    "question": [("GET", "question", None)],
    "answer": [("POST", "question", {"answer": "Hello"})],
    "pointers": [("GET", "", None)],
    "pointer": [("GET", "pointer", None)],
    "visits": [("GET", "pointer", None)],
    "repoint": [("POST", "pointer", {"state": "CHECK", "expected_generation": 1})],
}
OPEN = {"schema", "docs", "nothing"}
ELSEWHERE = {"standing", "machine_events"}  # test_api_machines.py
ITEMS = [(name, *each) for name, routes in ROUTES.items() for each in routes if each[1]]


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    cache.clear()
    with bodies():
        yield


def world(name: str) -> dict[str, Any]:
    """A customer with a canary in every place that an owner can write to, and the ids of what is theirs."""
    owner = customer(name)
    canary = f"canary-{name}"
    task = start("api.greet", {"name": canary}, owner=owner, subject=canary, note=canary, idempotency_key=canary)
    run = flow(canary, owner)
    run_until_idle()
    caller = Caller(owner)
    assert caller.post(f"tasks/{task.pk}/signals/", {"name": canary, "payload": canary}).status_code == 201
    question, pointer = Question.objects.get(task=task), Pointer.objects.get(run=run)
    return {"owner": owner, "canary": canary, "task": str(task.pk), "run": str(run.pk), "question": str(question.pk),
            "pointer": str(pointer.pk)}  # fmt: skip


def path_of(name: str, pk: str) -> str:
    route = next(each for each in urlpatterns if each.name == name)
    return str(route.pattern).replace("<str:pk>", pk)


def send(caller: Caller, name: str, method: str, pk: str, data: Any) -> Any:
    address = API + path_of(name, pk)
    if method == "GET":
        return caller.client.get(address)
    return caller.client.post(address, json.dumps(data), content_type="application/json")


def rows_of_everything() -> Any:
    models: tuple[Any, ...] = (Task, Question, Signal, Pointer, LogEntry)
    return [list(model.objects.order_by("pk").values()) for model in models]


def test_every_route_is_in_the_matrix() -> None:
    assert {route.name for route in urlpatterns} == set(ROUTES) | OPEN | ELSEWHERE


@pytest.mark.parametrize(("name", "method", "kind", "data"), ITEMS)
def test_foreign_missing_and_malformed_are_equal_byte_for_byte(name: str, method: str, kind: str, data: Any) -> None:
    ann, bob = world("ann"), world("bob")
    missing = MISSING.get(kind, MISSING["task"])
    before = rows_of_everything()
    clerk = person("clerk")  # staff of another part of the house
    for user in (bob["owner"], clerk):
        told = set()
        for pk in (ann[kind], missing, *MALFORMED):
            bodies_sent: list[Any] = [data, {}] if method == "POST" else [None]
            for body in bodies_sent:
                caller = Caller(user)
                with CaptureQueriesContext(connection) as seen:
                    response = send(caller, name, method, pk, body)
                headers = tuple(sorted((key, value) for key, value in response.items() if key != "Date"))
                told.add((response.status_code, response.content, headers, len(seen)))
        assert len(told) == 1, told
        assert next(iter(told))[0] == 404
    assert rows_of_everything() == before
    assert send(Caller(ann["owner"]), name, method, ann[kind], data).status_code != 404


@pytest.mark.parametrize(
    ("name", "method", "kind", "data"), [(n, *each) for n, all_ in ROUTES.items() for each in all_]
)
def test_strangers_and_the_inactive_get_nothing_anywhere(name: str, method: str, kind: str, data: Any) -> None:
    ann = world("ann")
    before = rows_of_everything()
    gone = Caller(ann["owner"])
    User.objects.filter(pk=ann["owner"].pk).update(is_active=False)
    for caller in (Caller(), gone):
        told = {
            (response.status_code, response.content)
            for pk in (ann.get(kind, ""), MISSING.get(kind, MISSING["task"]), "garbage")
            for response in [send(caller, name, method, pk, data)]
        }
        assert len(told) == 1
        assert next(iter(told))[0] == 403
    assert rows_of_everything() == before


def test_a_canary_never_appears_in_what_another_owner_is_told() -> None:
    ann, bob = world("ann"), world("bob")
    caller = Caller(bob["owner"])
    addresses = [
        "tasks/", "tasks/?subject=canary", "tasks/?body=api.greet", "tasks/?needs_answer=true", "tasks/?state=parked",
        "tasks/?reason=awaiting", "tasks/?ordering=state_changed_at", "questions/", "questions/?status=pending",
        "pointers/", f"pointers/?subject={ann['canary']}", "pointers/?pipeline=api.flow", "schema/",
        *(path_of(name, bob[kind]) for name, method, kind, _data in ITEMS if method == "GET"),
        *(path_of(name, ann[kind]) for name, method, kind, _data in ITEMS if method == "GET"),
    ]  # fmt: skip
    said = b"".join(caller.client.get(API + each).content for each in addresses)
    for name, method, kind, data in ITEMS:
        for owner in (ann, bob) if method == "POST" else ():
            said += send(caller, name, method, owner[kind], data).content
    said += caller.post("tasks/", {"body": "api.greet", "arguments": {"name": "x"}, "idempotency_key": ann["canary"],
                                   "subject": "mine"}).content  # fmt: skip
    said += caller.post("tasks/", {"body": "api.nothing"}).content
    said += caller.post("tasks/", {"body": "api.wait", "owner": f"user:{ann['owner'].pk}"}).content
    assert b"canary-bob" in said
    assert b"canary-ann" not in said
    for pk in (ann["task"], ann["run"], ann["question"]):
        assert pk.encode() not in said
    assert caller.get("tasks/", subject="canary").json()["results"][0]["owner"] == f"user:{bob['owner'].pk}"


def test_reading_changes_nothing() -> None:
    ann = world("ann")
    before = rows_of_everything()
    caller = Caller(ann["owner"])
    for name, method, kind, _data in ITEMS:
        address = API + path_of(name, ann[kind])
        assert caller.client.get(address).status_code == (200 if method == "GET" else 405), name
        assert caller.client.head(address).status_code == (200 if method == "GET" else 405), name
    assert rows_of_everything() == before


ALLOWED = {
    "viewer": ("view_task", "view_pointer"),
    "pauser": ("view_task", "pause_task"),
    "canceller": ("view_task", "cancel_task"),
    "retrier": ("view_task", "retry_task"),
    "signaller": ("view_task", "signal_task"),
    "repointer": ("view_task", "view_pointer", "repoint_pointer"),
}
GRANTS = {"pause": "pauser", "resume": "pauser", "cancel": "canceller", "expire": "canceller", "retry": "retrier",
          "signals": "signaller", "repoint": "repointer"}  # fmt: skip


@pytest.mark.parametrize("role", ALLOWED)
def test_staff_with_the_permission_look_at_all_and_act_by_their_other_permissions(role: str) -> None:
    ann = world("ann")
    caller = Caller(person(role, *ALLOWED[role]))
    assert {each["id"] for each in caller.get("tasks/").json()["results"]} == {ann["task"], ann["run"]}
    for name, method, kind, data in ITEMS:
        response = send(caller, name, method, ann[kind], data)
        if kind == "pointer" and "view_pointer" not in ALLOWED[role]:
            assert response.status_code == 404
        elif method == "GET":
            assert response.status_code == 200, name
        elif name == "answer":
            assert response.status_code == 403, "it is the owner's to answer"
        elif GRANTS[name] == role:
            assert response.status_code in (200, 201, 409), (name, response.content)
        else:
            assert response.status_code == 403, (name, response.content)
    assert Signal.objects.filter(task_id=ann["task"], name="paid").exists() == (role == "signaller")


def test_what_staff_must_not_see_does_not_exist_for_them_here_either(settings: Any) -> None:
    ann, bob = world("ann"), world("bob")
    settings.SUPERVISION = {"VISIBLE_TASKS": f"{__name__}.of_ann"}
    caller = Caller(person("viewer", "view_task", "view_pointer", "answer_question", "pause_task"))
    assert {each["id"] for each in caller.get("tasks/").json()["results"]} == {ann["task"], ann["run"]}
    assert {each["task"] for each in caller.get("questions/").json()["results"]} == {ann["task"], ann["run"]}
    for name, method, kind, data in ITEMS:
        assert send(caller, name, method, bob[kind], data).status_code == 404


def of_ann(user: Any, tasks: Any) -> Any:
    return tasks.filter(owner__username="ann")


def test_a_secret_is_in_no_answer_of_the_api() -> None:
    ann = customer("ann")
    task = start("api.greet", {"name": "Ada", "token": "canary-secret"}, owner=ann, subject="canary-secret's")
    run_until_idle()
    answer(task, {"words": "Hello"}, by=ann)
    run_until_idle()
    for caller in (Caller(ann), Caller(person("viewer", "view_task"))):
        for path in ("tasks/", f"tasks/{task.pk}/", f"tasks/{task.pk}/log/", f"tasks/{task.pk}/questions/",
                     "questions/"):  # fmt: skip
            response = caller.get(path)
            assert response.status_code == 200
            assert b"canary-secret" not in response.content, path

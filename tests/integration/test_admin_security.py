"""Roles x every registered action, view and route of the control room, by raw request. What isn't allowed changes
nothing, and a route or action that this file doesn't know fails it."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import AnonymousUser, Permission, User
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, reverse

from supervision.admin.verbs import VERBS
from supervision.engines import start
from supervision.kernel import holds
from supervision.models import Hold, LogEntry, Question, Task, Vote
from supervision.testing import run_until_idle
from tests.integration.admin_work import bodies, fresh, pending, person

pytestmark = pytest.mark.django_db

LIST = "/admin/supervision/task/"
OURS = [model for model in admin.site._registry if model._meta.app_label == "supervision"]

ROLES: dict[str, tuple[str, ...] | None] = {
    "anonymous": None,
    "customer": (),  # no staff
    "clerk": (),  # staff without any permission of ours
    "viewer": ("view_task", "view_question", "view_hold"),
    "pauser": ("view_task", "pause_task"),
    "canceller": ("view_task", "cancel_task"),
    "retrier": ("view_task", "retry_task"),
    "starter": ("view_task", "add_task"),
    "changer": ("view_task", "change_task", "delete_task", "change_question", "delete_question", "add_question"),
    "blind_pauser": ("pause_task", "cancel_task", "retry_task"),  # may act, but see nothing
    "answerer": ("answer_question",),
    "holder": ("hold_work",),
    "boss": ("*",),
}

MAY_ACT = {
    "pause": {"pauser", "boss"},
    "resume": {"pauser", "boss"},
    "cancel": {"canceller", "boss"},
    "expire": {"canceller", "boss"},
    "retry": {"retrier", "boss"},
}


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    with bodies():
        yield


def signed_in(role: str) -> Client:
    client = Client()
    codenames = ROLES[role]
    if codenames is None:
        return client
    if codenames == ("*",):
        user = User.objects.create(username=role, is_staff=True, is_superuser=True)
    else:
        user = person(role, *codenames, staff=role != "customer")
        if role == "clerk":  # staff of another part of the house
            user.user_permissions.set(Permission.objects.filter(content_type__app_label="auth"))
    client.force_login(user)
    return client


def snapshot() -> Any:
    """All that anybody could change here."""
    return [
        list(rows.order_by("pk").values(*[field.attname for field in rows.model._meta.concrete_fields]))
        for rows in (Task.objects.all(), Question.objects.all(), Vote.objects.all(), Hold.objects.all())
    ] + [LogEntry.objects.count()]


def prepared(verb: str) -> Task:
    """A task to which the verb may be done."""
    if verb == "retry":
        task = start("admin.fail", {})
        run_until_idle()
    else:
        task = start("admin.greet", {"name": "Ada"})
        run_until_idle()
        if verb == "resume":
            from supervision.kernel import lifecycle

            lifecycle.pause(task.pk, by="test")
    return fresh(task)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("verb", VERBS)
def test_who_may_run_an_action_of_the_list(role: str, verb: str) -> None:
    task = prepared(verb)
    before = snapshot()
    data = {"action": verb, "_selected_action": str(task.pk), f"generation-{task.pk}": task.generation,
            "confirmed": "yes"}  # fmt: skip
    response = signed_in(role).post(LIST, data)
    assert response.status_code in (302, 200, 403), response.status_code
    assert (snapshot() != before) == (role in MAY_ACT[verb]), (role, verb)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("verb", VERBS)
def test_who_may_press_a_button_of_the_page(role: str, verb: str) -> None:
    task = prepared(verb)
    before = snapshot()
    act = reverse("admin:supervision_task_act", args=[task.pk, verb])
    response = signed_in(role).post(act, {f"generation-{task.pk}": task.generation})
    assert (snapshot() != before) == (role in MAY_ACT[verb]), (role, verb)
    if role not in MAY_ACT[verb]:
        assert response.status_code in (302, 403)  # to the sign-in, or refused
        assert response.status_code == 403 or "/login/" in response["Location"]


@pytest.mark.parametrize("role", ROLES)
def test_who_may_answer(role: str) -> None:
    task = prepared("pause")
    question = pending(task)
    signed_in(role).post(
        reverse("admin:supervision_question_change", args=[question.pk]), {f"q-{question.pk}-answer": "Hello"}
    )
    question.refresh_from_db()
    assert (question.status == "answered") == (role in {"answerer", "boss"}), role


@pytest.mark.parametrize("role", ROLES)
def test_who_may_start(role: str) -> None:
    signed_in(role).post(f"{LIST}add/?body=admin.greet", {"a-name": "Ada"})
    assert Task.objects.exists() == (role in {"starter", "boss"}), role


@pytest.mark.parametrize("role", ROLES)
def test_who_may_hold_and_release(role: str) -> None:
    client = signed_in(role)
    client.post("/admin/supervision/hold/", {"what": "queue:default", "note": "incident"})
    assert Hold.objects.standing().exists() == (role in {"holder", "boss"}), role
    Hold.objects.all().delete()
    hold = holds.hold("queue", "default", by="test")
    client.post(reverse("admin:supervision_hold_release", args=[hold.pk]))
    assert Hold.objects.standing().exists() == (role not in {"holder", "boss"}), role


def routes(task: Task, question: Question, hold: Hold) -> dict[str, str]:
    """The name of every route of ours -> an address of it. KeyError for one that this test doesn't know."""
    arguments: dict[str, dict[str, list[Any]]] = {
        "task": {
            "changelist": [], "add": [], "history": [task.pk], "delete": [task.pk], "change": [task.pk],
            "health": [], "signal": [task.pk],
            "live": [task.pk], "act": [task.pk, "pause"], "whole": [task.pk, "arguments"],
            "file": [task.pk, 0], "picture": [task.pk],
        },
        "question": {
            "changelist": [], "add": [], "history": [question.pk], "delete": [question.pk], "change": [question.pk],
            "whole": [question.pk],
        },
        "supervisedschedule": {
            "changelist": [], "add": [], "history": [1], "delete": [1], "change": [1],
        },
        "hold": {
            "changelist": [], "add": [], "history": [hold.pk], "delete": [hold.pk], "change": [hold.pk],
            "release": [hold.pk],
        },
        "pointer": {
            "changelist": [], "add": [], "history": [1], "delete": [1], "change": [1], "pipelines": [],
            "pictures": ["retraining"], "live": [1], "picture": [1], "repoint": [1],
        },
        "standing": {
            "changelist": [], "add": [], "history": [1], "delete": [1], "change": [1], "event": [1], "picture": [1],
            "pictures": [], "machine_picture": ["order"],
        },
    }  # fmt: skip
    found = {}
    for model in OURS:
        for pattern in admin.site._registry[model].get_urls():
            assert isinstance(pattern, URLPattern)
            if pattern.name is None:  # the stock redirect of <pk>/ to <pk>/change/
                continue
            _app, name, route = pattern.name.split("_", 2)
            found[pattern.name] = reverse(f"admin:{pattern.name}", args=arguments[name][route])
    return found


def test_nobody_without_a_permission_gets_anything_but_a_refusal_from_any_route() -> None:
    task = prepared("pause")
    hold = holds.hold("queue", "slow", by="test")
    before = snapshot()
    for role in ("anonymous", "customer", "clerk"):
        client = signed_in(role)
        for name, address in routes(task, pending(task), hold).items():
            for method in (client.get, client.post, client.put, client.delete):
                response = method(address)
                location = response.get("Location", "")
                # stock admin sends people home from what isn't there, before it asks who they are
                refused = response.status_code == 403 or "/login/" in location or location == "/admin/"
                assert refused, (role, name, method.__name__, response.status_code)
    assert snapshot() == before


def test_no_get_changes_anything() -> None:
    task = prepared("pause")
    hold = holds.hold("queue", "slow", by="test")
    client = signed_in("boss")
    before = snapshot()
    for name, address in routes(task, pending(task), hold).items():
        for query in ("", "?action=pause&confirmed=yes", f"?with={pending(task).pk}", "?body=admin.greet"):
            response = client.get(address + query)
            assert response.status_code in (200, 302, 403, 404, 405), (name, response.status_code)
    assert snapshot() == before


def test_the_stock_forms_of_admin_are_closed_even_for_a_superuser() -> None:
    task = prepared("pause")
    question = pending(task)
    client = signed_in("boss")
    before = snapshot()
    for address in (
        f"{LIST}{task.pk}/delete/", f"/admin/supervision/question/{question.pk}/delete/",
        "/admin/supervision/question/add/", "/admin/supervision/hold/add/",
    ):  # fmt: skip
        assert client.post(address, {"post": "yes"}).status_code == 403, address
    assert client.post(f"{LIST}{task.pk}/change/", {"current_state": "completed"}).status_code == 405
    assert client.post(LIST, {"action": "delete_selected", "_selected_action": str(task.pk), "post": "yes"}).status_code
    client.post(LIST, {"form-0-id": str(task.pk), "form-0-current_state": "completed", "_save": "Save"})
    assert snapshot() == before


def declared_actions(model_admin: Any) -> list[tuple[Any, str]]:
    """(function, name); Django 6.1 has an object for what was a tuple."""
    actions = model_admin._get_base_actions()
    return [(each.func, each.name) if hasattr(each, "func") else (each[0], each[1]) for each in actions]


def test_every_action_declares_a_permission() -> None:
    for model in OURS:
        model_admin: Any = admin.site._registry[model]
        for function, name in declared_actions(model_admin):
            assert getattr(function, "allowed_permissions", None), f"{model.__name__}: {name}"


def test_every_action_of_the_list_is_in_the_matrix() -> None:
    names = {name for _function, name in declared_actions(admin.site._registry[Task])}
    assert names - {"delete_selected"} == set(MAY_ACT)


def test_forms_need_their_token() -> None:
    task = prepared("pause")
    question = pending(task)
    client = Client(enforce_csrf_checks=True)
    client.force_login(User.objects.create(username="boss", is_staff=True, is_superuser=True))
    hold = holds.hold("queue", "slow", by="test")
    before = snapshot()
    posts: dict[str, dict[str, Any]] = {
        LIST: {"action": "pause", "_selected_action": str(task.pk), "confirmed": "yes"},
        reverse("admin:supervision_task_act", args=[task.pk, "pause"]): {f"generation-{task.pk}": task.generation},
        reverse("admin:supervision_question_change", args=[question.pk]): {f"q-{question.pk}-answer": "Hello"},
        f"{LIST}add/?body=admin.greet": {"a-name": "Ada"},
        "/admin/supervision/hold/": {"what": "queue:default", "note": "x"},
        reverse("admin:supervision_hold_release", args=[hold.pk]): {},
    }
    for address, data in posts.items():
        assert client.post(address, data).status_code == 403, address
    assert snapshot() == before


# --- two tenants ------------------------------------------------------------------------------------------------------


def own_tasks(user: Any, tasks: Any) -> Any:
    """A host's rule: each sees the tasks of their own."""
    return tasks.none() if isinstance(user, AnonymousUser) else tasks.filter(owner=user)


TENANTS = override_settings(SUPERVISION={"VISIBLE_TASKS": f"{__name__}.own_tasks"})
ALL = ("view_task", "view_question", "pause_task", "cancel_task", "retry_task", "answer_question", "add_task")


@pytest.fixture
def two_tenants() -> Iterator[tuple[Client, Task, Task]]:
    mine, theirs = person("mine", *ALL), person("theirs", *ALL)
    with TENANTS:
        ours = start("admin.greet", {"name": "Ours"}, owner=mine, subject="canary-ours", idempotency_key="k1")
        other = start(
            "admin.greet",
            {"name": "Canary"},
            owner=theirs,
            subject="canary-theirs",
            idempotency_key="k2",
            queue="canary-lane",
        )
        run_until_idle()
        client = Client()
        client.force_login(mine)
        yield client, fresh(ours), fresh(other)


@pytest.mark.parametrize(
    "address",
    [
        LIST, f"{LIST}?q=canary", f"{LIST}?q=k2", f"{LIST}?q=theirs", f"{LIST}?attention=answer",
        f"{LIST}?state=parked",
        "/admin/supervision/question/", "/admin/supervision/question/?status=all", "/admin/supervision/",
    ],
)  # fmt: skip
def test_the_other_tenant_is_in_no_list_count_filter_or_search(
    two_tenants: tuple[Client, Task, Task], address: str
) -> None:
    client, _ours, other = two_tenants
    html = client.get(address).content.decode()
    for sign in ("canary-theirs", str(other.pk), "canary-lane", "Canary"):
        assert sign not in html.replace('value="canary"', "").replace("q=canary", ""), (address, sign)
    if "q=" not in address and address.startswith(LIST):
        assert "1 task" in html


def test_the_other_tenants_task_answers_as_one_that_is_not_there(two_tenants: tuple[Client, Task, Task]) -> None:
    client, _ours, other = two_tenants
    ghost = "00000000-0000-7000-8000-000000000000"
    question = pending(other)

    def answers(method: Callable[..., Any], name: str, *rest: Any) -> list[Any]:
        seen = []
        pk = str(question.pk if "question" in name else other.pk)
        for each in (pk, ghost):
            with CaptureQueriesContext(connection) as captured:
                response = method(reverse(f"admin:supervision_{name}", args=[each, *rest]))
            headers = {key: value for key, value in response.headers.items() if key != "Content-Length"}
            seen.append((response.status_code, response.content.decode().replace(each, "ID"), headers, len(captured)))
        return seen

    for method, name, *rest in (
        (client.get, "task_change"), (client.get, "task_live"), (client.post, "task_act", "pause"),
        (client.get, "task_whole", "arguments"), (client.get, "task_file", 0), (client.get, "task_picture"),
        (client.get, "question_change"),
        (client.post, "question_change"), (client.get, "question_whole"), (client.get, "task_history"),
    ):  # fmt: skip
        theirs, nobodys = answers(method, name, *rest)
        assert theirs == nobodys, name
        assert theirs[0] == 404, name


def test_the_other_tenants_task_is_out_of_reach_of_the_lists_actions(two_tenants: tuple[Client, Task, Task]) -> None:
    client, ours, other = two_tenants
    before = fresh(other).generation
    for verb in VERBS:
        data = {"action": verb, "confirmed": "yes", "_selected_action": [str(ours.pk), str(other.pk)],
                f"generation-{ours.pk}": ours.generation, f"generation-{other.pk}": other.generation}  # fmt: skip
        client.post(LIST, data)
    assert fresh(other).generation == before
    question = pending(other)
    mine = Question.objects.get(task=ours)
    client.post(
        reverse("admin:supervision_question_change", args=[mine.pk]),
        {f"q-{mine.pk}-answer": "Hello", "also": [str(question.pk)]},
    )
    question.refresh_from_db()
    assert question.status == "pending"

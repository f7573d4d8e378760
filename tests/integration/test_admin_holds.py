"""Holds, the dashboard, and a subject's own page."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, RequestFactory
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from supervision.admin import SupervisedAdmin
from supervision.engines import registry, start
from supervision.errors import AlreadyHeld, AlreadyReleased, HoldNotFound
from supervision.kernel import clusters, due, holds, lease, lifecycle
from supervision.kernel.models import Heartbeat, Task
from supervision.testing import run_until_idle
from tests.integration.admin_work import bodies, fresh, person

pytestmark = pytest.mark.django_db

HOLDS = "/admin/supervision/hold/"
DASHBOARD = "/admin/supervision/"


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    with bodies():
        yield


@pytest.fixture
def boss() -> User:
    return User.objects.create(username="boss", is_staff=True, is_superuser=True)


@pytest.fixture
def client(boss: User) -> Client:
    client = Client()
    client.force_login(boss)
    return client


@pytest.mark.parametrize(("kind", "name"), [("body", "admin.greet"), ("queue", "default")])
def test_nothing_on_hold_is_offered_or_taken_and_it_goes_on_after_the_release(kind: str, name: str) -> None:
    task = start("admin.greet", {"name": "Ada"})
    due_since = fresh(task).wake_at
    hold = holds.hold(kind, name, by="alice", note="incident 7")
    assert due.offer(10, queues=None, bodies=registry.drivable()) == []
    assert lease.take(task.pk, 0) is None
    assert (fresh(task).current_state, fresh(task).wake_at) == ("pending", due_since)
    holds.release(hold.pk, by="bob", note="fixed")
    run_until_idle()
    assert fresh(task).current_state == "parked"


def test_a_hold_that_comes_between_the_offer_and_the_take_wins() -> None:
    task = start("admin.greet", {"name": "Ada"})
    (offered,) = due.offer(10, queues=None, bodies=registry.drivable())
    holds.hold("body", "admin.greet", by="alice")
    assert lease.take(offered.task_id, offered.lease) is None
    assert fresh(task).current_state == "pending"


def test_a_hold_also_stops_the_clean_up_of_what_is_cancelled() -> None:
    task = start("admin.greet", {"name": "Ada"})
    run_until_idle()
    holds.hold("body", "admin.greet", by="alice")
    lifecycle.cancel(task.pk, by="alice")
    assert run_until_idle() == 0
    assert fresh(task).ending == "cancelled"


def test_other_bodies_and_queues_go_on() -> None:
    holds.hold("body", "admin.other", by="alice")
    holds.hold("queue", "other", by="alice")
    task = start("admin.greet", {"name": "Ada"})
    run_until_idle()
    assert fresh(task).current_state == "parked"


def test_one_hold_stands_at_a_time_and_is_released_once() -> None:
    hold = holds.hold("queue", "default", by="alice")
    with pytest.raises(AlreadyHeld, match="alice"):
        holds.hold("queue", "default", by="bob")
    holds.release(hold.pk, by="bob")
    with pytest.raises(AlreadyReleased, match="bob"):
        holds.release(hold.pk, by="carol")
    with pytest.raises(HoldNotFound):
        holds.release("00000000-0000-7000-8000-000000000000", by="carol")
    with pytest.raises(ValueError, match="not of a"):
        holds.hold("planet", "earth", by="carol")
    assert holds.hold("queue", "default", by="carol").pk != hold.pk


def test_a_hold_is_made_and_released_here_and_shown_everywhere(client: Client) -> None:
    task = start("admin.greet", {"name": "Ada"})
    response = client.post(HOLDS, {"what": "body:admin.greet", "note": "incident 7"}, follow=True)
    assert "What runs goes on" in response.content.decode()
    for address in (
        HOLDS, DASHBOARD, "/admin/supervision/task/", "/admin/supervision/question/", "/admin/supervision/task/add/",
        reverse("admin:supervision_task_change", args=[task.pk]),
    ):  # fmt: skip
        html = client.get(address).content.decode()
        assert "on hold" in html.lower(), address
        assert "boss" in html, address
    page = client.get(reverse("admin:supervision_task_change", args=[task.pk])).content.decode()
    assert "no worker takes it until the hold on the body “admin.greet” is released" in page
    hold = holds.standing()["body", "admin.greet"]
    client.post(reverse("admin:supervision_hold_release", args=[hold.pk]), {"note": "fixed"})
    html = client.get(HOLDS).content.decode()
    assert "fixed" in html
    assert not holds.standing()


def test_a_hold_needs_a_reason(client: Client) -> None:
    assert client.post(HOLDS, {"what": "queue:default", "note": ""}).status_code == 422
    assert client.post(HOLDS, {"what": "queue:unheard-of", "note": "x"}).status_code == 422
    assert not holds.standing()


def test_the_dashboard_shows_who_drives_what_and_who_is_silent(client: Client) -> None:
    task = start("admin.greet", {"name": "Ada"}, subject="order 7")
    assert lease.take(task.pk, 0, lease.Worker("host:1", "host", 1)) is not None
    html = client.get(DASHBOARD).content.decode()
    assert "host:1" in html
    assert "order 7" in html
    assert "silent" not in html
    with connection.cursor() as cursor:
        cursor.execute("UPDATE supervision_heartbeat SET beat_at = beat_at - interval '1 hour'")
    assert "silent, last heard of" in client.get(DASHBOARD).content.decode()
    assert Heartbeat.objects.count() == 1
    assert "(silent)" in client.get("/admin/supervision/task/").content.decode()


def test_the_dashboard_says_which_clusters_live_and_when_work_is_due_and_none_does(client: Client) -> None:
    assert "No cluster lives." in client.get(DASHBOARD).content.decode()
    start("admin.greet", {"name": "Ada"})
    assert "No cluster lives, and work is due." in client.get(DASHBOARD).content.decode()
    clusters.announce(clusters.Announcement(uuid4(), "node-7", "host", 42, "", None, [], 4, 3, timedelta(seconds=0.1)))
    html = client.get(DASHBOARD).content.decode()
    assert "Cluster node-7:42: 3 of 4 workers free." in html
    assert client.get(reverse("admin:supervision_task_health")).status_code == 200


def test_the_dashboard_takes_the_same_number_of_queries_however_much_there_is(client: Client) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(DASHBOARD).status_code == 200
        return len(captured)

    start("admin.fail")
    run_until_idle()
    queries()
    before = queries()
    for _number in range(20):
        start("admin.fail")
        start("admin.greet", {"name": "Ada"})
    run_until_idle()
    assert queries() == before


def test_the_dashboard_shows_an_answerer_the_questions_and_nothing_of_the_tasks() -> None:
    start("admin.greet", {"name": "Ada"}, subject="order 7")
    run_until_idle()
    client = Client()
    client.force_login(person("answerer", "answer_question"))
    html = client.get(DASHBOARD).content.decode()
    assert "questions wait for you" in html
    assert "dead letters" not in html
    assert "order 7" not in html


# --- a subject's own page ---------------------------------------------------------------------------------------------


class SupervisedUserAdmin(SupervisedAdmin, UserAdmin):  # type: ignore[type-arg]
    pass


@pytest.fixture
def users_are_supervised() -> Iterator[None]:
    registered = admin.site._registry[User]  # the addresses lead to this very object
    registered.__class__ = SupervisedUserAdmin
    yield
    registered.__class__ = UserAdmin


@pytest.mark.usefixtures("users_are_supervised")
def test_a_rows_tasks_stand_on_its_page_with_a_button_to_start_some(client: Client, boss: User) -> None:
    ada = User.objects.create(username="ada")
    task = start("admin.greet", {"name": "Ada"}, subject_object=ada)
    start("admin.greet", {"name": "Boss"}, subject_object=boss)
    run_until_idle()
    html = client.get(f"/admin/auth/user/{ada.pk}/change/").content.decode()
    assert reverse("admin:supervision_task_change", args=[task.pk]) in html
    assert html.count(">Greet somebody ") == 1
    link = f"/admin/supervision/task/add/?subject_type=auth.user&subject={ada.pk}"
    assert link.replace("&", "&amp;") in html
    choose = client.get(link).content.decode()
    assert "ada" in choose
    client.post(f"{link}&body=admin.greet", {"a-name": "Ada"})
    newest = Task.objects.first()
    assert newest is not None
    assert newest.subject_object == ada
    assert "Supervised work" not in client.get("/admin/auth/user/add/").content.decode()


@pytest.mark.usefixtures("users_are_supervised")
def test_a_rows_page_shows_no_tasks_to_those_who_may_not_view_them() -> None:
    ada = User.objects.create(username="ada")
    start("admin.greet", {"name": "Ada"}, subject_object=ada)
    clerk = person("clerk")
    from django.contrib.auth.models import Permission

    clerk.user_permissions.add(*Permission.objects.filter(codename__in=["view_user", "change_user"]))
    client = Client()
    client.force_login(clerk)
    response = client.get(f"/admin/auth/user/{ada.pk}/change/")
    assert response.status_code == 200
    assert "Supervised work" not in response.content.decode()
    assert client.get(f"/admin/supervision/task/add/?subject_type=auth.user&subject={ada.pk}").status_code == 403


def test_a_task_about_a_row_that_one_may_not_view_is_not_started(client: Client, boss: User) -> None:
    starter = person("starter", "add_task", "view_task")
    client.force_login(starter)
    link = f"/admin/supervision/task/add/?body=admin.greet&subject_type=auth.user&subject={boss.pk}"
    assert client.get(link).status_code == 404
    assert client.post(link, {"a-name": "x"}).status_code == 404
    for garbage in (
        "subject_type=auth.user&subject=nonsense",
        "subject_type=no.thing&subject=1",
        "subject_type=x&subject=1",
    ):
        assert client.get(f"/admin/supervision/task/add/?{garbage}").status_code == 404


def test_the_panel_is_a_mixin_for_any_model_admin(boss: User) -> None:
    request: Any = RequestFactory().get("/")
    request.user = boss
    model_admin = SupervisedUserAdmin(User, admin.site)
    names = [name for name, _options in model_admin.get_fieldsets(request, boss)]
    assert names[-1] == "Supervised work"

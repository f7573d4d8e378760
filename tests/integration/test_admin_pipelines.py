"""Pipelines in the control room: pictures, pointers, visits, and re-pointing, for those who may."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from supervision import diagrams
from supervision.engines import Pipeline, Run, State, registry
from supervision.engines.pipelines.models import Pointer, Visit
from supervision.kernel.models import Task
from supervision.testing import run_until_idle
from tests.integration.admin_work import EVIL, person

pytestmark = pytest.mark.django_db

LIST = "/admin/supervision/pointer/"
PIPELINES = "/admin/supervision/pointer/pipelines/"


@pytest.fixture(autouse=True)
def training() -> Iterator[Pipeline]:
    def save(run: Run) -> Any:
        return False, EVIL, {"name": EVIL}

    yield Pipeline("admin.training", label="Training", initial="POLL", terminal={"DONE": "completed"}, states={
        "POLL": State(lambda run: "quick" in run.params, "SAVE", "POLL", False, poll_every=timedelta(hours=1)),
        "SAVE": State(save, "DONE", "DONE", True),
    })  # fmt: skip
    registry.unregister("admin.training")


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(User.objects.create(username="boss", is_staff=True, is_superuser=True))
    return client


def as_(*codenames: str) -> Client:
    client = Client()
    client.force_login(person(f"p{User.objects.count()}", *codenames))
    return client


def polling(training: Pipeline, *subjects: str) -> list[Pointer]:
    training.start_all(subjects)
    run_until_idle()
    return [Pointer.objects.get(subject=subject) for subject in subjects]


def page_of(pointer: Pointer) -> str:
    return reverse("admin:supervision_pointer_change", args=[pointer.pk])


def text_of(response: Any) -> str:
    assert response.status_code == 200, response.status_code
    return str(response.content.decode())


def said(response: Any) -> str:
    return " ".join(str(message) for message in response.context["messages"])


def test_the_list_says_where_each_subject_stands(client: Client, training: Pipeline) -> None:
    polling(training, "customer 7")
    html = text_of(client.get(LIST))
    assert "customer 7" in html
    assert '<code class="sv-at">POLL</code>' in html
    assert "visit 2" in html
    assert "Training" in html


def test_filters_find_what_they_name(client: Client, training: Pipeline) -> None:
    old, _new = polling(training, "old", "new")
    training.start("quick", {"quick": 1})
    run_until_idle()
    Pointer.objects.filter(pk=old.pk).update(since=old.since - timedelta(days=2))

    def found(query: str) -> set[str]:
        response = client.get(f"{LIST}?{query}")
        return {pointer.subject for pointer in response.context["cl"].result_list}

    assert found("state=POLL") == {"old", "new"}
    assert found("state=DONE&pipeline=admin.training") == {"quick"}
    assert found("stuck=day") == {"old"}
    assert found("stuck=week") == set()
    assert found("pipeline=other") == set()
    assert found("q=OL") == {"old"}
    Pointer.objects.filter(subject="new").update(state="GONE")
    assert found("stuck=lost") == {"new"}
    Pointer.objects.filter(subject="new").update(state="max retries reached:POLL")
    assert found("state=max+retries+reached") == {"new"}
    assert client.get(f"{LIST}?q=%00&p=99").status_code in (200, 302)


def test_the_list_asks_as_much_for_many_as_for_one(client: Client, training: Pipeline) -> None:
    polling(training, "a")
    client.get(LIST)
    counts = []
    for _ in range(2):
        with CaptureQueriesContext(connection) as captured:
            client.get(LIST)
        counts.append(len(captured))
        polling(training, *[f"s{number}" for number in range(20)])
    assert counts[0] == counts[1]


def test_the_page_shows_the_picture_the_visits_and_what_was_handed_on(client: Client, training: Pipeline) -> None:
    training.start("x", {"quick": 1})
    run_until_idle()
    pointer = Pointer.objects.get()
    html = text_of(client.get(page_of(pointer)))
    assert f'src="/admin/supervision/pointer/{pointer.pk}/picture/?at=DONE"' in html
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    assert "visit 1" in html
    assert f"/admin/supervision/task/{pointer.run_id}/change/" in html
    svg = client.get(f"/admin/supervision/pointer/{pointer.pk}/picture/")
    assert svg["Content-Type"] == "image/svg+xml"
    assert svg["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert b"#ffe08a" in svg.content
    live = client.get(f"/admin/supervision/pointer/{pointer.pk}/live/")
    assert client.get(live.request["PATH_INFO"], headers={"If-None-Match": live["ETag"]}).status_code == 304


def test_many_visits_come_in_pages(client: Client, training: Pipeline) -> None:
    (pointer,) = polling(training, "x")
    visit = Visit.objects.get()
    Visit.objects.bulk_create(
        Visit(pointer=pointer, sequence_num=n, run_id=visit.run_id, state="POLL", number=n, outcome="failure",
              next_state="POLL", yielded=True, entered_at=visit.entered_at) for n in range(2, 121)
    )  # fmt: skip
    html = text_of(client.get(page_of(pointer)))
    assert "?before=71#sv-visits" in html
    oldest = text_of(client.get(f"{page_of(pointer)}?before=21"))
    assert "Older visits" not in oldest
    assert "Newest" in oldest


def test_every_pipeline_has_its_picture_with_counts(client: Client, training: Pipeline) -> None:
    polling(training, "a", "b")
    html = text_of(client.get(PIPELINES))
    assert "/admin/supervision/pointer/picture/admin.training/" in html
    assert "?pipeline=admin.training&amp;state=POLL" in html
    svg = client.get("/admin/supervision/pointer/picture/admin.training/")
    assert b">2 here<" in svg.content
    assert client.get("/admin/supervision/pointer/picture/nothing/").status_code == 404


def test_without_the_extra_there_is_mermaid(
    client: Client, training: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pointer,) = polling(training, "x")
    monkeypatch.setattr(diagrams, "graphviz", None)
    for page in (PIPELINES, page_of(pointer)):
        html = text_of(client.get(page))
        assert "flowchart TD" in html
        assert "<img" not in html.partition('id="content"')[2]


def test_a_person_moves_a_pointer_on_its_page(client: Client, training: Pipeline) -> None:
    (pointer,) = polling(training, "x")
    form = {"state": "DONE", "note": "by hand", f"generation-{pointer.pk}": pointer.generation}
    response = client.post(f"/admin/supervision/pointer/{pointer.pk}/repoint/", form, follow=True)
    assert "is at DONE now" in said(response)
    visit = Visit.objects.exclude(actor_ref="").get()
    assert (visit.actor_ref, visit.note, visit.next_state) == ("boss", "by hand", "DONE")
    run_until_idle()
    assert Task.objects.get().current_state == "completed"
    response = client.post(f"/admin/supervision/pointer/{pointer.pk}/repoint/", form, follow=True)
    assert "has moved since you looked" in said(response)
    assert Visit.objects.exclude(actor_ref="").count() == 1


@pytest.mark.parametrize("form", [{"state": "DONE"}, {"state": "NOWHERE", "generation": "seen"}, {}])
def test_a_form_that_does_not_say_what_it_showed_moves_nothing(
    client: Client, training: Pipeline, form: dict[str, str]
) -> None:
    (pointer,) = polling(training, "x")
    data = {key: value for key, value in form.items() if key != "generation"}
    if "generation" in form:
        data[f"generation-{pointer.pk}"] = str(pointer.generation)
    client.post(f"/admin/supervision/pointer/{pointer.pk}/repoint/", data, follow=True)
    assert not Visit.objects.exclude(actor_ref="").exists()


def test_many_are_moved_by_an_action_and_the_stale_one_stays(client: Client, training: Pipeline) -> None:
    one, other = polling(training, "x", "y")
    data: dict[str, Any] = {
        "action": "repoint_chosen", "index": "0", "_selected_action": [str(one.pk), str(other.pk)],
        f"generation-{one.pk}": one.generation, f"generation-{other.pk}": other.generation - 1,
    }  # fmt: skip
    asked = text_of(client.post(LIST, data))
    assert "No: it has moved since the list was shown." in asked
    assert "Yes, unless a worker drives it" in asked
    assert not Visit.objects.exclude(actor_ref="").exists()
    response = client.post(LIST, {**data, "confirmed": "yes", "state": "SAVE", "note": "all"}, follow=True)
    assert "has moved since you looked" in said(response)
    assert list(Visit.objects.exclude(actor_ref="").values_list("pointer__subject", "note")) == [("x", "all")]


def test_pointers_of_two_pipelines_are_not_moved_at_once(client: Client, training: Pipeline) -> None:
    one, other = polling(training, "x", "y")
    Pointer.objects.filter(pk=other.pk).update(pipeline="another")
    data = {"action": "repoint_chosen", "index": "0", "_selected_action": [str(one.pk), str(other.pk)]}
    assert "of one pipeline" in said(client.post(LIST, data, follow=True))
    data = {"action": "repoint_chosen", "index": "0", "_selected_action": [str(one.pk)], "select_across": "1"}
    assert "of one pipeline" in said(client.post(LIST, data, follow=True))


def test_looking_is_not_moving(training: Pipeline) -> None:
    (pointer,) = polling(training, "x")
    client = as_("view_pointer")
    html = text_of(client.get(page_of(pointer)))
    assert "Re-point" not in html
    assert f"/admin/supervision/task/{pointer.run_id}/" not in html, "tasks are another permission"
    assert "repoint_chosen" not in text_of(client.get(LIST))
    form = {"state": "DONE", f"generation-{pointer.pk}": str(pointer.generation)}
    assert client.post(f"/admin/supervision/pointer/{pointer.pk}/repoint/", form).status_code == 403
    action = {"action": "repoint_chosen", "index": "0", "_selected_action": [str(pointer.pk)], "confirmed": "yes"}
    client.post(LIST, {**action, **form})
    assert not Visit.objects.exclude(actor_ref="").exists()
    mover = as_("view_pointer", "repoint_pointer")
    assert mover.post(f"/admin/supervision/pointer/{pointer.pk}/repoint/", form).status_code == 302
    assert Visit.objects.exclude(actor_ref="").exists()


def test_nothing_is_told_to_those_who_may_not_look(training: Pipeline) -> None:
    (pointer,) = polling(training, "x")
    stranger = as_("view_task")
    pages = (LIST, PIPELINES, page_of(pointer), f"{LIST}{pointer.pk}/live/", f"{LIST}{pointer.pk}/picture/",
             f"{LIST}picture/admin.training/")  # fmt: skip
    for page in pages:
        assert stranger.get(page).status_code == 403, page
        assert Client().get(page).status_code == 302, page


def test_the_stock_forms_are_closed(client: Client, training: Pipeline) -> None:
    (pointer,) = polling(training, "x")
    assert client.post(page_of(pointer), {"state": "DONE"}).status_code == 405
    assert client.get(f"{LIST}add/").status_code == 403
    assert client.post(f"{LIST}{pointer.pk}/delete/", {"post": "yes"}).status_code == 403
    assert client.get(f"{LIST}{pointer.pk}/repoint/").status_code == 405
    assert client.get(f"{LIST}{pointer.pk}/history/").status_code == 302
    for nonsense in ("0", "99999999", "abc", "9" * 30):
        assert client.get(f"{LIST}{nonsense}/change/").status_code == 404, nonsense


def only_mine(user: Any, tasks: Any) -> Any:
    return tasks.filter(owner=user)


@override_settings(SUPERVISION={"VISIBLE_TASKS": f"{__name__}.only_mine"})
def test_a_tenants_pointers_are_all_there_are(training: Pipeline) -> None:
    ann, ben = person("ann", "view_pointer", "repoint_pointer"), person("ben", "view_pointer", "repoint_pointer")
    training.start("ann's", owner=ann)
    training.start("ben's", owner=ben)
    run_until_idle()
    mine, theirs = Pointer.objects.get(subject="ann's"), Pointer.objects.get(subject="ben's")
    client = Client()
    client.force_login(ann)
    html = text_of(client.get(LIST))
    assert "ann" in html
    assert "ben" not in html
    assert b">1 here<" in client.get(f"{LIST}picture/admin.training/").content
    assert client.get(page_of(mine)).status_code == 200
    for page in (page_of(theirs), f"{LIST}{theirs.pk}/live/", f"{LIST}{theirs.pk}/picture/"):
        assert client.get(page).status_code == 404
    form = {"state": "DONE", f"generation-{theirs.pk}": str(theirs.generation)}
    assert client.post(f"{LIST}{theirs.pk}/repoint/", form).status_code == 404
    action = {"action": "repoint_chosen", "index": "0", "_selected_action": [str(theirs.pk)], "confirmed": "yes"}
    client.post(LIST, {**action, **form})
    assert not Visit.objects.exclude(actor_ref="").exists()

"""Verbs on one task or many: confirmed, with a note, compared with what the person saw."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from supervision.engines import Context, Failure, registry, start
from supervision.engines.bodies import body
from supervision.kernel import lifecycle, log
from supervision.kernel.models import Task
from supervision.testing import answer, run_until_idle
from tests.integration.admin_work import bodies, fresh, person

pytestmark = pytest.mark.django_db

LIST = "/admin/supervision/task/"


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    with bodies():
        yield


@pytest.fixture
def client() -> Client:
    client = Client()
    client.force_login(User.objects.create(username="boss", is_staff=True, is_superuser=True))
    return client


def asking(count: int = 1) -> list[Task]:
    tasks = [start("admin.greet", {"name": f"N{number}"}) for number in range(count)]
    run_until_idle()
    return [fresh(task) for task in tasks]


def form(verb: str, *tasks: Task, confirmed: bool = True, **more: Any) -> dict[str, Any]:
    """What the list posts: the chosen rows, each with the generation that the page showed."""
    data = {
        "action": verb,
        "_selected_action": [str(task.pk) for task in tasks],
        **{f"generation-{task.pk}": task.generation for task in tasks},
        **more,
    }
    return {**data, "confirmed": "yes"} if confirmed else {**data, "index": "0"}


def said(response: Any) -> str:
    return " ".join(str(message) for message in response.context["messages"])


def test_the_list_carries_the_generation_of_each_row(client: Client) -> None:
    (task,) = asking()
    html = client.get(LIST).content.decode()
    assert f'<input type="hidden" name="generation-{task.pk}" value="{task.generation}">' in html


def test_an_action_is_confirmed_on_a_page_that_changes_nothing(client: Client) -> None:
    first, second = asking(2)
    response = client.post(LIST, form("pause", first, second, confirmed=False))
    html = response.content.decode()
    assert response.status_code == 200
    assert 'name="note"' in html
    assert f'name="generation-{first.pk}" value="{first.generation}"' in html
    assert fresh(first).pause_requested_at is None


def test_pausing_two_writes_the_note_of_each(client: Client) -> None:
    first, second = asking(2)
    response = client.post(LIST, form("pause", first, second, note="incident 7"), follow=True)
    assert "Done: 2 tasks." in said(response)
    for task in (first, second):
        entry = log.page(task.pk).entries[-1]
        assert (entry.event, entry.actor_ref, entry.payload) == ("pause_requested", "boss", {"note": "incident 7"})


def test_a_stale_row_is_reported_with_its_fresh_state_and_the_rest_go_through(client: Client) -> None:
    stale, other = asking(2)
    lifecycle.pause(stale.pk, by="somebody else")
    response = client.post(LIST, form("cancel", stale, other), follow=True)
    assert "unchanged, for it has changed since you saw it. Now it is: paused" in said(response)
    assert fresh(stale).ending == ""
    assert fresh(other).ending == "cancelled"


def test_a_row_that_left_the_filter_is_reported_and_not_dropped(client: Client) -> None:
    (task,) = asking()
    answer(task, {"words": "Hello"})
    run_until_idle()
    response = client.post(f"{LIST}?attention=answer", form("cancel", task), follow=True)
    assert "unchanged" in said(response)
    assert fresh(task).current_state == "completed"


def test_what_brings_no_generation_changes_nothing(client: Client) -> None:
    (task,) = asking()
    data = {"action": "pause", "_selected_action": [str(task.pk)], "confirmed": "yes"}
    for garbage in ({}, {f"generation-{task.pk}": "-1"}, {f"generation-{task.pk}": "1" * 40}):
        client.post(LIST, {**data, **garbage})
        assert fresh(task).pause_requested_at is None


def test_select_across_pages_is_refused(client: Client) -> None:
    (task,) = asking()
    response = client.post(LIST, form("pause", task, select_across="1"), follow=True)
    assert "haven&#x27;t seen" in response.content.decode() or "haven't seen" in said(response)
    assert fresh(task).pause_requested_at is None


def test_ids_that_are_none_are_refused_politely(client: Client) -> None:
    (task,) = asking()
    data = form("pause", task)
    response = client.post(LIST, {**data, "_selected_action": ["nonsense", str(task.pk)]}, follow=True)
    assert "no task" in said(response)
    assert fresh(task).pause_requested_at is None


def test_an_unknown_task_is_reported_and_the_rest_go_through(client: Client) -> None:
    (task,) = asking()
    ghost = "00000000-0000-7000-8000-000000000000"
    data = form("pause", task)
    data["_selected_action"].append(ghost)
    data[f"generation-{ghost}"] = 1
    response = client.post(LIST, data, follow=True)
    assert f"There is no task {ghost}" in said(response)
    assert fresh(task).pause_requested_at is not None


@pytest.mark.parametrize("verb", ["pause", "cancel", "expire"])
def test_the_buttons_of_the_page_do_the_same(client: Client, verb: str) -> None:
    (task,) = asking()
    act = reverse("admin:supervision_task_act", args=[task.pk, verb])
    response = client.post(act, {f"generation-{task.pk}": task.generation, "note": "why not"}, follow=True)
    assert response.status_code == 200
    assert fresh(task).generation > task.generation
    assert log.page(task.pk).entries[-1].payload["note"] == "why not"


def test_a_stale_page_changes_nothing_and_says_what_it_is_now(client: Client) -> None:
    (task,) = asking()
    lifecycle.pause(task.pk, by="somebody else")
    act = reverse("admin:supervision_task_act", args=[task.pk, "cancel"])
    response = client.post(act, {f"generation-{task.pk}": task.generation}, follow=True)
    assert "Now it is: paused" in said(response)
    assert fresh(task).ending == ""


def test_pause_then_resume_then_it_goes_on(client: Client) -> None:
    (task,) = asking()
    client.post(LIST, form("pause", task))
    answer(task, {"words": "Hello"})
    assert run_until_idle() == 0
    client.post(LIST, form("resume", fresh(task)))
    run_until_idle()
    assert fresh(task).current_state == "completed"


def test_retry_leads_to_the_new_task_and_two_clicks_make_one(client: Client) -> None:
    task = start("admin.fail", {})
    run_until_idle()
    task = fresh(task)
    act = reverse("admin:supervision_task_act", args=[task.pk, "retry"])
    for _click in range(2):
        response = client.post(act, {f"generation-{task.pk}": task.generation})
        fork = Task.objects.get(forked_from=task.pk)
        assert response["Location"] == reverse("admin:supervision_task_change", args=[fork.pk])


def test_a_button_is_there_only_where_the_verb_is_possible(client: Client) -> None:
    (task,) = asking()
    page = reverse("admin:supervision_task_change", args=[task.pk])
    html = client.get(page).content.decode()
    assert 'id="sv-verb-pause"' in html
    assert 'id="sv-verb-retry"' not in html
    answer(task, {"words": "Hello"})
    run_until_idle()
    html = client.get(page).content.decode()
    assert 'id="sv-verb-pause"' not in html
    assert 'id="sv-verb-retry"' in html


def test_a_signal_may_be_sent_by_hand_by_whoever_may(client: Client) -> None:
    @body("admin.waits")
    def waits(task: Context) -> Any:
        signal = task.wait_for_signal("paid")
        return signal.payload if signal else None

    task = start("admin.waits")
    run_until_idle()
    page, address = f"{LIST}{task.pk}/change/", reverse("admin:supervision_task_signal", args=[task.pk])
    assert 'value="paid"' in client.get(page).content.decode(), "the name that it waits for is there already"
    refused = client.post(address, {"signal-name": "paid", "signal-payload": "{amount"}, follow=True)
    assert "Nothing was sent" in said(refused)
    other = Client()
    other.force_login(person("viewer", "view_task"))
    assert other.post(address, {"signal-name": "paid"}).status_code == 403
    assert "Send a signal" not in other.get(page).content.decode()
    sent = client.post(address, {"signal-name": "paid", "signal-payload": '{"amount": 3}'}, follow=True)
    assert "was sent" in said(sent)
    run_until_idle()
    registry.unregister("admin.waits")
    assert fresh(task).result == {"amount": 3}
    assert "it has ended" in said(client.post(address, {"signal-name": "paid"}, follow=True))


def test_a_retry_may_begin_at_a_step_or_from_scratch(client: Client) -> None:
    done: list[str] = []

    @body("admin.steps")
    def steps(task: Context) -> None:
        for name in ("a", "b"):
            task.step(name, done.append, name)
        raise Failure("no")

    task = start("admin.steps")
    run_until_idle()
    address = reverse("admin:supervision_task_act", args=[task.pk, "retry"])
    for more, again in (({"from_step": "b"}, ["b"]), ({"from_scratch": "yes"}, ["a", "b"]), ({}, [])):
        done.clear()
        client.post(address, {f"generation-{task.pk}": fresh(task).generation, **more})
        run_until_idle()
        assert done == again, more
    response = client.post(address, {f"generation-{task.pk}": fresh(task).generation, "from_step": "z"}, follow=True)
    registry.unregister("admin.steps")
    assert "no step “z”" in said(response)

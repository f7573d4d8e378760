"""The control room in a real browser: by mouse, by keyboard, on a phone, with two people, under a strict policy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from supervision.engines import start
from supervision.kernel import holds, lease, lifecycle
from supervision.kernel.models import Question, Task
from supervision.testing import answer, run_until_idle
from tests.browser.conftest import PHONE, Opened, shoot
from tests.integration.admin_work import EVIL, fresh, pending

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def page_of(task: Task) -> str:
    return reverse("admin:supervision_task_change", args=[task.pk])


def see(page: Page, words: str) -> None:
    page.get_by_text(words).first.wait_for()


def test_a_task_is_started_with_a_file_parks_is_answered_and_finishes(open_as: Opened, boss: User) -> None:
    page = open_as(boss)
    page.goto("/admin/supervision/")
    page.get_by_role("link", name="Start a task").click()
    page.get_by_role("link", name="Import a file").click()
    upload: Any = {"name": "customers.csv", "mimeType": "text/csv", "buffer": b"name,country\nAda,Korea\n"}
    page.get_by_label("Upload").set_input_files(upload)
    shoot(page, "start")
    page.get_by_role("button", name="Start").click()
    see(page, "Due: the next free worker takes it.")

    run_until_idle()
    see(page, "Which column is it about?")  # by itself: nobody has reloaded the page
    shoot(page, "parked")
    other = start("admin.greet", {"name": "Grace"})
    run_until_idle()

    page.goto("/admin/supervision/question/")
    page.get_by_role("link", name="Which column is it about?").click()
    page.get_by_label("country").check()
    page.get_by_role("button", name="Answer and next").click()
    see(page, "How shall we greet Grace?")
    shoot(page, "next")
    page.get_by_label("Good day").check()
    page.get_by_role("button", name="Answer and next").click()
    see(page, "Nothing else waits for you.")

    run_until_idle()
    assert fresh(other).result == {"greeting": "Good day, Grace"}
    page.goto("/admin/supervision/task/")
    page.get_by_role("link", name="Import a file").click()
    see(page, "completed")
    with page.expect_download() as downloading:
        page.get_by_role("link", name="column.txt").click()
    assert downloading.value.path().read_bytes() == b"country"
    shoot(page, "finished")


def test_the_page_refreshes_itself_and_keeps_what_is_being_typed(open_as: Opened, boss: User) -> None:
    task = start("admin.both")
    run_until_idle()
    page = open_as(boss)
    page.goto(page_of(task))
    box = page.locator("textarea[name$=answer]").first
    box.fill("half a senten")
    answer(task, {"two": "two by somebody else"}, by="alice")
    see(page, "two by somebody else")
    assert box.input_value() == "half a senten"
    answer(task, {"one": "one by somebody else"}, by="alice")
    see(page, "Answered meanwhile by alice: one by somebody else")
    assert box.input_value() == "half a senten"
    run_until_idle()
    page.get_by_text("completed", exact=True).first.wait_for()
    assert box.input_value() == "half a senten"
    shoot(page, "typing")


def test_a_second_person_on_a_stale_page_changes_nothing_and_is_told(open_as: Opened, boss: User) -> None:
    task = start("admin.greet", {"name": "Ada"})
    run_until_idle()
    eve = User.objects.create(username="eve", is_staff=True, is_superuser=True)
    first, second = open_as(boss), open_as(eve)
    first.goto(page_of(task))
    first.get_by_text("Pause…").click()
    first.locator("#sv-note-pause").fill("incident 7")
    first.locator("#sv-verb-pause button").click()
    see(first, "is paused, or pausing after the current step")

    second.goto("/admin/supervision/task/")  # a list that is stale by the time of the action
    second.locator("input[name=_selected_action]").check()
    lifecycle.resume(task.pk, by="somebody else")
    second.locator("select[name=action]").select_option("cancel")
    second.get_by_role("button", name=re.compile("Go|Run")).click()
    see(second, "No: it has changed since the list was shown.")
    shoot(second, "stale")
    second.locator("form.sv-confirm button[type=submit]").click()
    see(second, "unchanged, for it has changed since you saw it")
    assert fresh(task).ending == ""


def test_by_keyboard_alone(open_as: Opened, boss: User) -> None:
    task = start("admin.greet", {"name": "Ada"}, subject="order 7")
    run_until_idle()
    page = open_as(boss)
    page.goto("/admin/supervision/task/")
    page.locator("#searchbar").focus()
    page.keyboard.type("order")
    page.keyboard.press("Enter")
    see(page, "1 task")
    _tab_to(page, "a.sv-body")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**{page_of(task)}")
    _tab_to(page, "input[type=radio]")
    page.keyboard.press("ArrowDown")
    _tab_to(page, ".sv-question button[type=submit]")
    page.keyboard.press("Enter")
    see(page, "question answered.")
    assert Question.objects.get(task=task).answer == "Good day"

    _tab_to(page, "#sv-verb-cancel summary")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("by hand")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    see(page, "is cancelled, after its clean-up")
    assert fresh(task).ending == "cancelled"


def _tab_to(page: Page, selector: str) -> None:
    for _press in range(120):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none" or selector.startswith("input"), f"{selector} shows no focus"
            return
    raise AssertionError(f"never came to {selector}")


def test_a_long_list_of_choices_is_searched(open_as: Opened, boss: User) -> None:
    choices = {f"c{number}": f"Country {number}" for number in range(60)}
    task = start("admin.ask", {"options": {"choices": choices}})
    run_until_idle()
    page = open_as(boss)
    page.goto(reverse("admin:supervision_question_change", args=[pending(task).pk]))
    page.locator(".sv-search").fill("ntry 42")
    assert page.locator("select[name$=answer] option:visible").count() == 1
    page.get_by_role("button", name="Answer", exact=True).click()
    see(page, "question answered.")
    assert Question.objects.get(task=task).answer == "c42"


def everything() -> list[str]:
    """A bit of everything, and the addresses of all pages."""
    evil = start("admin.greet", {"name": EVIL}, subject="wide " * 40 + "x" * 150)
    start("admin.fail", {"why": "It failed. " + "y" * 900})
    start("admin.ask", {"options": {"answer_form": "admin.delivery"}})
    start("admin.ask", {"options": {"kind": "yes_no", "approvals": 2}})
    run_until_idle()
    failed = Task.objects.get(body="admin.fail")
    running = start("admin.greet", {"name": "Ada"})
    lease.take(running.pk, 0, lease.Worker("a-very-long-host-name.example.org:12345", "h", 1))
    lease.beat(running.pk, 1, done=34, total=120, text="rows")
    holds.hold("queue", "mail", by="alice", note="The mail server is down. " * 10)
    question = reverse("admin:supervision_question_change", args=[pending(evil).pk])
    return [
        "/admin/supervision/", "/admin/supervision/task/", page_of(evil), page_of(failed), page_of(running),
        "/admin/supervision/question/", question, "/admin/supervision/task/add/",
        "/admin/supervision/task/add/?body=admin.typed", "/admin/supervision/hold/",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [390, 768, 1280])
def test_no_page_is_wider_than_its_window_and_none_breaks_the_policy(open_as: Opened, boss: User, width: int) -> None:
    page = open_as(boss, size={**PHONE, "width": width})
    for number, address in enumerate(everything()):
        response = page.goto(address)
        assert response is not None
        assert response.status == 200
        assert "default-src 'self'" in response.headers["content-security-policy"]
        page.wait_for_timeout(100)
        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider <= 0, (address, width, wider)
        shoot(page, f"{width}-{number}")


def test_everything_works_without_script(browser: Any, live_server: Any, boss: User) -> None:
    from django.test import Client

    task = start("admin.greet", {"name": "Ada"})
    run_until_idle()
    client = Client()
    client.force_login(boss)
    context = browser.new_context(base_url=live_server.url, java_script_enabled=False)
    context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": live_server.url}])
    page = context.new_page()
    page.goto(page_of(task))
    page.get_by_label("Hello").check()
    page.get_by_role("button", name="Answer", exact=True).click()
    see(page, "question answered.")
    context.close()
    assert Question.objects.get(task=task).answer == "Hello"

"""The owner's pages in a real browser: on a phone, with two people, without signing in, under a strict policy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from django.urls import reverse

from supervision.engines import start
from supervision.kernel import lease, lifecycle
from supervision.kernel.models import Question, Task
from supervision.testing import answer, run_until_idle
from tests.browser.conftest import DESKTOP, PHONE, Opened, shoot
from tests.integration.admin_work import EVIL, fresh, pending
from tests.integration.own_work import own_bodies

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.fixture(autouse=True)
def _own_bodies(live_server: Any) -> Iterator[None]:
    with own_bodies(), override_settings(SUPERVISION={"BASE_URL": live_server.url, "LOG_PAGE_SIZE": 5}):
        yield


@pytest.fixture
def ann() -> User:
    return User.objects.create(username="ann")


def page_of(task: Task) -> str:
    return reverse("supervision_pages:task", args=[task.pk])


def see(page: Page, words: str) -> None:
    page.get_by_text(words).first.wait_for()


def asked(owner: User, **arguments: Any) -> Task:
    task = start("own.order", {"what": "tea", **arguments}, owner=owner, subject=str(arguments.get("what", "tea")))
    run_until_idle()
    return task


def test_filter_answer_pause_and_a_stale_click(open_as: Opened, ann: User) -> None:
    task = asked(ann)
    asked(ann, what="coffee")
    page = open_as(ann, size=PHONE)
    page.goto("/work/")
    assert page.locator(".sv-tasks li").count() == 2
    page.get_by_text("Filter", exact=True).click()
    page.get_by_label("About").fill("te")
    page.get_by_label("Needs").select_option("answer")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**subject=te**")
    assert page.locator(".sv-tasks li").count() == 1
    shoot(page, "own-list")
    page.get_by_role("link", name="An order").click()

    page.get_by_role("button", name="Pause").click()
    see(page, "An order: paused.")
    see(page, "Stays paused until somebody resumes it.")
    shoot(page, "own-paused")
    lifecycle.resume(task.pk, by="somebody else")
    lifecycle.pause(task.pk, by="somebody else")  # the button is the same, and yet not what it was
    page.get_by_role("button", name="Resume").click()
    see(page, "Nothing was changed: this has changed since you opened it.")
    assert fresh(task).pause_requested_at is not None
    shoot(page, "own-stale")
    page.get_by_role("button", name="Resume").click()  # on the fresh page
    see(page, "An order: no longer paused; it still waits.")

    page.get_by_label("large").check()
    page.get_by_role("button", name="Answer").click()
    see(page, "Your answer was recorded.")
    run_until_idle()
    page.get_by_text("completed", exact=True).first.wait_for()
    shoot(page, "own-finished")
    assert fresh(task).result == {"size": "large"}


def test_the_page_goes_on_by_itself_and_keeps_what_is_being_typed(open_as: Opened, ann: User) -> None:
    task = start("own.both", owner=ann)
    run_until_idle()
    page = open_as(ann)
    page.goto(page_of(task))
    box = page.locator("textarea[name$=answer]").first
    box.fill("half a senten")
    answer(task, {"two": "two by somebody else"}, by="alice")
    see(page, "two by somebody else")
    answer(task, {"one": "one by somebody else"}, by="alice")
    see(page, "Answered meanwhile by alice: one by somebody else")
    lease.take(task.pk, fresh(task).lease, lease.Worker("w", "h", 1))
    lease.beat(task.pk, fresh(task).lease, done=3, total=12, text="boxes")
    see(page, "3 / 12 boxes")
    assert box.input_value() == "half a senten"
    shoot(page, "own-live")


def test_an_answer_link_answers_once_without_signing_in(open_as: Opened, ann: User) -> None:
    task = asked(ann)
    link = pending(task).answer_link(ann)
    page = open_as(None, size=PHONE)
    page.goto(link)
    see(page, "You answer as ann.")
    assert pending(task).status == "pending"
    shoot(page, "own-link")
    page.get_by_label("small").check()
    page.get_by_role("button", name="Answer").click()
    see(page, "Thank you")
    assert Question.objects.get(task=task).answer == "small"
    shoot(page, "own-link-done")
    page.goto(link)
    see(page, "This question was already answered by ann.")
    shoot(page, "own-link-used")


def everything(owner: User) -> list[str]:
    """A bit of everything with markup in every field, and the addresses of all pages."""
    evil = start("own.evil", {"text": EVIL}, owner=owner, subject=EVIL + " wide" * 20)
    failed = start("admin.fail", {"why": EVIL + " It failed. " + "y" * 900}, owner=owner, subject="x" * 150)
    family = start("own.family", {}, owner=owner, subject="a family")
    start("admin.ask", {"options": {"answer_form": "admin.delivery", "answerable_by": "owner"}}, owner=owner)
    run_until_idle()
    answer(evil, {"text": EVIL}, by=EVIL)
    lifecycle.pause(evil.pk, by=EVIL, note=EVIL)
    running = start("own.order", {"what": "tea"}, owner=owner)
    lease.take(running.pk, 0, lease.Worker("secret-host:12345", "h", 1))
    lease.beat(running.pk, 1, done=34, total=120, text=EVIL)
    waiting = Task.objects.get(body="admin.ask")
    return [
        "/work/", "/work/?state=nonsense&since=x", page_of(evil), f"{page_of(evil)}?before=3", page_of(failed),
        page_of(family), page_of(running), page_of(waiting), pending(waiting).answer_link(owner),
        "/work/nothing/", "/work/answer/?t=x", "/sign-in/",
    ]  # fmt: skip


@pytest.mark.parametrize("width", [390, 1280])
def test_no_own_page_is_wider_than_its_window_breaks_the_policy_or_runs_markup(
    open_as: Opened, ann: User, width: int
) -> None:
    page = open_as(ann, size={**DESKTOP, "width": width})
    page.on("dialog", lambda dialog: pytest.fail(f"markup ran: {dialog.message}"))
    for number, address in enumerate(everything(ann)):
        response = page.goto(address)
        assert response is not None
        assert response.status in (200, 404)
        assert "default-src 'self'" in response.headers["content-security-policy"]
        assert page.locator("main script, main [style], main [onclick]").count() == 0
        assert page.locator("main a[href^='javascript']").count() == 0
        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wider <= 0, (address, width, wider)
        shoot(page, f"own-{width}-{number}")


def test_own_pages_work_without_script(browser: Any, live_server: Any, ann: User) -> None:
    task = asked(ann)
    client = Client()
    client.force_login(ann)
    context = browser.new_context(base_url=live_server.url, java_script_enabled=False)
    context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": live_server.url}])
    page = context.new_page()
    page.goto(page_of(task))
    page.get_by_label("small").check()
    page.get_by_role("button", name="Answer").click()
    see(page, "Your answer was recorded.")
    page.get_by_text("Cancel…").click()
    page.locator("#sv-why-cancel").fill("no more tea")
    page.get_by_role("button", name="Cancel").click()
    see(page, "being cancelled: a worker lets it clean up first")
    context.close()
    assert fresh(task).ending == "cancelled"

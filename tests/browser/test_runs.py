"""A run's page in a real browser: the nightly report, from its question to its end, on a desktop and on a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from project.nightly import nightly_report
from supervision.kernel.models import Question
from supervision.testing import run_until_idle
from tests.browser.conftest import PHONE, Opened, shoot

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def is_drawn(page: Page) -> bool:
    """Whether the picture has arrived, which is waited for."""
    picture = page.locator(".sv-picture")
    picture.wait_for()
    return bool(picture.evaluate("picture => picture.decode().then(() => picture.naturalWidth > 0)"))


def test_the_nightly_report_asks_in_one_branch_and_ends_under_the_eyes_of_its_reader(
    open_as: Opened, boss: User
) -> None:
    task = nightly_report.start({"day": "2026-05-04"}, owner=boss)
    run_until_idle()
    run, phone = open_as(boss), open_as(boss, size=PHONE)
    for page in (run, phone):
        page.goto(reverse("admin:supervision_task_change", args=[task.pk]))
        assert is_drawn(page)
        page.get_by_text("6 of 8 done").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    shoot(run, "run")
    shoot(phone, "run-phone")

    phone.get_by_role("link", name="approve").click()
    phone.get_by_text("3 orders of 25 were rejected.").first.wait_for()
    phone.get_by_label("Yes").check()
    phone.get_by_role("button", name="Answer", exact=True).click()
    phone.get_by_text("Due: the next free worker takes it.").wait_for()
    assert Question.objects.pending().count() == 0
    run_until_idle()
    run.get_by_text("8 of 8 done").wait_for()  # by itself
    run.get_by_role("link", name="orders-2026-05-04.txt").wait_for()
    assert is_drawn(run)
    shoot(run, "run-done")

"""The page of the API's schema in a real browser, under the strict policy: no foreign server, no inline code."""

from __future__ import annotations

import pytest

from supervision.engines import start
from supervision.kernel.models import Task
from tests.browser.conftest import PHONE, Opened, shoot
from tests.integration import api_work
from tests.integration.api_work import customer

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


def test_the_api_is_read_and_tried_out_on_its_page(open_as: Opened) -> None:
    with api_work.bodies():
        ann = customer("ann")
        task = start("api.greet", {"name": "Ada"}, owner=ann)
        page = open_as(ann)
        foreign: list[str] = []
        page.on("request", lambda request: None if "localhost" in request.url else foreign.append(request.url))
        page.goto("/api/docs/")
        operation = page.locator("#operations-tasks-tasks_pause")
        operation.locator("button.opblock-summary-control").click()
        operation.get_by_role("button", name="Try it out").click()
        operation.locator("tr[data-param-name=id] input").fill(str(task.pk))
        operation.locator("textarea").fill('{"expected_generation": 1, "note": "from the page"}')
        operation.get_by_role("button", name="Execute").click()
        operation.locator(".live-responses-table").get_by_text('"paused"').first.wait_for()
        shoot(page, "api_docs")
        assert Task.objects.get(pk=task.pk).pause_requested_at is not None
        phone = open_as(ann, size=PHONE)
        phone.goto("/api/docs/")
        phone.locator("#operations-tasks-tasks_list").wait_for()
        shoot(phone, "api_docs_phone")
        assert [each for each in foreign if not each.startswith(("data:", "blob:"))] == []

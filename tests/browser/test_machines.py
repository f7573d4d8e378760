"""A person moves an order by its buttons, on a desktop and on a phone, under the strict policy."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from project.models import Order
from project.ordering import orders
from tests.browser.conftest import DESKTOP, PHONE, Opened, shoot

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.browser]


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_an_order_is_paid_and_refunded_by_its_buttons(open_as: Opened, boss: User, size: dict[str, int]) -> None:
    order = Order.objects.create(reference="A-101", item="Lamp", amount=80)
    page = open_as(boss, size=size)
    page.goto(reverse("admin:project_order_change", args=[order.pk]))
    page.get_by_role("link", name="Payment authorized", exact=True).click()
    page.get_by_label("Note, for the history").fill("by bank transfer")
    page.get_by_role("button", name="Payment authorized").click()
    page.get_by_text("A-101 is “payment authorized” now.").wait_for()
    page.get_by_text("by bank transfer").wait_for()
    assert page.get_by_role("link", name="Payment authorized", exact=True).count() == 0
    Order.objects.filter(pk=order.pk).update(state="delivered")
    page.reload()
    page.get_by_role("link", name="Refund", exact=True).click()
    page.get_by_label("Amount").fill("80")
    page.get_by_label("Reason").fill("broken")
    page.get_by_role("button", name="Refund").click()
    page.get_by_text("A-101 is “refunded” now.").wait_for()
    page.get_by_text("changed without an event").wait_for()
    page.get_by_text("The machine, and where this stands").click()
    page.locator(".sv-picture").evaluate("image => image.decode()")  # fails for one that can't be shown
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, "nothing stands beyond the edge"
    shoot(page, f"order-{size['width']}")
    assert [entry.event for entry in orders.history(order.pk)] == ["PAYMENT_AUTHORIZED", "", "REFUND"]

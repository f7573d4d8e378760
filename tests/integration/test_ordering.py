"""The demo's orders: payment, fulfilment, cancelling with a guard, refunds, and time."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core import mail

from project.models import Order
from project.ordering import orders, start_demo
from supervision.engines import GuardRejected, InvalidTransition
from supervision.kernel.models import Task
from supervision.testing import run_until_idle, travel
from tests.integration.machine_work import assert_sound

pytestmark = pytest.mark.django_db

S = Order.State


def order(**options: Any) -> Order:
    return Order.objects.create(**{"reference": f"A-{Order.objects.count()}", "item": "Lamp", "amount": 80, **options})


def fresh(row: Order) -> Order:
    return Order.objects.get(pk=row.pk)


def queued() -> Order:
    row = order()
    orders.send(row, "PAYMENT_AUTHORIZED", payload={"card": "4242"}, idempotency_key="w1")
    orders.send(row, "QUEUE_FULFILLMENT")
    return row


def test_an_order_is_paid_packed_shipped_delivered_and_refunded(django_capture_on_commit_callbacks: Any) -> None:
    row = queued()
    assert (fresh(row).paid, fresh(row).stock_reserved) == (Decimal(80), True)
    with django_capture_on_commit_callbacks(execute=True):
        run_until_idle()
        with travel(timedelta(minutes=1)):
            run_until_idle()
    assert Task.objects.get().result == {"shipped": True}
    assert list(Order.objects.filter(state="shipped")) == [row], "an ordinary field for every query"
    assert [message.body for message in mail.outbox] == ["shipped"]
    orders.send(row, "DELIVERED")
    orders.send(row, "REFUND", payload={"amount": "30"})
    assert fresh(row).state == S.DELIVERED
    with pytest.raises(GuardRejected):
        orders.send(row, "REFUND", payload={"amount": "51"})
    orders.send(row, "REFUND")
    assert (fresh(row).state, fresh(row).refunded) == (S.REFUNDED, Decimal(80))
    assert_sound("order", row.pk, begun=S.PENDING)
    assert orders.allowed_events(row) == []


def test_an_order_is_canceled_until_its_shipment_is_made() -> None:
    row = queued()
    orders.send(row, "CANCEL_REQUESTED")
    now = fresh(row)
    assert (now.state, now.stock_reserved, now.refunded) == (S.CANCELED.value, False, Decimal(80))
    run_until_idle()
    assert Task.objects.get().result == {"shipped": False}
    late = queued()
    run_until_idle()
    with pytest.raises(GuardRejected, match=r"is “fulfillment_queued”, and a guard rejects"):
        orders.send(late, "CANCEL_REQUESTED")
    assert fresh(late).stock_reserved
    with pytest.raises(InvalidTransition, match=r"Allowed now: SHIPPED\."):
        orders.send(late, "DELIVERED")


def test_an_order_that_nobody_pays_is_canceled_after_three_days() -> None:
    unpaid, paid = order(), order()
    orders.send(paid, "PAYMENT_AUTHORIZED")
    with travel(timedelta(days=3, seconds=1)):
        run_until_idle()
    assert (fresh(unpaid).state, fresh(paid).state) == (S.CANCELED, S.PAYMENT_AUTHORIZED)
    assert [entry.is_timed for entry in orders.history(unpaid)] == [True]


def test_the_demo_has_orders_in_each_stage() -> None:
    start_demo()
    assert set(Order.objects.values_list("state", flat=True)) == {S.PENDING, S.PAYMENT_AUTHORIZED, S.FULFILLMENT_QUEUED}

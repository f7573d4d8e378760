"""Orders: payment, fulfilment, cancelling with a guard, refunds. A machine on the field ``Order.state``.

Fulfilment is a supervised task that an event's action starts in its transaction; what it does to the order, it does by
events, in atomic steps.
"""

from __future__ import annotations

import os
from datetime import timedelta
from decimal import Decimal
from typing import Any

from django import forms
from django.core.mail import EmailMessage
from django.utils.translation import gettext_lazy as _

from project.models import Order
from supervision.engines import Context, Event, Machine, Transition, body, start

S = Order.State
PATIENCE = timedelta(seconds=float(os.environ.get("ORDER_PATIENCE_SECONDS", 3 * 86_400)))
"""An order that isn't paid by then is canceled."""


class RefundForm(forms.Form):
    amount = forms.DecimalField(label=_("Amount"), min_value=Decimal("0.01"), max_digits=9, decimal_places=2)
    reason = forms.CharField(label=_("Reason"), max_length=200)


# --- what events do


def take_payment(order: Order, event: Event) -> None:
    order.paid, order.stock_reserved = order.amount, True
    order.save(update_fields=["paid", "stock_reserved"])


def queue_fulfillment(order: Order) -> None:
    """The task is there if, and only if, the event is: one transaction."""
    start("orders.fulfil", {"order_id": order.pk}, subject_object=order, idempotency_key=f"order {order.pk}")


def is_not_shipped(order: Order) -> bool:
    return not order.shipment_created


def release_stock(order: Order) -> None:
    order.stock_reserved, order.refunded = False, order.paid
    order.save(update_fields=["stock_reserved", "refunded"])


def _wanted(order: Order, event: Event) -> Decimal:
    """What is to be given back: all that is left, unless the payload says how much."""
    return Decimal((event.payload or {}).get("amount", order.paid - order.refunded))


def is_the_rest(order: Order, event: Event) -> bool:
    return 0 < _wanted(order, event) == order.paid - order.refunded


def is_covered(order: Order, event: Event) -> bool:
    return 0 < _wanted(order, event) <= order.paid - order.refunded


def give_back(order: Order, event: Event) -> None:
    order.refunded += _wanted(order, event)
    order.save(update_fields=["refunded"])


def send_mail(order: Order, event: Event) -> None:
    EmailMessage(str(_("Your order %(order)s") % {"order": order}), event.target, to=["customer@example.org"]).send()


refund: dict[str, Any] = {"action": give_back, "form": RefundForm, "permission": "project.refund_order",
                          "label": _("Refund")}  # fmt: skip

orders = Machine("order", model=Order, field="state", label=_("Order"), transitions=[
    Transition(S.PENDING, "PAYMENT_AUTHORIZED", S.PAYMENT_AUTHORIZED, action=take_payment),
    Transition(S.PAYMENT_AUTHORIZED, "QUEUE_FULFILLMENT", S.FULFILLMENT_QUEUED, action=queue_fulfillment),
    Transition(S.FULFILLMENT_QUEUED, "SHIPPED", S.SHIPPED, after_commit=send_mail),
    Transition(S.SHIPPED, "DELIVERED", S.DELIVERED),
    Transition([S.PENDING, S.PAYMENT_AUTHORIZED, S.FULFILLMENT_QUEUED], "CANCEL_REQUESTED", S.CANCELED,
               guard=is_not_shipped, action=release_stock),
    Transition(S.PENDING, "PAYMENT_TIMED_OUT", S.CANCELED, after=PATIENCE),
    Transition([S.SHIPPED, S.DELIVERED], "REFUND", S.REFUNDED, guard=is_the_rest, **refund),
    Transition(S.SHIPPED, "REFUND", S.SHIPPED, guard=is_covered, **refund),
    Transition(S.DELIVERED, "REFUND", S.DELIVERED, guard=is_covered, **refund),
])  # fmt: skip


# --- the work of the warehouse


@body("orders.fulfil", label="Order fulfilment", form=None)
def fulfil(task: Context, *, order_id: int) -> dict[str, Any]:
    """Packs and ships an order, unless it was canceled before the shipment was made."""
    if not task.step("create shipment", create_shipment, order_id, atomic=True):
        return {"shipped": False}
    task.sleep(timedelta(seconds=float(os.environ.get("ORDER_PACK_SECONDS", 2))))
    task.step("hand over", hand_over, order_id, atomic=True)
    return {"shipped": True}


def create_shipment(order_id: int) -> bool:
    order = Order.objects.select_for_update(no_key=True).get(pk=order_id)
    if order.state != S.FULFILLMENT_QUEUED:
        return False
    order.shipment_created = True
    order.save(update_fields=["shipment_created"])
    return True


def hand_over(order_id: int) -> int:
    return orders.send(order_id, "SHIPPED", actor="warehouse", idempotency_key="shipment").sequence_num


# --- for the demo


def start_demo() -> None:
    """For ``manage.py demo``: an order in each stage that a person may move it from."""
    rows = [Order.objects.create(reference=f"A-{number}", item=item, amount=amount)
            for number, (item, amount) in enumerate([("Lamp", 80), ("Chair", 140), ("Desk", 390)], 101)]  # fmt: skip
    for order in rows[1:]:
        orders.send(order, "PAYMENT_AUTHORIZED", actor="payment service", payload={"card": "…4242"},
                    idempotency_key=f"payment-{order.pk}")  # fmt: skip
    orders.send(rows[2], "QUEUE_FULFILLMENT", actor="demo")

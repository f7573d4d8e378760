"""Machines in admin: exactly the allowed events as buttons, their forms, the history; each for those who may."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client, override_settings
from django.urls import reverse

from project.admin import OrderAdmin
from project.models import Order
from project.ordering import orders
from supervision import diagrams
from supervision.engines import Machine, Transition
from supervision.engines.machines import machine
from supervision.engines.machines.models import MachineEvent, Standing
from supervision.testing import run_until_idle, travel
from tests.integration.admin_work import EVIL
from tests.integration.machine_work import forgetting

pytestmark = pytest.mark.django_db

S = Order.State
LIST = "/admin/supervision/standing/"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    with forgetting():
        yield


@pytest.fixture
def boss() -> Client:
    return as_("boss", is_superuser=True)


def as_(name: str, *permissions: str, **options: Any) -> Client:
    """Signed in as a member of staff with these permissions: ``app.codename``."""
    user = User.objects.create(username=name, is_staff=True, **options)
    for each in permissions:
        app, codename = each.split(".")
        user.user_permissions.add(Permission.objects.get(content_type__app_label=app, codename=codename))
    client = Client()
    client.force_login(user)
    return client


def order(state: str = S.PENDING, **options: Any) -> Order:
    return Order.objects.create(reference="A-1", item="Lamp", amount=80, paid=80, state=state, **options)


def page_of(row: Order) -> str:
    return reverse("admin:project_order_change", args=[row.pk])


def event_of(row: Order, event: str, name: str = "order") -> str:
    return reverse("admin:project_order_machine_event", args=[row.pk]) + f"?machine={name}&event={event}"


def text_of(response: Any) -> str:
    assert response.status_code == 200, response.status_code
    return str(response.content.decode())


def buttons(client: Client, page: str) -> list[str]:
    """The events that the page has buttons for."""
    return re.findall(r'<a class="button" href="[^"]*event=([^"&]+)"', text_of(client.get(page)))


def said(response: Any) -> str:
    return " ".join(str(message) for message in response.context["messages"])


def test_the_buttons_are_the_allowed_events(boss: Client) -> None:
    for state in S.values:
        for shipped in (False, True):
            row = order(state, shipment_created=shipped)
            user = User.objects.get(username="boss")
            assert buttons(boss, page_of(row)) == orders.allowed_events(row, user)
            row.delete()


def test_an_event_is_sent_from_its_page_and_stands_in_the_history(boss: Client) -> None:
    row = order()
    html = text_of(boss.get(event_of(row, "PAYMENT_AUTHORIZED")))
    assert "It goes from “pending” to “payment authorized”." in html
    form = {"generation": "0", "note": "by phone"}
    response = boss.post(event_of(row, "PAYMENT_AUTHORIZED"), form, follow=True)
    assert said(response) == "Payment authorized: A-1 is “payment authorized” now."
    entry = MachineEvent.objects.get()
    assert (entry.event, entry.actor_ref, entry.note, entry.payload) == ("PAYMENT_AUTHORIZED", "boss", "by phone", None)
    html = text_of(response)
    assert "pending → <b>payment authorized</b>" in html
    assert "by phone" in html
    assert 'name="state"' not in html, "the state is no field to write"
    again = boss.post(event_of(row, "CANCEL_REQUESTED"), form, follow=True)
    assert "has moved since you looked" in said(again)
    nothing = boss.post(event_of(row, "CANCEL_REQUESTED"), {"generation": "no"}, follow=True)
    assert "Nothing was sent" in said(nothing)
    late = boss.post(event_of(row, "PAYMENT_AUTHORIZED"), {"generation": "1"}, follow=True)
    assert "“PAYMENT_AUTHORIZED” can't be sent now" in said(late)
    assert MachineEvent.objects.count() == 1


def test_a_refund_has_a_form_and_a_permission_of_its_own() -> None:
    row = order(S.DELIVERED)
    editor, clerk = as_("ed", "project.change_order"), as_("cleo", "project.view_order", "project.refund_order")
    assert buttons(editor, page_of(row)) == []
    assert buttons(clerk, page_of(row)) == ["REFUND"]
    assert "can't be sent now" in said(editor.get(event_of(row, "REFUND"), follow=True))
    assert "can't be sent now" in said(editor.post(event_of(row, "REFUND"), {"generation": "0"}, follow=True))
    wrong = text_of(clerk.post(event_of(row, "REFUND"), {"generation": "0", "amount": "no", "reason": EVIL}))
    assert "Nothing was sent yet." in wrong
    assert "<script>alert" not in wrong
    too_much = {"generation": "0", "amount": "90", "reason": "broken"}
    assert "a guard rejects the event" in said(clerk.post(event_of(row, "REFUND"), too_much, follow=True))
    part = {"generation": "0", "amount": "30.50", "reason": EVIL}
    html = text_of(clerk.post(event_of(row, "REFUND"), part, follow=True))
    row.refresh_from_db()
    assert (row.state, row.refunded) == (S.DELIVERED, Decimal("30.50"))
    assert MachineEvent.objects.get().payload == {"amount": "30.50", "reason": EVIL}
    assert "<script>alert" not in html
    assert "&lt;script&gt;alert" in html
    clerk.post(event_of(row, "REFUND"), {"generation": "1", "amount": "49.50", "reason": "rest"})
    row.refresh_from_db()
    assert (row.state, row.refunded) == (S.REFUNDED, Decimal("80"))


def test_a_payload_cannot_choose_what_the_person_may_not_send(monkeypatch: pytest.MonkeyPatch) -> None:
    """The button is of a transition with a permission of its own; what is sent would take another one, without."""
    row = order(S.DELIVERED)
    clerk = as_("cleo", "project.view_order", "project.refund_order")
    rows = dict(orders.table.rows)
    whole, part = rows[S.DELIVERED, "REFUND"]
    rows[S.DELIVERED, "REFUND"] = (whole, replace(part, permission=None))
    monkeypatch.setitem(orders.table.__dict__, "rows", rows)
    form = {"generation": "0", "amount": "30", "reason": "broken"}
    assert "you may not send the event" in said(clerk.post(event_of(row, "REFUND"), form, follow=True))
    assert not MachineEvent.objects.exists()
    clerk.post(event_of(row, "REFUND"), {**form, "amount": "80"})
    assert Order.objects.get().state == S.REFUNDED


def test_looking_is_not_sending(boss: Client) -> None:
    row = order()
    viewer, stranger = as_("vi", "project.view_order"), as_("st", "supervision.view_task")
    assert buttons(viewer, page_of(row)) == []
    assert "There is nothing that you can do with it now." in text_of(viewer.get(page_of(row)))
    viewer.post(event_of(row, "PAYMENT_AUTHORIZED"), {"generation": "0"})
    picture = reverse("admin:project_order_machine_picture", args=[row.pk]) + "?machine=order"
    assert viewer.get(picture).status_code == 200
    for page in (page_of(row), event_of(row, "PAYMENT_AUTHORIZED"), picture):
        assert stranger.get(page).status_code == stranger.post(page).status_code == 403
        assert Client().get(page).status_code == 302
    assert not MachineEvent.objects.exists()
    for page in (event_of(row, "X", "none"), event_of(row, "X", ""), event_of(row, "X").replace(f"/{row.pk}/", "/99/")):
        assert boss.get(page).status_code == 404
    assert boss.delete(event_of(row, "PAYMENT_AUTHORIZED")).status_code == 405
    assert "<script>" not in boss.get(event_of(row, EVIL), follow=True).content.decode()


def test_a_row_that_the_person_may_not_see_is_one_that_is_not_there(
    boss: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = order()
    monkeypatch.setattr(OrderAdmin, "get_queryset", lambda self, request: Order.objects.exclude(pk=row.pk))
    hidden, missing = (boss.post(event_of(Order(pk=pk), "PAYMENT_AUTHORIZED"), {"generation": "0"})
                       for pk in (row.pk, row.pk + 1))  # fmt: skip
    assert hidden.status_code == missing.status_code == 404
    assert hidden.content == missing.content
    assert not MachineEvent.objects.exists()


def test_the_pages_form_saves_the_rest_and_never_the_state(boss: Client) -> None:
    row = order()
    orders.send(Order.objects.get(pk=row.pk), "PAYMENT_AUTHORIZED")
    form = {"reference": "A-2", "item": "Desk", "amount": "80", "state": "refunded"}
    assert boss.post(page_of(row), form).status_code == 302
    row.refresh_from_db()
    assert (row.reference, row.state) == ("A-2", S.PAYMENT_AUTHORIZED)
    assert text_of(boss.get(reverse("admin:project_order_add")))
    boss.post(reverse("admin:project_order_add"), {**form, "reference": "A-3"})
    assert Order.objects.get(reference="A-3").state == S.PENDING


def test_a_long_history_comes_in_pages_and_timers_are_told(boss: Client) -> None:
    row = order(S.SHIPPED)
    for _ in range(30):
        orders.send(row, "REFUND", payload={"amount": "1"})
    html = text_of(boss.get(page_of(row)))
    assert "?events_before-order=6#sv-events" in html
    oldest = text_of(boss.get(page_of(row), {"events_before-order": "6"}))
    assert "Older events" not in oldest
    assert "Newest" in oldest
    assert boss.get(page_of(row), {"events_before-order": "9" * 30}).status_code == 200
    row.delete()
    waiting = order()
    assert "“PAYMENT_TIMED_OUT” comes by itself" in text_of(boss.get(page_of(waiting)))
    with travel(timedelta(days=4)):
        run_until_idle()
        html = text_of(boss.get(page_of(waiting)))
    assert "its time had come" in html
    assert "comes by itself" not in html


def test_without_the_extra_there_is_mermaid(boss: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    row = order()
    monkeypatch.setattr(diagrams, "graphviz", None)
    assert "flowchart TD" in text_of(boss.get(page_of(row)))
    assert "flowchart TD" in text_of(boss.get(f"{LIST}pictures/"))


# --- in the control room


def doors() -> Machine:
    return Machine("door", initial="shut", label="Doors", transitions=[
        Transition("shut", "PUSH", "open"),
        Transition("open", "PULL", "shut", permission="supervision.cancel_task"),
    ])  # fmt: skip


def standing_page(name: str) -> str:
    return reverse("admin:supervision_standing_change", args=[Standing.objects.get(machine=name).pk])


def test_pointers_are_sent_events_in_the_control_room(boss: Client) -> None:
    work = doors()
    work.send("front", "PUSH")
    work.send("front", "PULL")
    assert "front" in text_of(boss.get(LIST, {"machine": "door", "q": "FR"}))
    assert buttons(boss, standing_page("door")) == ["PUSH"]
    event = reverse("admin:supervision_standing_event", args=[Standing.objects.get().pk]) + "?event=PUSH"
    boss.post(event, {"generation": "2"})
    assert work.state("front") == "open"
    viewer = as_("vi", "supervision.view_standing")
    sender = as_("se", "supervision.view_standing", "supervision.send_event")
    canceler = as_("ca", "supervision.view_standing", "supervision.cancel_task")
    assert [buttons(each, standing_page("door")) for each in (viewer, sender, canceler)] == [[], [], ["PULL"]]
    work.send("front", "PULL")
    assert [buttons(each, standing_page("door")) for each in (viewer, sender, canceler)] == [[], ["PUSH"], []]
    viewer.post(event, {"generation": "4"})
    assert work.state("front") == "shut"


def test_the_history_of_a_row_that_is_gone_is_there(boss: Client) -> None:
    row = order()
    orders.send(row, "PAYMENT_AUTHORIZED", note="kept")
    assert page_of(row) in text_of(boss.get(standing_page("order")))
    assert as_("vi", "supervision.view_standing").get(standing_page("order")).content.decode().count(page_of(row)) == 0
    row.delete()
    html = text_of(boss.get(standing_page("order")))
    assert "kept" in html
    assert page_of(row) not in html
    assert buttons(boss, standing_page("order")) == []
    event = reverse("admin:supervision_standing_event", args=[Standing.objects.get().pk]) + "?event=CANCEL_REQUESTED"
    assert boss.post(event, {"generation": "1"}).status_code == 404


def test_a_machine_that_is_gone_from_the_code_leaves_a_history(boss: Client) -> None:
    doors().send("front", "PUSH")
    machine.unregister("door")
    assert "PUSH" in text_of(boss.get(standing_page("door")))
    assert "front" in text_of(boss.get(LIST))
    assert boss.get(reverse("admin:supervision_standing_picture", args=[Standing.objects.get().pk])).status_code == 404


def test_pictures_are_inert_and_light_where_it_stands(boss: Client) -> None:
    doors().send("front", "PUSH")
    assert "/admin/supervision/standing/pictures/door/" in text_of(boss.get(f"{LIST}pictures/"))
    svg = boss.get(f"{LIST}pictures/door/")
    assert svg["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert b"#ffe08a" not in svg.content
    assert (
        b"#ffe08a" in boss.get(reverse("admin:supervision_standing_picture", args=[Standing.objects.get().pk])).content
    )
    assert boss.get(f"{LIST}pictures/nothing/").status_code == 404


def only_mine(user: Any, tasks: Any) -> Any:
    return tasks.filter(owner=user)


def test_nothing_is_told_to_those_who_may_not_look() -> None:
    doors().send("front", "PUSH")
    stranger, viewer = as_("st", "supervision.view_task"), as_("vi", "supervision.view_standing")
    pk = Standing.objects.get().pk
    pages = (LIST, f"{LIST}pictures/", f"{LIST}pictures/door/", f"{LIST}{pk}/change/", f"{LIST}{pk}/picture/",
             f"{LIST}{pk}/event/?event=PULL", f"{LIST}{pk}/history/")  # fmt: skip
    for page in pages:
        assert stranger.get(page).status_code == 403, page
        assert viewer.get(page).status_code in (200, 302), page
        assert Client().get(page).status_code == 302, page
    assert viewer.post(f"{LIST}{pk}/change/", {}).status_code == 405
    assert viewer.get(f"{LIST}add/").status_code == 403
    assert viewer.post(f"{LIST}{pk}/delete/", {"post": "yes"}).status_code == 403
    for nonsense in ("0", "abc", "9" * 30):
        assert viewer.get(f"{LIST}{nonsense}/change/").status_code == 404
    with override_settings(SUPERVISION={"VISIBLE_TASKS": f"{__name__}.only_mine"}):
        assert "front" not in text_of(viewer.get(LIST)), "whose subjects they are isn't known here"
        assert viewer.get(f"{LIST}{pk}/change/").status_code == 404

"""Events at the same moment: one after the other, whatever they are; and beside tasks that change the same orders."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import connection, transaction
from django.test import override_settings

from project.models import Order
from project.ordering import orders
from supervision.engines import EventRefused, Machine, Transition
from supervision.engines.machines import SubjectMoved
from supervision.engines.machines.errors import SubjectBusy
from supervision.engines.machines.models import MachineEvent
from supervision.kernel.models import Task
from tests.integration.machine_work import assert_sound, forgetting, path
from tests.integration.races import Actor, Stage

pytestmark = pytest.mark.django_db(transaction=True)

S = Order.State
EVENTS = sorted({each.event for each in orders.table.transitions})
STATES = (S.PENDING, S.PAYMENT_AUTHORIZED, S.FULFILLMENT_QUEUED, S.SHIPPED)
_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    with forgetting():
        yield


def order(state: str = S.PENDING, **options: Any) -> Order:
    given = {"reference": f"race {next(_NUMBERS)}", "item": "Lamp", "amount": 80, "paid": 80, "state": state, **options}
    return Order.objects.create(**given)


@pytest.mark.parametrize("state", STATES)
def test_every_pair_of_events_at_once_is_a_path_of_the_table(stage: Stage, state: str) -> None:
    for first_event, second_event in itertools.product(EVENTS, EVENTS):
        row = order(state)
        first = stage.begin(lambda: orders.send(row.pk, first_event))  # noqa: B023 - it runs at once
        second = stage.begin(lambda: orders.send(row.pk, second_event))  # noqa: B023
        assert not first.is_stopped or second.is_blocked_by(first)
        outcomes = [outcome_of(actor) for actor in (first, second)]
        assert all(isinstance(each, MachineEvent | EventRefused) for each in outcomes), outcomes
        assert_sound("order", row.pk, begun=state)
        assert orders.generation(row) == sum(isinstance(each, MachineEvent) for each in outcomes)


@pytest.mark.parametrize("is_known", [False, True])
def test_every_pair_of_events_on_a_pointer_is_a_path_of_the_table(stage: Stage, is_known: bool) -> None:
    doors = Machine("race.pair", initial="shut", transitions=[
        Transition("shut", "PUSH", "open"), Transition("open", "PULL", "shut"), Transition("shut", "LOCK", "locked"),
        Transition("shut", "KNOCK", "shut"), Transition("locked", "PUSH", "shut"),
    ])  # fmt: skip
    for number, (first_event, second_event) in enumerate(
        itertools.product(("PUSH", "PULL", "LOCK", "KNOCK"), repeat=2)
    ):
        subject = f"{is_known} {number}"
        if is_known:
            doors.send(subject, "KNOCK")
        first = stage.begin(lambda: doors.send(subject, first_event))  # noqa: B023 - it runs at once
        second = stage.begin(lambda: doors.send(subject, second_event))  # noqa: B023
        outcomes = [outcome_of(actor) for actor in (first, second)]
        assert all(isinstance(each, MachineEvent | EventRefused) for each in outcomes), outcomes
        assert_sound("race.pair", subject, begun="shut")
        assert doors.generation(subject) == is_known + sum(isinstance(each, MachineEvent) for each in outcomes)


def outcome_of(actor: Actor) -> Any:
    actor.finish()
    return actor.result if actor.error is None else actor.error


@pytest.mark.parametrize("is_pointer", [False, True])
def test_the_same_webhook_five_times_at_once_is_one_event(stage: Stage, is_pointer: bool) -> None:
    work, subject, name = (_doors(), "front", "PUSH") if is_pointer else (orders, order().pk, "PAYMENT_AUTHORIZED")
    started = threading.Barrier(5)

    def deliver() -> MachineEvent:
        started.wait()
        return work.send(subject, name, idempotency_key="webhook 1")

    deliveries = _at_once(stage, deliver, 5)
    assert sorted(entry.is_repeated for entry in deliveries) == [False, True, True, True, True]
    assert len({entry.pk for entry in deliveries}) == 1
    assert len(path(work.name, subject)) == 1


def _doors() -> Machine:
    return Machine("race.door", initial="shut", transitions=[Transition("shut", "PUSH", "open")])


def _at_once(stage: Stage, verb: Callable[[], Any], count: int) -> list[Any]:
    futures = [stage.threads.submit(_in_a_session, verb) for _ in range(count)]
    return [future.result(timeout=30) for future in futures]


def _in_a_session(verb: Callable[[], Any]) -> Any:
    try:
        return verb()
    finally:
        connection.close()


def test_a_guard_judges_what_stands_after_the_lock(stage: Stage) -> None:
    row = order(S.FULFILLMENT_QUEUED)
    with stage.holding("UPDATE project_order SET shipment_created = true WHERE id = %s", row.pk) as pid:
        cancel = stage.begin(lambda: orders.send(row, "CANCEL_REQUESTED"))
        assert pid in stage.blockers(cancel.pid)
    assert isinstance(cancel.refusal(), EventRefused)
    assert path("order", row.pk) == []


def test_the_second_client_that_saw_the_same_is_told(stage: Stage) -> None:
    row = order()
    first = stage.begin(lambda: orders.send(row.pk, "PAYMENT_AUTHORIZED", expected_generation=0))
    second = stage.begin(lambda: orders.send(row.pk, "CANCEL_REQUESTED", expected_generation=0))
    first.commit()
    assert isinstance(second.refusal(), SubjectMoved)


@override_settings(SUPERVISION={"LOCK_TIMEOUT_SECONDS": 0.1})
def test_a_busy_row_is_told_and_the_callers_transaction_goes_on(stage: Stage) -> None:
    row = order()
    with stage.holding("SELECT 1 FROM project_order WHERE id = %s FOR NO KEY UPDATE", row.pk), transaction.atomic():
        other = order()
        with pytest.raises(SubjectBusy, match=r"is busy right now\. Nothing was changed"):
            orders.send(row, "PAYMENT_AUTHORIZED")
        orders.send(other, "PAYMENT_AUTHORIZED")
        with connection.cursor() as cursor:
            cursor.execute("SHOW lock_timeout")
            assert cursor.fetchone() == ("0",), "the caller's own setting is back"
    assert Order.objects.get(pk=other.pk).state == S.PAYMENT_AUTHORIZED


def test_a_task_in_an_action_is_there_if_and_only_if_the_event_is(stage: Stage) -> None:
    row = order(S.PAYMENT_AUTHORIZED)
    sent = stage.begin(lambda: orders.send(row.pk, "QUEUE_FULFILLMENT"))
    assert not Task.objects.exists()
    sent.commit()
    assert Task.objects.get().subject_object == row
    with transaction.atomic():
        orders.send(other := order(S.PAYMENT_AUTHORIZED), "QUEUE_FULFILLMENT")
        transaction.set_rollback(True)
    assert Task.objects.count() == 1
    assert path("order", other.pk) == []

"""Machines beside real workers: no deadlock with tasks that change the same orders, and timed events that come once,
whoever is killed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from django.db import connection

from project.models import Order
from project.ordering import orders
from supervision.engines import registry, start
from supervision.engines.machines import machine
from supervision.engines.machines.models import MachineEvent, Timer
from supervision.errors import Refused
from supervision.kernel.models import Task
from tests.integration.machine_work import assert_sound
from tests.processes import StartCluster, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.cluster, pytest.mark.slow]

ROUNDS = 20


@pytest.fixture(scope="module", autouse=True)
def _storm() -> Iterator[None]:
    """The machine that the clusters of tests have, for this process."""
    from tests.bodies import storm

    yield
    machine.unregister(storm.storm.name)
    registry.unregister("storm")


def order(**options: Any) -> Order:
    return Order.objects.create(**{"reference": f"S-{Order.objects.count()}", "item": "Lamp", "amount": 1, **options})


def deadlocks() -> int:
    """How many PostgreSQL has found in this database. Sessions tell of theirs at their end at the latest."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_stat_clear_snapshot(), deadlocks FROM pg_stat_database WHERE datname = current_database()"
        )
        row = cursor.fetchone()
    assert row is not None
    return int(row[1])


@contextmanager
def poking(row: Order, tasks: list[Task]) -> Iterator[list[BaseException]]:
    """Two clients that send events whose action signals the tasks, until the block ends."""
    from tests.bodies.storm import storm

    over, failures = threading.Event(), []

    def poke() -> None:
        try:
            while not over.is_set():
                with suppress(Refused):  # the task has ended: its signal, and so the event, is refused
                    storm.send(row.pk, "POKE", actor="client", payload=[str(task.pk) for task in tasks])
        except BaseException as error:
            failures.append(error)
        finally:
            connection.close()

    clients = [threading.Thread(target=poke) for _ in range(2)]
    for client in clients:
        client.start()
    try:
        yield failures
    finally:
        over.set()
        for client in clients:
            client.join(timeout=30)


def test_events_and_tasks_that_change_the_same_order_never_deadlock(start_cluster: StartCluster) -> None:
    """A client locks the order and then, by the action's signals, the tasks; a task locks the order in its atomic step
    and then itself. Host rows before tasks: nobody ever waits in a circle."""
    row, before = order(), deadlocks()
    tasks = [start("storm", {"order_id": row.pk, "rounds": ROUNDS}) for _ in range(3)]
    cluster = start_cluster(workers=3)
    with poking(row, tasks) as failures:
        wait_for(lambda: all(Task.objects.get(pk=task.pk).is_terminal for task in tasks), "all have turned", 60)
    assert failures == []
    assert set(Task.objects.values_list("current_state", flat=True)) == {"completed"}, cluster.output()
    assert cluster.stop(signal.SIGTERM) == 0
    assert deadlocks() == before
    assert_sound("storm", row.pk, begun="Lamp")
    events = list(MachineEvent.objects.filter(standing__machine="storm").values_list("event", flat=True))
    assert events.count("TURN") == len(tasks) * ROUNDS
    assert events.count("POKE") > 0


def test_timed_events_come_once_in_workers_that_are_killed(start_cluster: StartCluster) -> None:
    cluster = start_cluster(workers=2, supervision={"LEASE_SECONDS": 1.5, "BEAT_SECONDS": 0.3})
    rows = [order(item="slow") for _ in range(12)]
    unseen = order(reference="unseen")
    Order.objects.filter(pk=unseen.pk).update(item="slow")  # adopted within the minute; not waited for here
    wait_for(lambda: MachineEvent.objects.filter(event="LATE").exists(), "the first has come", 20)
    for _ in range(2):
        cluster.kill("worker")
    mine = Order.objects.filter(pk__in=[row.pk for row in rows])
    wait_for(lambda: not mine.exclude(item="done").exists(), "all have come", 40)
    wait_for(lambda: not Task.objects.live().exists(), "their tasks have ended", 20)
    assert set(mine.values_list("amount", flat=True)) == {2}, "each action took effect once"
    for row in rows:
        assert_sound("storm", row.pk, begun="slow")
        assert MachineEvent.objects.filter(standing__machine="storm", standing__subject=str(row.pk)).count() == 1
    assert not Timer.objects.filter(standing__machine="storm").exists()


def test_an_order_is_paid_fulfilled_and_shipped_by_workers(start_cluster: StartCluster) -> None:
    start_cluster()
    row = order(amount=80)
    orders.send(row, "PAYMENT_AUTHORIZED", actor="payment service", idempotency_key="w1")
    orders.send(row, "QUEUE_FULFILLMENT")
    wait_for(lambda: orders.state(row.pk) == "shipped", "it is shipped", 20)
    row.refresh_from_db()
    assert row.shipment_created
    assert_sound("order", row.pk, begun="pending")
    assert [entry.actor_ref for entry in orders.history(row)] == ["payment service", "system", "warehouse"]

"""The broker class: what it hands out, when it wakes, and that it outlasts its connections."""

import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections, transaction
from django_q.models import OrmQ
from django_q.signing import SignedPackage
from django_q.tasks import async_task

from supervision.kernel import creation
from supervision.kernel.clock import Now
from supervision.kernel.models import Task
from supervision.worker import broker as broker_module
from supervision.worker import stop
from supervision.worker.broker import DRIVE, Broker
from tests.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


class Room:
    """So many free workers, for ever."""

    def __init__(self, free: int) -> None:
        self._free = free

    def free(self) -> int:
        return self._free

    def bell(self) -> int:
        raise AssertionError("there is always room")


@pytest.fixture(autouse=True)
def _known_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_module, "drivable", lambda: [("work", 1)])


@pytest.fixture
def make_broker() -> Iterator[Callable[..., Broker]]:
    made: list[Broker] = []

    def make(free: int = 1, **options: Any) -> Broker:
        broker = Broker(**options)
        broker.capacity = Room(free)
        made.append(broker)
        return broker

    yield make
    for broker in made:
        broker.close()


def tasks_in(messages: list[tuple[int | None, str]]) -> list[str]:
    packages = [SignedPackage.loads(package) for _, package in messages]
    assert all(package["func"] == DRIVE and package["timeout"] == -1 for package in packages)
    return [package["args"][0] for package in packages]


def dequeued(broker: Broker) -> list[tuple[int | None, str]]:
    return wait_for(broker.dequeue, "something is handed out")


def test_no_more_is_handed_out_than_workers_are_free(make_broker: Callable[..., Broker]) -> None:
    created = {str(creation.create("work").pk) for _ in range(5)}
    broker = make_broker(free=3)
    first, second = tasks_in(broker.dequeue()), tasks_in(broker.dequeue())
    assert (len(first), len(second)) == (3, 2)
    assert {*first, *second} == created


def test_two_brokers_never_hand_out_the_same_task(make_broker: Callable[..., Broker]) -> None:
    for _ in range(40):
        creation.create("work")
    found: list[str] = []

    def drain(broker: Broker) -> None:
        while messages := broker.dequeue():
            found.extend(tasks_in(messages))
        connections.close_all()

    with ThreadPoolExecutor(4) as pool:
        for result in [pool.submit(drain, make_broker(free=3)) for _ in range(4)]:
            result.result()
    assert len(found) == len(set(found)) == 40


def test_bodies_that_this_process_does_not_know_are_left_alone(make_broker: Callable[..., Broker]) -> None:
    creation.create("unheard_of")
    newer = creation.create("work", body_version=2)
    known = creation.create("work")
    assert tasks_in(make_broker(free=9).dequeue()) == [str(known.pk)]
    assert Task.objects.get(pk=newer.pk).offered_until is None


def test_notification_ends_the_wait(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    while not broker._was_idle:
        broker.dequeue()

    def work() -> None:
        creation.create("work")
        connection.close()

    timer = threading.Timer(0.1, work)
    timer.start()
    started = time.monotonic()
    messages = dequeued(broker)
    assert time.monotonic() - started < 0.5  # the poll is a second
    assert len(messages) == 1
    timer.join()


def test_sleeper_is_handed_out_when_it_wakes_and_not_at_the_poll(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    task = creation.create("work")
    Task.objects.filter(pk=task.pk).update(wake_at=Now() + timedelta(seconds=0.3))
    started = time.monotonic()
    assert tasks_in(dequeued(broker)) == [str(task.pk)]
    assert 0.2 < time.monotonic() - started < 0.6


def test_lost_connections_are_replaced(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    broker.dequeue()
    broker.dequeue()
    other = connection.copy()
    with other.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    other.close()
    with pytest.raises(DatabaseError):
        Task.objects.exists()
    connection.close()
    creation.create("work")
    assert len(dequeued(broker)) == 1


def test_failing_look_is_survived(make_broker: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch) -> None:
    broker = make_broker()
    creation.create("work")
    with monkeypatch.context() as broken:
        broken.setattr(broker_module, "offer", lambda *_, **__: 1 / 0)
        assert broker.dequeue() == []
    assert len(dequeued(broker)) == 1


def test_stop_ends_the_wait(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    stop.request_stop()
    creation.create("work")
    try:
        assert broker.dequeue() == []
    finally:
        stop.forget()


def test_rolled_back_message_is_never_handed_out(make_broker: Callable[..., Broker]) -> None:
    with transaction.atomic():
        async_task("math.sqrt", 4)
        transaction.set_rollback(True)
    assert make_broker().dequeue() == []


def test_message_is_locked_until_it_is_acknowledged(make_broker: Callable[..., Broker]) -> None:
    broker = make_broker()
    async_task("math.sqrt", 4)
    assert (broker.queue_size(), broker.lock_size()) == (1, 0)
    [(pk, _)] = dequeued(broker)
    assert (broker.queue_size(), broker.lock_size()) == (0, 1)
    assert broker.dequeue() == []
    broker.acknowledge(pk or 0)
    assert not OrmQ.objects.exists()


def test_broker_survives_pickling(make_broker: Callable[..., Broker]) -> None:
    broker = pickle.loads(pickle.dumps(make_broker(queues=["slow"])))
    assert broker.queues == ["slow"]
    assert broker.capacity is None

"""The queues between pusher, workers and monitor: whatever a killed process leaves behind, they go on."""

import os
import signal
from collections.abc import Iterator
from contextlib import closing

import pytest

from supervision.worker import stop
from supervision.worker.handover import STOP, Countdown, ResultQueue, TaskQueue
from supervision.worker.packets import Packets
from supervision.worker.readiness import readable
from tests.processes import wait_for


@pytest.fixture(autouse=True)
def no_stop() -> Iterator[None]:
    stop.share()
    yield
    stop.forget()


@pytest.fixture
def child() -> Iterator["Child"]:
    child = Child()
    yield child
    child.kill()


@pytest.fixture
def packets() -> Iterator[Packets]:
    with closing(Packets()) as packets:
        yield packets


@pytest.fixture
def queue() -> Iterator[TaskQueue]:
    with closing(TaskQueue(2)) as queue:
        yield queue


class Child:
    """A worker that takes packages until it is killed, in a forked process."""

    pid = 0

    def serve(self, queue: TaskQueue, slot: int = 0) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            queue.serve(slot, on_ready=lambda: None)
            while queue.get() != STOP:
                pass
            os._exit(0)

    def kill(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 5_000_000])
def test_messages_of_any_size_arrive_whole(packets: Packets, size: int) -> None:
    message = os.urandom(size)
    assert packets.send(message)
    assert packets.receive() == message
    assert packets.receive() is None


def test_full_channel_says_so_and_keeps_order(packets: Packets) -> None:
    sent = 0
    while packets.send(b"%d" % sent):
        sent += 1
    assert sent > 10
    assert [packets.receive() for _ in range(sent)] == [b"%d" % n for n in range(sent)]


def test_free_counts_only_workers_that_wait_for_an_empty_queue(queue: TaskQueue, child: Child) -> None:
    assert queue.free() == 0
    child.serve(queue)
    wait_for(lambda: queue.free() == 1, "the worker waits")
    os.kill(child.pid, signal.SIGSTOP)
    queue.put({"n": 1})
    assert queue.free() == 0
    os.kill(child.pid, signal.SIGCONT)
    wait_for(lambda: queue.free() == 1, "it has taken the package and waits again")


def test_killed_idle_worker_leaves_the_queue_usable(queue: TaskQueue, child: Child) -> None:
    for _ in range(20):
        child.serve(queue)
        wait_for(lambda: queue.free() == 1, "the worker waits")
        child.kill()
        queue.vacate(0)
        assert queue.free() == 0
    child.serve(queue)
    wait_for(lambda: queue.free() == 1, "the last worker waits")
    queue.put({"n": 1})
    wait_for(queue.empty, "it takes the package")


def test_bell_rings_when_a_worker_becomes_free(queue: TaskQueue, child: Child) -> None:
    assert queue.free() == 0
    child.serve(queue)
    assert readable([queue.bell()], 5)
    assert queue.free() == 1


def test_nothing_is_handed_over_after_the_stop(queue: TaskQueue) -> None:
    queue.serve(0, on_ready=lambda: None)
    queue.put({"n": 1})
    stop.request_stop()
    assert queue.get() == STOP
    queue.put({"n": 2})
    assert [package["n"] for package in queue.leftovers()] == [2, 1]


def test_supervised_successes_are_left_out_of_the_results() -> None:
    with closing(ResultQueue()) as results:
        results.put({"ack_id": None, "save": False, "success": True, "name": "a"})
        assert results.empty()
        results.put({"ack_id": None, "save": False, "success": False, "name": "b"})
        results.put(STOP)
        first = results.get()
        assert isinstance(first, dict)
        assert (first["name"], results.get()) == ("b", STOP)


def test_countdown_is_over_after_its_seconds_and_only_then() -> None:
    countdown = Countdown()
    assert (countdown.value, countdown.is_over()) == (-1, False)
    countdown.value = 60
    countdown.value += 3
    assert (countdown.value, countdown.is_over()) == (63, False)
    countdown.value = 1e-9
    wait_for(countdown.is_over, "the countdown is over")
    countdown.value = -2
    assert not countdown.is_over()

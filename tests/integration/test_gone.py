"""A process that is gone loses its tasks at once; one that lives never does, not even to its own pid."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from supervision.conf import settings
from supervision.kernel import creation, due, identity, lease, reaping
from supervision.kernel.identity import Worker, host_identity
from supervision.kernel.models import Heartbeat, LogEntry, Task

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process of this host that does nothing."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def worker_of(process: subprocess.Popen[bytes]) -> Worker:
    return Worker("child", host_identity(), process.pid, identity.started_of(process.pid))


def taken_by(worker: Worker) -> Task:
    task = creation.create("work")
    [offered] = due.offer(1, queues=None, bodies=[("work", 1)])
    assert lease.take(offered.task_id, offered.lease, worker) is not None
    return task


def test_living_process_keeps_its_task(child: subprocess.Popen[bytes]) -> None:
    taken_by(worker_of(child))
    assert reaping.reap_gone(host_identity()) == 0


def test_ended_process_loses_its_task_even_as_a_zombie(child: subprocess.Popen[bytes]) -> None:
    task = taken_by(worker_of(child))
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and nobody has buried it
    assert reaping.reap_gone(host_identity()) == 1
    entry = LogEntry.objects.filter(task_id=task.pk, actor_ref="reaper").get()
    assert entry.payload["how"] == "the process is gone"


def test_later_process_of_the_same_pid_is_another_one(child: subprocess.Popen[bytes]) -> None:
    earlier = replace(worker_of(child), started="1")
    taken_by(earlier)
    assert reaping.reap_gone(host_identity()) == 1


def test_news_of_an_earlier_process_takes_nothing_from_a_later_one_of_its_pid(child: subprocess.Popen[bytes]) -> None:
    worker = worker_of(child)
    taken_by(worker)
    assert reaping.reap_process(host=worker.host, pid=worker.pid, started="1") == 0
    assert reaping.reap_process(host=worker.host, pid=worker.pid, started=worker.started) == 1


def test_processes_of_another_host_are_not_judged(child: subprocess.Popen[bytes]) -> None:
    taken_by(replace(worker_of(child), host="elsewhere", started="1"))
    assert reaping.reap_gone(host_identity()) == 0


def test_process_of_unknown_start_lives_while_its_pid_does(child: subprocess.Popen[bytes]) -> None:
    taken_by(replace(worker_of(child), started=""))
    assert reaping.reap_gone(host_identity()) == 0
    child.kill()
    child.wait()
    assert reaping.reap_gone(host_identity()) == 1


def test_many_are_parked_at_once_and_poison_among_them_is_a_dead_letter(child: subprocess.Popen[bytes]) -> None:
    worker = worker_of(child)
    mild, poison = taken_by(worker), taken_by(worker)
    Task.objects.filter(pk=poison.pk).update(recoveries=settings.MAX_RECOVERIES)
    child.kill()
    child.wait()
    assert reaping.reap_gone(host_identity()) == 2
    mild.refresh_from_db()
    assert (mild.current_state, mild.watchdog_stop_reason, mild.lease, mild.recoveries) == (
        "parked",
        "worker_lost",
        2,
        1,
    )
    assert list(due.offer(5, queues=None, bodies=[("work", 1)])) == [due.Offer(mild.pk, 2, "work")]
    assert Heartbeat.objects.get(task=mild).lease == 2
    last = LogEntry.objects.filter(task_id=mild.pk).latest("sequence_num")
    assert (last.sequence_num, last.event, last.payload["worker"]) == (mild.log_length, "task_parked", "child")
    assert Task.objects.get(pk=poison.pk) in Task.objects.dead_lettered()

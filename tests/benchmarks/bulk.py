"""A lot at once: tasks created a second, what a million parked ones cost a tick and a dequeue, children a second."""

import time
from collections.abc import Iterator

from django.db import connection

from supervision.engines import Context, start, start_many
from supervision.engines.bodies import body
from supervision.kernel import children, due, ends, lease
from supervision.kernel.identity import Worker
from supervision.kernel.models import Task
from tests.benchmarks.parked import COSTS, PARK, cost
from tests.benchmarks.run import Figure

CREATED = 100_000
PARKED = 1_000_000


def measure() -> Iterator[Figure]:
    body("bulk.noop")(_noop)
    body("bulk.parent")(lambda task: None)
    yield from _children()
    empty = {name: cost(work)[0] for name, work in COSTS.items()}
    started = time.perf_counter()
    start_many("bulk.noop", [{"n": n} for n in range(CREATED)])
    taken = time.perf_counter() - started
    yield Figure("bulk", "tasks created", round(CREATED / taken), "tasks/s")
    for count in (CREATED, PARKED):
        while (more := count - Task.objects.filter(body="bulk.noop").live().count()) > 0:
            start_many("bulk.noop", [{"n": n} for n in range(min(CREATED, more))])
        with connection.cursor() as cursor:
            cursor.execute(PARK)
            cursor.execute("VACUUM ANALYZE supervision_task")
        for name, work in COSTS.items():
            ms, _queries = cost(work)
            yield Figure("bulk", f"{name} at {count:,} parked", round(ms, 2), "ms", round(ms / empty[name], 2), "none")


def _noop(task: Context, *, n: int) -> int:
    return n


def _children() -> Iterator[Figure]:
    """Children of one parent, ended one after the other as workers do it; ten times as many take ten times as long."""
    taken = {}
    for count in (1_000, 10_000):
        began = time.perf_counter()
        parent = start("bulk.parent")
        driving = lease.take(parent.pk, 0)
        assert driving
        children.start(parent.pk, driving.lease, "map", "bulk.noop", [{"n": n} for n in range(count)], payload={})
        children.wait(parent.pk, driving.lease, "map", prefix="map/")
        worker = Worker.current()
        while offers := due.offer(50, queues=None, bodies=[("bulk.noop", 1)]):
            for offered in offers:
                child = lease.take(offered.task_id, offered.lease, worker)
                assert child
                ends.complete(child.task_id, child.lease, 1, is_child=True)
        assert Task.objects.get(pk=parent.pk).wake_at
        taken[count] = time.perf_counter() - began
        yield Figure("bulk", f"{count:,} children", round(count / taken[count]), "children/s")
    longer = round(taken[10_000] / taken[1_000], 2)
    yield Figure("bulk", "time of 10,000 children", round(taken[10_000], 1), "s", longer, "1,000 children")

"""Limits: how many run at once, how many start in a time; who waits for a slot is never forgotten."""

import itertools
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from supervision.engines import Context, registry, start
from supervision.engines.bodies import body
from supervision.kernel import creation, due, ends, holds, lease, lifecycle, limits, reaping
from supervision.kernel.identity import Worker, host_identity
from supervision.kernel.limits import Limit
from supervision.kernel.models import Heartbeat, LogEntry, Start, Task
from supervision.testing import run_until_idle, travel
from supervision.worker.drive import drive_one
from supervision.worker.tick import tick
from tests.integration.races import Stage, held

pytestmark = pytest.mark.django_db
TWO = Limit(max_running=2)
RATE = Limit(at_most=3, per=timedelta(minutes=1))


@pytest.fixture(autouse=True)
def _bodies(own_bodies: None) -> None: ...


def fresh(pk: UUID) -> Task:
    return Task.objects.get(pk=pk)


def take(task: Task, limit: Limit | None = TWO) -> lease.Taken | None:
    return lease.take(task.pk, task.lease, body=task.body, limit=limit)


def waiting() -> int:
    return Task.objects.filter(watchdog_stop_reason="awaiting_slot", wake_at=None).count()


def three() -> list[Task]:
    return [creation.create("work") for _ in range(3)]


@pytest.mark.parametrize(
    ("limit", "complaint"),
    [
        ({"max_running": 0}, "max_running is 0; it must be a whole number from 1."),
        ({"max_running": True}, "max_running is True"),
        ({"at_most": 3}, "at_most and per go together"),
        ({"per": timedelta(1)}, "at_most and per go together"),
        ({"at_most": 3, "per": timedelta(0)}, "it must be longer than nothing"),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_at_definition(limit: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        body("limited", **limit)(lambda task: None)


def test_who_finds_no_slot_waits_with_no_lease_beat_or_recovery_counted() -> None:
    one, two, third = three()
    assert take(one)
    assert take(two)
    due_since = third.wake_at
    assert take(third) is None
    row = fresh(third.pk)
    assert (row.current_state, row.watchdog_stop_reason, row.wake_at) == ("parked", "awaiting_slot", None)
    assert (row.lease, row.recoveries, row.started_at) == (0, 0, None)
    assert row.state_changed_at == due_since
    assert not Heartbeat.objects.filter(task=third).exists()
    assert LogEntry.objects.filter(task_id=third.pk).values_list("event", "payload").last() == (
        "task_parked",
        {"reason": "awaiting_slot"},
    )


def test_a_freed_slot_goes_to_one_who_waits_and_to_no_more() -> None:
    tasks = [creation.create("work") for _ in range(5)]
    taken = [take(task) for task in tasks]
    assert waiting() == 3
    assert limits.wake_next("work", TWO) == 0
    assert taken[0]
    ends.complete(taken[0].task_id, taken[0].lease)
    assert limits.wake_next("work", TWO) == 1
    assert limits.wake_next("work", TWO) == 0, "the slot is kept for the one that was woken"
    (woken,) = Task.objects.filter(watchdog_stop_reason="awaiting_slot", wake_at__isnull=False)
    assert woken.wake_at == woken.state_changed_at, "due since stays true"
    assert take(woken)


def test_a_woken_one_whom_nobody_takes_keeps_no_slot_from_the_others() -> None:
    tasks = [creation.create("work") for _ in range(4)]
    taken = [take(task) for task in tasks]
    assert taken[0]
    ends.complete(taken[0].task_id, taken[0].lease)
    assert limits.wake_next("work", TWO) == 1
    with travel(timedelta(seconds=6)):
        assert limits.wake_next("work", TWO) == 1


@pytest.mark.parametrize("first", ["exit", "take"])
def test_the_last_slot_freed_while_another_finds_it_taken_is_not_lost(stage: Stage, first: str) -> None:
    one, two, third = three()
    taken = [take(one), take(two)]
    assert taken[0] is not None
    running = taken[0]

    def free() -> int:
        ends.complete(running.task_id, running.lease)
        return limits.wake_next("work", TWO)

    if first == "exit":
        freeing = stage.begin(held(lambda: ends.complete(running.task_id, running.lease)))
        taking = stage.run(lambda: take(third))
        assert taking.has_ended
        assert taking.result is None, "it still sees the other one running"
        freeing.commit()
        assert limits.wake_next("work", TWO) == 1
    else:
        taking = stage.begin(held(lambda: take(third)))  # has counted, not committed
        freeing = stage.begin(free)
        assert freeing.is_blocked_by(taking)
        assert taking.commit() is None
        assert freeing.commit() == 1
    assert fresh(third.pk).wake_at is not None


def test_two_takes_at_once_get_one_slot_between_them(stage: Stage) -> None:
    one, two, third = three()
    assert take(one)
    first = stage.begin(held(lambda: take(two)))
    second = stage.begin(lambda: take(third))
    assert second.is_blocked_by(first)
    assert first.commit() is not None
    assert second.commit() is None
    assert fresh(third.pk).watchdog_stop_reason == "awaiting_slot"


def test_slots_that_nobody_gave_away_are_found_by_the_tick() -> None:
    body("limited", max_running=1)(lambda task: None)
    first, second = start("limited"), start("limited")
    limit = registry.limit_of("limited")
    taken = take(first, limit)
    assert taken
    assert take(second, limit) is None
    assert tick().woken == 0
    lease.park(taken.task_id, taken.lease, "sleeping")  # and its process dies before it wakes anybody
    assert tick().woken == 1
    run_until_idle()
    assert fresh(second.pk).current_state == "completed"


def test_a_terminated_or_reaped_one_frees_its_slot() -> None:
    body("limited", max_running=1)(lambda task: None)
    tasks = [start("limited") for _ in range(3)]
    limit = registry.limit_of("limited")
    assert take(tasks[0], limit)
    assert take(tasks[1], limit) is None
    lifecycle.terminate(tasks[0].pk, by="operator")
    tick()
    taken = take(fresh(tasks[1].pk), limit)
    assert taken
    assert take(tasks[2], limit) is None
    worker = Worker.current()
    assert reaping.reap_process(host=host_identity(), pid=worker.pid, started=worker.started) == 1
    tick()
    assert fresh(tasks[2].pk).wake_at is not None


def test_when_a_release_lifts_the_limit_all_go_on() -> None:
    body("limited")(lambda task: None)
    tasks = [start("limited") for _ in range(4)]
    for task in tasks:
        take(task, Limit(max_running=1))
    assert waiting() == 3
    run_until_idle()
    assert waiting() == 0
    assert Task.objects.filter(current_state="completed").count() == 3


def test_of_a_body_that_no_cluster_knows_any_more_the_waiting_become_due_for_the_health_check() -> None:
    tasks = three()
    for task in tasks:
        take(task)
    assert waiting() == 1
    tick()
    assert waiting() == 0
    assert fresh(tasks[2].pk).wake_at is not None


def test_a_parked_task_holds_no_slot_and_needs_one_to_go_on() -> None:
    seen: list[str] = []

    @body("limited", max_running=1)
    def asks(task: Context, *, name: str) -> None:
        seen.append(name)
        task.sleep(timedelta(hours=1))

    for name in "abc":
        start("limited", {"name": name})
    run_until_idle()
    assert seen == ["a", "b", "c"]
    with travel(timedelta(hours=2)):
        first, second, _third = Task.objects.order_by("pk")
        assert take(first, registry.limit_of("limited"))
        assert not drive_one(second.pk, second.lease, stopping=lambda: False, thread=False)
        assert fresh(second.pk).watchdog_stop_reason == "awaiting_slot"


def test_a_paused_one_is_passed_over_and_gets_its_turn_when_resumed() -> None:
    body("limited", max_running=1)(lambda task: None)
    first, held_one, other = (start("limited") for _ in range(3))
    limit = registry.limit_of("limited")
    taken = take(first, limit)
    assert taken
    assert take(held_one, limit) is None
    assert take(other, limit) is None
    lifecycle.pause(held_one.pk)
    ends.complete(taken.task_id, taken.lease)
    run_until_idle()
    assert fresh(other.pk).current_state == "completed"
    assert fresh(held_one.pk).watchdog_stop_reason == "awaiting_slot"
    lifecycle.resume(held_one.pk)
    run_until_idle()
    assert fresh(held_one.pk).current_state == "completed"


def test_while_the_body_is_on_hold_nobody_is_woken_in_vain() -> None:
    one, two, third = three()
    taken = take(one)
    assert taken
    take(two)
    take(third)
    hold = holds.hold("body", "work", by="operator")
    ends.complete(taken.task_id, taken.lease)
    assert limits.wake_next("work", TWO) == 0
    holds.release(hold.pk, by="operator")
    assert limits.wake_next("work", TWO) == 1


def test_a_rate_is_kept_in_every_window_and_one_is_scheduled_for_when_it_allows_the_next() -> None:
    body("limited", at_most=RATE.at_most, per=RATE.per)(lambda task: None)
    tasks = [start("limited") for _ in range(8)]
    run_until_idle()
    assert Task.objects.filter(current_state="completed").count() == 3
    (scheduled,) = Task.objects.filter(watchdog_stop_reason="awaiting_slot", wake_at__isnull=False)
    first = Start.objects.order_by("started_at")[0].started_at
    assert scheduled.wake_at == first + timedelta(minutes=1)
    for minutes, done in ((0.9, 3), (1.1, 6), (2.2, 8)):
        with travel(timedelta(minutes=minutes)):
            run_until_idle()
            assert Task.objects.filter(current_state="completed").count() == done
    starts = list(
        LogEntry.objects.filter(event="task_taken", task_id__in=[task.pk for task in tasks])
        .order_by("created_at")
        .values_list("created_at", flat=True)
    )
    assert all(later - earlier >= timedelta(minutes=1) for earlier, later in zip(starts, starts[3:], strict=False))
    assert Start.objects.count() == 2, "what no window reaches any more is gone"


def test_waiting_owners_share_the_slots_and_nobody_starves(django_user_model: Any) -> None:
    many, few = (django_user_model.objects.create(username=name) for name in ("many", "few"))
    limit = Limit(max_running=1)
    holder = creation.create("work")
    running = take(holder, limit)
    for owner, priority, count in ((many, 5, 60), (few, 5, 20), (few, 9, 1)):
        for _ in range(count):
            take(creation.create("work", owner=owner, priority=priority), limit)
    order: list[tuple[Any, int]] = []
    while running:
        ends.complete(running.task_id, running.lease)
        limits.wake_next("work", limit)
        woken = Task.objects.filter(watchdog_stop_reason="awaiting_slot", wake_at__isnull=False).first()
        running = take(woken, limit) if woken else None
        if woken:
            order.append((woken.owner, woken.priority))
    assert len(order) == 81
    shares = Counter(owner for owner, _priority in order[:30])
    assert shares[few] >= 4, "by shares it is about half; in the order of their coming it would be none"


def test_nothing_starves_among_three_priorities_and_two_owners(django_user_model: Any) -> None:
    owners = [django_user_model.objects.create(username=name) for name in ("flood", "drop")]
    pks: dict[UUID, tuple[int, int]] = {}
    for owner, count in ((0, 3000), (1, 333)):
        for priority in (9, 5, 0):
            made = creation.create_many("work", [{}] * count, priority=priority, owner=owners[owner])
            pks |= dict.fromkeys(made, (owner, priority))
    order: list[tuple[int, int]] = []
    worker = Worker.current()
    while offers := due.offer(8, queues=None, bodies=[("work", 1)]):
        for offered in offers:
            taken = lease.take(offered.task_id, offered.lease, worker)
            assert taken
            ends.complete(taken.task_id, taken.lease)
            order.append(pks[offered.task_id])
    assert len(order) == len(pks) == 9999
    early = Counter(order[:600])
    assert early[(1, 0)] >= 200, "the owner who came after 9,000 others has its share of the first priority"
    places = {key: [at for at, each in enumerate(order) if each == key] for key in itertools.product((0, 1), (0, 5, 9))}
    assert places[(0, 9)][-1] == max(map(max, places.values())), "the least urgent come last"
    urgent = sorted(places[(0, 0)] + places[(1, 0)])
    assert urgent[3000] < 3900, "the most urgent come first"
    assert places[(0, 9)][100] < 2000, "yet whoever has waited longest has its turns meanwhile"

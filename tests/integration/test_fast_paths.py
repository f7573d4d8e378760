"""The statements of the hot path do what the general ways do, and leave to those what they can't."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, connection, transaction

from supervision.errors import LeaseLost, NotStorable
from supervision.kernel import children, creation, due, ends, lease, lifecycle, sql
from supervision.kernel.models import LogEntry, Question, Task
from tests.integration.races import Stage, held

pytestmark = pytest.mark.django_db(transaction=True)


def running(**options: Any) -> lease.Taken:
    task = creation.create("work", **options)
    taken = lease.take(task.pk, 0)
    assert taken is not None
    return taken


def completed(task_id: UUID) -> Task:
    task = Task.objects.get(pk=task_id)
    assert task.current_state == "completed"
    assert task.log_length == LogEntry.objects.filter(task_id=task_id).count()
    return task


@pytest.fixture
def general(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The tasks that were completed the general way."""
    went: list[UUID] = []
    complete = ends._complete

    def noted(task_id: UUID, *rest: Any) -> None:
        went.append(task_id)
        complete(task_id, *rest)

    monkeypatch.setattr(ends, "_complete", noted)
    return went


@pytest.mark.parametrize("result", [None, 0, "", {"a": [1, None]}])
def test_both_ways_of_completing_write_the_same(general: list[UUID], result: Any) -> None:
    fast, slow = running(), running()
    ends.complete(fast.task_id, fast.lease, result)
    assert general == []
    ends._complete(slow.task_id, slow.lease, result)
    own = {"id", "_state", "finished_at", "state_changed_at", "created_at", "started_at"}

    def columns(task_id: UUID) -> dict[str, Any]:
        return {name: value for name, value in vars(completed(task_id)).items() if name not in own}

    assert columns(fast.task_id) == columns(slow.task_id)
    entries = [
        LogEntry.objects.filter(task_id=each.task_id).values("sequence_num", "event", "name", "payload", "lease")
        for each in (fast, slow)
    ]
    assert list(entries[0]) == list(entries[1])
    is_null = Task.objects.filter(pk__in=[fast.task_id, slow.task_id], result__isnull=True).count()
    assert is_null == (2 if result is None else 0)


def pause(taken: lease.Taken) -> None:
    lifecycle.pause(taken.task_id)


def cancel(taken: lease.Taken) -> None:
    lifecycle.cancel(taken.task_id)


def ask(taken: lease.Taken) -> None:
    Question.objects.create(task_id=taken.task_id, key="open", prompt="?")


def beget(taken: lease.Taken) -> None:
    children.start(taken.task_id, taken.lease, "child", "work", [{}], payload={})


@pytest.mark.parametrize("hang_on", [pause, cancel, ask, beget])
def test_completion_that_something_hangs_on_goes_the_general_way(
    general: list[UUID], hang_on: Callable[[lease.Taken], None]
) -> None:
    taken = running()
    hang_on(taken)
    ends.complete(taken.task_id, taken.lease, 1)
    assert general == [taken.task_id]
    task = completed(taken.task_id)
    last = LogEntry.objects.filter(task_id=task.pk, event="task_completed").get().payload
    assert ("unobserved" in last) == (hang_on in (pause, cancel))
    assert not Question.objects.filter(status="pending").exists()
    assert not Task.objects.live().exists()


def test_child_counts_down_what_its_parent_waits_for(general: list[UUID]) -> None:
    parent = running()
    beget(parent)
    children.wait(parent.task_id, parent.lease, "wait", steps=children.steps_of("child", 1))
    child = lease.take(Task.objects.get(parent_id=parent.task_id).pk, 0)
    assert child is not None
    ends.complete(child.task_id, child.lease)
    assert general == [child.task_id]
    assert Task.objects.get(pk=parent.task_id).wake_at is not None


def test_completion_under_a_lost_lease_writes_nothing() -> None:
    taken = running()
    with pytest.raises(LeaseLost):
        ends.complete(taken.task_id, taken.lease + 1)
    with pytest.raises(NotStorable):
        ends.complete(taken.task_id, taken.lease, object())
    assert Task.objects.get(pk=taken.task_id).current_state == "running"
    ends.complete(taken.task_id, taken.lease)
    with pytest.raises(LeaseLost):
        ends.complete(taken.task_id, taken.lease)


# --- together ---------------------------------------------------------------------------------------------------------


def test_statements_together_are_one_transaction() -> None:
    taken = running()
    entry = """INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
               VALUES (%(task)s, %(number)s, 'x', '', '{}', 1, '')"""
    with pytest.raises(IntegrityError):
        sql.together(
            (entry, {"task": taken.task_id, "number": 98}),
            (entry, {"task": taken.task_id, "number": 1}),
        )
    assert connection.get_autocommit()
    assert not LogEntry.objects.filter(sequence_num=98).exists()
    assert sql.together(("SELECT 1", {}), ("SELECT 2", {})) == [[(1,)], [(2,)]]


def test_each_statement_together_reads_its_own_clock() -> None:
    (((first, same),), ((second, _),)) = sql.together(
        ("SELECT statement_timestamp(), pg_sleep(0.02)::text", {}), ("SELECT statement_timestamp(), ''", {})
    )
    assert same == ""
    assert second - first >= timedelta(seconds=0.02)


def test_hints_end_with_their_statements() -> None:
    sql.together(("SELECT 1", {}), hints={"synchronous_commit": "off", "jit": "off"})
    assert sql.run("SELECT current_setting('synchronous_commit')", {}) == [("on",)]
    [[(within,)]] = sql.together(
        ("SELECT current_setting('synchronous_commit')", {}), hints={"synchronous_commit": "off"}
    )
    assert within == "off"


def test_hints_are_left_out_of_a_callers_transaction() -> None:
    with transaction.atomic():
        sql.together(("SELECT 1", {}), hints={"synchronous_commit": "off"})
        assert sql.run("SELECT current_setting('synchronous_commit')", {}) == [("on",)]


_READ = """
SELECT seq_scan, seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'supervision_task'
"""


def test_offer_reads_little_whatever_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    creation.create_many("work", [{}] * 3000)
    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE supervision_task")
    read: list[Any] = []
    together = sql.together

    def counted(*statements: sql.Statement, **options: Any) -> list[list[tuple[Any, ...]]]:
        *rows, counts = together(*statements, (_READ, {}), **options)
        read.extend(counts)
        return rows

    monkeypatch.setattr(sql, "together", counted)
    for _ in range(10):
        assert len(due.offer(2, queues=None, bodies=[("work", 1)])) == 2
    assert [scans for scans, _rows in read] == [0] * 10
    each = [after - before for (_scans, before), (_same, after) in itertools.pairwise(read)]  # the counters go on
    assert max(each) < 300  # a dozen samples of a few rows each, and past what is on offer


def test_offer_is_planned_once() -> None:
    creation.create_many("work", [{}] * 20)
    for _ in range(10):
        due.offer(1, queues=None, bodies=[("work", 1)])
    plans = """
        SELECT generic_plans, custom_plans FROM pg_prepared_statements
         WHERE statement LIKE '%%SET offered_until%%' AND statement NOT LIKE '%%pg_prepared_statements%%'
    """
    assert sql.run(plans, {}) == [(10, 0)]


def test_offer_passes_over_what_another_is_offering(stage: Stage) -> None:
    first, second = creation.create("work"), creation.create("work")
    offers = [held(lambda: due.offer(1, queues=None, bodies=[("work", 1)])) for _ in range(2)]
    one = stage.begin(offers[0])
    other = stage.begin(offers[1])
    assert not other.is_blocked()
    assert [one.commit(), other.commit()] == [[due.Offer(first.pk, 0, "work")], [due.Offer(second.pk, 0, "work")]]

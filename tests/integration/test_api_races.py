"""Two clients at once, and clients that wait: by real sessions, stopped inside their transactions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import override_settings

from supervision.engines import start
from supervision.engines.pipelines.models import Pointer
from supervision.kernel import lease, lifecycle, questions, watching
from supervision.kernel.models import Question, Task
from supervision.testing import run_until_idle
from tests.integration import rows
from tests.integration.api_work import Caller, bodies, customer, flow
from tests.integration.races import Stage

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    cache.clear()
    with bodies():
        yield


def paused(owner: Any) -> Any:
    pk = rows.due(owner=owner)
    lifecycle.pause(pk)
    return pk


def ended(owner: Any) -> Any:
    pk = start("api.wait", owner=owner).pk
    lifecycle.cancel(pk)
    return pk


def moving(owner: Any) -> Any:
    flow("customer 7", owner)
    run_until_idle()
    return Pointer.objects.get().pk


GATED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "pause": (lambda owner: rows.due(owner=owner), "tasks"),
    "resume": (paused, "tasks"),
    "cancel": (lambda owner: rows.running(owner=owner).pk, "tasks"),
    "expire": (lambda owner: rows.waiting(owner=owner).pk, "tasks"),
    "retry": (ended, "tasks"),
    "repoint": (moving, "pointers"),
}


@pytest.mark.parametrize("verb", GATED)
@pytest.mark.parametrize("by_header", [False, True], ids=["body", "If-Match"])
def test_of_two_clients_with_one_generation_one_succeeds(stage: Stage, verb: str, by_header: bool) -> None:
    ann = customer("ann")
    make, kind = GATED[verb]
    pk = make(ann)
    generation = (Task if kind == "tasks" else Pointer).objects.get(pk=pk).generation
    given: dict[str, Any] = {"state": "CHECK"} if verb == "repoint" else {}
    headers = {"If-Match": f'"{generation}"'} if by_header else {}
    if not by_header:
        given["expected_generation"] = generation
    before = Task.objects.count()
    clients = [Caller(ann) for _each in range(2)]

    def act(caller: Caller) -> Any:
        return caller.post(f"{kind}/{pk}/{verb}/", given, **headers)

    first = stage.begin(lambda: act(clients[0]))
    second = stage.run(lambda: act(clients[1]))
    assert first.is_stopped
    assert second.is_blocked_by(first)
    won, lost = first.commit(), second.commit()
    assert won.status_code == 200, won.content
    assert lost.status_code == (412 if by_header and verb not in ("retry",) else 409), lost.content
    assert "current" in lost.json()
    assert Task.objects.count() == before + (verb == "retry")


def test_of_eight_answers_one_counts(stage: Stage) -> None:
    ann = customer("ann")
    from supervision.kernel.question_form import Ask

    waiting = rows.waiting(asks=[Ask("q", "?", answerable_by="owner")], owner=ann)
    address = f"questions/{waiting.questions['q']}/answer/"
    clients = [Caller(ann) for _each in range(8)]
    first = stage.begin(lambda: clients[0].post(address, {"answer": "0"}))
    others = [stage.run(lambda n=n: clients[n].post(address, {"answer": str(n)})) for n in range(1, 8)]  # type: ignore[misc]
    assert first.commit().status_code == 200
    assert {other.commit().status_code for other in others} == {409}
    assert Question.objects.get().answer == "0"


@override_settings(SUPERVISION={"API_READS": "5/day"})
def test_a_volley_of_requests_gets_no_more_than_the_rate(transactional_db: None) -> None:
    caller = Caller(customer("ann"))
    with ThreadPoolExecutor(12) as threads:
        told = list(threads.map(lambda _n: in_thread(lambda: caller.get("tasks/").status_code), range(24)))
    assert sorted(told) == [200] * 5 + [429] * 19


def test_a_page_of_the_log_is_exact_while_entries_are_written(threads: ThreadPoolExecutor) -> None:
    ann = customer("ann")
    running = rows.running(owner=ann)
    caller = Caller(ann)
    is_over = threading.Event()

    def write() -> None:
        while not is_over.is_set():
            lease.checkpoint(running.pk, running.lease)

    writer = threads.submit(in_thread, write)
    totals: list[int] = []
    try:
        while len(totals) < 50 or totals[-1] < totals[0] + 100:
            page = caller.get(f"tasks/{running.pk}/log/", size=20).json()
            numbers = [each["number"] for each in page["entries"]]
            assert numbers == list(range(numbers[0], page["total_count"] + 1))
            assert page["total_count"] == page["returned_count"] + page["withheld_count"]
            totals.append(page["total_count"])
    finally:
        is_over.set()
        writer.result(15)
    assert totals == sorted(totals)


def test_all_of_it_works_inside_of_one_transaction_a_request(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", True)
    ann = customer("ann")
    pk = rows.due(owner=ann)
    caller = Caller(ann)
    request = begun(threads, Caller(ann), pk, 1)
    assert caller.post(f"tasks/{pk}/pause/", {"expected_generation": 1}).status_code == 200
    assert request.result(15).json()["generation"] == 2
    stale = caller.post(f"tasks/{pk}/cancel/", {"expected_generation": 1})
    assert (stale.status_code, stale.json()["current"]["generation"]) == (409, 2)
    assert caller.post(f"tasks/{pk}/signals/", {"name": ""}).status_code == 400
    assert caller.post("tasks/", {"body": "api.wait"}).status_code == 201
    assert Task.objects.count() == 2


# --- waiting for a change


@pytest.fixture
def threads(transactional_db: None) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as threads:
        yield threads


def in_thread(call: Callable[[], Any]) -> Any:
    try:
        return call()
    finally:
        connection.close()


def watchers() -> int:
    """How many sessions hold the lock that says: I wait."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND granted",
                       [watching._LOCKS])  # fmt: skip
        return int(cursor.fetchone()[0])


def begun(threads: ThreadPoolExecutor, caller: Caller, pk: Any, after: int, wait: int = 20) -> Future[Any]:
    """A request that waits; returns when it is seen waiting."""
    standing = watchers()
    request = threads.submit(in_thread, lambda: caller.get(f"tasks/{pk}/", wait=wait, after_generation=after))
    deadline = time.monotonic() + 15
    while watchers() == standing and not request.done():
        assert time.monotonic() < deadline, "it never waited"
        time.sleep(0.01)
    return request


def test_who_waits_is_told_of_a_change_by_the_database(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "_POLL_SECONDS", 1000.0)  # the notification must do it
    ann = customer("ann")
    waiting = rows.waiting(owner=ann)
    started = time.monotonic()
    changes: list[Callable[[], Any]] = [
        lambda: lifecycle.pause(waiting.pk),
        lambda: questions.answer(waiting.questions["q"], "yes", by="somebody"),
        lambda: lifecycle.resume(waiting.pk),
        lambda: lifecycle.cancel(waiting.pk),
    ]
    for change in changes:
        generation = rows.fresh(waiting.pk).generation
        requests = [begun(threads, Caller(ann), waiting.pk, generation) for _each in range(2)]
        assert not any(request.done() for request in requests)
        change()
        told = {request.result(15).json()["generation"] for request in requests}
        assert told == {generation + 1}
    assert time.monotonic() - started < 15
    assert watchers() == 0


def test_a_change_that_came_before_the_wait_is_told_at_once_and_none_after_the_time(
    threads: ThreadPoolExecutor,
) -> None:
    ann = customer("ann")
    pk = rows.due(owner=ann)
    caller = Caller(ann)
    assert caller.get(f"tasks/{pk}/", wait=20, after_generation=0).json()["generation"] == 1
    started = time.monotonic()
    assert begun(threads, caller, pk, 1, wait=1).result(15).json()["generation"] == 1
    assert time.monotonic() - started >= 1
    for bad in ({"wait": "26"}, {"wait": "-1"}, {"wait": "x"}):
        assert set(caller.get(f"tasks/{pk}/", after_generation=0, **bad).json()["errors"]) == {"wait"}
    assert set(caller.get(f"tasks/{pk}/", wait=1).json()["errors"]) == {"after_generation"}


@override_settings(SUPERVISION={"API_WAITS": 1})
def test_no_more_wait_at_once_than_a_process_can_bear(threads: ThreadPoolExecutor) -> None:
    ann = customer("ann")
    pk = rows.due(owner=ann)
    first = begun(threads, Caller(ann), pk, 1)
    late = Caller(ann).get(f"tasks/{pk}/", wait=20, after_generation=1)
    assert (late.status_code, late["Retry-After"]) == (429, "2")
    assert Caller(ann).get(f"tasks/{pk}/").status_code == 200  # looking is always free
    lifecycle.cancel(pk)
    assert first.result(15).json()["state"] == "cancelled"
    assert Caller(ann).get(f"tasks/{pk}/", wait=1, after_generation=2).status_code == 200


def test_another_persons_task_is_not_waited_for(transactional_db: None) -> None:
    pk = rows.due(owner=customer("ann"))
    started = time.monotonic()
    assert Caller(customer("bob")).get(f"tasks/{pk}/", wait=20, after_generation=99).status_code == 404
    assert time.monotonic() - started < 5


def test_a_waiting_client_costs_one_connection(threads: ThreadPoolExecutor) -> None:
    ann = customer("ann")
    pk = rows.due(owner=ann)
    caller = Caller(ann)

    def sessions() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            return int(cursor.fetchone()[0])

    alone = sessions()
    request = begun(threads, caller, pk, 1)
    assert sessions() == alone + 1
    lifecycle.pause(pk)
    assert request.result(15).status_code == 200

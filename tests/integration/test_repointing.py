"""Re-pointing: a person moves a subject's pointer, and the run follows."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from supervision.engines import Pipeline, Run, State, registry, repoint
from supervision.engines.pipelines.errors import PointerMoved, PointerNotFound, UnknownPipeline, UnknownState
from supervision.engines.pipelines.models import Pointer, Visit
from supervision.errors import Refused
from supervision.kernel import lease, lifecycle
from supervision.kernel.models import LogEntry, Question, Task
from supervision.testing import run_until_idle, travel
from tests.processes import wait_for

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)


@pytest.fixture
def training() -> Iterator[Pipeline]:
    """SUBMIT -> POLL, which yields for ever, -> SAVE -> DONE; FAILED is an end, and ASK asks."""
    before = set(registry.known_versions())

    def submit(run: Run) -> Any:
        return True, None, {"job": run.visit}

    yield Pipeline("training", initial="SUBMIT", terminal={"DONE": "completed", "FAILED": "failed"}, states={
        "SUBMIT": State(submit, "POLL", "FAILED", True, max_visits=1),
        "POLL": State(lambda run: False, "SAVE", "POLL", False, poll_every=HOUR, max_visits=9,
                      branches={"ask": "ASK"}),
        "ASK": State(lambda run: run.ask("go", kind="yes_no"), "SAVE", "FAILED", True),
        "SAVE": State(lambda run: None, "DONE", "SUBMIT", True),
    })  # fmt: skip
    for name in set(registry.known_versions()) - before:
        registry.unregister(name)


def polling(training: Pipeline, subject: str = "x") -> Task:
    task = training.start(subject)
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "yielded:POLL"
    return task


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


def pointer(subject: str = "x") -> Pointer:
    return Pointer.objects.get(pipeline="training", subject=subject)


def path(task: Task) -> list[tuple[str, int, str]]:
    visits = Visit.objects.filter(run=task).order_by("sequence_num")
    return list(visits.values_list("state", "number", "next_state"))


def test_a_waiting_run_goes_on_from_there_at_once(training: Pipeline) -> None:
    task = polling(training)
    moved = repoint("training", "x", "SAVE", by="op", note="the job was done by hand")
    assert (moved.state, moved.run_id) == ("SAVE", task.pk)
    run_until_idle()
    assert fresh(task).current_state == "completed"
    assert path(task) == [("SUBMIT", 1, "POLL"), ("POLL", 1, "POLL"), ("POLL", 2, "SAVE"), ("SAVE", 1, "DONE")]


def test_it_is_recorded_with_who_and_why(training: Pipeline) -> None:
    user = get_user_model().objects.create_user("ann")
    task = polling(training)
    repoint("training", "x", "SAVE", by=user, note="by hand")
    visit = Visit.objects.exclude(actor_ref="").get()
    assert (visit.outcome, visit.actor_ref, visit.note) == ("re-pointed", "ann", "by hand")
    entry = LogEntry.objects.get(task=task, event="repointed")
    assert (entry.sequence_num, entry.actor_ref) == (visit.logged_in, "ann")
    assert entry.payload == {"from": "POLL", "to": "SAVE", "note": "by hand"}
    assert pointer().visit_count == Visit.objects.count()


def test_the_count_of_the_target_begins_anew_and_numbers_go_on(training: Pipeline) -> None:
    task = polling(training)
    for _ in range(2):
        repoint("training", "x", "SUBMIT", by="op")
        run_until_idle()
        assert fresh(task).watchdog_stop_reason == "yielded:POLL"
    assert [row[:2] for row in path(task) if row[0] == "SUBMIT"] == [("SUBMIT", 1), ("SUBMIT", 2), ("SUBMIT", 3)]


def test_the_cap_counts_from_the_re_pointing(training: Pipeline) -> None:
    """POLL may be entered nine times: eight times before a person puts the pointer there, and nine after."""
    task = polling(training)
    for number in range(2, 9):
        _poll_again(task)
        assert pointer().number == number + 1
    repoint("training", "x", "POLL", by="op")
    run_until_idle()
    for _ in range(7):
        _poll_again(task)
        assert fresh(task).watchdog_stop_reason == "yielded:POLL"
    _poll_again(task)
    assert fresh(task).watchdog_stop_reason == "max retries reached:POLL"


def _poll_again(task: Task) -> None:
    Task.objects.filter(pk=task.pk).update(wake_at=task.created_at)
    run_until_idle()


def test_a_terminal_target_ends_a_live_run(training: Pipeline) -> None:
    task, other = polling(training), polling(training, "y")
    repoint("training", "x", "DONE", by="op")
    repoint("training", "y", "FAILED", by="op")
    run_until_idle()
    assert fresh(task).current_state == "completed"
    assert fresh(other).watchdog_stop_reason == "failed:FAILED"


def test_a_paused_run_waits_until_it_is_resumed(training: Pipeline) -> None:
    task = polling(training)
    lifecycle.pause(task.pk, by="op")
    repoint("training", "x", "SAVE", by="op")
    run_until_idle()
    assert pointer().state == "SAVE"
    assert fresh(task).current_state == "parked"
    lifecycle.resume(task.pk, by="op")
    run_until_idle()
    assert fresh(task).current_state == "completed"


def test_a_delayed_run_begins_there_when_its_time_comes(training: Pipeline) -> None:
    polling(training)
    repoint("training", "x", "DONE", by="op")
    run_until_idle()
    task = training.start_all(["z", "x"], spread_over=2 * HOUR)[1]
    run_until_idle()
    repoint("training", "x", "SAVE", by="op")
    run_until_idle()
    assert fresh(task).current_state == "pending"
    with travel(2 * HOUR):
        run_until_idle()
    assert fresh(task).current_state == "completed"
    assert path(task) == [("DONE", 0, "SAVE"), ("SAVE", 1, "DONE")]


def test_an_ended_run_starts_a_new_one_there_with_what_it_had(training: Pipeline) -> None:
    first = polling(training)
    lifecycle.cancel(first.pk, by="op")
    run_until_idle()
    moved = repoint("training", "x", "SAVE", by="op", note="again")
    assert moved.run_id is not None
    assert moved.run_id != first.pk
    run_until_idle()
    second = Task.objects.get(pk=moved.run_id)
    assert second.current_state == "completed"
    assert second.result == {"state": "DONE", "params": {"job": 1}}
    assert path(second) == [("POLL", 2, "SAVE"), ("SAVE", 1, "DONE")]
    previous = pointer().previous
    assert previous is not None
    assert (previous["run"], previous["end"]) == (str(first.pk), "cancelled")


def test_an_ended_run_is_tidied_up_and_the_next_one_starts_afresh(training: Pipeline) -> None:
    first = polling(training)
    lifecycle.cancel(first.pk, by="op")
    run_until_idle()
    repoint("training", "x", "DONE", by="op")
    assert pointer().state == "DONE"
    assert Task.objects.count() == 1
    second = training.start("x")
    run_until_idle()
    assert path(second)[0] == ("SUBMIT", 1, "POLL")
    assert Visit.objects.get(outcome="re-pointed").logged_in is None


def test_open_questions_are_withdrawn(training: Pipeline) -> None:
    task = polling(training)
    repoint("training", "x", "ASK", by="op")
    run_until_idle()
    assert fresh(task).watchdog_stop_reason == "awaiting_user_answer:ASK.1/go"
    repoint("training", "x", "SAVE", by="op")
    assert Question.objects.get(task=task).status == "withdrawn"
    run_until_idle()
    assert fresh(task).current_state == "completed"


def test_a_state_that_the_table_lost_can_be_left(training: Pipeline) -> None:
    task = polling(training)
    Pointer.objects.update(state="GONE")
    with travel(HOUR):
        run_until_idle()
        assert fresh(task).watchdog_stop_reason == "unknown_state:GONE"
        repoint("training", "x", "SAVE", by="op")
        run_until_idle()
    assert fresh(task).current_state == "completed"


def test_what_the_person_did_not_see_is_not_moved(training: Pipeline) -> None:
    polling(training)
    seen = pointer().generation
    with travel(HOUR):
        run_until_idle()  # yields once more: nothing that a person must know
    repoint("training", "x", "POLL", by="op", expected_generation=seen)
    with pytest.raises(PointerMoved) as stale:
        repoint("training", "x", "SAVE", by="op", expected_generation=seen)
    assert stale.value.pointer.state == "POLL"
    assert Visit.objects.exclude(actor_ref="").count() == 1


def test_a_driven_run_is_not_moved(training: Pipeline) -> None:
    task = polling(training)
    before = (pointer().state, Visit.objects.count(), fresh(task).log_length)
    with travel(HOUR):
        taken = lease.take(task.pk, fresh(task).lease)
        assert taken is not None
        with pytest.raises(Refused, match="driven"):
            repoint("training", "x", "SAVE", by="op")
    assert (pointer().state, Visit.objects.count(), fresh(task).log_length - 1) == before


def test_a_run_that_is_being_ended_is_not_moved(training: Pipeline) -> None:
    task = polling(training)
    lifecycle.cancel(task.pk, by="op")
    with pytest.raises(Refused, match="being ended"):
        repoint("training", "x", "SAVE", by="op")


def test_what_is_not_there_is_told(training: Pipeline) -> None:
    with pytest.raises(UnknownPipeline, match="training"):
        repoint("trianing", "x", "SAVE", by="op")
    with pytest.raises(UnknownState, match="SUBMIT, POLL, ASK, SAVE, DONE, FAILED"):
        repoint("training", "x", "SAEV", by="op")
    with pytest.raises(UnknownState):
        repoint("training", "x", "max retries reached:POLL", by="op")
    with pytest.raises(PointerNotFound):
        repoint("training", "nobody", "SAVE", by="op")


@pytest.mark.django_db(transaction=True)
def test_a_take_that_waits_for_a_re_pointing_drives_the_new_state(training: Pipeline, other_connection: Any) -> None:
    """The race of the two: whoever has the row's lock first wins, and the other sees what it did."""
    task = polling(training)
    Task.objects.filter(pk=task.pk).update(wake_at=task.created_at)
    with other_connection.cursor() as cursor:
        other_connection.set_autocommit(False)
        cursor.execute("SELECT 1 FROM supervision_task WHERE id = %s FOR NO KEY UPDATE", [task.pk])
        took: list[Any] = []
        threads = [
            threading.Thread(target=_in_thread, args=(lambda: took.append(lease.take(task.pk, 1)),)),
            threading.Thread(target=_in_thread, args=(lambda: repoint("training", "x", "SAVE", by="op"),)),
        ]
        for number, thread in enumerate(threads, 1):
            thread.start()
            wait_for(lambda number=number: _waiting() == number, f"{number} wait for the row")  # type: ignore[misc]
        other_connection.rollback()
        for thread in threads:
            thread.join()
    other_connection.set_autocommit(True)
    assert took[0] is not None
    assert pointer().state == "POLL"
    assert not Visit.objects.exclude(actor_ref="").exists()


def _in_thread(work: Any) -> None:
    try:
        work()
    except Refused:
        pass
    finally:
        connection.close()


def _waiting() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        count: int = cursor.fetchone()[0]
    return count

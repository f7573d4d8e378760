"""Pipelines: what a table means when a run is driven through it."""

import itertools
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from supervision.engines import Pipeline, Run, State, registry, retry
from supervision.engines.bodies import body
from supervision.engines.pipelines import pipeline as pipelines
from supervision.engines.pipelines.engine import PipelineEngine
from supervision.engines.pipelines.models import Pointer, Visit
from supervision.errors import Failure
from supervision.kernel import lease, lifecycle, signals_in, sql
from supervision.kernel.models import LogEntry, Question, Task
from supervision.testing import answer, run_until_idle, travel
from supervision.worker.heart import beating

pytestmark = pytest.mark.django_db

_NAMES = itertools.count()
Script = dict[str, list[Any]]


@pytest.fixture(autouse=True)
def _forget_pipelines(own_bodies: None) -> None: ...


def pipeline(states: dict[str, State], *, initial: str = "", terminal: dict[str, str] | None = None,
             **options: Any) -> Pipeline:  # fmt: skip
    """Registers a pipeline under a name of its own."""
    return Pipeline(f"p{next(_NAMES)}", initial=initial or next(iter(states)),
                    terminal=terminal or {"DONE": "completed"}, states=states, **options)  # fmt: skip


def scripted(*results: Any) -> Callable[[Run], Any]:
    """A transition that returns these one after the other (the last one for ever), raising what is an exception."""
    left = list(results)

    def transition(run: Run) -> Any:
        result = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(result, Exception):
            raise result
        return result

    return transition


def fresh(task: Task) -> Task:
    return Task.objects.get(pk=task.pk)


def visits(task: Task) -> list[tuple[str, int, str, str]]:
    rows = Visit.objects.filter(run=task).order_by("sequence_num")
    return list(rows.values_list("state", "number", "outcome", "next_state"))


def end(task: Task) -> tuple[str, str]:
    task = fresh(task)
    return task.current_state, task.watchdog_stop_reason


def pointer(task: Task) -> Pointer:
    return Pointer.objects.get(pipeline=task.body, subject=task.subject)


def previous(task: Task) -> dict[str, Any]:
    found = pointer(task).previous
    assert found is not None
    return dict(found)


# --- outcomes


@pytest.mark.parametrize(
    ("returned", "outcome", "target", "errors"),
    [
        (True, "success", "DONE", ""),
        (None, "success", "DONE", ""),
        ((True, None, {}), "success", "DONE", ""),
        ((True, "with a warning", None), "success", "DONE", "with a warning"),
        (False, "failure", "BAD", ""),
        ((False, "no GPU", {}), "failure", "BAD", "no GPU"),
        ("lost", "lost", "GONE", ""),
        (("lost", "job 7", {}), "lost", "GONE", "job 7"),
        (OSError("broken pipe"), "failure", "BAD", "OSError: broken pipe"),
        ("mislaid", "failure", "BAD", "ValueError: a transition returned 'mislaid', which is no branch"),
        ((True, None), "failure", "BAD", "TypeError: a transition returned 2 values"),
        (7, "failure", "BAD", "TypeError: a transition returned a int"),
        ((True, None, [1]), "failure", "BAD", "TypeError: the params of a transition must be a dict"),
        ((True, None, {"x": float("nan")}), "failure", "BAD", "NotStorable: params.x can't be stored"),
        ((True, "nul \x00", {}), "success", "DONE", "nul \N{REPLACEMENT CHARACTER}"),
    ],
)
def test_whatever_a_transition_hands_back_is_one_of_its_outcomes(
    returned: Any, outcome: str, target: str, errors: str
) -> None:
    ends = {"DONE": "completed", "BAD": "failed", "GONE": "failed"}
    work = pipeline({"A": State(scripted(returned), "DONE", "BAD", True, branches={"lost": "GONE"})}, terminal=ends)
    task = work.start("x")
    run_until_idle()
    visit = Visit.objects.get(run=task)
    assert (visit.outcome, visit.next_state, visit.yielded) == (outcome, target, False)
    assert visit.errors.startswith(errors)
    assert bool(visit.errors) == bool(errors)
    assert end(task)[0] == ends[target]


def test_params_accumulate_and_are_what_a_crash_leaves() -> None:
    seen: list[dict[str, Any]] = []

    def look(run: Run) -> Any:
        seen.append(dict(run.params))
        return True, None, {"b": 2, "a": 9}

    work = pipeline({
        "A": State(scripted((True, None, {"a": 1})), "B", "DONE", True),
        "B": State(look, "C", "DONE", True),
        "C": State(lambda run: seen.append(dict(run.params)), "DONE", "DONE", True),
    })  # fmt: skip
    task = work.start("x", {"given": True})
    run_until_idle()
    assert seen == [{"given": True, "a": 1}, {"given": True, "a": 9, "b": 2}]
    assert fresh(task).result == {"state": "DONE", "params": {"given": True, "a": 9, "b": 2}}
    assert pointer(task).params == {"given": True, "a": 9, "b": 2}


def test_params_can_only_be_added_by_returning_them() -> None:
    def work(run: Run) -> Any:
        run.params["a"] = 1  # type: ignore[index]

    task = pipeline({"A": State(work, "DONE", "DONE", True)}).start("x")
    run_until_idle()
    assert "TypeError" in Visit.objects.get(run=task).errors


def test_a_failed_end_says_which_and_why() -> None:
    work = pipeline({"A": State(scripted(OSError("disk full")), "DONE", "BROKEN", True)},
                    terminal={"DONE": "completed", "BROKEN": "failed"})  # fmt: skip
    task = work.start("x")
    run_until_idle()
    assert end(task) == ("failed", "failed:BROKEN")
    assert fresh(task).failure == "It ended in “BROKEN”. Last error: OSError: disk full"
    assert not Task.objects.dead_lettered().exists()


# --- yields


def test_a_state_that_waits_looks_at_once_then_yields_for_its_poll_interval() -> None:
    work = pipeline({
        "POLL": State(scripted(False, False, True), "DONE", "POLL", False, poll_every=timedelta(minutes=3)),
    })  # fmt: skip
    task = work.start("x")
    assert run_until_idle() == 1
    parked = Task.objects.with_clock().get(pk=task.pk)
    assert end(task) == ("parked", "yielded:POLL")
    assert parked.wake_at is not None
    assert timedelta(seconds=175) < parked.wake_at - parked.db_now <= timedelta(minutes=3)
    assert visits(task) == [("POLL", 1, "failure", "POLL")]
    with travel(timedelta(minutes=3)):
        run_until_idle()
        with travel(timedelta(minutes=3)):
            run_until_idle()
    assert end(task) == ("completed", "")
    assert [row[:2] for row in visits(task)] == [("POLL", 1), ("POLL", 2), ("POLL", 3)]
    assert list(Visit.objects.filter(run=task).order_by("sequence_num").values_list("yielded", flat=True)) == [
        True,
        True,
        False,
    ]


def test_a_state_that_is_not_ready_yields_without_running_its_transition() -> None:
    ran: Counter[str] = Counter()

    def transition(run: Run) -> None:
        ran["transition"] += 1

    work = pipeline({"A": State(transition, "DONE", "DONE", False, ready=scripted(False, True))})
    task = work.start("x")
    run_until_idle()
    assert end(task) == ("parked", "yielded:A")
    assert visits(task) == [("A", 1, "not ready", "A")]
    assert not ran
    with travel(timedelta(minutes=1)):
        run_until_idle()
    assert end(task) == ("completed", "")
    assert ran == {"transition": 1}


def test_a_question_whether_it_is_ready_that_fails_is_a_failure() -> None:
    work = pipeline({"A": State(scripted(True), "DONE", "BAD", False, ready=scripted(OSError("no route")))},
                    terminal={"DONE": "completed", "BAD": "failed"})  # fmt: skip
    task = work.start("x")
    run_until_idle()
    assert end(task) == ("failed", "failed:BAD")
    assert Visit.objects.get(run=task).errors == "OSError: no route"


def test_a_state_that_does_not_wait_loops_straight_on() -> None:
    work = pipeline({"A": State(scripted(False, False, True), "DONE", "A", True)})
    task = work.start("x")
    assert run_until_idle() == 1
    assert end(task) == ("completed", "")
    assert len(visits(task)) == 3


def test_another_visit_waits_for_retry_after_and_the_first_does_not() -> None:
    work = pipeline({
        "READY": State(scripted(None), "SUBMIT", "DONE", True),
        "SUBMIT": State(scripted(False, True), "DONE", "FAILED", True, retry_after=timedelta(minutes=5)),
        "FAILED": State(scripted(None), "SUBMIT", "DONE", True),
    })  # fmt: skip
    task = work.start("x")
    run_until_idle()
    assert end(task) == ("parked", "retrying:SUBMIT")
    assert [row[:2] for row in visits(task)] == [("READY", 1), ("SUBMIT", 1), ("FAILED", 1)]
    assert not Visit.objects.filter(yielded=True).exists()
    with travel(timedelta(minutes=5)):
        run_until_idle()
    assert end(task) == ("completed", "")


# --- caps


def test_used_up_visits_end_the_run_as_a_dead_letter_and_not_by_an_exception() -> None:
    work = pipeline({
        "SUBMIT": State(scripted(OSError("503")), "DONE", "FAILED", True, max_visits=3),
        "FAILED": State(scripted(None), "SUBMIT", "DONE", True),
    })  # fmt: skip
    task = work.start("x")
    run_until_idle()
    assert end(task) == ("failed", "max retries reached:SUBMIT")
    assert fresh(task).failure.endswith("Last error: OSError: 503")
    assert list(Task.objects.dead_lettered()) == [task]
    assert [row[:2] for row in visits(task)] == [(s, n) for n in (1, 2, 3) for s in ("SUBMIT", "FAILED")]
    assert pointer(task).state == "max retries reached:SUBMIT"
    assert visits(task)[-1][3] == "max retries reached:SUBMIT"


def test_yields_count_and_the_last_one_does_not_wait_in_vain() -> None:
    work = pipeline({"POLL": State(scripted(False), "DONE", "POLL", False, max_visits=2)})
    task = work.start("x")
    run_until_idle()
    with travel(timedelta(minutes=1)):
        run_until_idle()
        assert end(task) == ("failed", "max retries reached:POLL")
    assert len(visits(task)) == 2


def test_counts_are_of_one_run() -> None:
    work = pipeline({"A": State(scripted(False, True), "DONE", "A", True, max_visits=2)})
    for _ in range(3):
        task = work.start("x")
        run_until_idle()
        assert end(task) == ("completed", "")
    assert Visit.objects.count() == 4


# --- a run's own context


def test_steps_waits_and_questions_of_a_visit_are_its_own() -> None:
    calls: Counter[str] = Counter()

    def count(name: str) -> int:
        calls[name] += 1
        return calls[name]

    def transition(run: Run) -> Any:
        first = run.step("work", count, "work")
        run.sleep(60)
        answered = run.ask("again", kind="yes_no")
        assert run.answers == {"again": answered}
        second = run.step("work", count, "work")
        return answered is False, None, {str(run.visit): [first, second]}

    work = pipeline({"A": State(transition, "DONE", "A", True)})
    task = work.start("x")
    run_until_idle()
    assert end(task) == ("parked", "sleeping")
    with travel(timedelta(minutes=2)):
        run_until_idle()
        assert end(task) == ("parked", "awaiting_user_answer:A.1/again")
        answer(task, {"A.1/again": True})
        run_until_idle()
        assert end(task) == ("parked", "sleeping")
        with travel(timedelta(minutes=2)):
            run_until_idle()
            answer(task, {"A.2/again": False})
            run_until_idle()
    assert fresh(task).result == {"state": "DONE", "params": {"1": [1, 2], "2": [3, 4]}}
    assert calls == {"work": 4}


def test_keys_for_services_are_the_same_for_one_visit_and_no_other() -> None:
    keys: list[str] = []

    def transition(run: Run) -> Any:
        keys.append(run.idempotency_key)
        run.step("call", lambda: keys.append(run.idempotency_key))
        return run.visit == 2

    task = pipeline({"A": State(transition, "DONE", "A", True)}).start("x")
    run_until_idle()
    assert keys == [f"{task.pk}:A.1", f"{task.pk}:A.1/call", f"{task.pk}:A.2", f"{task.pk}:A.2/call"]


def test_previous_run_tells_its_end_params_and_visits() -> None:
    seen: list[Any] = []

    def look(run: Run) -> Any:
        seen.append(run.previous)
        return not seen[1:], "no good" if seen[1:] else None, {"job": len(seen)}

    work = pipeline({"A": State(look, "DONE", "BAD", True)}, terminal={"DONE": "completed", "BAD": "failed"})
    tasks = []
    for _ in range(3):
        tasks.append(work.start("x"))
        run_until_idle()
    first, second, third = seen
    assert first is None
    assert (second.state, second.end, second.params, second.run_id) == ("DONE", "completed", {"job": 1}, tasks[0].pk)
    assert (third.state, third.end, third.reason) == ("BAD", "failed", "failed:BAD")
    assert [(visit.state, visit.errors) for visit in third.visits] == [("A", "no good")]


def test_a_run_that_is_cancelled_cleans_up_and_keeps_its_place() -> None:
    cleaned: list[tuple[str, dict[str, Any]]] = []
    work = pipeline(
        {
            "A": State(scripted((True, None, {"job": 7})), "POLL", "DONE", True),
            "POLL": State(scripted(False), "DONE", "POLL", False),
        },
        on_cancel=lambda run: run.step("stop", lambda: cleaned.append((run.state, dict(run.params)))),
    )
    task = work.start("x")
    run_until_idle()
    lifecycle.cancel(task.pk, by="op")
    run_until_idle()
    assert end(task) == ("cancelled", "cancelled:op")
    assert cleaned == [("POLL", {"job": 7})]
    assert pointer(task).state == "POLL"
    again = work.start("x")
    run_until_idle()
    assert again.pk != task.pk
    assert visits(again)[0][:2] == ("A", 1)
    assert previous(again)["end"] == "cancelled"


def test_a_transition_that_swallows_its_suspension_is_not_a_visit(caplog: pytest.LogCaptureFixture) -> None:
    def transition(run: Run) -> Any:
        try:
            run.sleep(60)
        except BaseException:
            return True

    task = pipeline({"A": State(transition, "DONE", "DONE", True)}).start("x")
    run_until_idle()
    assert end(task) == ("parked", "sleeping")
    assert not visits(task)
    assert "swallowed Sleeping" in caplog.text


def test_pause_holds_between_two_visits() -> None:
    def ask_for_a_pause(run: Run) -> None:
        lifecycle.pause(run.id, by="op")

    work = pipeline({
        "A": State(ask_for_a_pause, "B", "DONE", True),
        "B": State(scripted(None), "DONE", "DONE", True),
    })  # fmt: skip
    task = work.start("x")
    run_until_idle()
    assert end(task) == ("parked", "user_paused")
    assert [row[0] for row in visits(task)] == ["A"]
    lifecycle.resume(task.pk)
    run_until_idle()
    assert end(task) == ("completed", "")


# --- one live run


def test_starting_while_a_run_is_live_returns_it() -> None:
    work = pipeline({"POLL": State(scripted(False, True), "DONE", "POLL", False)})
    first = work.start("x")
    assert work.start("x").pk == first.pk
    run_until_idle()
    assert work.start("x").pk == first.pk
    assert work.start("y").pk != first.pk
    with travel(timedelta(minutes=1)):
        run_until_idle()
    assert work.start("x").pk != first.pk


def test_a_retry_is_a_new_run_from_the_start() -> None:
    ran: Counter[str] = Counter()

    def look(run: Run) -> Any:
        run.step("count", lambda: ran.update(a=1))
        return run.ask("good", kind="yes_no")

    work = pipeline({"A": State(look, "DONE", "BAD", True)}, terminal={"DONE": "completed", "BAD": "failed"})
    task = work.start("x")
    run_until_idle()
    answer(task, {"A.1/good": False})
    run_until_idle()
    assert end(task) == ("failed", "failed:BAD")
    again = retry(task.pk, by="op")
    run_until_idle()
    answer(again, {"A.1/good": True})
    run_until_idle()
    assert end(again) == ("completed", "")
    assert ran == {"a": 2}
    assert pointer(again).run_id == again.pk


def test_runs_are_spread_over_the_time() -> None:
    work = pipeline({"A": State(scripted(None), "DONE", "DONE", True)})
    tasks = work.start_all([f"c{n}" for n in range(4)], spread_over=timedelta(hours=4))
    starts = [task.wake_at for task in tasks if task.wake_at is not None]
    assert [at - starts[0] for at in starts] == [timedelta(hours=n) for n in range(4)]
    assert run_until_idle() == 1


def test_a_run_that_was_not_started_as_one_is_refused() -> None:
    from supervision.engines import start

    work = pipeline({"A": State(scripted(None), "DONE", "DONE", True)})
    task = start(work.name, {}, subject="x")
    run_until_idle()
    assert end(task) == ("failed", "failed:Failure")
    assert not Pointer.objects.exists()


def test_a_body_error_that_is_no_outcome_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    work = pipeline({"A": State(scripted(Failure("as an outcome")), "DONE", "DONE", True)})
    task = work.start("x")
    run_until_idle()
    assert Visit.objects.get(run=task).errors == "Failure: as an outcome"
    assert end(task) == ("completed", "")


# --- a table that changed


def test_a_pointer_in_a_state_that_the_table_lost_parks_and_goes_on_when_it_is_back() -> None:
    polling = State(scripted(False, True), "DONE", "POLL", False)
    work = pipeline({"POLL": polling})
    task = work.start("x")
    run_until_idle()
    registry.unregister(work.name)
    renamed = State(scripted(True), "DONE", "WAIT", False)
    Pipeline(work.name, initial="WAIT", terminal={"DONE": "completed"}, states={"WAIT": renamed})
    with travel(timedelta(minutes=1)):
        run_until_idle()
        assert end(task) == ("parked", "unknown_state:POLL")
        lifecycle.resume(task.pk, by="op")
        run_until_idle()
        assert end(task) == ("parked", "unknown_state:POLL")
        registry.unregister(work.name)
        Pipeline(work.name, initial="POLL", terminal={"DONE": "completed"}, states={"POLL": polling})
        lifecycle.resume(task.pk, by="op")
        run_until_idle()
    assert end(task) == ("completed", "")


def test_questions_are_not_asked_twice_and_every_log_has_its_visit() -> None:
    work = pipeline({"A": State(lambda run: run.ask("name") == "x", "DONE", "A", True)})
    task = work.start("s")
    run_until_idle()
    answer(task, {"A.1/name": "y"})
    run_until_idle()
    answer(task, {"A.2/name": "x"})
    run_until_idle()
    assert Question.objects.filter(task=task).count() == 2
    numbers = LogEntry.objects.filter(task=task, event="state_visited").values_list("sequence_num", flat=True)
    written = Visit.objects.filter(run=task).order_by("sequence_num").values_list("logged_in", flat=True)
    assert list(numbers) == list(written)
    assert pointer(task).visit_count == Visit.objects.count() == 2


# --- many transitions


def endless(count: int, look: Callable[[int], None]) -> Pipeline:
    """Two states that hand on to each other for so many visits."""
    visits = itertools.count(1)

    def transition(run: Run) -> str | None:
        number = next(visits)
        look(number)
        return "enough" if number >= count else None

    def state(following: str) -> State:
        return State(transition, following, following, True, max_visits=None, branches={"enough": "DONE"})

    return pipeline({"A": state("B"), "B": state("A")})


def stack_depth() -> int:
    frame, depth = sys._getframe(), 0
    while frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth


def test_a_hundred_thousand_transitions_keep_the_stack_flat_and_memory_constant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All that this process does of each; the database, which is not asked here, is in the benchmark."""
    depths: set[int] = set()
    used: dict[int, int] = {}

    def look(number: int) -> None:
        depths.add(stack_depth())
        if number in (10_000, 100_000):
            used[number] = sys.getallocatedblocks()

    execute, moves = sql.run, 0

    def run(query: str, parameters: Any) -> list[tuple[Any, ...]]:
        nonlocal moves
        if "moved AS" not in query:
            return execute(query, parameters)
        moves += 1
        return [(None,)]

    work = endless(100_000, look)
    taken = lease.take(work.start("x").pk, 0)
    assert taken is not None
    monkeypatch.setattr(sql, "run", run)
    with beating(taken.task_id, taken.lease, thread=False) as heart:
        context = Run(taken, pulse=heart, stopping=lambda: False)
        PipelineEngine(work.table, None).run(registry.get(work.name), context)
    assert moves == 100_000
    assert len(depths) == 1
    assert used[100_000] - used[10_000] < 1_000


def test_a_run_of_many_visits_goes_on_with_what_a_short_one_needs() -> None:
    """Neither the visits before nor their steps are read again."""
    calls: Counter[str] = Counter()

    def work() -> None:
        calls["work"] += 1

    def transition(run: Run) -> Any:
        run.step("work", work)
        if run.visit in (2, 1_200):
            run.ask("go on", kind="yes_no")
        return run.visit == 1_201

    task = pipeline({"A": State(transition, "DONE", "A", True, max_visits=2_000)}).start("x")
    run_until_idle()
    queries = []
    for visit in (2, 1_200):
        answer(task, {f"A.{visit}/go on": True})
        taken = lease.take(task.pk, fresh(task).lease)
        assert taken is not None
        with beating(taken.task_id, taken.lease, thread=False) as heart, CaptureQueriesContext(connection) as captured:
            run = Run(taken, pulse=heart, stopping=lambda: False)
            run.open(pipelines.get(task.body))
            run.step("work", work)
        queries.append(len(captured))
        assert run.visit == visit
        lease.park(task.pk, taken.lease, "sleeping", wake_after=timedelta(0))
        run_until_idle()
    assert queries[0] == queries[1]
    assert calls == {"work": 1_201}
    assert end(task) == ("completed", "")


# --- children and signals


def test_a_transition_waits_for_children_of_its_own_visit() -> None:
    @body("pipelines.child")
    def child(task: Any, *, number: int) -> int:
        return number * 10

    def transition(run: Run) -> Any:
        results = run.map("pipelines.child", [{"number": run.visit}, {"number": run.visit + 1}])
        return run.visit == 2, None, {str(run.visit): results}

    task = pipeline({"A": State(transition, "DONE", "A", True)}).start("x")
    run_until_idle()
    assert fresh(task).result == {"state": "DONE", "params": {"1": [10, 20], "2": [20, 30]}}
    assert Task.objects.filter(parent=task).count() == 4


def test_a_signal_ends_the_wait_of_a_visit() -> None:
    def transition(run: Run) -> Any:
        signal = run.wait_for_signal("ready", timeout=timedelta(hours=1))
        return signal is not None, None, {"said": signal.payload if signal else None}

    task = pipeline({"A": State(transition, "DONE", "DONE", True)}).start("x")
    run_until_idle()
    assert end(task)[1].startswith("awaiting_signal")
    signals_in.send(task.pk, "ready", {"by": "webhook"}, by="test")
    run_until_idle()
    assert fresh(task).result == {"state": "DONE", "params": {"said": {"by": "webhook"}}}


def test_steps_with_a_compensation_are_refused_in_words() -> None:
    def transition(run: Run) -> Any:
        run.step("charge", lambda: 7, compensate=lambda result: None)

    task = pipeline({"A": State(transition, "DONE", "DONE", True)}).start("x")
    run_until_idle()
    assert "undo it in a state, or in on_cancel" in Visit.objects.get(run=task).errors

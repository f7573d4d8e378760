"""Random tables, driven by workers that die anywhere, agree with ten lines that say what a table means."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervision.engines import Pipeline, Run, State, registry
from supervision.engines.pipelines.models import Pointer, Visit
from supervision.kernel import crash, due, lease
from supervision.kernel.lease import Worker
from supervision.kernel.models import LogEntry, Task
from supervision.worker import drive

pytestmark = pytest.mark.django_db

ENDS = {"DONE": "completed", "BAD": "failed"}
SOON = timedelta(microseconds=1)
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Row:
    """One state of a random table, with what its visits come to, one after the other."""

    success: str
    failure: str
    branch: str
    goes_on: bool
    cap: int
    is_delayed: bool
    results: tuple[str, ...]


Rows = dict[str, Row]


@st.composite
def tables(draw: st.DrawFn) -> Rows:
    """A spine from the first state to DONE, and anything else beside it."""
    names = [f"S{n}" for n in range(draw(st.integers(1, 5)))]
    anywhere = st.sampled_from([*names, *ENDS])
    results = st.lists(st.sampled_from(["yes", "none", "no", "error", "branch", "not ready"]), min_size=1, max_size=4)
    return {
        name: Row(following, draw(anywhere), draw(anywhere), draw(st.booleans()), draw(st.integers(1, 4)),
                  draw(st.booleans()), tuple(draw(results)))
        for name, following in itertools.pairwise([*names, "DONE"])
    }  # fmt: skip


def meant(rows: Rows) -> tuple[str, list[tuple[str, int, str, bool]]]:
    """The model: where the run ends, and (state, number, next state, yielded) of every visit."""
    state, counts, visits = next(iter(rows)), Counter({next(iter(rows)): 1}), []
    while state in rows:
        row, number = rows[state], counts[state]
        result = row.results[(number - 1) % len(row.results)]
        target = {"no": row.failure, "error": row.failure, "branch": row.branch, "not ready": state}.get(
            result, row.success
        )
        yielded = result == "not ready" or (target == state and not row.goes_on)
        if target in rows and counts[target] == rows[target].cap:
            target, yielded = f"max retries reached:{target}", False
        counts[target] += 1
        visits.append((state, number, target, yielded))
        state = target
    return state, visits


class Died(BaseException):
    """A worker's end without a word: nothing after this line happened."""


class Fate:
    """Counts the places where a worker may die, and lets it die at some of them."""

    def __init__(self, deaths: set[int]) -> None:
        self._deaths, self._passed = deaths, 0

    def __call__(self, place: str) -> None:
        if place.partition(":")[0] not in ("begin", "done", "checkpoint", "park", "complete", "fail"):
            return
        self._passed += 1
        if self._passed in self._deaths:
            raise Died(place)


@pytest.fixture
def fate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[set[int]], Fate]]:
    """Makes the kernel's crash points deadly, and death final: the drive must not record it as a failure."""
    recorded = drive._raised

    def raised(error: BaseException, *args: Any) -> None:
        if isinstance(error, Died):
            raise error
        recorded(error, *args)

    monkeypatch.setattr(drive, "_raised", raised)

    def arm(deaths: set[int]) -> Fate:
        armed = Fate(deaths)
        monkeypatch.setattr(crash, "point", armed)
        return armed

    before = set(registry.known_versions())
    yield arm
    for name in set(registry.known_versions()) - before:
        registry.unregister(name)


def state_of(row: Row, fate: Fate) -> State:
    def result(run: Run) -> str:
        return row.results[(run.visit - 1) % len(row.results)]

    def transition(run: Run) -> Any:
        fate("begin")
        key = f"{run.state}.{run.visit}"
        params = {key: run.step("once", lambda: next(_NUMBERS))}
        fate("done")
        match result(run):
            case "error":
                raise OSError(key)
            case "branch":
                return "aside", None, params
            case "none":
                return None
        return result(run) == "yes", None, params

    return State(transition, row.success, row.failure, row.goes_on, max_visits=row.cap, poll_every=SOON,
                 ready=lambda run: result(run) != "not ready", branches={"aside": row.branch},
                 retry_after=SOON if row.is_delayed else timedelta(0))  # fmt: skip


def drive_to_the_end(task: Task) -> None:
    while not Task.objects.get(pk=task.pk).is_terminal:
        for offered in due.offer(5, queues=None, bodies=registry.drivable()):
            try:
                drive.drive_one(offered.task_id, offered.lease, stopping=lambda: False, thread=False)
            except Died:
                lease.reap(offered.task_id, lost=Worker.current())


@override_settings(SUPERVISION={"MAX_RECOVERIES": 1000, "OFFER_SECONDS": 0})
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=tables(), deaths=st.sets(st.integers(1, 60), max_size=12))
def test_random_tables_mean_what_the_model_says_whoever_dies(
    fate: Callable[[set[int]], Fate], rows: Rows, deaths: set[int]
) -> None:
    armed = fate(deaths)
    name = f"model{next(_NUMBERS)}"
    work = Pipeline(name, initial="S0", terminal=ENDS, states={key: state_of(row, armed) for key, row in rows.items()})
    task = work.start("x")
    drive_to_the_end(task)

    state, visits = meant(rows)
    task.refresh_from_db()
    pointer = Pointer.objects.get(pipeline=name)
    recorded = Visit.objects.filter(run=task).order_by("sequence_num")
    assert list(recorded.values_list("state", "number", "next_state", "yielded")) == visits
    assert list(recorded.values_list("sequence_num", flat=True)) == list(range(1, len(visits) + 1))
    assert (pointer.state, pointer.visit_count) == (state, len(visits))
    assert pointer.generation == 1 + sum(target != source for source, _number, target, _yielded in visits)
    assert task.current_state == ENDS.get(state, "failed")
    assert task.watchdog_stop_reason == ("" if state == "DONE" else "failed:BAD" if state == "BAD" else state)
    handed_on = [outcome in ("success", "failure", "aside") for outcome in recorded.values_list("outcome", flat=True)]
    assert len(pointer.params) <= sum(handed_on)
    entries = LogEntry.objects.filter(task=task).order_by("sequence_num").values_list("sequence_num", flat=True)
    assert list(entries) == list(range(1, task.log_length + 1))

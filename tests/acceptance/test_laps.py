"""Twelve subjects, three clusters at once, hundreds of runs: one live run of each, and a visit for every move.

``SUPERVISION_TEST_ROUNDS=200`` makes it two hundred rounds of each subject, which take a minute and a half.
"""

import os
import threading
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from django.db import connection

from supervision.engines import registry, starting
from supervision.engines.pipelines.models import Pointer, Visit
from supervision.engines.pipelines.run import key_of
from supervision.errors import ConcurrencyKeyHeld
from supervision.kernel.models import LogEntry, Task
from tests.processes import StartCluster, wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.django_db(transaction=True)]

ROUNDS = int(os.environ.get("SUPERVISION_TEST_ROUNDS", "20"))
SUBJECTS = [f"customer {number:02d}" for number in range(1, 13)]
WAY = [("OUT", 1, "WAIT"), ("WAIT", 1, "WAIT"), ("WAIT", 2, "BACK"), ("BACK", 1, "HOME")]


@pytest.fixture(autouse=True)
def _marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SUPERVISION_TEST_MARKS", str(tmp_path))
    import tests.bodies.laps  # noqa: F401 - registers it here, too

    yield
    registry.unregister("laps")


class Starter(threading.Thread):
    """Starts runs of all subjects over and over; several of these race for each."""

    def __init__(self) -> None:
        super().__init__()
        self.is_over = threading.Event()
        self.refused = 0

    def run(self) -> None:
        try:
            while not self.is_over.wait(0.01):
                for subject in SUBJECTS:
                    try:
                        starting.start("laps", {}, subject=subject, concurrency_key=key_of("laps", subject))
                    except ConcurrencyKeyHeld:
                        self.refused += 1
        finally:
            connection.close()


def test_no_subject_ever_has_two_live_runs_and_every_move_is_a_visit(start_cluster: StartCluster) -> None:
    for _ in range(3):
        start_cluster(workers=2)
    starters = [Starter(), Starter()]
    for starter in starters:
        starter.start()
    try:
        wait_for(_all_rounds_are_done, f"each subject has come round {ROUNDS} times", seconds=20 + ROUNDS)
    finally:
        for starter in starters:
            starter.is_over.set()
            starter.join()
    wait_for(lambda: not Task.objects.live().exists(), "all runs have ended", seconds=20)
    assert all(starter.refused for starter in starters)
    assert not Visit.objects.exclude(errors="").exists(), "each was alone"
    _runs_of_one_subject_do_not_overlap()
    for pointer in Pointer.objects.all():
        visits = list(pointer.visits.order_by("sequence_num").values_list("run_id", "state", "number", "next_state"))
        runs = Counter(run for run, *_rest in visits)
        assert [tuple(rest) for _run, *rest in visits] == WAY * len(runs)
        assert (pointer.visit_count, set(runs.values()), pointer.state) == (len(visits), {4}, "HOME")
        assert len(runs) == Task.objects.filter(subject=pointer.subject).count() >= ROUNDS
        # each run begins with a move of the pointer, and makes three to another state
        assert pointer.generation == 4 * len(runs)


def _all_rounds_are_done() -> bool:
    done = Task.objects.filter(current_state="completed").values_list("subject", flat=True)
    rounds = Counter(done)
    return all(rounds[subject] >= ROUNDS for subject in SUBJECTS)


def _runs_of_one_subject_do_not_overlap() -> None:
    entries = LogEntry.objects.order_by("sequence_num").values_list("task_id", "created_at")
    ends, takes = dict(entries.filter(event="task_completed")), dict(entries.filter(event="task_taken").reverse())
    for subject in SUBJECTS:
        runs = Task.objects.filter(subject=subject).order_by("created_at").values_list("pk", flat=True)
        for first, second in pairwise(runs):
            assert ends[first] <= takes[second], f"two live runs of {subject}"

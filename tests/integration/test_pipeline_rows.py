"""Visits are append-only by trigger, with the log's two doors."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.files.base import ContentFile
from django.db import DatabaseError, connection, transaction
from django.test import TestCase, override_settings

from supervision.engines import Pipeline, Run, State, registry
from supervision.engines.pipelines.models import Pointer, Visit
from supervision.errors import LeaseLost
from supervision.kernel import ends, files, lease, retention
from supervision.kernel.archive import Archive
from supervision.kernel.branches import Branch
from supervision.kernel.models import Task
from supervision.testing import run_until_idle
from tests.integration import rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def work() -> Iterator[Pipeline]:
    def transition(run: Run) -> Any:
        return False, "Ann Other has no address", {"name": "Ann Other"}

    states = {"A": State(transition, "DONE", "DONE", True)}
    yield Pipeline("rows", initial="A", terminal={"DONE": "completed"}, states=states)
    for name in ("rows", "other"):
        registry.unregister(name)


@pytest.fixture
def ended(work: Pipeline) -> Task:
    """A run that has ended, with a visit that names a person."""
    task = work.start("x")
    run_until_idle()
    return Task.objects.get(pk=task.pk)


def refused(statement: str, hint: str = "append-only") -> None:
    with pytest.raises(DatabaseError, match=hint) as error, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)
    assert getattr(error.value.__cause__, "sqlstate", "") == "23001"


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE supervision_visit SET errors = 'none'",
        "UPDATE supervision_visit SET errors = '[erased]'",
        "UPDATE supervision_visit SET next_state = 'A'",
        "DELETE FROM supervision_visit",
        "TRUNCATE supervision_visit",
    ],
)
def test_a_visit_is_not_changed_and_not_removed(ended: Task, statement: str) -> None:
    refused(statement)
    assert Visit.objects.get().errors == "Ann Other has no address"


def test_visits_leave_with_the_task_of_their_run(ended: Task) -> None:
    states = {"A": State(lambda run: None, "DONE", "DONE", True)}
    other = Pipeline("other", initial="A", terminal={"DONE": "completed"}, states=states).start("x")
    run_until_idle()
    retention.prune(ended.pk)
    assert [visit.run_id for visit in Visit.objects.all()] == [other.pk]
    assert Pointer.objects.get(pipeline="rows").state == "DONE"


def test_visits_are_archived_with_the_task_of_their_run(ended: Task, tmp_path: Path) -> None:
    with Archive(tmp_path / "archive") as archive:
        retention.prune(ended.pk, before=archive.add)
    visits = [
        json.loads(line)["visit"]
        for line in (tmp_path / "archive").read_text().splitlines()
        if line.startswith('{"visit"')
    ]
    assert [(visit["run_id"], visit["errors"]) for visit in visits] == [(str(ended.pk), "Ann Other has no address")]


def test_a_file_that_a_run_has_handed_on_outlives_its_task(work: Pipeline, ended: Task, tmp_path: Path) -> None:
    with override_settings(MEDIA_ROOT=tmp_path), TestCase.captureOnCommitCallbacks(execute=True):
        document = files.store(ContentFile(b"x", "x.txt"))
        task = rows.running(arguments={"document": document.reference})
        ends.complete(task.pk, task.lease)
        Pointer.objects.filter(run_id=ended.pk).update(params={"document": document.reference})
        retention.prune(task.pk)
    assert (tmp_path / document.path).exists()


def test_a_run_after_a_pruned_one_still_knows_what_it_handed_on(ended: Task) -> None:
    retention.prune(ended.pk)
    seen: list[Any] = []
    registry.unregister("rows")
    work = Pipeline("rows", initial="A", terminal={"DONE": "completed"},
                    states={"A": State(lambda run: seen.append(run.previous), "DONE", "DONE", True)})  # fmt: skip
    work.start("x")
    run_until_idle()
    assert (seen[0].params, seen[0].visits, seen[0].end) == ({"name": "Ann Other"}, [], "")


def test_a_persons_data_is_erased_from_visits_and_pointers_and_nothing_else(ended: Task) -> None:
    before = Visit.objects.values("state", "number", "outcome", "entered_at", "left_at").get()
    retention.erase(ended.pk, by="op")
    visit = Visit.objects.get()
    assert visit.errors == "[erased]"
    assert Visit.objects.values(*before).get() == before
    assert Pointer.objects.get().params == {"erased": True}
    refused("UPDATE supervision_visit SET outcome = 'success'")


def test_a_persons_data_is_erased_from_what_the_next_run_keeps_of_it(work: Pipeline, ended: Task) -> None:
    work.start("x")
    run_until_idle()
    assert Pointer.objects.get().previous["params"] == {"name": "Ann Other"}  # type: ignore[index]
    retention.erase(ended.pk, by="op")
    assert Pointer.objects.get().previous["params"] == {"erased": True}  # type: ignore[index]


def test_a_stale_worker_moves_no_pointer(work: Pipeline) -> None:
    task = work.start("x")
    taken = lease.take(task.pk, 0)
    assert taken is not None
    run = Run(taken, pulse=_Alive(), stopping=lambda: False)
    run.open(work.table)
    branch = Branch("moved", "UPDATE supervision_pointer SET state = 'DONE' FROM task", {})
    for verb in (lease.checkpoint, _park):
        with pytest.raises(LeaseLost):
            verb(task.pk, taken.lease - 1, branches=[branch])
    assert Pointer.objects.get().state == "A"
    lease.checkpoint(task.pk, taken.lease, branches=[branch])
    assert Pointer.objects.get().state == "DONE"


def _park(task_id: Any, task_lease: int, **options: Any) -> None:
    lease.park(task_id, task_lease, "sleeping", **options)


class _Alive:
    def is_fresh(self) -> bool:
        return True

    def is_lost(self) -> bool:
        return False

    def beat(self) -> bool:
        return True

    def progress(self, done: int | None, total: int | None, text: str | None) -> None: ...

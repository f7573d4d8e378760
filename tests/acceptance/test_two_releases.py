"""Two releases side by side, each with a cluster of its own: all work goes on, each task where it can be finished."""

from collections.abc import Iterable
from functools import partial
from typing import Protocol
from uuid import UUID

import pytest

from supervision.kernel import creation, lifecycle, signals_in
from supervision.kernel.models import LogEntry, Task
from tests.acceptance import tasks
from tests.processes import Cluster, StartCluster, wait_for

pytestmark = pytest.mark.cluster

VERSIONS = {"old": 1, "new": 2}


class Deploy(Protocol):
    """Starts the cluster of a release. ``grace`` seconds are left to others before an old task is parked."""

    def __call__(self, release: str, *, grace: float = 60.0) -> Cluster: ...


@pytest.fixture
def deploy(start_cluster: StartCluster, monkeypatch: pytest.MonkeyPatch) -> Deploy:
    def deploy(release: str, *, grace: float = 60.0) -> Cluster:
        monkeypatch.setenv("SUPERVISION_TEST_RELEASE", release)
        return start_cluster(workers=2, supervision={"VERSION_GRACE_SECONDS": grace})

    return deploy


def create(name: str, release: str, count: int = 1) -> list[UUID]:
    """Tasks as a process of that release creates them."""
    return [creation.create(name, body_version=VERSIONS[release]).pk for _ in range(count)]


def go(task_ids: Iterable[UUID]) -> None:
    for task_id in task_ids:
        signals_in.send(task_id, "go")


def wait_for_half(task_ids: list[UUID]) -> None:
    halfway = Task.objects.filter(pk__in=task_ids, watchdog_stop_reason="awaiting_signal:go")
    wait_for(lambda: halfway.count() == len(task_ids), "all have done their first half")


def results(task_ids: list[UUID]) -> list[list[str]]:
    """Of all of them, completed."""
    for task_id in task_ids:
        tasks.wait_for_state(task_id, "completed", seconds=15)
    return [task.result or [] for task in Task.objects.filter(pk__in=task_ids)]


def is_parked_for_a_word(task_id: UUID) -> bool:
    return tasks.reason(task_id) == "version_changed:1->2"


def park_reasons() -> set[str]:
    """The first words of every reason for which any task was ever parked."""
    parked = LogEntry.objects.filter(event="task_parked").values_list("payload__reason", flat=True)
    return {reason.partition(":")[0] for reason in parked}


def test_each_release_finishes_its_own_incompatible_tasks(deploy: Deploy) -> None:
    deploy("old")
    deploy("new")
    old, new = create("incompatible", "old", 12), create("incompatible", "new", 12)
    wait_for_half(old + new)
    go(old + new)
    assert results(old) == [["old", "old", "1"]] * 12
    assert results(new) == [["new", "new", "2"]] * 12
    assert park_reasons() == {"awaiting_signal"}


def test_compatible_tasks_go_on_in_either_release_and_outlive_the_old_one(deploy: Deploy) -> None:
    first = deploy("old")
    old = create("compatible", "old", 6)
    wait_for_half(old)
    deploy("new")
    new = create("compatible", "new", 6)
    wait_for_half(new)
    go(new)
    assert results(new) == [["new", "new", "2"]] * 6
    assert first.stop() == 0
    go(old)
    assert results(old) == [["old", "new", "1"]] * 6
    assert park_reasons() == {"awaiting_signal"}


def test_newer_tasks_and_bodies_are_left_to_the_newer_release(deploy: Deploy) -> None:
    deploy("old")
    new = create("compatible", "new") + create("incompatible", "new") + create("added", "new")
    old = create("incompatible", "old", 4)  # due after them, and taken all the same
    wait_for_half(old)
    assert set(Task.objects.filter(pk__in=new).values_list("current_state", "lease")) == {("pending", 0)}
    deploy("new")
    wait_for_half(new)
    go(new)
    assert results(new) == [["new", "new", "2"]] * 3
    assert park_reasons() == {"awaiting_signal"}


def test_what_the_last_old_worker_left_waits_for_a_word_and_for_old_workers(deploy: Deploy) -> None:
    first = deploy("old")
    left = create("incompatible", "old", 2)
    wait_for_half(left)
    assert first.stop() == 0
    deploy("new", grace=0.2)
    go(left)
    for task_id in left:
        wait_for(partial(is_parked_for_a_word, task_id), "it waits for a word")
    lifecycle.resume(left[0], by="alice")
    assert results(left[:1]) == [["old", "new", "1"]]
    assert is_parked_for_a_word(left[1])
    deploy("old")
    assert results(left[1:]) == [["old", "old", "1"]]

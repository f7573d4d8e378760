"""Prune is killed at every point, in the middle of a line too: the archive and the tables hold each entry once."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.management import call_command

from supervision.kernel import archive, crash, pruning
from supervision.kernel.archive import Archive
from supervision.kernel.models import LogEntry, Task, Tombstone
from tests.crash import lives
from tests.integration.test_retention import family, file  # noqa: F401 - a fixture

pytestmark = pytest.mark.django_db(transaction=True)

Key = tuple[UUID, int]


def in_tables() -> Counter[Key]:
    return Counter(LogEntry.objects.values_list("task_id", "sequence_num"))


def in_archive(path: Path) -> Counter[Key]:
    """Of whole lines."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    entries = [json.loads(line)["entry"] for line in lines if line.startswith(b'{"entry": ')]
    return Counter((UUID(each["task_id"]), each["sequence_num"]) for each in entries)


def life(path: Path, points: int) -> bool:
    """A prune that dies at its so-manieth point: in the middle of each line, and around each commit."""
    passed = Counter[str]()

    def point(name: str) -> None:
        passed["all"] += 1
        if passed["all"] == points:
            os._exit(crash.EXIT_STATUS)

    def write(self: Any, value: Any) -> None:
        line = json.dumps(value).encode() + b"\n"
        self._file.write(line[: len(line) // 2])
        point("line")
        self._file.write(line[len(line) // 2 :])

    def arm() -> None:
        crash.point = point
        archive.Archive._write = write  # type: ignore[method-assign]
        pruning._TASKS = 2

    def work() -> None:
        with Path(os.devnull).open("w") as nowhere:
            call_command("supervision_prune", "--older-than=0d", "--archive", str(path), stdout=nowhere)

    return lives.in_a_fork(arm, work)


def test_killed_at_every_point_the_archive_and_the_tables_hold_each_entry_once(file: Path) -> None:  # noqa: F811
    for _ in range(2):
        family()
    everything = in_tables()
    deaths, point, gone = 0, 1, 0
    while life(file, point):
        deaths += 1
        assert everything - in_tables() - in_archive(file) == Counter(), "lost"
        with Archive(file):  # as the next prune does
            assert in_tables() + in_archive(file) == everything
        point += 1
        if Tombstone.objects.count() > gone:  # a batch is through: again from its first point on
            gone, point = Tombstone.objects.count(), 1
    assert deaths > 20
    assert not Task.objects.exists()
    assert in_archive(file) == everything

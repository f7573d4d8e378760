"""The archive: a file of JSON lines that whole families of tasks are written to before they leave the tables.

A batch is a head line and the rows of its tasks, one a line: ``{"entry": {...}}``. It is on the disk before the
transaction that deletes the rows commits. So what a kill leaves is a last batch that the tables may still hold:
opening the file looks, by the tombstone of the head's task, and takes such a batch back. Each entry is then in the
archive or in the tables, and not in both.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import IO, Any
from uuid import UUID

from django.db import connections
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import ArchiveUnusable
from supervision.kernel import clock, crash, masking, retention
from supervision.kernel.models import Task, Tombstone
from supervision.kernel.states import TERMINAL

_HEAD = b'{"batch": '
_CHUNK = 1 << 16
_ROWS = 200
"""So many are in memory at a time: each may have 256 KiB of arguments and more of results."""

_KINDS: Mapping[str, str] = {
    "task": "SELECT * FROM supervision_task WHERE id = ANY (%(ids)s::uuid[]) ORDER BY id",
    "plan": "SELECT * FROM supervision_plan WHERE task_id = ANY (%(ids)s::uuid[]) ORDER BY task_id",
    "node": "SELECT * FROM supervision_node WHERE run_id = ANY (%(ids)s::uuid[]) ORDER BY run_id, number",
    "entry": "SELECT * FROM supervision_logentry WHERE task_id = ANY (%(ids)s::uuid[]) ORDER BY task_id, sequence_num",
    "question": "SELECT * FROM supervision_question WHERE task_id = ANY (%(ids)s::uuid[]) ORDER BY id",
    "vote": """SELECT vote.*, question.task_id FROM supervision_vote AS vote
                 JOIN supervision_question AS question ON question.id = vote.question_id
                WHERE question.task_id = ANY (%(ids)s::uuid[]) ORDER BY vote.id""",
    "signal": "SELECT * FROM supervision_signal WHERE task_id = ANY (%(ids)s::uuid[]) ORDER BY task_id, position",
}


class Archive:
    """The file, open, locked against other processes, and mended. A context manager; only its owner may read it.

    Raises ArchiveUnusable for a file that is no archive, that somebody else is writing, or that ends with tasks which
    this database never had.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ArchiveUnusable(path, str(error.strerror)) from None
        # unbuffered: what a full disk doesn't take must not be tried again by the mending
        self._file: IO[bytes] = os.fdopen(descriptor, "r+b", buffering=0)
        self._pending = bytearray()
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            begins = self._file.read(len(_HEAD))  # torn in the first head: a part of it
            if not _HEAD.startswith(begins):
                raise ArchiveUnusable(path, _("it is something else; nothing was written to it"))
            self.mend()
        except BlockingIOError:
            self._file.close()
            raise ArchiveUnusable(path, _("another prune is writing to it")) from None
        except BaseException:
            self._file.close()
            raise
        self._sync_folder()

    def __enter__(self) -> Archive:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, task_ids: Sequence[UUID]) -> None:
        """Adds the rows of these tasks as one batch; on the disk when it returns. Sensitive arguments are masked.

        For ``retention.prune(before=...)``, within its transaction. Reads as it writes: memory doesn't grow with them.
        Raises ArchiveUnusable where the disk is full; ``mend`` then takes back what was written.
        """
        self._file.seek(0, os.SEEK_END)
        head = {"batch": {"task": str(task_ids[0]), "tasks": len(task_ids), "at": clock.now().isoformat()}}
        self._write(head)
        secrets: dict[str, list[str]] = {}
        for kind, query in _all_kinds().items():
            for row in _rows(query, task_ids):
                # whose secrets: a node is its run's, and has the task of its child beside it
                task = row["id"] if kind == "task" else row.get("run_id") or row.get("task_id") or ""
                own = masking.secrets_of(row["arguments"], row["sensitive"]) if row.get("sensitive") else []
                handed = secrets.get(row.get("parent_id") or "", [])  # parents have smaller ids, and come first
                if own or handed:
                    secrets[task] = sorted({*secrets.get(task, ()), *own, *handed}, key=len, reverse=True)
                if row.get("sensitive"):
                    row["arguments"] = masking.mask_names(row["arguments"], row["sensitive"])
                known = secrets.get(task)
                self._write({kind: masking.mask_values(row, known) if known else row})
        self._flush()
        crash.point("archive:before_commit")
        os.fsync(self._file.fileno())
        crash.point("archive:after_commit")

    def mend(self) -> None:
        """Takes back the last batch, torn or whole, if its tasks are still in the tables; and so on with the one before
        it, after a restore of the database."""
        self._cut(self._last(b"\n") or 0)  # a torn line; its batch was not on the disk, so it is in the tables
        while (found := self._last(b"\n" + _HEAD)) is not None or self._file.seek(0, os.SEEK_END):
            start = found or 0
            head = json.loads(next(self._lines(start)))["batch"]
            if Tombstone.objects.using(settings.DATABASE).filter(pk=head["task"]).exists():
                return
            self._refuse_unless_in_tables(start)
            self._cut(start)

    def _write(self, value: Any) -> None:
        self._pending += json.dumps(value, ensure_ascii=False).encode() + b"\n"
        if len(self._pending) >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        pending, self._pending = memoryview(bytes(self._pending)), bytearray()
        while pending:
            try:
                pending = pending[self._file.write(pending) :]
            except OSError as error:
                raise ArchiveUnusable(self._path, str(error.strerror)) from None

    def _last(self, mark: bytes) -> int | None:
        """Where the line after the last ``mark`` begins, looked for from the end, however large the file is."""
        end = self._file.seek(0, os.SEEK_END)
        tail = b""
        while end > 0:
            begin = max(0, end - _CHUNK)
            self._file.seek(begin)
            tail = self._file.read(end - begin) + tail[: len(mark) - 1]
            found = tail.rfind(mark)
            if found >= 0:
                return begin + found + 1
            end = begin
        return None

    def _cut(self, size: int) -> None:
        if size < self._file.seek(0, os.SEEK_END):
            self._file.truncate(size)
            os.fsync(self._file.fileno())

    def _refuse_unless_in_tables(self, start: int) -> None:
        """Before a batch is taken back: all that it has of tasks stands in this database, ended, at the same length."""
        lines = self._lines(start)
        next(lines)
        written: dict[UUID, int] = {}
        for line in takewhile(lambda each: each.startswith(b'{"task": '), lines):
            row = json.loads(line)["task"]
            written[UUID(row["id"])] = row["log_length"]
            if len(written) >= _ROWS:
                self._compare(written)
        self._compare(written)

    def _lines(self, start: int) -> Iterator[bytes]:
        with self._path.open("rb") as reading:
            reading.seek(start)
            yield from reading

    def _compare(self, written: dict[UUID, int]) -> None:
        tasks = Task.objects.using(settings.DATABASE).filter(pk__in=written, current_state__in=TERMINAL)
        if dict(tasks.values_list("pk", "log_length")) != written:
            raise ArchiveUnusable(
                self._path,
                _("it ends with tasks that this database has neither kept nor removed. Is it another database's, or "
                  "was an older backup restored? Begin a new file"),
            )  # fmt: skip
        written.clear()

    def _sync_folder(self) -> None:
        """A new file's name is on the disk, too."""
        folder = os.open(self._path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _all_kinds() -> dict[str, str]:
    kinds = dict(_KINDS)
    for rows in retention.attached():
        kinds |= getattr(rows, "archived", {})
    return kinds


def _rows(query: str, task_ids: Sequence[UUID]) -> Iterator[dict[str, Any]]:
    """By a cursor of the server, a few at a time."""
    wrapper = connections[settings.DATABASE]
    with wrapper.chunked_cursor() as cursor:
        cursor.execute(f"SELECT to_jsonb(kept)::text FROM ({query}) AS kept", {"ids": list(task_ids)})  # noqa: S608
        while some := cursor.fetchmany(_ROWS):
            for (text,) in some:
                yield json.loads(text)

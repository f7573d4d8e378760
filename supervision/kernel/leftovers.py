"""Files that would be left in the storage when the rows that refer to them go."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.core.files.storage import default_storage
from django.db import transaction
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.kernel import files, sql
from supervision.kernel.files import StoredFile
from supervision.kernel.sql import connection

logger = logging.getLogger(__name__)

# Where a reference may stand. Rows without one are left out by the database.
_VALUES = (
    ("supervision_task", "id", "arguments"),
    ("supervision_task", "id", "locked_decisions"),
    ("supervision_task", "id", "result"),
    ("supervision_logentry", "task_id", "payload"),
    ("supervision_question", "task_id", "answer"),
    ("supervision_signal", "task_id", "payload"),
    ("supervision_node", "run_id", "arguments"),
    ("supervision_node", "run_id", "output"),
)
_HAS_FILE = """LIKE '%%"stored_file"%%'"""
_FOUND = " UNION ALL ".join(
    f"SELECT {column}::text FROM {table} WHERE {key} = ANY (%(ids)s::uuid[]) AND {column}::text {_HAS_FILE}"  # noqa: S608
    for table, key, column in _VALUES
)
# Each stored file lies in a folder of its own, which nobody can guess and whose name JSON writes as it is. The log is
# only read of tasks of the same lineage: a retry keeps recorded steps, what else knows a file has it in its row.
_KEPT = [
    f"SELECT {column}::text AS value FROM {table} WHERE {column}::text {_HAS_FILE}"  # noqa: S608 - constants
    + (" AND task_id = ANY (%(lineage)s::uuid[])" if table == "supervision_logentry" else "")
    for table, _key, column in _VALUES
]
_ELSEWHERE = """
SELECT DISTINCT folder[1] FROM ({kept}) AS kept, regexp_matches(value, %(folder)s, 'g') AS folder
 WHERE folder[1] = ANY (%(folders)s::text[])
"""
_LINEAGE = """
SELECT fork.id FROM supervision_task AS task
  JOIN supervision_task AS fork ON fork.root_id = COALESCE(task.root_id, task.id) OR fork.id = task.root_id
 WHERE task.id = ANY (%(ids)s::uuid[])
"""
_FOLDER = "supervision/[0-9a-f-]{36}/"
_also: dict[tuple[str, str], None] = {}


def also_in(table: str, column: str) -> None:
    """From now on a file stays whose reference stands in that JSON or text column: of an engine's rows that outlive
    their tasks, or of a table of the project's own, which is in the same database."""
    _also[table, column] = None


@dataclass
class Found:
    """Stored files by their folders, and the tasks that may know the same files by their logs."""

    files: dict[str, StoredFile] = field(default_factory=dict)
    lineage: list[UUID] = field(default_factory=list)


def among(values: Iterable[Any]) -> Found:
    """The stored files that these values refer to. Forged references are left out."""
    stored = Found()
    for value in values:
        for file in files.found_in(value):
            if folder := re.match(_FOLDER, file.path):
                stored.files[folder[0]] = file
    return stored


def found(task_ids: Sequence[UUID]) -> Found:
    """The stored files that the rows of these tasks refer to. Forged references are left out."""
    stored = among(json.loads(text) for (text,) in sql.run(_FOUND, {"ids": list(task_ids)}))
    if stored.files:
        stored.lineage = [row[0] for row in sql.run(_LINEAGE, {"ids": list(task_ids)})]
    return stored


def remove(stored: Found) -> int:
    """Removes the files after the commit, but for those that a remaining row refers to; how many. Call it when the rows
    have gone. (A process killed just after the commit leaves them; nothing refers to them then.)

    Where there are any, this reads all tasks once.
    """
    if not stored.files:
        return 0
    parameters = {"folders": list(stored.files), "folder": _FOLDER, "lineage": stored.lineage}
    kept = {row[0] for row in sql.run(_ELSEWHERE.format(kept=" UNION ALL ".join([*_KEPT, *_also_kept()])), parameters)}
    paths = [file.path for folder, file in stored.files.items() if folder not in kept]
    transaction.on_commit(lambda: _delete(paths), using=settings.DATABASE, robust=True)
    return len(paths)


def _also_kept() -> list[str]:
    quoted = connection().ops.quote_name
    return [
        f"SELECT {quoted(column)}::text AS value FROM {quoted(table)} WHERE {quoted(column)}::text {_HAS_FILE}"  # noqa: S608
        for table, column in _also
    ]


def _delete(paths: Sequence[str]) -> None:
    for path in paths:
        try:
            default_storage.delete(path)
        except Exception as error:  # of whatever storage: the rows have gone already
            logger.warning(_("The file %(path)s could not be removed: %(error)s"), {"path": path, "error": error})

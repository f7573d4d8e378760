"""What an engine writes in the very statement of a checkpoint, or the transaction of a park: its rows and the task's
entry are one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from supervision.kernel import sql


@dataclass(frozen=True)
class Branch:
    """One INSERT or UPDATE of an engine's own table, as a common table expression called ``name``.

    ``sql`` must take its rows from ``task`` (id, log_length of the new entry, lease, now): where the guarded update of
    the task wrote nothing, the branch writes nothing. ``parameters`` join those of the statement, so prefix them.
    """

    name: str
    sql: str
    parameters: Mapping[str, Any]


def spliced(branches: Sequence[Branch]) -> str:
    """The branches as further expressions of a WITH that has ``task``."""
    return "".join(f", {branch.name} AS ({branch.sql})" for branch in branches) + "\n"


def parameters(branches: Sequence[Branch]) -> dict[str, Any]:
    return {name: value for branch in branches for name, value in branch.parameters.items()}


def run(task_id: UUID | str, branches: Sequence[Branch]) -> None:
    """The branches in the caller's transaction, which has locked the task and written its entry."""
    if branches:
        statement = _TASK + spliced(branches) + "SELECT id FROM task"  # noqa: S608 - constants
        sql.run(statement, {"task_id": str(task_id), **parameters(branches)})


_TASK = """
WITH task AS (
    SELECT id, log_length, lease, supervision_now_v1() AS now FROM supervision_task WHERE id = %(task_id)s::uuid
)"""

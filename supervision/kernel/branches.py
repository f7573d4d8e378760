"""What an engine writes in the very statement of a checkpoint, or the transaction of a park: its rows and the task's
entry are one commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

from supervision.kernel import sql


@dataclass(frozen=True)
class Branch:
    """One INSERT or UPDATE of an engine's own table, as a common table expression called ``name``.

    ``sql`` must take its rows from ``task`` (id, log_length of the new entry, lease, now): where the guarded update of
    the task wrote nothing, the branch writes nothing. ``parameters`` join those of the statement: give them a prefix.
    """

    name: str
    sql: str
    parameters: Mapping[str, Any]


def spliced(head: str, branches: Sequence[Branch], tail: str) -> str:
    """The statement with the branches as further expressions of the WITH of ``head``, which has ``task``."""
    return _spliced(head, tail, *[part for branch in branches for part in (branch.name, branch.sql)])


@lru_cache(maxsize=64)
def _spliced(head: str, tail: str, *parts: str) -> str:
    """Kept: the same few texts make up each statement of a hot path."""
    ctes = [f", {name} AS ({sql})" for name, sql in zip(parts[::2], parts[1::2], strict=True)]
    return "".join([head, *ctes, tail])


def parameters(branches: Sequence[Branch]) -> dict[str, Any]:
    return {name: value for branch in branches for name, value in branch.parameters.items()}


def run(task_id: UUID | str, branches: Sequence[Branch]) -> None:
    """The branches in the caller's transaction, which has locked the task and written its entry."""
    if branches:
        statement = spliced(_TASK, branches, " SELECT id FROM task")
        sql.run(statement, {"task_id": str(task_id), **parameters(branches)})


_TASK = """
WITH task AS (
    SELECT id, log_length, lease, supervision_now_v1() AS now FROM supervision_task WHERE id = %(task_id)s::uuid
)"""

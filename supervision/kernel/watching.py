"""Waiting for a task to change, without polling storms: for one client that wants to know, in its web process.

Whoever waits holds a shared advisory lock that stands for the task and LISTENs. A change that a client could act on (it
raises the generation) finds by that lock, in memory, that somebody waits, and only then notifies: a trigger of
migration 0005. What has no session that lasts (a transaction-pooling proxy) is served by the slow poll.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from django.db import DatabaseError, connections

from supervision.conf import settings

CHANNEL = "supervision_changed"
_POLL_SECONDS = 5.0
_GENERATION = "SELECT generation FROM supervision_task WHERE id = %s"
_WATCH = "SELECT pg_advisory_lock_shared(%s, hashtext(%s))"
_LOCKS = 0x53555056
"""``SUPV``, as in the trigger: what tells our advisory locks from a host's."""


def until_changed(task_id: UUID, after_generation: int, seconds: float) -> None:
    """Returns when the task's generation is above ``after_generation``, when it is gone, or after ``seconds``.

    Uses a connection of its own and, unless it is in a transaction, closes this thread's: a waiting client costs one
    connection. Never raises for the database's sake: whoever reads the row next reports it.
    """
    deadline = time.monotonic() + seconds
    try:
        with _session() as session:
            session.execute(_WATCH, [_LOCKS, str(task_id)])
            session.execute(f"LISTEN {CHANNEL}")
            while True:
                row = session.execute(_GENERATION, [task_id]).fetchone()
                left = deadline - time.monotonic()
                if row is None or row[0] > after_generation or left <= 0:
                    return
                for _notification in session.notifies(timeout=min(left, _POLL_SECONDS), stop_after=1):
                    pass
    except (psycopg.Error, DatabaseError):
        return


@contextmanager
def _session() -> Iterator[Any]:
    ours = connections[settings.DATABASE]
    if not ours.in_atomic_block:
        ours.close()
    wrapper = ours.copy()
    wrapper.connect()
    try:
        yield wrapper.connection
    finally:
        wrapper.close()

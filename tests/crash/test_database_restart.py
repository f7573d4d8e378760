"""PostgreSQL restarted under a running body: running work is recovered, never failed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.conf import settings

from tests.crash.processes import Child
from tests.crash.servers import Server, binaries, server_user
from tests.processes import ROOT


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    where, user = binaries(), server_user()
    if where is None:
        pytest.skip("no PostgreSQL binaries: neither beside pg_config, nor Debian's, nor the embedded package's")
    if user is None:
        pytest.skip("no user that a PostgreSQL server could run as")
    server = Server(where, user)
    try:
        try:
            server.start()
        except OSError as refusal:
            pytest.skip(f"the user {user} can't run {where}: {refusal}")
        environment = {"DATABASE_URL": server.url, "DJANGO_SECRET_KEY": settings.SECRET_KEY,
                       "DJANGO_SETTINGS_MODULE": "tests.cluster_settings"}  # fmt: skip
        migrate = [sys.executable, "manage.py", "migrate", "-v0"]
        subprocess.run(migrate, cwd=ROOT, env={**os.environ, **environment}, check=True, stdin=subprocess.DEVNULL)
        yield server
    finally:
        server.stop()


@pytest.fixture
def run(server: Server) -> Iterator[Any]:
    """Children on that server."""
    started: list[Child] = []

    def start(*arguments: str, **options: Any) -> Child:
        started.append(Child(*arguments, url=server.url, **options))
        return started[-1]

    yield start
    for child in started:
        child.clean_up()


def _task(server: Server, pk: str) -> tuple[Any, ...]:
    with psycopg.connect(server.url) as session:
        query = "SELECT current_state, watchdog_stop_reason, recoveries FROM supervision_task WHERE id = %s"
        row = session.execute(query, [pk]).fetchone()
    assert row is not None
    return tuple(row)


def _log(server: Server, pk: str) -> list[tuple[int, str, str]]:
    with psycopg.connect(server.url) as session:
        query = "SELECT sequence_num, event, name FROM supervision_logentry WHERE task_id = %s ORDER BY 1"
        return session.execute(query, [pk]).fetchall()


TOLD = ("checkpoint", "ask", "complete", "fail")
"""What a body does next when the database has been restarted beneath it."""


def test_a_database_restart_under_running_bodies_parks_their_tasks_and_fails_none(run: Any, server: Server) -> None:
    pks = [run("follow").said() for _ in TOLD]
    workers = [run("drive", pk) for pk in pks]
    for worker in workers:
        assert worker.hear() == "driving"
        worker.tell("checkpoint")
        assert worker.hear() == "done"
    server.restart()
    for worker, told in zip(workers, TOLD, strict=True):
        worker.tell(told)
    for worker in workers:
        assert worker.said() is True
    assert [_task(server, pk) for pk in pks] == [("parked", "connection_lost", 0)] * len(TOLD)

    again = [run("drive", pk) for pk in pks]
    for worker in again:
        assert worker.hear() == "driving"
        worker.tell("complete")
    for worker, pk in zip(again, pks, strict=True):
        assert worker.said() is True
        assert _task(server, pk)[0] == "completed"
        assert _log(server, pk) == [
            (1, "task_created", ""), (2, "task_taken", ""), (3, "task_checkpointed", "told"), (4, "task_parked", ""),
            (5, "task_taken", ""), (6, "task_completed", ""),
        ]  # fmt: skip


def test_a_worker_that_is_idle_while_the_database_restarts_takes_the_next_task(run: Any, server: Server) -> None:
    first, second = run("follow").said(), run("follow").said()
    worker = run("drive", first, second)
    assert worker.hear() == "driving"
    worker.tell("complete")
    assert worker.hear() == "idle"
    server.restart()
    worker.tell("next")
    assert worker.hear() == "driving"
    worker.tell("complete")
    assert worker.said() is True
    assert _task(server, second)[0] == "completed"

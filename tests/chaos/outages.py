"""Taking the database away: restarts as after a crash, and sessions that are cut off."""

from __future__ import annotations

import time

import psycopg

from tests.chaos.world import World
from tests.crash.servers import Server
from tests.processes import wait_for

STEPS = 5
_TERMINATE = """
SELECT count(pg_terminate_backend(pid)) FROM (
    SELECT pid FROM pg_stat_activity
     WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
     ORDER BY random() LIMIT 20
) AS victim
"""


def strike(world: World, server: Server, *, tasks: int, restarts: int, terminated: int) -> None:
    """Restarts and cuts, spread over the running of at least so many tasks by clusters that are already there."""
    blows = ["restart"] * restarts + ["terminate"] * max(1, terminated // 12)
    world.random.shuffle(blows)
    created = 0
    while blows or created < tasks or world.faults.get("terminated", 0) < terminated:
        if created < tasks or world.count_live() < 20:
            created += len(world.create(100, steps=STEPS, seconds=0.01))
        if (blows or ["terminate"])[0] == "restart":
            server.restart()
            world.did("restart")
        else:
            world.faults["terminated"] = world.faults.get("terminated", 0) + _terminate(server)
        blows = blows[1:]
        _let_run(world)


def _terminate(server: Server) -> int:
    with psycopg.connect(server.url, autocommit=True) as session:
        row = session.execute(_TERMINATE).fetchone()
    assert row is not None
    return int(row[0])


def _let_run(world: World) -> None:
    """Until some task has ended since, or a second has passed."""
    before, until = world.count_live(), time.monotonic() + 1
    wait_for(lambda: world.count_live() < before or time.monotonic() > until, "work goes on", 30)

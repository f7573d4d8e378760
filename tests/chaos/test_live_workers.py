"""Workers that live keep their tasks: under CPU load, blocked row locks, and steps of three leases' length."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import psycopg
import pytest

from tests.chaos.judge import judge
from tests.chaos.world import World, times
from tests.crash.servers import Server

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

LEASE = 3.0
LONG_STEP = 3 * LEASE
ROUNDS = times(1)
BURNERS = 6


@contextmanager
def burning() -> Iterator[list[psutil.Process]]:
    """More processes that eat the processors than there are processors."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BURNERS)]
    try:
        yield [psutil.Process(burner.pid) for burner in burners]
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


@contextmanager
def locking(world: World, url: str) -> Iterator[None]:
    """A client that holds the rows of running tasks, one after the other, for longer than the lease."""
    over = threading.Event()

    def hold() -> None:
        with psycopg.connect(url) as session:
            while not over.is_set():
                row = session.execute(
                    "SELECT id FROM supervision_task WHERE current_state = 'running' ORDER BY random() LIMIT 1 "
                    "FOR NO KEY UPDATE SKIP LOCKED"
                ).fetchone()
                if row is not None and not over.wait(LEASE * 1.5):
                    world.did("row held for more than the lease")
                session.rollback()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_live_workers_lose_nothing(world: World, server: Server) -> None:
    cluster = world.start_cluster(workers=4, LEASE_SECONDS=LEASE, BEAT_SECONDS=1, TICK_SECONDS=0.2)
    cluster.wait_until_ready()
    with burning() as burners, locking(world, server.url):
        began = time.monotonic()
        for _ in range(ROUNDS):
            world.create(3, steps=1, seconds=LONG_STEP)
            short = world.create(40, steps=5, seconds=0.05)
            world.wait_until_done(120, short)
        world.wait_until_done(180)
        took = time.monotonic() - began
        burnt = sum(burner.cpu_times().user for burner in burners)
    verdict = judge()
    verdict.assert_clean()
    assert verdict.losses == {}
    assert took > LONG_STEP
    assert world.faults["row held for more than the lease"] >= 2
    assert burnt > took * 0.3

"""PostgreSQL is restarted and cuts sessions off: nothing is lost, doubled, or failed for it."""

import pytest

from tests.chaos.judge import judge
from tests.chaos.outages import STEPS, strike
from tests.chaos.world import World, times
from tests.crash.servers import Server

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TASKS, RESTARTS, TERMINATED = times(1000), times(10), times(300)


def test_restarts_and_cut_sessions_lose_double_and_fail_nothing(world: World, server: Server) -> None:
    for cluster in [world.start_cluster(), world.start_cluster()]:
        cluster.wait_until_ready()
    strike(world, server, tasks=TASKS, restarts=RESTARTS, terminated=TERMINATED)
    world.wait_until_done(60)

    verdict = judge()
    verdict.assert_clean()
    assert world.faults["restart"] == RESTARTS
    assert world.faults["terminated"] >= TERMINATED
    assert verdict.tasks >= TASKS
    assert verdict.steps == verdict.tasks * STEPS
    # Else nobody was at work when it happened.
    assert verdict.losses.get("connection_lost", 0) + verdict.losses.get("worker_lost", 0) >= RESTARTS

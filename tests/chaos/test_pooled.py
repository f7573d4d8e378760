"""Through PgBouncer in transaction mode: kills and outages, in short."""

from collections.abc import Iterator

import pytest

from tests.chaos.conftest import point_at
from tests.chaos.judge import judge
from tests.chaos.outages import strike
from tests.chaos.pooler import Pooler, program
from tests.chaos.storms import KINDS, Storm
from tests.chaos.world import World, times
from tests.crash.servers import Server

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.skipif(program() is None, reason="no pgbouncer on this machine"),
]


@pytest.fixture
def pooled(server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process and its clusters reach the server through the pooler; a session is theirs for a transaction."""
    pooler = Pooler(server.url)
    monkeypatch.setenv("SUPERVISION_TEST_POOLED", "1")
    point_at(pooler.url, is_pooled=True)
    yield
    point_at(server.url)
    pooler.stop()


def test_kills_lose_nothing_through_a_pooler(pooled: None, world: World) -> None:
    storm = Storm(world)
    kills = times(2 * len(KINDS))
    storm.blow(kills)
    assert storm.settle() < 10
    judge().assert_clean()
    assert sum(world.faults.values()) == kills
    assert set(world.faults) == set(KINDS)


def test_outages_lose_nothing_through_a_pooler(pooled: None, world: World, server: Server) -> None:
    for cluster in [world.start_cluster(), world.start_cluster()]:
        cluster.wait_until_ready()
    restarts, terminated = times(3), times(60)
    strike(world, server, tasks=times(150), restarts=restarts, terminated=terminated)
    world.wait_until_done(60)
    judge().assert_clean()
    assert world.faults["restart"] == restarts
    assert world.faults["terminated"] >= terminated

"""Stops of each kind, over busy and idle clusters: none hangs, no process is left, nothing is lost."""

import signal
from collections.abc import Iterator

import pytest

from tests.chaos.judge import judge
from tests.chaos.nursery import BornCluster, Nursery
from tests.chaos.world import SUPERVISION, World, times

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

STOPS = times(30)
KINDS = [(signum, group) for signum in (signal.SIGTERM, signal.SIGINT) for group in (False, True)]
"""Of the main process, or of its whole group."""


@pytest.fixture
def nursery(world: World) -> Iterator[Nursery]:
    nursery = Nursery(SUPERVISION)
    yield nursery
    nursery.close()


def test_no_stop_hangs_or_leaves_a_process(world: World, nursery: Nursery) -> None:
    for at in range(STOPS):
        world.create(8 * (at % 2), steps=5, seconds=0.05)
        clusters = [world.adopt(lambda log: BornCluster(nursery, log)) for _ in KINDS]
        for cluster, (signum, group) in zip(clusters, KINDS, strict=True):
            cluster.wait_until_ready()
            assert cluster.stop(signum, group=group, seconds=10) == 0
            assert cluster.complaints() == []
            world.did(f"{signal.Signals(signum).name} to {'the group' if group else 'main'}")
    last = world.start_cluster()
    last.wait_until_ready()
    world.wait_until_done(60)
    judge().assert_clean()
    assert set(world.faults.values()) == {STOPS}
    assert len(world.faults) == len(KINDS)

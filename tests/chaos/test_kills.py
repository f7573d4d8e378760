"""Kill -9 over every process of a cluster: nothing is lost, recorded twice, or written by one that had lost it."""

import pytest

from tests.chaos.judge import judge
from tests.chaos.storms import KINDS, STEPS, WAVE, Storm
from tests.chaos.world import World, times

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

KILLS = times(60)
LAST_SECONDS = 10


def test_kills_lose_nothing_and_record_nothing_twice(world: World) -> None:
    storm = Storm(world)
    storm.blow(KILLS)
    took = storm.settle()

    verdict = judge()
    verdict.assert_clean()
    assert took < LAST_SECONDS
    assert sum(world.faults.values()) == KILLS
    assert set(world.faults) == set(KINDS)
    assert verdict.tasks >= KILLS * WAVE
    assert verdict.steps == verdict.tasks * STEPS
    # Else the kills hit nothing that ran.
    assert verdict.losses.get("worker_lost", 0) >= KILLS // 4

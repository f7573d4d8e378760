"""Killing: any process of a cluster, idle or busy, while tasks run."""

from __future__ import annotations

import contextlib
import os
import signal

from supervision.kernel.models import Heartbeat, Task
from tests.chaos.world import World, steadily
from tests.processes import Role, wait_for

KINDS = ("busy worker", "idle worker", "pusher", "monitor", "sentinel", "main", "group")
STEPS = 5
WAVE = 10


class Storm:
    """Waves of tasks over two clusters; in or after each wave one process (or a whole group) is killed."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._clusters = [world.start_cluster(), world.start_cluster()]
        for cluster in self._clusters:
            cluster.wait_until_ready()

    def blow(self, kills: int) -> None:
        """So many kills, of each kind about as many, in a random order."""
        kinds = [KINDS[at % len(KINDS)] for at in range(kills)]
        self._world.random.shuffle(kinds)
        for kind in kinds:
            wave = self._world.create(WAVE, steps=STEPS, seconds=0.02)
            if kind == "idle worker":
                self._world.wait_until_done(30, wave)
            else:
                wait_for(lambda: steadily(_is_busy), "work is under way", 30)
            self._kill(kind)
            self._replace()

    def settle(self) -> float:
        """Wait until all is done; how long that took."""
        return self._world.wait_until_done(60)

    def _kill(self, kind: str) -> None:
        cluster = self._world.random.choice(self._clusters)
        cluster.wait_until_ready()
        if kind == "group":
            os.killpg(cluster.pid, signal.SIGKILL)
        elif kind == "busy worker":
            wait_for(lambda: self._kill_busy(), "a busy worker is killed", 30)
        else:
            role: Role = "worker" if kind == "idle worker" else kind  # type: ignore[assignment]
            cluster.kill(role)
        if kind in ("group", "main", "sentinel"):
            cluster.wait_until_gone()
        self._world.did(kind)

    def _kill_busy(self) -> bool:
        """The process that drives some task right now; False if there is none at the moment."""
        pids = {pid for cluster in self._clusters for pid in cluster.pids("worker")}
        driving = Heartbeat.objects.filter(task__current_state="running", pid__in=pids).values_list("pid", flat=True)
        pid = steadily(driving.first)
        if pid is None:
            if not self._world.count_live():
                self._world.create(WAVE, steps=STEPS, seconds=0.02)
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            return True
        return False

    def _replace(self) -> None:
        self._clusters = [cluster if cluster.alive() else self._world.start_cluster() for cluster in self._clusters]


def _is_busy() -> bool:
    return Task.objects.filter(current_state="running").exists()

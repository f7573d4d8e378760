"""Real clusters for tests: see ``tests.processes``."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.processes import Cluster, StartCluster


@pytest.fixture
def start_cluster(transactional_db: None, tmp_path: Path) -> Iterator[StartCluster]:
    """Starts clusters on the test's database: arguments of the command, ``workers=``, ``supervision={...}``."""
    started: list[Cluster] = []

    def start(
        *arguments: str,
        workers: int = 2,
        supervision: Mapping[str, object] | None = None,
        command: str = "supervision_worker",
    ) -> Cluster:
        log = tmp_path / f"cluster-{len(started)}.log"
        cluster = Cluster(log, *arguments, workers=workers, supervision=supervision, command=command)
        started.append(cluster)
        if command == "supervision_worker":
            cluster.wait_until_ready()
        return cluster

    yield start
    for cluster in started:
        cluster.clean_up()
        print(cluster.output())  # noqa: T201 (pytest shows it when the test failed)


@pytest.fixture
def cluster(start_cluster: StartCluster) -> Cluster:
    """A cluster of two workers that is ready."""
    return start_cluster()

"""Fixtures of the chaos suite."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dj_database_url
import pytest
from django.core.management import call_command
from django.db import connection, connections

from supervision.testing import prune_all
from tests.chaos.world import WITNESS, World, steadily
from tests.crash.servers import Server, binaries, server_user


@pytest.fixture(scope="package")
def server(django_db_blocker: Any) -> Iterator[Server]:
    """A server that only this suite uses, with the tables; this process's Django is pointed at it meanwhile."""
    where, user = binaries(), server_user()
    if where is None or user is None:
        pytest.skip("no PostgreSQL binaries, or no user that could run them")
    server = Server(where, user)
    before = connections["default"].settings_dict.copy()
    try:
        server.start()
        with django_db_blocker.unblock():
            point_at(server.url)
            call_command("migrate", verbosity=0)
            with connection.cursor() as cursor:
                cursor.execute(WITNESS)
            yield server
    finally:
        connections["default"].close()
        connections["default"].settings_dict.update(before)
        server.stop()


def point_at(url: str, *, is_pooled: bool = False) -> None:
    """Have this process's Django, and the clusters that it starts, use that database."""
    default = connections["default"]
    default.close()
    default.settings_dict.update(dict(dj_database_url.parse(url)))
    default.settings_dict["OPTIONS"] = {"prepare_threshold": None if is_pooled else 5}


@pytest.fixture
def world(server: Server, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """An empty database, and clusters that are killed at the end."""
    steadily(prune_all)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE chaos_witness, supervision_cluster")
    world = World(tmp_path)
    yield world
    world.clean_up()
    print(json.dumps({"test": request.node.name, "seed": world.seed, "faults": world.faults}))  # noqa: T201
    print(world.output())  # noqa: T201 (pytest shows it when the test failed)

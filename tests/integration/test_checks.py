"""System checks: each is seen to fire, by its id and with a remedy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings as django_settings
from django.core.checks import run_checks
from django.db import connection, connections
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings

from supervision import checks
from supervision.engines import Context, body, registry
from supervision.kernel import lease

pytestmark = pytest.mark.django_db


def fired(*, databases: list[str] | None = None) -> set[str]:
    """The ids of ours that fire. Each says what to do."""
    found = [each for each in run_checks(databases=databases) if str(each.id).startswith("supervision.")]
    assert all(each.hint for each in found)
    return {str(each.id) for each in found}


@pytest.fixture
def other_database() -> Iterator[None]:
    connections.databases["lite"] = {**connections.databases["default"], "ENGINE": "django.db.backends.sqlite3",
                                     "NAME": ":memory:", "OPTIONS": {}}  # fmt: skip
    yield
    del connections.databases["lite"]
    if hasattr(connections._connections, "lite"):  # type: ignore[attr-defined]
        del connections["lite"]


def test_nothing_fires_in_this_project() -> None:
    assert fired(databases=["default"]) == set()


@pytest.mark.parametrize(
    ("supervision", "expected"),
    [
        ({"LEASE_SECOND": 15}, "supervision.E001"),
        ({"BEAT_SECONDS": 6}, "supervision.E002"),
        ({"BEAT_SECONDS": 0}, "supervision.E002"),
        ({"DATABASE": "nowhere"}, "supervision.E003"),
        ({"ANSWER_LINKS": True}, "supervision.W012"),
        ({"OWNERS": "no.such.function"}, "supervision.E011"),
        ({"VISIBLE_TASKS": "supervision.__version__"}, "supervision.E011"),
        ({"API_READS": "often"}, "supervision.E012"),
        ({"API_WRITES": "0/min"}, "supervision.E012"),
    ],
)
def test_a_setting_that_would_hurt_is_named(supervision: dict[str, Any], expected: str) -> None:
    with override_settings(SUPERVISION=supervision):
        assert fired() == {expected}


def test_another_database_than_postgresql_is_named(other_database: None) -> None:
    with override_settings(SUPERVISION={"DATABASE": "lite"}):
        (found,) = checks.check_engine(None)
    assert found.id == "supervision.E004"
    assert found.hint


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"pool": True}, "supervision.E005"), ({"isolation_level": 3}, "supervision.E006")],
    ids=["pool", "isolation_level"],
)
def test_an_option_of_the_connection_that_would_hurt_is_named(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], expected: str
) -> None:
    monkeypatch.setitem(connection.settings_dict, "OPTIONS", options)
    assert fired() == {expected}


@pytest.mark.parametrize(
    ("cluster", "expected"),
    [
        ({"sync": True}, "supervision.W001"),
        ({"timeout": 90, "retry": 60}, "supervision.W002"),
        ({"save_limit": 250}, "supervision.W003"),
    ],
    ids=["sync", "retry", "save_limit"],
)
def test_a_setting_of_the_cluster_that_would_hurt_is_named(cluster: dict[str, Any], expected: str) -> None:
    with override_settings(Q_CLUSTER={**django_settings.Q_CLUSTER, **cluster}):
        assert fired() == {expected}


def test_a_name_that_two_bodies_share_is_named() -> None:
    @body("test.twin")
    def first(task: Context) -> None:
        """The one that stays."""

    @body("test.twin")
    def second(task: Context) -> None:
        """The one that is kept out."""

    try:
        assert fired() == {"supervision.E007"}
        assert registry.get("test.twin").function is first
    finally:
        registry.unregister("test.twin")
    assert fired() == set()


def test_a_database_of_another_isolation_level_is_named() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL default_transaction_isolation = 'repeatable read'")
    assert fired(databases=["default"]) == {"supervision.E008"}


@pytest.mark.parametrize("trigger", sorted(checks.TRIGGERS))
def test_a_trigger_that_is_missing_or_disabled_is_named(trigger: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = %s", [trigger])
        table = cursor.fetchone()[0]
        cursor.execute(f"ALTER TABLE {table} DISABLE TRIGGER {trigger}")
    assert fired(databases=["default"]) == {"supervision.E009"}


def test_triggers_that_a_migration_is_about_to_make_keep_nobody_from_migrating() -> None:
    with connection.cursor() as cursor:
        cursor.execute("DROP TRIGGER supervision_task_tell_watchers ON supervision_task")
    assert fired(databases=["default"]) == {"supervision.E009"}
    MigrationRecorder(connection).record_unapplied(*MigrationLoader(connection).graph.leaf_nodes("supervision")[0])
    assert fired(databases=["default"]) == set()


def test_every_trigger_of_the_migrations_is_watched() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT tgname FROM pg_trigger WHERE tgname LIKE 'supervision_%%' AND NOT tgisinternal", [])
        present = {row[0] for row in cursor.fetchall()}
    assert present == checks.TRIGGERS


def test_the_identity_of_a_host_is_one_line() -> None:
    assert "\n" not in lease.host_identity()

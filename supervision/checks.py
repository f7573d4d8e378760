"""System checks: each id with its remedy. Those that ask the database run with ``check --database`` and ``migrate``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections
from django.db.migrations.loader import MigrationLoader
from django.utils.module_loading import import_string

from supervision.conf import settings, unknown_names
from supervision.engines import registry
from supervision.kernel import ages, links
from supervision.worker import postman

TRIGGERS = frozenset(
    {
        "supervision_logentry_no_update",
        "supervision_logentry_no_delete",
        "supervision_logentry_no_truncate",
        "supervision_task_no_truncate",
        "supervision_task_tell_watchers",
        "supervision_question_no_truncate",
        "supervision_signal_no_truncate",
        "supervision_tombstone_no_truncate",
        "supervision_erasure_no_truncate",
        "supervision_task_terminal_stays",
        "supervision_task_no_delete",
        "supervision_tombstone_guard",
        "supervision_tombstone_whole",
        "supervision_erasure_guard",
        "supervision_visit_no_update",
        "supervision_visit_no_delete",
        "supervision_visit_no_truncate",
        "supervision_machineevent_no_update",
        "supervision_machineevent_no_delete",
        "supervision_machineevent_no_truncate",
        "supervision_standing_no_truncate",
        "supervision_standing_no_delete",
        "supervision_standing_whole",
    }
)

Apps = Sequence[AppConfig] | None


@register("supervision")
def check_settings(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    found: list[CheckMessage] = []
    for name in unknown_names():
        found.append(
            Error(f"SUPERVISION has an unknown key {name!r}.", hint="See supervision/conf.py.", id="supervision.E001")
        )
    if not 0 < settings.BEAT_SECONDS <= settings.LEASE_SECONDS / 3:
        found.append(
            Error(
                f"BEAT_SECONDS is {settings.BEAT_SECONDS}, LEASE_SECONDS {settings.LEASE_SECONDS}: "
                "one late beat would lose a live worker its task.",
                hint="Let BEAT_SECONDS be at most a third of LEASE_SECONDS.",
                id="supervision.E002",
            )
        )
    if unknown := [name for name in settings.NOTIFY if name not in postman.channels()]:
        found.append(
            Error(
                f"SUPERVISION['NOTIFY'] names channels that nobody registered: {', '.join(unknown)}.",
                hint=f"Known: {', '.join(postman.channels())}. Others are registered by @channel in a supervised.py.",
                id="supervision.E010",
            )
        )
    if settings.ANSWER_LINKS and (why := links.why_impossible()):
        found.append(
            Warning(
                f"SUPERVISION['ANSWER_LINKS'] is on, but no notice can carry one: {why}.",
                hint="Set BASE_URL, and include the pages' urls.",
                id="supervision.W012",
            )
        )
    found += [
        Error(
            f"SUPERVISION['RETENTION'] has a wrong age for {body!r}: {error}",
            hint="Say '90d', a timedelta, or None for ever; the body '*' stands for all others.",
            id="supervision.E011",
        )
        for body, error in ages.wrong_ages()
    ]
    if settings.DATABASE not in django_settings.DATABASES:
        found.append(
            Error(
                f"SUPERVISION['DATABASE'] is {settings.DATABASE!r}, which DATABASES doesn't have.",
                hint="Name an alias of DATABASES, or leave it out for 'default'.",
                id="supervision.E003",
            )
        )
    return found


@register("supervision")
def check_people(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """The functions that say who sees what can be imported, and the rates of the API can be read."""
    found: list[CheckMessage] = []
    for name in ("OWNERS", "SUBJECTS", "VISIBLE_TASKS"):
        try:
            path = getattr(settings, name)
            is_function = not path or callable(import_string(path))
        except ImportError:
            is_function = False
        if not is_function:
            found.append(
                Error(
                    f"SUPERVISION[{name!r}] is {path!r}, which is no function.",
                    hint="Give the dotted path of one, like 'shop.people.organisations_of'.",
                    id="supervision.E011",
                )
            )
    for name in ("API_READS", "API_WRITES"):
        rate = getattr(settings, name)
        if rate is not None and not re.fullmatch(r"[1-9]\d*/(s|m|h|d)[a-z]*", str(rate)):
            found.append(
                Error(
                    f"SUPERVISION[{name!r}] is {rate!r}, which is no rate.",
                    hint="Say for example '120/min' or '1000/hour', or None for no bound.",
                    id="supervision.E012",
                )
            )
    return found


@register("supervision")
def check_engine(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """PostgreSQL, and no options under which forked workers or the kernel's locking would break."""
    if settings.DATABASE not in django_settings.DATABASES:
        return []
    connection: Any = connections[settings.DATABASE]
    if connection.vendor != "postgresql":
        return [
            Error(
                f"The database {settings.DATABASE!r} is {connection.vendor}, not PostgreSQL.",
                hint="Point SUPERVISION['DATABASE'] at a PostgreSQL database.",
                id="supervision.E004",
            )
        ]
    found: list[CheckMessage] = []
    options = connection.settings_dict.get("OPTIONS", {})
    if options.get("pool"):
        found.append(
            Error(
                "OPTIONS['pool'] shares connections across the forks of a cluster, which corrupts the protocol.",
                hint="Remove 'pool' and use CONN_MAX_AGE=60 with CONN_HEALTH_CHECKS=True.",
                id="supervision.E005",
            )
        )
    level = options.get("isolation_level")
    if level is not None and getattr(level, "name", str(level)).upper() != "READ_COMMITTED":
        found.append(
            Error(
                "OPTIONS['isolation_level'] isn't READ COMMITTED, on which the kernel's locking rests.",
                hint="Remove isolation_level; single transactions of yours may still use another one.",
                id="supervision.E006",
            )
        )
    return found


@register("supervision")
def check_cluster(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """``Q_CLUSTER`` settings that would hurt, where supervised work runs on the host's own cluster."""
    cluster: dict[str, Any] = getattr(django_settings, "Q_CLUSTER", {})
    found: list[CheckMessage] = []
    if cluster.get("sync"):
        found.append(
            Warning(
                "Q_CLUSTER['sync'] runs work inside the caller's transaction.",
                hint="Remove 'sync'; supervision.testing drives tasks without a cluster.",
                id="supervision.W001",
            )
        )
    timeout, retry = cluster.get("timeout"), cluster.get("retry", 60)
    if timeout is not None and retry <= timeout:
        found.append(
            Warning(
                f"Q_CLUSTER['retry'] ({retry}) isn't above 'timeout' ({timeout}): running messages are started again.",
                hint="Let retry be larger than timeout, for example timeout=60, retry=90.",
                id="supervision.W002",
            )
        )
    if cluster.get("broker_class") == "supervision.worker.broker.Broker" and cluster.get("save_limit", 250) >= 0:
        found.append(
            Warning(
                "Q_CLUSTER['save_limit'] makes django-q2 load and lock all its success rows at each save.",
                hint="Set save_limit=-1.",
                id="supervision.W003",
            )
        )
    return found


@register("supervision")
def check_bodies(app_configs: Apps, **kwargs: Any) -> list[CheckMessage]:
    """No name was registered by two different bodies: the second registration is kept here for this message."""
    return [
        Error(
            f"Two bodies are registered as {name!r}: {first} and {second}.",
            hint="Rename one; running tasks find their body by its name.",
            id="supervision.E007",
        )
        for name, first, second in registry.duplicates()
    ]


def _is_migrated(connection: Any) -> bool:
    """Before that, ``migrate`` itself asks, and mustn't be kept from making what is missing."""
    loader = MigrationLoader(connection)
    return all(leaf in loader.applied_migrations for leaf in loader.graph.leaf_nodes("supervision"))


@register("supervision", Tags.database)
def check_database(app_configs: Apps, *, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """The live database: isolation level and triggers."""
    if settings.DATABASE not in (databases or ()):
        return []
    connection: Any = connections[settings.DATABASE]
    if connection.vendor != "postgresql":
        return []
    found: list[CheckMessage] = []
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_setting('default_transaction_isolation')")
        (level,) = cursor.fetchone()
        cursor.execute("SELECT tgname FROM pg_trigger WHERE tgname LIKE 'supervision_%%' AND tgenabled <> 'D'", [])
        present = {row[0] for row in cursor.fetchall()}
    if level != "read committed":
        found.append(
            Error(
                f"The database's default isolation level is {level!r}.",
                hint="ALTER DATABASE ... SET default_transaction_isolation = 'read committed'.",
                id="supervision.E008",
            )
        )
    if (missing := sorted(TRIGGERS - present)) and _is_migrated(connection):
        found.append(
            Error(
                f"Triggers are missing or disabled: {', '.join(missing)}.",
                hint="Restore them by the SQL in supervision/migrations/sql/, or ALTER TABLE ... ENABLE TRIGGER.",
                id="supervision.E009",
            )
        )
    return found

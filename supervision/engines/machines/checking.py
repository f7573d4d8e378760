"""System checks of machines: what writes a state without an event, in the code and in the rows."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from django.apps import AppConfig, apps
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import OperationalError, connections, router, transaction

from supervision.conf import settings
from supervision.engines.machines import histories, machine
from supervision.engines.machines.machine import Machine
from supervision.kernel.sql import sqlstate

_WRITES = {"update", "aupdate", "bulk_update", "abulk_update", "update_or_create", "aupdate_or_create"}
_HINT = "QuerySet.update() can't be refused: send an event, so that guards, actions and the history have their say."
_PATIENCE_MS = 10_000
_FOREIGN = ("site-packages", "dist-packages")


@register("supervision")
def check_code(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """``Order.objects.filter(...).update(state=...)`` in the project's own apps, as far as it can be read there."""
    fields = {each.model.__name__: each for each in machine.machines().values() if each.model is not None}
    if not fields:
        return []
    return [
        Warning(
            f"{path}:{line} writes {found.model.__name__}.{found.field.name}, which the machine {found.name!r} moves.",
            hint=_HINT,
            id="supervision.W010",
        )
        for path in _sources(app_configs or list(apps.get_app_configs()))
        for line, found in _writes(path, fields)
        if found.model is not None and found.field is not None
    ]


@register("supervision", Tags.database)
def check_rows(
    app_configs: Sequence[AppConfig] | None, *, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Rows whose state isn't where their history ends. Looks through the tables of machines."""
    if settings.DATABASE not in (databases or ()):
        return []
    with connections[settings.DATABASE].cursor() as cursor:
        tables = set(connections[settings.DATABASE].introspection.table_names(cursor))
    found: list[CheckMessage] = []
    for each in machine.machines().values():
        if (
            each.model is None
            or each.field is None
            or not {each.model._meta.db_table, "supervision_standing"} <= tables
        ):
            continue
        if count := _count_in_time(each):
            found.append(
                Warning(
                    f"{count} rows of {each.model._meta.label} are in a state that their history doesn't end in: "
                    f"{each.field.name} was written without an event of the machine {each.name!r}.",
                    hint=f"{_HINT} The next event of each row puts the change down in its history.",
                    id="supervision.W011",
                )
            )
    return found


def _count_in_time(machine: Machine) -> int:
    """How many rows were written elsewhere. 0 where that takes too long, for this runs with every migration: ask
    ``histories.written_elsewhere`` yourself, then."""
    try:
        with transaction.atomic(using=settings.DATABASE), connections[settings.DATABASE].cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = %s", [_PATIENCE_MS])
            return int(histories.written_elsewhere(machine).count())
    except OperationalError as error:
        if sqlstate(error) == "57014":
            return 0
        raise


@register("supervision")
def check_databases(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Rows and history are in one database."""
    if settings.DATABASE not in connections:
        return []  # E003
    return [
        Error(
            f"The machine {each.name!r} moves rows of {each.model._meta.label}, which are in another database than "
            f"{settings.DATABASE!r}.",
            hint="Move the model there, or point SUPERVISION['DATABASE'] at the database of both.",
            id="supervision.E020",
        )
        for each in machine.machines().values()
        if each.model is not None and router.db_for_write(each.model) != settings.DATABASE
    ]


def _sources(app_configs: Sequence[AppConfig]) -> Iterator[Path]:
    """The project's own: not what was installed, no migrations, which have the past's models, and no tests."""
    for app in app_configs:
        root = Path(app.path)
        if set(_FOREIGN) & set(root.parts):
            continue
        for path in sorted(root.rglob("*.py")):
            inner = path.relative_to(root).parts
            if not {"migrations", "tests", *_FOREIGN} & set(inner) and not path.name.startswith("test"):
                yield path


def _writes(path: Path, fields: dict[str, Machine]) -> Iterator[tuple[int, Machine]]:
    try:
        text = path.read_text(encoding="utf-8")
        if not any(name in text for name in fields) or "update" not in text:
            return
        tree = ast.parse(text)
    except (OSError, SyntaxError, ValueError):  # nothing that runs
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _WRITES:
            found = fields.get(_root(node.func))
            if found is not None and found.field is not None and _names(node, found.field.name):
                yield node.lineno, found


def _root(node: ast.AST) -> str:
    """``Order`` of ``Order.objects.filter(...).update``; of ``models.Order.objects``, too."""
    while not isinstance(node, ast.Name):
        if isinstance(node, ast.Attribute):
            if node.attr in ("objects", "_base_manager", "_default_manager"):
                owner = node.value
                return owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return ""
    return node.id


def _names(call: ast.Call, field: str) -> bool:
    """Whether the call mentions the field: as a keyword, or as a text among its arguments."""
    if any(keyword.arg == field for keyword in call.keywords):
        return True
    parts = [*call.args, *(keyword.value for keyword in call.keywords)]
    return any(isinstance(node, ast.Constant) and node.value == field for part in parts for node in ast.walk(part))

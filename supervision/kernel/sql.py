"""Running the kernel's own SQL: through a prepared statement where the connection allows it."""

from collections.abc import Mapping
from typing import Any

import psycopg
from django.db import OperationalError, connections, transaction

from supervision.conf import settings

LOCK_NOT_AVAILABLE = "55P03"
DEADLOCK = "40P01"
RETRYABLE = frozenset({DEADLOCK, "40001", LOCK_NOT_AVAILABLE, "57014"})
"""Deadlock, serialization failure, lock timeout, statement cancelled: nothing was done, it may be tried again."""


def connection() -> Any:
    """The kernel's connection of this thread."""
    return connections[settings.DATABASE]


def run(query: str, parameters: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Executes one statement and returns its rows, JSON columns as text.

    Prepared when the database's OPTIONS have a ``prepare_threshold`` (Django's default is none, which suits a
    transaction-pooling proxy). Goes through Django's cursor when anybody counts or wraps queries.
    """
    wrapper = connection()
    if wrapper.queries_logged or wrapper.execute_wrappers:
        with wrapper.cursor() as cursor:
            cursor.execute(query, parameters)
            return list(cursor.fetchall()) if cursor.description else []
    _make_ready(wrapper)
    with wrapper.wrap_database_errors:
        wrapper.ensure_connection()
        cursor = _cursor(wrapper)
        cursor.execute(query, parameters, prepare=True)
        return _rows(cursor)


def _cursor(wrapper: Any) -> psycopg.Cursor[Any]:
    """One cursor for each connection: making one costs a third of a short statement."""
    cursor: psycopg.Cursor[Any] | None = getattr(wrapper, "_supervision_cursor", None)
    if cursor is None or cursor.connection is not wrapper.connection or cursor.closed:
        cursor = wrapper._supervision_cursor = psycopg.Cursor(wrapper.connection)
    return cursor


def _rows(cursor: psycopg.Cursor[Any]) -> list[tuple[Any, ...]]:
    """Not by cursor.description, which builds an object for each column."""
    return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []


Statement = tuple[str, Mapping[str, Any]]

_HINTS = "SELECT set_config(name, value, true) FROM unnest(%(names)s::text[], %(values)s::text[]) AS hint(name, value)"


def together(*statements: Statement, hints: Mapping[str, str] | None = None) -> list[list[tuple[Any, ...]]]:
    """Executes statements as one transaction in one round trip (a pipeline); the rows of each.

    They are statements like any others: each has a snapshot and a clock of its own, read after the lock waits of those
    before it. One that fails undoes all. ``hints`` are settings for that transaction alone; inside a caller's
    transaction, which would keep them, they are left out.
    """
    wrapper = connection()
    is_plain = wrapper.get_autocommit() and not wrapper.queries_logged and not wrapper.execute_wrappers
    if not is_plain or not psycopg.Pipeline.is_supported():
        with transaction.atomic(using=settings.DATABASE):
            return [run(query, parameters) for query, parameters in statements]
    _make_ready(wrapper)
    cursors = []
    with wrapper.wrap_database_errors:
        wrapper.ensure_connection()
        # Until its end the pipeline is one implicit transaction, as the connection is in autocommit mode.
        with wrapper.connection.pipeline():
            if hints:
                hint = {"names": list(hints), "values": list(hints.values())}
                psycopg.Cursor(wrapper.connection).execute(_HINTS, hint, prepare=True)
            for query, parameters in statements:
                cursors.append(psycopg.Cursor(wrapper.connection))
                cursors[-1].execute(query, parameters, prepare=True)
        return [_rows(cursor) for cursor in cursors]


def _make_ready(wrapper: Any) -> None:
    wrapper.validate_no_broken_transaction()
    wrapper.ensure_connection()
    wrapper.close_if_health_check_failed()


def sqlstate(error: BaseException) -> str | None:
    """The SQLSTATE of a database error as Django wraps it; None where there is none (a dead connection)."""
    return getattr(error.__cause__ or error, "sqlstate", None)


def is_connection_lost(error: BaseException) -> bool:
    """Whether the database went away: class 08, 57P0x (shut down, crashed, not yet up), or no SQLSTATE on a dead
    connection."""
    state = sqlstate(error)
    if state is not None:
        return state.startswith(("08", "57P0"))
    raw = connection().connection
    return isinstance(error, OperationalError) or (raw is not None and bool(raw.closed))

"""The state field of a protected machine: read like any other, written by events alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from django.db import models
from django.db.models.query_utils import DeferredAttribute

from supervision.engines.machines.errors import ProtectedField

_OPEN = "_supervision_open_fields"


def protect(machine: str, model: type[models.Model], field: models.Field[Any, Any]) -> Callable[[], None]:
    """From now on assigning the field of a row raises ProtectedField, and ``save()`` leaves it as it stands in the
    database: a row that was read before an event doesn't write the old state back. Returns what undoes this.

    A new row may be made in any state. Fixtures (``raw``) are written as they are.
    """
    read, pre_save, refresh = model.__dict__[field.attname], field.pre_save, model.refresh_from_db

    def saved(row: models.Model, add: bool) -> Any:
        return pre_save(row, add) if add or _is_open(row, field.attname) else _AsItIs(model, field)

    @wraps(refresh)
    def refresh_from_db(self: models.Model, *args: Any, **kwargs: Any) -> None:
        with opened(self, field.attname):
            refresh(self, *args, **kwargs)

    setattr(model, field.attname, _Protected(field, machine))
    vars(field)["pre_save"] = saved
    model.refresh_from_db = refresh_from_db  # type: ignore[method-assign]

    def undo() -> None:
        setattr(model, field.attname, read)
        del vars(field)["pre_save"]
        model.refresh_from_db = refresh  # type: ignore[method-assign]

    return undo


@contextmanager
def opened(row: models.Model, attname: str) -> Iterator[None]:
    """Within, this object's field may be assigned and saved: by the machine, and by what reads the row anew."""
    fields = row._state.__dict__.setdefault(_OPEN, [])
    fields.append(attname)
    try:
        yield
    finally:
        fields.remove(attname)


def _is_open(row: models.Model, attname: str) -> bool:
    return attname in row._state.__dict__.get(_OPEN, ())


class _Protected(DeferredAttribute):
    """Lets through what makes an object (its first value, a database default's), what loads it, and what it has."""

    def __init__(self, field: models.Field[Any, Any], machine: str) -> None:
        super().__init__(field)
        self._machine = machine

    def __set__(self, row: models.Model, value: Any) -> None:
        name = self.field.attname
        if not (_is_open(row, name) or self._is_first(row) or row.__dict__.get(name) == value):
            raise ProtectedField(self._machine, type(row).__name__, self.field.name)
        row.__dict__[name] = value

    def _is_first(self, row: models.Model) -> bool:
        known = row.__dict__.get(self.field.attname)
        return row._state.adding and (known is None or hasattr(known, "resolve_expression"))


class _AsItIs:
    """``SET state = state``. No expression in Django's sense: nothing is read back into the object."""

    def __init__(self, model: type[models.Model], field: models.Field[Any, Any]) -> None:
        self._names = (model._meta.db_table, field.column)

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        return ".".join(connection.ops.quote_name(name) for name in self._names), []

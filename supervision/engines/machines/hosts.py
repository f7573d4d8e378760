"""Where a machine's state lives: on a field of a model's rows, or on the standing itself where there is no model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from django.core.exceptions import FieldDoesNotExist, ValidationError
from django.db import models, router
from django.db.models import CharField, Exists, OuterRef, TextField
from django.db.models.functions import Cast

from supervision.conf import settings
from supervision.engines.machines.definition import Table
from supervision.engines.machines.errors import SubjectNotFound, WrongDatabase
from supervision.engines.machines.models import Standing
from supervision.engines.machines.protection import opened
from supervision.kernel import storable


class Host(Protocol):
    """What holds the state."""

    def key(self, subject: Any) -> str:
        """The subject as standings know it."""

    def lock(self, key: str) -> Any:
        """What hooks are called with, NO KEY locked and as it is after the wait. Raises SubjectNotFound."""

    def read(self, key: str) -> Any:
        """The same, without a lock."""

    def state(self, row: Any, standing: Standing | None) -> str:
        """Where it is. ``standing`` is the subject's, if it has one."""

    def move(self, row: Any, state: str) -> None:
        """Writes the state."""

    def unarmed(self, state: str, armed: dict[str, float]) -> Any:
        """Keys of the subjects in that state whose timers aren't these."""


class RowHost:
    """A field of a model."""

    def __init__(self, machine: str, model: type[models.Model], field: models.Field[Any, Any]) -> None:
        self.machine, self.model, self.field = machine, model, field
        self.of = ("self", *_parent_links(model))

    def key(self, subject: Any) -> str:
        if isinstance(subject, models.Model):
            concrete = self.model._meta.concrete_model
            if not isinstance(subject, concrete):  # type: ignore[arg-type]
                raise TypeError(f"{self.machine} moves rows of {self.model.__name__}, not of {type(subject).__name__}.")
            if subject.pk is None or subject._state.adding:
                raise SubjectNotFound(self.machine, "that was saved")
            self._refuse_elsewhere(router.db_for_write(concrete, instance=subject))  # type: ignore[arg-type]
            return storable.name(str(subject.pk), place="subject")
        try:
            key = self.model._meta.pk.to_python(subject)
        except ValidationError:
            key = None
        if key is None:
            raise SubjectNotFound(self.machine, subject)
        return storable.name(str(key), place="subject")

    def lock(self, key: str) -> Any:
        return self._found(key, self._rows().select_for_update(no_key=True, of=self.of))

    def read(self, key: str) -> Any:
        return self._found(key, self._rows())

    def state(self, row: Any, standing: Standing | None) -> str:
        return str(getattr(row, self.field.attname))

    def move(self, row: Any, state: str) -> None:
        with opened(row, self.field.attname):
            setattr(row, self.field.attname, state)
            row.save(using=settings.DATABASE, update_fields=[self.field.name])

    def unarmed(self, state: str, armed: dict[str, float]) -> Any:
        standing = Standing.objects.filter(
            machine=self.machine, subject=Cast(OuterRef("pk"), CharField()), state=state, armed=armed
        )
        rows = self._rows().filter(~Exists(standing), **{self.field.name: state})
        return rows.order_by("pk").values_list("pk", flat=True)

    def _found(self, key: str, rows: models.QuerySet[Any]) -> Any:
        row = rows.filter(pk=key).first()
        if row is None:
            raise SubjectNotFound(self.machine, key)
        return row

    def _rows(self) -> models.QuerySet[Any]:
        self._refuse_elsewhere(router.db_for_write(self.model))
        return self.model._base_manager.using(settings.DATABASE)

    def _refuse_elsewhere(self, alias: str) -> None:
        if alias != settings.DATABASE:
            raise WrongDatabase(self.machine, alias, settings.DATABASE)


class PointerHost:
    """No model: the standing is the state, and hooks are called with the subject's text."""

    def __init__(self, machine: str, initial: str) -> None:
        self.machine, self.initial = machine, initial

    def key(self, subject: Any) -> str:
        return storable.name(subject, place="subject")

    def lock(self, key: str) -> Any:
        return key

    def read(self, key: str) -> Any:
        return key

    def state(self, row: Any, standing: Standing | None) -> str:
        return self.initial if standing is None else standing.state

    def move(self, row: Any, state: str) -> None:
        """The standing is written anyway."""

    def unarmed(self, state: str, armed: dict[str, float]) -> Any:
        rows = Standing.objects.using(settings.DATABASE).filter(machine=self.machine, state=state)
        return rows.exclude(armed=armed).values_list("subject", flat=True)


def field_of(model: type[models.Model], name: str) -> models.Field[Any, Any] | None:
    """The model's own column of that name; None if there is none."""
    try:
        field: Any = model._meta.get_field(name)
    except FieldDoesNotExist:
        return None
    return field if isinstance(field, models.Field) and field.concrete else None


def _key_of(model: type[models.Model]) -> Any:
    """The field that the primary key is in the end: a child's, or one that is a relation, is another row's."""
    key: Any = model._meta.pk
    while getattr(key, "remote_field", None) is not None:
        key = key.target_field
    return key


def field_faults(model: Any, name: Any) -> Iterator[str]:
    """Why no machine can move that field."""
    if not isinstance(model, type) or not issubclass(model, models.Model):
        yield f"model must be a Django model, not {model!r}"
        return
    label = model._meta.label
    if model._meta.abstract:
        yield f"{label} is abstract and has no rows: give each of its children a machine of its own"
        return
    if not isinstance(_key_of(model), models.IntegerField | models.UUIDField | CharField | TextField):
        yield f"the primary key of {label} must be a number, a text or a UUID, for the history knows the row by it"
        return
    field = field_of(model, name) if isinstance(name, str) else None
    if field is None:
        yield f"{label} has no field {name!r}"
        return
    if field.model._meta.concrete_model is not model._meta.concrete_model:
        yield f"{label}.{name} is a field of {field.model._meta.label}: give the machine that model"
    elif not isinstance(field, CharField | TextField) or field.primary_key or field.null:
        yield f"{label}.{name} must be a CharField or TextField that is neither null nor the key"


def choice_faults(model: type[models.Model], field: models.Field[Any, Any], table: Table) -> Iterator[str]:
    """Where the field and the table disagree about the states."""
    label = f"{model._meta.label}.{field.name}"
    if field.max_length is not None and (longest := max(map(len, table.states))) > field.max_length:
        yield f"{label} holds {field.max_length} characters, and a state has {longest}"
    choices = {str(value) for value, _label in field.flatchoices}
    if not choices:
        return
    if strange := [state for state in table.states if state not in choices]:
        yield f"{label} has no choice {', '.join(map(repr, strange))}, which the table names"
    if missing := sorted(choices - set(table.states)):
        yield f"{label} has the choice {', '.join(map(repr, missing))}, which the table doesn't name"


def _parent_links(model: type[models.Model], prefix: str = "") -> Iterator[str]:
    """All tables of a row: reading after a lock wait is only fresh where it was locked."""
    for parent, link in model._meta.concrete_model._meta.parents.items():  # type: ignore[union-attr]
        if link is not None:
            yield f"{prefix}{link.name}"
            yield from _parent_links(parent, f"{prefix}{link.name}__")

"""A form field for an annotation."""

from __future__ import annotations

import enum
import inspect
import types
import typing
from copy import deepcopy
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Literal
from uuid import UUID

from django import forms
from django.core.files import File
from django.db.models import Model
from django.utils.translation import gettext_lazy as _

_SEARCHABLE_ABOVE = 7


class Unannotated:
    """Stands for the annotation of a parameter that has none: any JSON."""


class LinesField(forms.CharField):
    """A list, one item a line, each cleaned by a field of its own."""

    def __init__(self, item: forms.Field, **kwargs: Any) -> None:
        super().__init__(widget=forms.Textarea(attrs={"rows": 4}), help_text=_("One on each line."), **kwargs)
        self.item = item

    def clean(self, value: Any) -> Any:
        lines = [line.strip() for line in str(super().clean(value) or "").splitlines() if line.strip()]
        cleaned = []
        for number, line in enumerate(lines, 1):
            try:
                cleaned.append(self.item.clean(line))
            except forms.ValidationError as error:
                place = _("Line %(n)s: %(why)s") % {"n": number, "why": " ".join(error.messages)}
                raise forms.ValidationError(place) from None
        return cleaned

    def prepare_value(self, value: Any) -> Any:
        return "\n".join(str(each) for each in value) if isinstance(value, list | tuple) else value


def field_for(annotation: Any, default: Any = inspect.Parameter.empty) -> forms.Field | None:
    """The field for an annotation and a default; None if there is none. ``X | None`` and a default make it optional."""
    if typing.get_origin(annotation) is typing.Annotated:
        annotation, *extras = typing.get_args(annotation)
        given = next((each for each in extras if isinstance(each, forms.Field)), None)
        field = deepcopy(given) if given is not None else field_for(annotation, default)
        if field is not None:
            field.help_text = next((each for each in extras if isinstance(each, str)), field.help_text)
        return field
    inner, is_optional = _without_none(annotation)
    field = _field(inner, is_optional)
    if field is None:
        return None
    if is_optional or default is not inspect.Parameter.empty:
        field.required = False
        _blank_choice(field)
    if default is not inspect.Parameter.empty and default is not None:
        field.initial = default.name if isinstance(default, enum.Enum) else default
    return field


def _field(kind: Any, is_optional: bool) -> forms.Field | None:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return _choice([(str(value), str(value)) for value in arguments], _one_of(arguments))
    if origin in (list, tuple, set) and arguments:
        return _several(arguments[0])
    if kind in (Unannotated, Any, object, dict, list) or origin is dict:
        return forms.JSONField()
    if not isinstance(kind, type):
        return None
    if issubclass(kind, enum.Enum):
        return _choice([(each.name, _label(each)) for each in kind], kind.__getitem__)
    if issubclass(kind, bool):
        return forms.NullBooleanField() if is_optional else forms.BooleanField(required=False)
    if issubclass(kind, Model):
        return forms.ModelChoiceField(kind._default_manager.all())
    if issubclass(kind, File):
        return forms.FileField()
    return _plain(kind)


def _plain(kind: type) -> forms.Field | None:
    if kind is datetime:
        widget = forms.DateTimeInput(attrs={"type": "datetime-local", "step": "1"}, format="%Y-%m-%dT%H:%M:%S")
        return forms.DateTimeField(
            widget=widget, input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"]
        )
    if kind is date:
        return forms.DateField(widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"))
    if kind is time:
        return forms.TimeField(widget=forms.TimeInput(attrs={"type": "time"}))
    simple: dict[type, type[forms.Field]] = {
        str: forms.CharField, int: forms.IntegerField, float: forms.FloatField, UUID: forms.UUIDField,
    }  # fmt: skip
    if kind is Decimal:
        return forms.DecimalField(max_digits=60)
    return simple[kind]() if kind in simple else None


def _several(kind: Any) -> forms.Field | None:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return _choices([(str(value), str(value)) for value in arguments], _one_of(arguments))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _choices([(each.name, _label(each)) for each in kind], kind.__getitem__)
    if isinstance(kind, type) and issubclass(kind, Model):
        return forms.ModelMultipleChoiceField(kind._default_manager.all())
    item = _plain(kind) if isinstance(kind, type) else None
    return None if item is None else LinesField(item)


def _choice(choices: list[tuple[str, str]], coerce: Any) -> forms.Field:
    attrs = {"data-supervision-search": _("Type to search")} if len(choices) > _SEARCHABLE_ABOVE else {}
    return forms.TypedChoiceField(choices=choices, coerce=coerce, empty_value=None, widget=forms.Select(attrs=attrs))


def _choices(choices: list[tuple[str, str]], coerce: Any) -> forms.Field:
    return forms.TypedMultipleChoiceField(choices=choices, coerce=coerce, widget=forms.CheckboxSelectMultiple())


def _blank_choice(field: forms.Field) -> None:
    if isinstance(field, forms.TypedChoiceField) and not isinstance(field, forms.MultipleChoiceField):
        field.choices = [("", "---------"), *field.choices]  # type: ignore[misc]


def _one_of(values: tuple[Any, ...]) -> Any:
    by_text = {str(value): value for value in values}
    return by_text.__getitem__


def _label(member: enum.Enum) -> str:
    return str(getattr(member, "label", member.name.replace("_", " ").capitalize()))


def _without_none(annotation: Any) -> tuple[Any, bool]:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        others = [each for each in typing.get_args(annotation) if each is not type(None)]
        if len(others) == 1:
            return others[0], len(others) < len(typing.get_args(annotation))
    return annotation, False

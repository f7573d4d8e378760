"""Arguments as a form, and as JSON, and back: what the annotations of a body mean.

Arguments are JSON in the row. ``dump`` makes them so when a task is created, ``load`` gives the body what its
annotations say: a Decimal, a date, an Enum's member, a row of a model, a stored file. What has no rule stays as it is.
"""

from __future__ import annotations

import enum
import inspect
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from django import forms
from django.core.files import File
from django.db.models import Manager, Model, QuerySet
from django.utils.dateparse import parse_date, parse_datetime, parse_time
from django.utils.text import format_lazy
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.engines.form_fields import Unannotated, field_for
from supervision.errors import Failure, InvalidArguments
from supervision.kernel import files
from supervision.kernel.files import StoredFile

__all__ = ["AUTO", "ArgumentsForm", "check_form", "dump", "form_from", "hints_of", "load"]


class Auto(enum.Enum):
    """The default of ``form=``: make one from the annotations."""

    AUTO = "auto"


AUTO = Auto.AUTO


class ArgumentsForm(forms.Form):
    """A form made from annotations. ``for_user`` fits its choices of rows to what the person may see."""

    MANY = 200

    def for_user(self, user: Any) -> ArgumentsForm:
        """Rows of a model that the person may not view are not offered; of many rows the key is typed in."""
        for field in self.fields.values():
            if not isinstance(field, forms.ModelChoiceField) or field.queryset is None:
                continue
            options = field.queryset.model._meta
            if not user.has_perm(f"{options.app_label}.view_{options.model_name}"):
                field.queryset = field.queryset.none()
                field.help_text = _("You may not view any %(rows)s.") % {"rows": options.verbose_name_plural}
            elif (
                not isinstance(field, forms.ModelMultipleChoiceField)
                and len(field.queryset[: self.MANY + 1]) > self.MANY
            ):
                field.widget = forms.TextInput()
                field.help_text = _("The key of the %(row)s.") % {"row": options.verbose_name}
        return self


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Parameter -> annotation of what follows the context; a text that can't be resolved stays that text."""
    found: dict[str, Any] = {}
    for parameter in list(_parameters(function).values())[1:]:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        annotation = Unannotated if parameter.annotation is parameter.empty else parameter.annotation
        found[parameter.name] = _resolved(annotation, function)
    return found


def form_from(name: str, function: Callable[..., Any], sensitive: tuple[str, ...] = ()) -> type[ArgumentsForm]:
    """The form of the body's parameters, in their order. TypeError names the one whose annotation has no field."""
    fields: dict[str, Any] = {}
    parameters = _parameters(function)
    for argument, annotation in hints_of(function).items():
        default = parameters[argument].default
        field = field_for(annotation, default)
        if field is None:
            raise TypeError(
                f"Body {name!r}: no form field can be made for the parameter {argument}: {_shown(annotation)}. "
                "Give it an annotation that has one, pass form= a Django form, or form=None for a body that only code "
                "starts."
            )
        label = argument.replace("_", " ").strip().capitalize()
        is_plain = field.required or isinstance(field, forms.BooleanField)
        field.label = label if is_plain else format_lazy("{} ({})", label, gettext_lazy("optional"))
        if argument in sensitive:
            field.widget = forms.PasswordInput(attrs={"autocomplete": "new-password"})
        fields[argument] = field
    return type("ArgumentsForm", (ArgumentsForm,), fields)


def check_form(name: str, function: Callable[..., Any], form: type[forms.Form]) -> None:
    """The author's own form must give what the body takes: TypeError names what doesn't fit."""
    parameters = list(_parameters(function).values())[1:]
    names = {each.name for each in parameters}
    takes_any = any(each.kind is each.VAR_KEYWORD for each in parameters)
    needed = {each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD}
    fields = set(form.base_fields)
    unknown = sorted(fields - names)
    if unknown and not takes_any:
        raise TypeError(f"Body {name!r} takes no {', '.join(unknown)}, which its form has.")
    if missing := sorted(needed - fields):
        raise TypeError(f"Body {name!r} needs {', '.join(missing)}, which its form doesn't have.")


# --- to JSON ----------------------------------------------------------------------------------------------------------


def dump(value: Any, store: Callable[[File[Any]], StoredFile] | None = None) -> Any:
    """A Python value as the JSON of an argument; by the value's type. What has no rule is left for ``storable`` to
    refuse by name. ``store`` keeps uploads; without it a file must have been stored before."""
    if isinstance(value, enum.Enum):
        return value.value if isinstance(value.value, str | int | float | bool) else value.name
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, date | datetime | time):
        return value.isoformat()
    if isinstance(value, Model):
        return dump(value.pk)
    if isinstance(value, StoredFile):
        return value.reference
    if isinstance(value, File) and store is not None:
        return store(value).reference
    if isinstance(value, Mapping):
        return {key: dump(item, store) for key, item in value.items()}
    if isinstance(value, list | tuple | set | QuerySet):
        return [dump(item, store) for item in value]
    return value


# --- from JSON --------------------------------------------------------------------------------------------------------


def load(
    body: str,
    hints: Mapping[str, Any],
    arguments: Mapping[str, Any],
    *,
    rows: bool = True,
    sensitive: Collection[str] = (),
) -> dict[str, Any]:
    """The arguments as the annotations say. InvalidArguments names one that can't be, with its value unless it is
    ``sensitive``; Failure, in words for people, a row that is gone. ``rows=False`` leaves rows and files alone: a check
    that asks nothing outside."""
    try:
        return {name: _load(name, hints.get(name), value, rows) for name, value in arguments.items()}
    except _Unfit as unfit:
        value = "" if unfit.name in sensitive else f"={str(unfit.value)[:100]!r}"
        raise InvalidArguments(body, f"{unfit.name}{value} is no {unfit.kind}") from None


class _Unfit(Exception):
    def __init__(self, name: str, value: Any, kind: str) -> None:
        self.name, self.value, self.kind = name, value, kind
        super().__init__(name)


def _load(name: str, annotation: Any, value: Any, rows: bool) -> Any:
    for each in _alternatives(annotation):
        if typing.get_origin(each) in (list, tuple) and isinstance(value, list) and typing.get_args(each):
            return [_load(name, typing.get_args(each)[0], item, rows) for item in value]
        rule = _rule(each)
        if rule is not None and value is not None:
            if not rows and isinstance(each, type) and issubclass(each, Model | File):
                return value
            try:
                return rule(each, value, name)
            except (ValueError, TypeError, KeyError, InvalidOperation):
                raise _Unfit(name, value, getattr(each, "__name__", str(each))) from None
    return value


def _rule(annotation: Any) -> Callable[[Any, Any, str], Any] | None:
    if not isinstance(annotation, type):
        return None
    for kind, rule in _RULES:
        if issubclass(annotation, kind):
            return rule
    return None


def _enum(kind: Any, value: Any, name: str) -> Any:
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        return kind[value]


def _decimal(kind: Any, value: Any, name: str) -> Any:
    if isinstance(value, bool):
        raise TypeError
    return Decimal(str(value))


def _parsed(parse: Callable[[str], Any]) -> Callable[[Any, Any, str], Any]:
    def rule(kind: Any, value: Any, name: str) -> Any:
        parsed = value if isinstance(value, kind) else parse(value)
        if parsed is None:
            raise ValueError
        return parsed

    return rule


def _uuid(kind: Any, value: Any, name: str) -> Any:
    return UUID(str(value))


def _row(kind: Any, value: Any, name: str) -> Any:
    if isinstance(value, kind):
        return value
    manager: Manager[Any] = kind._default_manager
    row = manager.filter(pk=value).first()
    if row is None:
        raise Failure(
            _("The %(row)s %(key)s, which the argument “%(name)s” names, doesn't exist (any more).")
            % {"row": kind._meta.verbose_name, "key": value, "name": name}
        )
    return row


def _file(kind: Any, value: Any, name: str) -> Any:
    return value if isinstance(value, File) else files.resolve(value, place=name)


_RULES: tuple[tuple[type, Callable[[Any, Any, str], Any]], ...] = (
    (enum.Enum, _enum),
    (Decimal, _decimal),
    (datetime, _parsed(parse_datetime)),  # before date, whose subclass it is
    (date, _parsed(parse_date)),
    (time, _parsed(parse_time)),
    (UUID, _uuid),
    (Model, _row),
    (File, _file),
)


# --- annotations ------------------------------------------------------------------------------------------------------


def _alternatives(annotation: Any) -> list[Any]:
    """``X | None`` -> [X]; ``Annotated[X, ...]`` -> [X]."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _alternatives(typing.get_args(annotation)[0])
    if origin in (typing.Union, types.UnionType):
        return [each for each in typing.get_args(annotation) if each is not type(None)]
    return [annotation]


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415 - not there before

        return inspect.signature(function, annotation_format=annotationlib.Format.FORWARDREF).parameters
    return inspect.signature(function).parameters


def _resolved(annotation: Any, function: Callable[..., Any]) -> Any:
    def stub() -> None: ...

    stub.__annotations__ = {"it": annotation}
    unwrapped = inspect.unwrap(function)
    try:
        return typing.get_type_hints(stub, globalns=unwrapped.__globals__, include_extras=True)["it"]
    except (NameError, AttributeError, SyntaxError, TypeError):
        return annotation


def _shown(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)

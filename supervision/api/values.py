"""JSON values for the fields of Django forms, which expect what a browser posts. A wrong type is refused, not bent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.utils.translation import gettext as _

from supervision.api import problems
from supervision.api.view import unknown_field
from supervision.engines.form_fields import LinesField
from supervision.engines.forms import ArgumentsForm, dump
from supervision.engines.registry import Body
from supervision.kernel import question_form, storable
from supervision.kernel.models import Question

_SEVERAL = (LinesField, forms.MultipleChoiceField, forms.ModelMultipleChoiceField)
_ONE_OF = (forms.ChoiceField, forms.ModelChoiceField)


def arguments_for(body: Body, given: Mapping[str, Any], user: Any) -> dict[str, Any]:
    """The arguments as JSON, checked by the body's form. What isn't given is left to the code's own defaults."""
    assert body.form is not None  # noqa: S101 - public bodies have one
    storable.encode(dict(given), place="arguments", limit="MAX_ARGUMENTS_BYTES")
    blank = _for(user, body.form())
    form = _for(user, body.form(posted(blank, given, "arguments")))
    if not form.is_valid():
        raise _refusal(form, "arguments")
    return {name: dump(form.cleaned_data[name]) for name in given if given[name] is not None}


def answer_for(question: Question, given: Any) -> Any:
    """The answer as ``questions.answer`` takes it."""
    storable.encode(given, place="answer", limit="MAX_PAYLOAD_BYTES")
    form = question_form.form_for(question.prompt, question.form)
    if question.form.get("kind") == "form":
        if not isinstance(given, Mapping):
            raise problems.invalid(answer=_("It must be an object of the form’s fields."))
        return posted(form, given, "answer")
    if given is None:
        raise problems.invalid(answer=_("An empty answer is no answer."))
    kind = question.form.get("kind", "text")
    if kind == "json" or (kind in ("yes_no", "file") and isinstance(given, bool | Mapping)):
        return given
    return _posted(form.fields[question_form.FIELD], given, "answer")


def posted(form: forms.Form, given: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The values as a browser would post them to the form."""
    data, faults = {}, {}
    for name, value in given.items():
        field = form.fields.get(name)
        if field is None:
            faults[f"{place}.{name}"] = [unknown_field(form.fields)]
        elif value is not None:
            try:
                data[name] = _posted(field, value, f"{place}.{name}")
            except problems.Problem as problem:
                faults |= problem.fields or {}
    if faults:
        raise problems.Problem(400, "invalid", _("Something in the request can't be used."), fields=faults)
    return data


def _posted(field: forms.Field, value: Any, place: str) -> Any:
    if isinstance(field, forms.JSONField):
        return json.dumps(value)
    if isinstance(field, forms.FileField):
        raise problems.invalid(**{place: _("A file can't be sent as JSON.")})
    if isinstance(field, _SEVERAL):
        return _several(field, value, place)
    kinds, wanted = _kinds(field)
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise problems.invalid(**{place: wanted})
    return value if isinstance(value, bool) else str(value)


def _several(field: forms.Field, value: Any, place: str) -> Any:
    kinds = (str, int, float, bool)
    if not isinstance(value, list) or not all(isinstance(each, kinds) for each in value):
        raise problems.invalid(**{place: _("It must be a list of plain values.")})
    if not isinstance(field, LinesField):
        return [str(each) for each in value]
    if any("\n" in str(each) or "\r" in str(each) for each in value):
        raise problems.invalid(**{place: _("Its items must be of one line each.")})
    return "\n".join(str(each) for each in value)


def _kinds(field: forms.Field) -> tuple[tuple[type, ...], str]:
    """The JSON types that the field takes, and how to say so."""
    if isinstance(field, forms.NullBooleanField | forms.BooleanField):
        return (bool,), _("It must be true or false.")
    if isinstance(field, forms.DecimalField):
        return (int, float, str), _("It must be a number.")
    if isinstance(field, forms.FloatField):
        return (int, float), _("It must be a number.")
    if isinstance(field, forms.IntegerField):
        return (int,), _("It must be a whole number.")
    if isinstance(field, _ONE_OF):
        return (str, int, float), _("It must be a text or a number.")
    return (str,), _("It must be a text.")


def _for(user: Any, form: forms.Form) -> forms.Form:
    return form.for_user(user) if isinstance(form, ArgumentsForm) else form


def _refusal(form: forms.Form, place: str) -> problems.Problem:
    fields = {
        place if name == NON_FIELD_ERRORS else f"{place}.{name}": [str(each) for each in said]
        for name, said in form.errors.items()
    }
    return problems.Problem(400, "invalid", _("Something in the request can't be used."), fields=fields)

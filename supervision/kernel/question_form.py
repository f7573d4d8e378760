"""Questions as Django forms: the one place that knows the kinds, for asking, showing and validating alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeVar

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.core.files import File
from django.db.models import Model, QuerySet
from django.forms.fields import InvalidJSONInput
from django.utils.translation import gettext as _

from supervision.errors import InvalidAnswer, NotStorable
from supervision.kernel import entitlement, files, storable

FIELD = "answer"
FEW = 7
"""Up to so many choices are shown as radio buttons, more as a list to search."""

KINDS = ("text", "yes_no", "choice", "choices", "number", "date", "file", "json", "form")

F = TypeVar("F", bound=type[forms.Form])
_forms: dict[str, type[forms.Form]] = {}


def question_form(name: str) -> Callable[[F], F]:
    """Registers a form class under a name that ``Ask(form=name)`` may use. Stands in an app's ``supervised.py``, so
    that the web process knows it too; what the database names is only ever looked up here, never imported.

    >>> @question_form("delivery")
    ... class DeliveryForm(forms.Form):
    ...     day = forms.DateField()
    """

    def register(form_class: F) -> F:
        _forms[name] = form_class
        return form_class

    return register


@dataclass(frozen=True)
class Ask:
    """What a body asks: a key (unique in its task), a sentence, and the form of the answer.

    ``choices`` (value -> label, or values) make the kind "choice" unless "choices" (several) is named; ``form`` (a name
    from ``question_form``, or its class) makes it "form"; else the default is "text". ``expires_after`` defaults to
    QUESTION_EXPIRES_AFTER; ``timedelta(0)`` is refused.

    ``answerable_by``: ``"owner"``, ``"group:finance"``, ``"user:alice"``, or a Group or user; default: whoever has the
    permission ``answer_question``. A superuser may, too. ``not_by``: ``"asker"`` (who asked for the work),
    ``"owner"``, or both, may not, superuser or not. ``approvals=2``, for yes/no: so many people must say yes, and the
    first no decides.

    >>> Ask("approve", "May we spend 400 EUR?", kind="yes_no", answerable_by="group:finance", not_by="asker")
    """

    key: str
    prompt: str
    kind: str = ""
    choices: Mapping[str, str] | Sequence[str] = ()
    help: str = ""
    expires_after: timedelta | None = None
    answer_form: str | type[forms.Form] = ""
    answerable_by: Any = ""
    not_by: str | Sequence[str] = ""
    approvals: int = 1

    def form(self) -> dict[str, Any]:
        """The stored description. Raises NotStorable for a kind that isn't known, or options that don't fit it."""
        kind = self.kind or ("form" if self.answer_form else "choice" if self.choices else "text")
        if kind not in KINDS:
            raise self._refusal(_("its kind must be one of %(k)s") % {"k": ", ".join(KINDS)})
        if bool(self.choices) != (kind in ("choice", "choices")):
            raise self._refusal(_("choices go with the kinds choice and choices, and only there"))
        if bool(self.answer_form) != (kind == "form"):
            raise self._refusal(_("answer_form goes with the kind form, and only there"))
        if self.approvals < 1 or (self.approvals > 1 and kind != "yes_no"):
            raise self._refusal(_("approvals goes with the kind yes_no, and is 1 or more"))
        described: dict[str, Any] = {"kind": kind}
        if self.choices:
            pairs = self.choices.items() if isinstance(self.choices, Mapping) else ((c, c) for c in self.choices)
            described["choices"] = [[value, str(label)] for value, label in pairs]
        if self.answer_form:
            described["form"] = self._registered_name()
        if self.help:
            described["help"] = self.help
        return described

    def policy(self) -> dict[str, Any]:
        """The columns that say who may answer. Looks names up; raises NotStorable for one that is nobody."""
        place = f"question {self.key}"
        return {
            "answerable_by": entitlement.stored_answerer(self.answerable_by, place=place),
            "not_by": entitlement.stored_duties(self.not_by, place=place),
            "approvals": self.approvals,
        }

    def _registered_name(self) -> str:
        for name, form_class in _forms.items():
            if self.answer_form in (name, form_class):
                return name
        raise self._refusal(_("its form isn't registered by question_form() in a supervised.py"))

    def _refusal(self, why: str) -> NotStorable:
        return NotStorable(f"question {self.key}", why)


class UnknownForm(forms.Form):
    """Stands for a form class that this process doesn't know: shows so, and accepts nothing."""

    def clean(self) -> dict[str, Any]:
        raise forms.ValidationError(_("This server doesn't know the form of this question. Is its code deployed here?"))


def form_for(
    prompt: str, described: Mapping[str, Any], data: Any = None, uploads: Any = None, *, prefix: str | None = None
) -> forms.Form:
    """A form, unbound or bound to ``data`` and ``uploads``: the author's own, or one field ``answer`` labelled with the
    prompt."""
    if described.get("kind") == "form":
        form_class = _forms.get(str(described.get("form")), UnknownForm)
        return form_class(data, uploads, prefix=prefix)
    form = forms.Form(data, uploads, prefix=prefix)
    form.fields[FIELD] = _field(prompt, described)
    return form


def validate(key: str, prompt: str, described: Mapping[str, Any], answer: Any) -> Any:
    """The cleaned answer, or InvalidAnswer with sentences; ``plain`` makes it JSON.

    ``answer`` is what a person or a program gave: the value, for the kind "form" a mapping of values; or the bound form
    that ``form_for`` made.
    """
    if isinstance(answer, forms.Form):
        if described.get("kind") == "form":
            return _cleaned_form(key, answer, described)
        answer.is_valid()  # so that the page can show what is wrong where it is wrong
        answer = answer[FIELD].data  # judged by the question's own field, whatever form a surface made
    if described.get("kind") == "form":
        given = dict(answer) if isinstance(answer, Mapping) else {}
        uploads = {name: value for name, value in given.items() if isinstance(value, File)}
        return _cleaned_form(key, form_for(prompt, described, given, uploads), described)
    if described.get("kind") == "file" and files.is_reference(answer):
        return files.resolve(answer, place=f"the answer to {key}").reference
    raw = answer
    if described.get("kind") == "json" and not isinstance(answer, str):
        raw = storable.encode(answer, place=f"the answer to {key}", limit="MAX_PAYLOAD_BYTES")
    elif described.get("kind") == "yes_no" and isinstance(answer, bool):
        raw = "yes" if answer else "no"
    try:
        return _field(prompt, described).clean(raw)
    except forms.ValidationError as error:
        raise InvalidAnswer(key, [str(each) for each in error.messages]) from None


def plain(cleaned: Any, store: Callable[[File[Any]], Any]) -> Any:
    """A cleaned answer as JSON: numbers, ISO dates, keys of rows; ``store`` keeps a file and returns its reference."""
    if isinstance(cleaned, Decimal):
        return int(cleaned) if cleaned == cleaned.to_integral_value() else float(cleaned)
    if isinstance(cleaned, date | datetime | time):
        return cleaned.isoformat()
    if isinstance(cleaned, timedelta):
        return cleaned.total_seconds()
    if isinstance(cleaned, File):
        return store(cleaned)
    if isinstance(cleaned, Model):
        return plain(cleaned.pk, store)
    if isinstance(cleaned, Mapping):
        return {str(name): plain(value, store) for name, value in cleaned.items()}
    if isinstance(cleaned, list | tuple | set | QuerySet):
        return [plain(value, store) for value in cleaned]
    return cleaned if cleaned is None or isinstance(cleaned, str | int | float | bool) else str(cleaned)


def has_files(cleaned: Any) -> bool:
    """Whether ``plain`` would store anything."""
    values = cleaned.values() if isinstance(cleaned, Mapping) else [cleaned]
    return any(isinstance(value, File) for value in values)


def _cleaned_form(key: str, form: forms.Form, described: Mapping[str, Any]) -> Any:
    if not form.is_valid():
        lines = [
            str(message) if name in (NON_FIELD_ERRORS, FIELD) else f"{form.fields[name].label or name}: {message}"
            for name, messages in form.errors.items()
            for message in messages
        ]
        raise InvalidAnswer(key, lines)
    return form.cleaned_data


def _field(prompt: str, described: Mapping[str, Any]) -> forms.Field:
    common: dict[str, Any] = {"label": prompt, "help_text": described.get("help", "")}
    choices = [(value, label) for value, label in described.get("choices", ())]
    is_few = len(choices) <= FEW
    searchable = {"data-supervision-search": _("Type to search")}
    match described.get("kind", "text"):
        case "choice":
            one: forms.Widget = forms.RadioSelect() if is_few else forms.Select(attrs=searchable)
            return forms.ChoiceField(choices=choices if is_few else [("", "---------"), *choices], widget=one, **common)
        case "choices":
            many: forms.Widget = forms.CheckboxSelectMultiple()
            if not is_few:
                many = forms.SelectMultiple(attrs={**searchable, "size": "10"})
            return forms.MultipleChoiceField(choices=choices, widget=many, **common)
        case "yes_no":
            return forms.TypedChoiceField(
                choices=[("yes", _("Yes")), ("no", _("No"))], coerce=_as_bool, widget=forms.RadioSelect, **common
            )
        case "number":
            return forms.DecimalField(max_digits=40, **common)
        case "date":
            return forms.DateField(widget=forms.DateInput(attrs={"type": "date"}, format="%Y-%m-%d"), **common)
        case "file":
            return forms.FileField(**common)
        case "json":
            return _JSONField(**common)
        case _:
            return forms.CharField(widget=forms.Textarea(attrs={"rows": 3}), **common)


class _JSONField(forms.JSONField):
    """Refuses what Python's parser gives up on, numbers of thousands of digits and deep nesting, like any bad JSON."""

    def to_python(self, value: Any) -> Any:
        try:
            return super().to_python(value)
        except (ValueError, RecursionError):
            raise forms.ValidationError(self.error_messages["invalid"], "invalid", {"value": value}) from None

    def bound_data(self, data: Any, initial: Any) -> Any:
        try:
            return super().bound_data(data, initial)
        except (ValueError, RecursionError):
            return InvalidJSONInput(data)


def _as_bool(value: str) -> bool:
    return value == "yes"

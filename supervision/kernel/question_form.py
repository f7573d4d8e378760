"""Questions as Django forms: the one place that knows the kinds, for asking, showing and validating alike."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from django import forms
from django.utils.translation import gettext as _

from supervision.errors import InvalidAnswer, NotStorable

FIELD = "answer"
_FEW = 7
"""Up to so many choices are shown as radio buttons, more as a list to choose from."""

KINDS = ("text", "yes_no", "choice", "choices", "number", "date", "json")


@dataclass(frozen=True)
class Ask:
    """What a body asks: a key (unique in its task), a sentence, and the form of the answer.

    ``choices`` (value -> label, or values) make the kind "choice" unless "choices" (several) is named; without them
    the default is "text". ``expires_after`` defaults to QUESTION_EXPIRES_AFTER; ``timedelta(0)`` is refused.

    >>> Ask("approve", "May we spend 400 EUR?", kind="yes_no")
    """

    key: str
    prompt: str
    kind: str = ""
    choices: Mapping[str, str] | Sequence[str] = ()
    help: str = ""
    expires_after: timedelta | None = None

    def form(self) -> dict[str, Any]:
        """The stored description. Raises NotStorable for a kind that isn't known, or choices that don't fit it."""
        kind = self.kind or ("choice" if self.choices else "text")
        if kind not in KINDS:
            raise NotStorable(f"question {self.key}", _("its kind must be one of %(k)s") % {"k": ", ".join(KINDS)})
        if bool(self.choices) != (kind in ("choice", "choices")):
            raise NotStorable(f"question {self.key}", _("choices go with the kinds choice and choices, and only there"))
        pairs = self.choices.items() if isinstance(self.choices, Mapping) else ((c, c) for c in self.choices)
        described: dict[str, Any] = {"kind": kind}
        if self.choices:
            described["choices"] = [[value, str(label)] for value, label in pairs]
        if self.help:
            described["help"] = self.help
        return described


def form_for(prompt: str, described: Mapping[str, Any], data: Any = None, *, prefix: str | None = None) -> forms.Form:
    """An unbound form, or one bound to ``data``, with one field ``answer`` labelled with the prompt."""
    form = forms.Form(data, prefix=prefix)
    form.fields[FIELD] = _field(prompt, described)
    return form


def validate(key: str, prompt: str, described: Mapping[str, Any], answer: Any) -> Any:
    """The cleaned answer as JSON, or InvalidAnswer with sentences. ``answer`` is what a person or a program gave."""
    raw = json.dumps(answer) if described.get("kind") == "json" and not isinstance(answer, str) else answer
    try:
        cleaned = _field(prompt, described).clean(raw)
    except forms.ValidationError as error:
        raise InvalidAnswer(key, list(error.messages)) from None
    return _plain(cleaned)


def _field(prompt: str, described: Mapping[str, Any]) -> forms.Field:
    common: dict[str, Any] = {"label": prompt, "help_text": described.get("help", "")}
    choices = [(value, label) for value, label in described.get("choices", ())]
    match described.get("kind", "text"):
        case "choice":
            widget = forms.RadioSelect if len(choices) <= _FEW else forms.Select
            blank = [] if len(choices) <= _FEW else [("", "---------")]
            return forms.ChoiceField(choices=blank + choices, widget=widget, **common)
        case "choices":
            many = forms.CheckboxSelectMultiple if len(choices) <= _FEW else forms.SelectMultiple
            return forms.MultipleChoiceField(choices=choices, widget=many, **common)
        case "yes_no":
            return forms.TypedChoiceField(
                choices=[("yes", _("Yes")), ("no", _("No"))], coerce=_as_bool, widget=forms.RadioSelect, **common
            )
        case "number":
            return forms.DecimalField(**common)
        case "date":
            return forms.DateField(widget=forms.DateInput(attrs={"type": "date"}), **common)
        case "json":
            return forms.JSONField(**common)
        case _:
            return forms.CharField(widget=forms.Textarea(attrs={"rows": 3}), **common)


def _as_bool(value: str) -> bool:
    return value == "yes"


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, date | datetime):
        return value.isoformat()
    return value

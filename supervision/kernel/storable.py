"""What jsonb can hold, and how much of it. Pure. Refusals name the place; a failure's text is always made to fit."""

import json
import math
import re
from decimal import Decimal
from typing import Any

from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import NotStorable, TooLarge

_LONGEST_TEXT = 64 * 1024
_DETAIL = re.compile(r"^(DETAIL|CONTEXT): .*", re.MULTILINE)
_DEEPEST = 100
"""Levels of lists and objects: what is stored must be readable by every Python, whatever its recursion limit."""


def encode(value: Any, *, place: str, limit: str) -> str:
    """``value`` as JSON text for a ``%s::jsonb`` parameter.

    ``place`` names the value in errors, ``limit`` is the setting that bounds its size in bytes of UTF-8.
    Raises NotStorable for what is no JSON or what PostgreSQL refuses (NaN, NUL, lone surrogates, keys that are not
    text), TooLarge over the limit.

    >>> encode({"rows": [1, float("nan")]}, place="result", limit="MAX_RESULT_BYTES")
    Traceback (most recent call last):
    supervision.errors.NotStorable: result.rows[1] can't be stored: nan is no number in JSON.
    """
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal(value, place, str(error)) from None
    if "\\u0000" in text or not _is_sound(value, _DEEPEST):
        fault = _fault(value, place)
        if fault is not None:
            raise fault
    maximum: int = getattr(settings, limit)
    if size > maximum:
        raise TooLarge(place, size, maximum, limit)
    return text


def as_stored(encoded: str) -> Any:
    """What jsonb will hand back of this JSON text: objects in its order of keys, numbers as it keeps them.

    So that the drive that computed a value and every replay see the very same one.
    """
    return json.loads(encoded, object_pairs_hook=_in_order, parse_float=_as_numeric)


def _in_order(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(sorted(pairs, key=lambda pair: (len(pair[0].encode()), pair[0].encode())))


def _as_numeric(digits: str) -> Any:
    """jsonb keeps numeric: no exponent, so 1e17 comes back without a point, as an integer; and no negative zero."""
    number = Decimal(digits)
    exponent = number.as_tuple().exponent
    if isinstance(exponent, int) and exponent >= 0:
        return int(number)
    return float(number) + 0.0


def error_text(error: object) -> str:
    """An error's text without what PostgreSQL adds of the row's contents, which may be anybody's secret."""
    return _DETAIL.sub(r"\1: (left out)", text(error, 10**7))


def text(value: object, longest: int = _LONGEST_TEXT) -> str:
    """Any text made storable: NUL and lone surrogates replaced, the middle left out over ``longest`` characters.

    Never raises: what went wrong must always be recordable, also when ``str()`` of it fails.
    """
    try:
        raw = str(value)
    except Exception as error:
        raw = f"<{type(value).__name__}: no text ({type(error).__name__})>"
    clean = raw.replace("\x00", "\N{REPLACEMENT CHARACTER}").encode("utf-8", "replace").decode("utf-8")
    if len(clean) <= longest:
        return clean
    half = (longest - 60) // 2
    return f"{clean[:half]}\n[… {len(clean) - 2 * half} characters left out …]\n{clean[-half:]}"


def name(value: str, *, place: str, longest: int = 200) -> str:
    """A name or key as it is, or NotStorable: empty, too long, or with characters that PostgreSQL refuses."""
    if not isinstance(value, str) or not value:
        raise NotStorable(place, _("it must be a text that isn't empty"))
    if len(value) > longest:
        raise NotStorable(place, _("it is longer than %(n)s characters") % {"n": longest})
    fault = _fault(value, place)
    if fault is not None:
        raise fault
    return value


def _is_sound(value: Any, levels: int) -> bool:
    """Its keys are text, and it isn't nested too deeply."""
    if isinstance(value, dict):
        return (
            levels > 0
            and all(isinstance(key, str) for key in value)
            and all(_is_sound(item, levels - 1) for item in value.values())
        )
    if isinstance(value, list | tuple):
        return levels > 0 and all(_is_sound(item, levels - 1) for item in value)
    return True


def _refusal(value: Any, place: str, why: str) -> NotStorable:
    return _fault(value, place) or NotStorable(place, why)


def _fault(value: Any, place: str, levels: int = _DEEPEST) -> NotStorable | None:
    """The first thing in ``value`` that can't be stored, with its path."""
    if levels == 0 and isinstance(value, list | tuple | dict):
        return NotStorable(place.partition("[")[0].partition(".")[0], _("it contains itself or is nested too deeply"))
    if value is None or isinstance(value, bool):
        return None
    if isinstance(value, str):
        return _text_fault(value, place)
    if isinstance(value, int):
        return None if value.bit_length() < 10_000 else NotStorable(place, _("the number is too large"))
    if isinstance(value, float):
        return None if math.isfinite(value) else NotStorable(place, _("%(v)s is no number in JSON") % {"v": value})
    if isinstance(value, list | tuple):
        return next(filter(None, (_fault(item, f"{place}[{at}]", levels - 1) for at, item in enumerate(value))), None)
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                return NotStorable(place, _("the key %(key)r isn't text") % {"key": key})
            fault = _text_fault(key, f"{place}.{text(key)}") or _fault(item, f"{place}.{key}", levels - 1)
            if fault is not None:
                return fault
        return None
    return NotStorable(place, _("%(type)s is no JSON type") % {"type": type(value).__name__})


def _text_fault(value: str, place: str) -> NotStorable | None:
    if "\x00" in value:
        return NotStorable(place, _("it contains a NUL character"))
    try:
        value.encode()
    except UnicodeEncodeError as error:
        return NotStorable(place, _("it contains a lone surrogate at position %(at)s") % {"at": error.start})
    return None

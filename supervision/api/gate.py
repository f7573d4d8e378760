"""The generation gate: who changes something says what they saw of it, or is told what it is now."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.utils.translation import gettext as _
from rest_framework.request import Request

from supervision.api import problems
from supervision.api.problems import Problem
from supervision.errors import Conflict, GenerationMissing, Refused, SupervisionError, UnknownBody

R = TypeVar("R")

_TAG = re.compile(r'(?:W/)?"(\d{1,18})"')
_NEVER = -1


def tag(generation: int) -> str:
    """The ETag of a generation, as If-Match brings it back."""
    return f'"{generation}"'


def gated(
    request: Request, data: Mapping[str, Any], act: Callable[[int], R], current: Callable[[], Mapping[str, Any]]
) -> R:
    """``act`` with the generation that the client expects.

    428 where it says none, 409 where it is stale (412 if it came as If-Match), 409 where the verb is refused; each with
    ``current``, the fresh representation. Nothing has changed then.
    """
    expected, by_header = _expected(request, data)
    if expected is None:
        raise Problem(428, "generation_missing", str(GenerationMissing()), current=current())
    try:
        return act(expected)
    except Conflict as conflict:
        status, code = (412, "stale") if by_header else (409, "stale")
        raise Problem(status, code, str(conflict), current=current()) from None
    except (Refused, UnknownBody) as refusal:
        raise Problem(409, "refused", str(refusal), current=current()) from None
    except SupervisionError as error:
        problem = problems.as_problem(error)
        assert problem is not None  # noqa: S101 - every error of ours is one
        raise problem from None


def _expected(request: Request, data: Mapping[str, Any]) -> tuple[int | None, bool]:
    """The number, and whether it came as If-Match. ``*`` names no generation; a tag that is none never matches."""
    header, stated = request.headers.get("If-Match", "").strip(), data.get("expected_generation")
    if not header or header == "*":
        return stated, False
    found = _TAG.fullmatch(header)
    generation = int(found[1]) if found else _NEVER
    if stated is not None and stated != generation:
        raise problems.invalid(expected_generation=_("It differs from what If-Match says."))
    return generation, True

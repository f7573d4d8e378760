"""What a transition handed back, made one of a few outcomes. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

SUCCESS = "success"
FAILURE = "failure"
NOT_READY = "not ready"
REPOINTED = "re-pointed"


@dataclass(frozen=True)
class Outcome:
    """How a visit ended: success, failure, not ready, or a branch's name."""

    name: str
    error: str = ""
    params: dict[str, Any] = field(default_factory=dict)
    traceback: str = ""


def normalised(value: Any, branches: Collection[str]) -> Outcome:
    """``(ok, error, params)``, or ``ok`` alone, as an outcome.

    ``ok`` is True or None for success (a function without a return statement succeeds), False for failure, or the name
    of a branch. Raises TypeError or ValueError for what is none of these.

    >>> normalised((False, "no GPU", {"tries": 2}), ())
    Outcome(name='failure', error='no GPU', params={'tries': 2}, traceback='')
    """
    ok, error, params = value, None, None
    if isinstance(value, tuple):
        if len(value) != 3:
            raise TypeError(f"a transition returned {len(value)} values; it must be (ok, error, params)")
        ok, error, params = value
    if params is not None and not isinstance(params, Mapping):
        raise TypeError(f"the params of a transition must be a dict, not {type(params).__name__}")
    return Outcome(_named(ok, branches), "" if error is None else str(error), dict(params or {}))


def _named(ok: Any, branches: Collection[str]) -> str:
    if ok is None or ok is True:
        return SUCCESS
    if ok is False:
        return FAILURE
    if isinstance(ok, str):
        if ok in branches:
            return ok
        known = ", ".join(map(repr, branches)) or "none"
        raise ValueError(f"a transition returned {ok!r}, which is no branch of its state; branches: {known}")
    raise TypeError(f"a transition returned a {type(ok).__name__}; it must be True, False, None or a branch's name")

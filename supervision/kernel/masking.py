"""Sensitive arguments: stored for the body, masked by every reader. Pure."""

import json
from collections.abc import Iterable
from typing import Any

_LONG_LINE = 16
MASK = "••••••"
_SHORTEST_SECRET = 4
"""Shorter values (a PIN of 3, "", True) are masked where they are arguments, but not searched for in other texts:
they would blot out innocent ones."""


def mask_names(arguments: Any, sensitive: Iterable[str]) -> Any:
    """``arguments`` with the values of the sensitive names masked."""
    names = frozenset(sensitive)
    if not names or not isinstance(arguments, dict):
        return arguments
    return {name: MASK if name in names else value for name, value in arguments.items()}


def secrets_of(arguments: Any, sensitive: Iterable[str]) -> list[str]:
    """Every text inside the sensitive arguments, longest first, so that a secret inside a secret is masked whole."""
    names = frozenset(sensitive)
    if not names or not isinstance(arguments, dict):
        return []
    plain = {text for name in names if name in arguments for text in _texts(arguments[name])}
    # as they stand in a repr or in JSON, and line by line: a key of many lines is seldom quoted whole
    texts = plain | {repr(text)[1:-1] for text in plain} | {json.dumps(text)[1:-1] for text in plain}
    texts |= {line for text in plain for line in text.splitlines() if len(line) >= _LONG_LINE}
    return sorted((text for text in texts if len(text) >= _SHORTEST_SECRET), key=len, reverse=True)


def mask_values(value: Any, secrets: list[str]) -> Any:
    """``value``, any JSON, with each secret replaced wherever it stands in a text or a key."""
    if not secrets:
        return value
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, MASK)
        return value
    if isinstance(value, dict):
        return {mask_values(key, secrets): mask_values(item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_values(item, secrets) for item in value]
    if isinstance(value, int | float) and not isinstance(value, bool) and str(value) in secrets:
        return MASK
    return value


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)

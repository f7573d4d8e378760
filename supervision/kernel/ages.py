"""Ages as people write them, and how long SUPERVISION["RETENTION"] keeps the tasks of each body."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.utils.translation import gettext as _

from supervision.conf import settings

OTHERS = "*"
"""In the policy: every body that it doesn't name."""
_UNITS = {"h": timedelta(hours=1), "d": timedelta(days=1), "w": timedelta(weeks=1), "y": timedelta(days=365)}


def age(value: Any) -> timedelta | None:
    """``90d``, ``36h``, ``12w``, ``2y`` (of 365 days), a timedelta, or None: for ever. Raises ValueError."""
    if value is None or (isinstance(value, timedelta) and value >= timedelta(0)):
        return value
    match = re.fullmatch(r"(\d{1,5})([hdwy])", value) if isinstance(value, str) else None
    if match is None:
        raise ValueError(_("%(value)r is no age: a number and h, d, w or y, for example 90d.") % {"value": value})
    return int(match[1]) * _UNITS[match[2]]


def policy() -> dict[str, timedelta | None]:
    """SUPERVISION["RETENTION"], read. Raises ValueError for what the system check refuses."""
    return {body: age(kept) for body, kept in settings.RETENTION.items()}


def wrong_ages() -> list[tuple[str, str]]:
    """What SUPERVISION["RETENTION"] says that is no age, by body: for the system check."""
    said: Any = settings.RETENTION
    if not isinstance(said, Mapping):
        return [(OTHERS, _("it is a dictionary of ages by body."))]
    wrong = []
    for body, kept in said.items():
        try:
            age(kept)
        except ValueError as error:
            wrong.append((str(body), str(error)))
    return wrong

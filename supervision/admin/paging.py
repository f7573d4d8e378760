"""Pages of a list that may have a million rows: counted as far as a person would turn them, and no further."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from django.core.paginator import Paginator

COUNTED = 10_000


class CappedPaginator(Paginator):  # type: ignore[type-arg]
    """Counts at most ``COUNTED`` + 1 rows: a COUNT over the whole table would read all of it at each page."""

    @cached_property
    def count(self) -> int:
        return capped_count(self.object_list)

    @property
    def is_capped(self) -> bool:
        return self.count > COUNTED


def capped_count(rows: Any) -> int:
    """How many there are, or ``COUNTED`` + 1 for more.

    In the order of the rows, which an index has: without one the planner reads the table from its beginning, and what
    is common only at the end of it would be looked for all the way.
    """
    return int(rows.values("pk")[: COUNTED + 1].count())


def shown_count(count: int) -> str:
    """``812`` or ``10,000+``."""
    return f"{COUNTED:,}+" if count > COUNTED else f"{count:,}"

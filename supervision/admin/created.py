"""The date drill-down. An id begins with its time of creation, so the primary key is the index, and its first and last
row say which years, months and days there are; the table is not read for it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

from django.contrib.admin import ModelAdmin, SimpleListFilter
from django.contrib.admin.views.main import ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.dates import MONTHS
from django.utils.formats import date_format
from django.utils.translation import gettext_lazy as _

from supervision.kernel.clock import first_id
from supervision.kernel.models import Task

_VALUE = re.compile(r"(\d{4})(?:-(\d\d))?(?:-(\d\d))?")


class CreatedFilter(SimpleListFilter):
    """Year, then month, then day of creation, in the current time zone."""

    title = _("created")
    parameter_name = "created"
    template = "supervision/admin/folded_filter.html"

    def lookups(self, request: HttpRequest, model_admin: ModelAdmin[Any]) -> list[tuple[str, str]]:
        self._ends = _first_and_last(model_admin.get_queryset(request))
        return [] if self._ends is None else [("all", "")]

    def queryset(self, request: HttpRequest, tasks: QuerySet[Task]) -> QuerySet[Task]:
        span = _span(self.value() or "")
        return tasks if span is None else tasks.filter(pk__gte=first_id(span[0]), pk__lt=first_id(span[1]))

    def choices(self, changelist: ChangeList) -> Iterator[dict[str, Any]]:  # type: ignore[override]
        chosen = self.value() if _span(self.value() or "") else None
        yield self._choice(changelist, None, _("Any date"), chosen)
        if self._ends is None:
            return
        parts = chosen.split("-") if chosen else []
        for depth in range(1, len(parts) + 1):
            value = "-".join(parts[:depth])
            yield self._choice(changelist, value, _label(value), chosen)
        for value in _below(chosen, *self._ends):
            yield self._choice(changelist, value, _label(value), chosen)

    def _choice(self, changelist: ChangeList, value: str | None, label: Any, chosen: str | None) -> dict[str, Any]:
        query = (
            changelist.get_query_string(remove=[self.parameter_name])
            if value is None
            else changelist.get_query_string({self.parameter_name: value})
        )
        return {"selected": value == chosen, "query_string": query, "display": label}


def _first_and_last(tasks: QuerySet[Task]) -> tuple[date, date] | None:
    """The dates of the oldest and the newest task; two probes of the primary key."""
    keys = tasks.order_by().values_list("pk", flat=True)
    found = list(keys.order_by("pk")[:1].union(keys.order_by("-pk")[:1], all=True))
    if not found:
        return None
    moments = sorted(datetime.fromtimestamp((key.int >> 80) / 1000, timezone.get_current_timezone()) for key in found)
    return moments[0].date(), moments[-1].date()


def _span(value: str) -> tuple[datetime, datetime] | None:
    """From and until, as moments; None for what is no date."""
    match = _VALUE.fullmatch(value)
    if match is None:
        return None
    year, month, day = (None if part is None else int(part) for part in match.groups())
    try:
        start = date(year or 0, month or 1, day or 1)
        if day is not None:
            end = start + timedelta(days=1)
        elif month is not None:
            end = (start + timedelta(days=32)).replace(day=1)
        else:
            end = start.replace(year=start.year + 1)
    except (ValueError, OverflowError):
        return None
    if start.year < 1971:
        return None
    midnight = datetime.min.time()
    zone = timezone.get_current_timezone()
    return datetime.combine(start, midnight, zone), datetime.combine(end, midnight, zone)


def _below(chosen: str | None, first: date, last: date) -> Iterator[str]:
    """What one may drill down to, newest first: years, or the months of the only year, or its only month's days."""
    parts = chosen.split("-") if chosen else []
    if len(parts) == 3:
        return
    if not parts and first.year == last.year:
        parts = [f"{first.year:04}"]
        if first.month == last.month:
            parts.append(f"{first.month:02}")
    if not parts:
        yield from (f"{year:04}" for year in range(last.year, first.year - 1, -1))
    elif len(parts) == 1:
        months = (date(int(parts[0]), month, 1) for month in range(12, 0, -1))
        yield from (f"{each:%Y-%m}" for each in months if first.replace(day=1) <= each <= last)
    else:
        day = date(int(parts[0]), int(parts[1]), 1)
        days = [day + timedelta(days=n) for n in range(31)]
        yield from (f"{each:%Y-%m-%d}" for each in reversed(days) if each.month == day.month and first <= each <= last)


def _label(value: str) -> str:
    parts = value.split("-")
    if len(parts) == 1:
        return value
    if len(parts) == 2:
        return f"{MONTHS[int(parts[1])]} {parts[0]}"
    return date_format(date.fromisoformat(value), "DATE_FORMAT")

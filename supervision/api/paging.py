"""Lists by cursor: constant cost however far one pages, and nothing skipped while rows are added."""

from __future__ import annotations

from datetime import UTC
from typing import Any
from uuid import UUID

from django.db import models
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _
from rest_framework import pagination
from rest_framework.exceptions import NotFound

from supervision.api import problems
from supervision.api.view import whole

_MOST = 2**63 - 1


class Cursor(pagination.CursorPagination):
    """Newest first. ``ordering`` is chosen by the view from its own list."""

    page_size = 50
    max_page_size = 200
    page_size_query_param = "page_size"
    cursor_query_param = "cursor"

    def of(self, view: Any, rows: Any, *, ordering: str = "-id") -> list[Any]:
        """The rows of the page that the request asks for; a 400 for a cursor that was not made here."""
        self.ordering = ordering
        self._field = rows.model._meta.get_field(ordering.lstrip("-"))
        return list(self.paginate_queryset(rows, view.request, view=view) or ())

    def decode_cursor(self, request: Any) -> Any:
        try:
            cursor: Any = super().decode_cursor(request)
            if cursor is None or cursor.position is None:
                return cursor
            return cursor._replace(position=_read(self._field, cursor.position))
        except (NotFound, ValueError, OverflowError):
            raise problems.invalid(cursor=_("It is none of this list: begin without one.")) from None

    def get_page_size(self, request: Any) -> int | None:
        raw = request.query_params.get(self.page_size_query_param)
        return self.page_size if raw is None else whole(raw, "page_size", least=1, most=self.max_page_size)

    def get_ordering(self, request: Any, queryset: Any, view: Any) -> Any:
        return (self.ordering,)


def _read(field: models.Field[Any, Any], position: str) -> str:
    """The position as the field's own text; ValueError or OverflowError for what would only puzzle the database."""
    if isinstance(field, models.UUIDField):
        return str(UUID(position))
    if isinstance(field, models.DateTimeField):
        moment = parse_datetime(position)
        if moment is None or moment.tzinfo is None:
            raise ValueError
        return moment.astimezone(UTC).isoformat()
    if not 0 <= int(position) <= _MOST:
        raise ValueError
    return position

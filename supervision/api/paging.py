"""Lists by cursor: constant cost however far one pages, and nothing skipped while rows are added."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import ValidationError
from django.db import DataError
from django.utils.translation import gettext as _
from rest_framework import pagination
from rest_framework.exceptions import NotFound

from supervision.api import problems
from supervision.api.view import whole


class Cursor(pagination.CursorPagination):
    """Newest first. ``ordering`` is chosen by the view from its own list."""

    page_size = 50
    max_page_size = 200
    page_size_query_param = "page_size"
    cursor_query_param = "cursor"
    ordering = "-pk"

    def of(self, view: Any, rows: Any, *, ordering: str = "") -> list[Any]:
        """The rows of the page that the request asks for; a 400 for a cursor that was not made here."""
        self.ordering = ordering or self.ordering
        try:
            return list(self.paginate_queryset(rows, view.request, view=view) or ())
        except (NotFound, ValidationError, ValueError, TypeError, DataError):
            raise problems.invalid(cursor=_("It is none of this list: begin without one.")) from None

    def get_page_size(self, request: Any) -> int | None:
        raw = request.query_params.get(self.page_size_query_param)
        return self.page_size if raw is None else whole(raw, "page_size", least=1, most=self.max_page_size)

    def get_ordering(self, request: Any, queryset: Any, view: Any) -> Any:
        return (self.ordering,)

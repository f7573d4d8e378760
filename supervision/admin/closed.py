"""The stock forms of admin, closed: rows of the kernel and the engines are written by verbs alone."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest


class ClosedAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Adds, changes and deletes nothing, for nobody. What may be done after all a subclass opens by its own pages."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None) -> Any:
        raise PermissionDenied

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        raise PermissionDenied


def row_number(raw: str) -> int:
    """The key of an address; one that can't be is one that isn't there."""
    return int(raw) if raw.isascii() and raw.isdecimal() and len(raw) < 19 else 0

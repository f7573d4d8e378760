"""A column type that Django has only in ``django.contrib.postgres``, which a host need not have installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import models

if TYPE_CHECKING:
    _Field = models.Field[list[int], list[int]]
else:
    _Field = models.Field


class Numbers(_Field):
    """A list of whole numbers as ``bigint[]``, to be read by the kernel's own SQL."""

    description = "A list of whole numbers"

    def db_type(self, connection: Any) -> str:
        return "bigint[]"

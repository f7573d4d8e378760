"""Request bodies: JSON objects of bounded size, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from django.utils.translation import gettext as _
from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.parsers import BaseParser

from supervision.conf import settings


class ObjectParser(BaseParser):
    """Always UTF-8, whatever charset is named; NaN and the like are refused, and what Python gives up on."""

    media_type = "application/json"

    def parse(
        self, stream: Any, media_type: str | None = None, parser_context: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        limit = settings.API_MAX_BODY_BYTES
        raw = stream.read(limit + 1)
        if len(raw) > limit:
            why = _("The body has more than %(n)s bytes (API_MAX_BODY_BYTES).") % {"n": limit}
            raise ValidationError({"body": [why]})
        try:
            value = json.loads(raw.decode("utf-8"), parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise ParseError(_("The body is no JSON: %(why)s") % {"why": str(error)[:200]}) from None
        if not isinstance(value, dict):
            raise ParseError(_("The body must be a JSON object."))
        return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")

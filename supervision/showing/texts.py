"""Values of any size and content made fit to be shown: pretty, capped, inert. Nothing here is marked safe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from supervision.kernel import files

CAP = 10_000


@dataclass(frozen=True)
class Excerpt:
    """``text`` of ``length`` characters, cut if ``is_cut``; the whole is to be had as a download."""

    text: str
    length: int
    is_cut: bool

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        return self.text


def excerpt(value: Any, cap: int = CAP) -> Excerpt:
    """A text as it is, or any other JSON with indents and with files by their names, at most ``cap`` characters."""
    text = whole(value)
    return Excerpt(text[:cap] + ("…" if len(text) > cap else ""), len(text), len(text) > cap)


def whole(value: Any) -> str:
    """All of it, as people read it."""
    if isinstance(value, str):
        return value
    return json.dumps(_with_file_names(value), indent=2, ensure_ascii=False, default=str)


def _with_file_names(value: Any) -> Any:
    """References to stored files as names: where they lie, and their seals, are nobody's business."""
    if files.is_reference(value):
        return _("[file: %(name)s]") % {"name": value.get("name")}
    if isinstance(value, dict):
        return {key: _with_file_names(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_file_names(item) for item in value]
    return value

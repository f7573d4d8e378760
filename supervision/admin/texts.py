"""Values of any size and content made fit to be shown: pretty, capped, inert. Nothing here is marked safe."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

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
    """A text as it is, or any other JSON with indents, at most ``cap`` characters of it."""
    text = whole(value)
    return Excerpt(text[:cap] + ("…" if len(text) > cap else ""), len(text), len(text) > cap)


def whole(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)

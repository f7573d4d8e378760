"""The signs of a task's situation: each has a shape of its own, so that colour is never the only sign. Pure."""

from __future__ import annotations

from django.utils.html import format_html
from django.utils.safestring import SafeString

from supervision.wording import Situation

_SHAPES = {
    "pending": "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zm0 1.8a4.2 4.2 0 1 1 0 8.4 4.2 4.2 0 0 1 0-8.4z",
    "running": "M4 2.5v11l9-5.5z",
    "paused": "M4 3h3v10H4zM9 3h3v10H9z",
    "parked": "M3 7h10v2H3z",
    "asking": (
        "M8 1.5a4 4 0 0 0-4 4h2a2 2 0 1 1 3.2 1.6C8 8 7 8.6 7 10.5h2c0-1 .6-1.3 1.5-2A4 4 0 0 0 8 1.5zM7 12h2v2.3H7z"
    ),
    "sleeping": "M10.5 1.8A6.3 6.3 0 1 0 14.2 10 5.2 5.2 0 0 1 10.5 1.8z",
    "retrying": "M8 2.5V.5L12 3.7 8 7V4.8a3.4 3.4 0 1 0 3.4 3.4h2.2A5.6 5.6 0 1 1 8 2.5z",
    "stuck": "M8 1l7.5 13.5H.5zM7 6v4h2V6zm0 5.2v1.8h2v-1.8z",
    "ending": "M2 3l6 5-6 5zM8 3l6 5-6 5z",
    "skipped": "M2 3l6 5-6 5zM8 3l6 5-6 5z",
    "completed": "M6.2 13L1.5 8.3l1.7-1.7 3 3 6.6-6.6 1.7 1.7z",
    "failed": "M3.3 1.8L8 6.5l4.7-4.7 1.5 1.5L9.5 8l4.7 4.7-1.5 1.5L8 9.5l-4.7 4.7-1.5-1.5L6.5 8 1.8 3.3z",
    "expired": "M3 1h10v2.5L9.5 8l3.5 4.5V15H3v-2.5L6.5 8 3 3.5z",
    "cancelled": "M8 1.5a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM4 7h8v2H4z",
}


def sign(situation: Situation) -> SafeString:
    """The situation as a coloured pill: shape and word."""
    return format_html(
        '<span class="sv-sign sv-{}">{} {}</span>', situation.sign, shape(situation.sign), situation.label
    )


def shape(name: str) -> SafeString:
    """The bare shape, which says nothing to a screen reader: a word must stand beside it."""
    return format_html(
        '<svg class="sv-shape" viewBox="0 0 16 16" width="14" height="14" aria-hidden="true" focusable="false">'
        '<path fill="currentColor" fill-rule="evenodd" d="{}"/></svg>',
        _SHAPES.get(name, _SHAPES["parked"]),
    )

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
    "asking": "M8 1.5a4 4 0 0 0-4 4h2a2 2 0 1 1 3.2 1.6C8 8 7 8.600 7 10.500h2c0-1 .6-1.300 1.500-2A4 4 0 0 0 8 1.500zM7 12h2v2.300H7z",
    "sleeping": "M10.500 1.800A6.300 6.300 0 1 0 14.200 10 5.200 5.200 0 0 1 10.500 1.800z",
    "retrying": "M8 2.500V.500L12 3.700 8 7V4.800a3.400 3.400 0 1 0 3.400 3.400h2.200A5.600 5.600 0 1 1 8 2.500z",
    "stuck": "M8 1l7.500 13.500H.500zM7 6v4h2V6zm0 5.200v1.800h2v-1.800z",
    "ending": "M2 3l6 5-6 5zM8 3l6 5-6 5z",
    "completed": "M6.200 13L1.500 8.300l1.700-1.700 3 3 6.600-6.600 1.700 1.700z",
    "failed": "M3.300 1.800L8 6.500l4.700-4.700 1.500 1.500L9.500 8l4.700 4.700-1.500 1.500L8 9.500l-4.700 4.700-1.500-1.500L6.500 8 1.800 3.300z",
    "expired": "M3 1h10v2.500L9.500 8l3.500 4.500V15H3v-2.500L6.500 8 3 3.500z",
    "cancelled": "M8 1.500a6.500 6.500 0 1 0 0 13 6.500 6.500 0 0 0 0-13zM4 7h8v2H4z",
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

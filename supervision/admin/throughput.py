"""A small picture of what ended in each of the last hours: SVG made here, with attributes only, no style."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.utils.formats import date_format
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

_WIDTH, _HEIGHT, _GAP = 20, 72, 4


@dataclass(frozen=True)
class Bar:
    """One hour: what was completed, and what ended otherwise."""

    hour: datetime
    good: int
    bad: int


def chart(bars: Sequence[Bar]) -> SafeString:
    """The bars, each with its numbers in a title; what ended badly on top, striped by a line of its own colour."""
    most = max((bar.good + bar.bad for bar in bars), default=0) or 1
    columns = [_column(place, bar, most) for place, bar in enumerate(bars)]
    return format_html(
        '<svg class="sv-chart" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">{}</svg>',
        len(bars) * _WIDTH, _HEIGHT + 2,
        _("Tasks that ended in each of the last %(n)s hours") % {"n": len(bars)},
        format_html_join("", "{}", ((column,) for column in columns)),
    )  # fmt: skip


def _column(place: int, bar: Bar, most: int) -> SafeString:
    good = round(_HEIGHT * bar.good / most)
    bad = max(round(_HEIGHT * bar.bad / most), 3 if bar.bad else 0)
    left = place * _WIDTH + _GAP // 2
    width = _WIDTH - _GAP
    words = _("%(hour)s: %(good)s completed, %(bad)s otherwise") % {
        "hour": date_format(localtime(bar.hour), "TIME_FORMAT"),
        "good": bar.good,
        "bad": bar.bad,
    }
    return format_html(
        '<g><title>{}</title><rect class="sv-bar-back" x="{}" y="0" width="{}" height="{}"/>'
        '<rect class="sv-bar-good" x="{}" y="{}" width="{}" height="{}"/>'
        '<rect class="sv-bar-bad" x="{}" y="{}" width="{}" height="{}"/></g>',
        words, left, width, _HEIGHT + 2,
        left, _HEIGHT + 2 - good, width, good,
        left, max(0, _HEIGHT + 2 - good - bad), width, bad,
    )  # fmt: skip

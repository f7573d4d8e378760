"""When a schedule's runs are meant: by elapsed time, or by a cron expression in a time zone. Pure.

On the nights on which clocks are put forward or back, a cron expression that names its hour means each of its times
once: a time that the clock leaves out comes as much later as the clock was moved (02:30 is 03:30), a time that comes
twice is meant the first time. One that doesn't name its hour (``*``) goes on through the repeated hour as through any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol

from django.core.exceptions import ValidationError
from django.utils.translation import gettext as _
from django_q.conf import croniter

_DAY = timedelta(days=1)  # no clock was ever moved by more
# croniter's own: another time in each process, or one that depends on a name
_DICE = re.compile(r"(?<![a-z])[rh](?![a-z])", re.IGNORECASE)


class Rhythm(Protocol):
    """When runs are meant."""

    def after(self, moment: datetime) -> datetime:
        """The first time after ``moment``, in UTC."""


@dataclass(frozen=True)
class Every:
    """Each time that so much has elapsed since ``anchor``, whatever clocks on walls do."""

    span: timedelta
    anchor: datetime

    def after(self, moment: datetime) -> datetime:
        passed = (moment.astimezone(UTC) - self.anchor.astimezone(UTC)) // self.span
        return self.anchor.astimezone(UTC) + (passed + 1) * self.span


@dataclass(frozen=True)
class Cron:
    """The times of a cron expression of five fields, on the clocks of ``zone``. ``checked`` says whether it is one."""

    expression: str
    zone: tzinfo

    def after(self, moment: datetime) -> datetime:
        """Walks along the wall clock, from before a jump that may lie behind, to past one that may lie ahead."""
        moment = moment.astimezone(UTC)
        walls = croniter(self.expression, _wall(moment, min(self._offsets(moment))) - timedelta(minutes=1))
        names_hour = walls.expanded[1] != ["*"]
        best, last = None, None
        while True:
            wall = walls.get_next(datetime)
            if best is not None and last is not None and wall > last:
                return best
            for instant in self._instants(wall, once=names_hour):
                if instant > moment and (best is None or instant < best):
                    best, last = instant, _wall(instant, max(self._offsets(instant)))

    def checked(self) -> Cron:
        """Itself. Raises ValidationError for what is no cron expression, or never comes."""
        if not croniter:
            raise ValidationError(_("Cron expressions need the package croniter: pip install croniter."))
        if len(self.expression.split()) != 5 or not croniter.is_valid(self.expression) or _DICE.search(self.expression):
            raise ValidationError(
                _("“%(cron)s” is no cron expression: it has five fields, for example 30 6 * * 1-5.")
                % {"cron": self.expression}
            )
        try:
            self.after(datetime(2000, 1, 1, tzinfo=UTC))
        except ValueError:
            raise ValidationError(_("“%(cron)s” never comes.") % {"cron": self.expression}) from None
        return self

    def _instants(self, wall: datetime, *, once: bool) -> Iterator[datetime]:
        """When the wall clock shows that: a time that it leaves out, as if it had not been moved."""
        first = wall.replace(tzinfo=self.zone, fold=0).astimezone(UTC)
        yield first
        if not once:
            second = wall.replace(tzinfo=self.zone, fold=1).astimezone(UTC)
            if second > first:
                yield second

    def _offsets(self, moment: datetime) -> list[timedelta]:
        """By which the zone's clocks differ from UTC around that moment."""
        around = (moment + shift for shift in (-_DAY, timedelta(0), _DAY))
        return [each.astimezone(self.zone).utcoffset() or timedelta(0) for each in around]


def latest(rhythm: Rhythm, first: datetime, until: datetime, limit: int) -> tuple[list[datetime], bool]:
    """The times from ``first``, itself one, to ``until``: the latest ``limit`` of them, and whether there were more.

    However many years lie between: it looks back from ``until``, each time twice as far.
    """
    window = timedelta(hours=1)
    while True:
        begin = max(first, until - window) if window < until - first else first
        times = [first] if begin == first else []
        while (following := rhythm.after(times[-1] if times else begin)) <= until:
            times.append(following)
        if begin == first or len(times) > limit:
            return times[-limit:], len(times) > limit
        window *= 2


def _wall(moment: datetime, offset: timedelta) -> datetime:
    return moment.replace(tzinfo=None) + offset

"""The nights on which clocks are moved, of every zone of the tz database: each run once, neither lost nor doubled."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervision.worker.rhythm import Cron, Every, latest

AROUND = timedelta(hours=30)
QUARTER = timedelta(minutes=15)  # every clock of these years differs from UTC by a multiple of it


class Night(NamedTuple):
    """A moment at which the clocks of a zone are moved."""

    zone: str
    moment: datetime
    before: timedelta
    after: timedelta


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    return moment.astimezone(zone).utcoffset() or timedelta(0)


def _moves(name: str) -> Iterator[Night]:
    zone, week = ZoneInfo(name), timedelta(days=7)
    begin = datetime(2010, 1, 1, tzinfo=UTC)  # Samoa went without a day in 2011
    while begin.year < 2030:
        low, high = begin, begin + week
        before, after = _offset(zone, low), _offset(zone, high)
        begin = high
        if before == after:
            continue
        while high - low > timedelta(minutes=1):
            middle = low + (high - low) // 2
            low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
        moment = high.replace(second=0, microsecond=0)
        yield Night(name, moment, before, _offset(zone, moment))


@cache
def nights() -> list[Night]:
    """Of all zones; of nights that are alike (the same move at the same local time) one."""
    alike: dict[tuple[Any, ...], Night] = {}
    for name in sorted(available_timezones()):
        for night in _moves(name):
            alike.setdefault((night.before, night.after, (night.moment + night.before).time()), night)
    return list(alike.values())


def wanted(night: Night, minutes: set[int], hours: set[int], *, names_hour: bool) -> list[datetime]:
    """By looking at the clock on the wall again and again."""
    zone, shown, times = ZoneInfo(night.zone), set(), set()
    step = timedelta(minutes=1) if night.moment.minute % 15 else QUARTER  # Goose Bay moved its clocks at 00:01
    moment = night.moment - AROUND
    while moment <= night.moment + AROUND:
        wall = moment.astimezone(zone).replace(tzinfo=None)
        if wall.minute in minutes and wall.hour in hours and not (names_hour and wall in shown):
            times.add(moment)
        shown.add(wall)
        moment += step
    left_out = (night.moment + night.before).replace(tzinfo=None)  # what the clock would show, and doesn't
    moment = night.moment
    while left_out < (night.moment + night.after).replace(tzinfo=None):
        if left_out.minute in minutes and left_out.hour in hours:
            times.add(moment)
        left_out, moment = left_out + step, moment + step
    return sorted(time for time in times if night.moment - AROUND < time <= night.moment + AROUND)


def meant(night: Night, cron: str) -> list[datetime]:
    rhythm, times = Cron(cron, ZoneInfo(night.zone)), [night.moment - AROUND]
    while (time := rhythm.after(times[-1])) <= night.moment + AROUND:
        times.append(time)
    return times[1:]


def test_there_are_nights_of_all_kinds() -> None:
    moves = {night.after - night.before for night in nights()}
    assert {timedelta(hours=1), timedelta(hours=-1), timedelta(minutes=30), timedelta(days=1)} <= moves


@pytest.mark.parametrize("hour", [0, 1, 2, 3, 23])
def test_a_run_in_the_gap_runs_once_and_one_in_the_fold_once_in_every_zone(hour: int) -> None:
    for night in nights():
        for minutes in ({30}, {15, 30}):  # of the two the later one first, where half an hour is left out
            cron = f"{','.join(map(str, sorted(minutes)))} {hour} * * *"
            assert meant(night, cron) == wanted(night, minutes, {hour}, names_hour=True), night


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_every_time_of_a_cron_expression_comes_once_on_every_night(data: st.DataObject) -> None:
    night = data.draw(st.sampled_from(nights()))
    minutes = data.draw(st.sets(st.sampled_from([0, 15, 30, 45]), min_size=1))
    hours = data.draw(st.none() | st.sets(st.integers(0, 23), min_size=1, max_size=23))
    fields = ",".join(map(str, sorted(minutes))), ",".join(map(str, sorted(hours))) if hours else "*"
    expected = wanted(night, minutes, hours or set(range(24)), names_hour=hours is not None)
    assert meant(night, f"{fields[0]} {fields[1]} * * *") == expected
    if expected:
        rhythm, until = Cron(f"{fields[0]} {fields[1]} * * *", ZoneInfo(night.zone)), night.moment + AROUND
        assert latest(rhythm, expected[0], until, 5) == (expected[-5:], len(expected) > 5)


@settings(max_examples=50, deadline=None)
@given(night=st.deferred(lambda: st.sampled_from(nights())), minutes=st.integers(1, 32_767))
def test_what_comes_every_so_often_comes_by_elapsed_time_on_every_night(night: Night, minutes: int) -> None:
    span, zone = timedelta(minutes=minutes), ZoneInfo(night.zone)
    anchor = (night.moment - timedelta(minutes=7)).astimezone(zone)
    rhythm = Every(span, anchor)
    times = [rhythm.after(anchor)]
    times.append(rhythm.after(times[0]))
    assert times == [(night.moment - timedelta(minutes=7)) + n * span for n in (1, 2)]
    assert all(time.tzinfo is UTC for time in times)

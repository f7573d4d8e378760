"""Schedules on the command line: ``manage.py supervision_schedule list | add | remove | pause | resume | next``."""

from __future__ import annotations

import json
import re
from argparse import ArgumentParser
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError
from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.translation import gettext as _

from supervision.errors import SupervisionError
from supervision.worker import schedules
from supervision.worker.schedules import MISSED, OVERLAPS, SupervisedSchedule

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


class Command(BaseCommand):
    help = "Lists, adds, changes, removes, pauses and resumes what starts by the clock, and tells the times to come."

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
        listing = verbs.add_parser("list", help=_("all schedules, the next to run first"))
        listing.add_argument("--json", action="store_true", dest="as_json", help=_("for programs"))
        add = verbs.add_parser("add", help=_("makes the schedule of that name, or changes it"))
        coming = verbs.add_parser("next", help=_("the times to come"))
        others = [verbs.add_parser(name, help=text) for name, text in (
            ("remove", _("deletes it; what it has started goes on")), ("pause", _("it starts nothing until resumed")),
            ("resume", _("it goes on with its next time")),
        )]  # fmt: skip
        for one in (add, coming, *others):
            one.add_argument("name", help=_("the schedule's name"))
        coming.add_argument("--count", type=int, default=5)
        add.add_argument("body", help=_("the body of the tasks that it starts"))
        add.add_argument("--arguments", default="{}", metavar="JSON", help=_("of each task"))
        rhythm = add.add_mutually_exclusive_group(required=True)
        rhythm.add_argument("--cron", default="", help=_("five fields, in the project's time zone: “30 6 * * 1-5”"))
        rhythm.add_argument("--every", metavar="SPAN", help=_("elapsed time: 15m, 6h, 1d, 2w"))
        add.add_argument("--first-run", metavar="TIME", help=_("not before; for example 2026-03-29T06:00"))
        add.add_argument("--overlap", choices=[*OVERLAPS], default="skip", help=_("where the last one still lives"))
        add.add_argument("--missed", choices=[*MISSED], default="one", help=_("which of the times that passed"))

    def handle(self, *args: Any, verb: str, **options: Any) -> None:
        try:
            getattr(self, f"_{verb}")(**options)
        except SupervisionError as refusal:
            raise CommandError(str(refusal)) from None
        except ValidationError as refusal:
            raise CommandError(" ".join(refusal.messages)) from None

    def _list(self, *, as_json: bool, **options: Any) -> None:
        rows = list(SupervisedSchedule.objects.order_by("next_run", "name"))
        if as_json:
            self.stdout.write(json.dumps([_facts(row) for row in rows], ensure_ascii=False))
        elif not rows:
            self.stdout.write(_("No schedules. Add one: supervision_schedule add NAME BODY --cron “0 3 * * *”"))
        for row in () if as_json else rows:
            time = "-" if row.is_paused else _local(row.next_run)
            body = row.plan.get("body", "?")
            self.stdout.write(f"{row.name:<24} {body:<28} {row.rhythm:<20} {time:<25} {row.situation()}".rstrip())

    def _add(
        self, *, name: str, body: str, arguments: str, cron: str, every: str | None, first_run: str | None,
        overlap: str, missed: str, **options: Any,
    ) -> None:  # fmt: skip
        row = schedules.schedule(
            name, body, _arguments(arguments), every=_span(every) if every else None, cron=cron,
            first_run=_moment(first_run) if first_run else None, overlap=overlap, missed=missed,
        )  # fmt: skip
        self.stdout.write(_("%(name)s: next at %(time)s.") % {"name": row.name, "time": _local(row.next_run)})

    def _next(self, *, name: str, count: int, **options: Any) -> None:
        row = schedules.get(name)
        time = row.next_run
        for _each in range(count):
            self.stdout.write(_local(time))
            time = row.timing.after(time)

    def _remove(self, *, name: str, **options: Any) -> None:
        schedules.remove(name)
        self.stdout.write(_("%(name)s: removed. What it has started goes on.") % {"name": name})

    def _pause(self, *, name: str, **options: Any) -> None:
        schedules.pause(name)
        self.stdout.write(_("%(name)s: paused. What it has started goes on.") % {"name": name})

    def _resume(self, *, name: str, **options: Any) -> None:
        row = schedules.resume(name)
        self.stdout.write(_("%(name)s: next at %(time)s.") % {"name": name, "time": _local(row.next_run)})


def _local(moment: datetime) -> str:
    return timezone.localtime(moment, timezone.get_default_timezone()).isoformat(timespec="seconds")


def _facts(row: SupervisedSchedule) -> dict[str, Any]:
    return {
        **row.plan, "name": row.name, "rhythm": row.rhythm, "next_run": row.next_run.isoformat(),
        "is_paused": row.is_paused, "situation": row.situation(),
    }  # fmt: skip


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text)
    except ValueError as error:
        raise CommandError(_("--arguments is no JSON: %(error)s") % {"error": error}) from None
    if not isinstance(arguments, dict):
        raise CommandError(_('--arguments is a JSON object, for example {"customer": 7}.'))
    return arguments


def _span(text: str) -> timedelta:
    match = re.fullmatch(r"(\d{1,5})([mhdw])", text)
    if not match:
        raise CommandError(_("--every “%(text)s” is no span: a number and m, h, d or w, for example 15m.")
                           % {"text": text})  # fmt: skip
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def _moment(text: str) -> datetime:
    try:
        moment = parse_datetime(text)
    except ValueError:
        moment = None
    if moment is None:
        raise CommandError(_("--first-run “%(text)s” is no time: for example 2026-03-29T06:00.") % {"text": text})
    return moment if timezone.is_aware(moment) else timezone.make_aware(moment, timezone.get_default_timezone())

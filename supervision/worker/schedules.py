"""Schedules: tasks that start by the clock, on django-q2's own ``Schedule``, whose scheduler runs in our cluster too.

A schedule's message starts a task with an idempotency key made of the schedule and the time that it was meant for, so
that a message delivered twice starts one. The work itself is a supervised task like any other.
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django_q.conf import croniter
from django_q.models import Schedule

from supervision.engines import registry, start
from supervision.errors import ConcurrencyKeyHeld, SupervisionError
from supervision.kernel import storable

if TYPE_CHECKING:
    from supervision.kernel.models import Task

logger = logging.getLogger(__name__)

FUNCTION = "supervision.worker.schedules.run"
OVERLAPS = {"skip": gettext_lazy("skip this time"), "allow": gettext_lazy("start another one beside it")}


class _Ours(models.Manager["SupervisedSchedule"]):
    def get_queryset(self) -> models.QuerySet[SupervisedSchedule]:
        return super().get_queryset().filter(func=FUNCTION)


class SupervisedSchedule(Schedule):  # type: ignore[misc]  # django_q is untyped
    """Those of django-q2's schedules that start supervised tasks: the same rows, seen through their manager."""

    objects = _Ours()

    class Meta:
        proxy = True
        app_label = "supervision"
        verbose_name = gettext_lazy("schedule")
        verbose_name_plural = gettext_lazy("schedules")

    @property
    def plan(self) -> dict[str, Any]:
        """What it starts: ``body``, ``arguments``, ``overlap``."""
        try:
            plan = ast.literal_eval(self.kwargs or "{}")
        except (SyntaxError, ValueError):
            return {}
        return plan if isinstance(plan, dict) else {}

    @property
    def rhythm(self) -> str:
        """In words: ``every 15 min``, ``cron 0 6 * * 1``."""
        if self.schedule_type == Schedule.CRON:
            return f"cron {self.cron}"
        return str(_("every %(n)s min") % {"n": self.minutes})


def schedule(
    name: str,
    body: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    every: timedelta | None = None,
    cron: str = "",
    first_run: datetime | None = None,
    overlap: str = "skip",
    save: bool = True,
) -> SupervisedSchedule:
    """Makes, or changes, the schedule of that name: a task of ``body`` ``every`` so often, or by ``cron``.

    ``every`` is in whole minutes, from ``first_run`` (default: now) on; ``cron`` has five fields, in the project's time
    zone, and needs the package croniter. Called again, as at each deploy, it leaves the next run where it is unless the
    rhythm or ``first_run`` is another. ``overlap``: if the last one still lives, "skip" this time or "allow" another.
    A body with a parameter ``scheduled_for`` is told the time it was meant for. ``save=False`` only checks. Raises
    ValidationError for what would never run (a broken row blocks its neighbours in django-q2), UnknownBody,
    InvalidArguments, NotStorable.
    """
    plan = _plan(name, body, arguments or {}, overlap)
    existing = SupervisedSchedule.objects.filter(name=name).first()
    row = existing or SupervisedSchedule(name=name, func=FUNCTION)
    row.kwargs = repr(plan)
    row.repeats = -1
    row.intended_date_kwarg = "scheduled_for"
    rhythm = (row.schedule_type, row.minutes, row.cron)
    if (every is None) == (not cron):
        raise ValidationError(_("Say either how often or when: every= or cron=."))
    if every is not None:
        minutes, rest = divmod(every, timedelta(minutes=1))
        if rest or not 1 <= minutes <= 32_767:
            raise ValidationError(_("every= is a whole number of minutes, from 1 to 32767."))
        row.schedule_type, row.minutes, row.cron = Schedule.MINUTES, minutes, None
    else:
        row.schedule_type, row.cron, row.minutes = Schedule.CRON, _valid_cron(cron), None
    if existing is None or first_run is not None or rhythm != (row.schedule_type, row.minutes, row.cron):
        row.next_run = row.calculate_next_run() if cron else first_run or timezone.now()
    if save:
        row.save()
    return row


def _plan(name: str, body: str, arguments: Mapping[str, Any], overlap: str) -> dict[str, Any]:
    storable.name(name, place="name", longest=100)
    if overlap not in OVERLAPS:
        raise ValidationError(_("overlap= is one of %(known)s.") % {"known": ", ".join(OVERLAPS)})
    known = registry.get(body)
    storable.encode(dict(arguments), place="arguments", limit="MAX_ARGUMENTS_BYTES")
    if secret := sorted(set(arguments) & set(known.sensitive)):
        raise ValidationError(
            _("A schedule is stored, and shown by django-q2, as it is: it can't have the sensitive %(names)s.")
            % {"names": ", ".join(secret)}
        )
    known.check_arguments({**arguments, **_told(known, timezone.now().isoformat())})
    return {"name": name, "body": body, "arguments": dict(arguments), "overlap": overlap}


def _valid_cron(cron: str) -> str:
    if not croniter:
        raise ValidationError(_("Cron expressions need the package croniter: pip install croniter."))
    if len(cron.split()) != 5 or not croniter.is_valid(cron):
        raise ValidationError(
            _("“%(cron)s” is no cron expression: it has five fields, for example 30 6 * * 1-5.") % {"cron": cron}
        )
    return cron


def _told(known: registry.Body, scheduled_for: str) -> dict[str, str]:
    """The time it was meant for, for a body that has a parameter for it."""
    return {"scheduled_for": scheduled_for} if "scheduled_for" in known.parameters else {}


def run(name: str, body: str, arguments: dict[str, Any], overlap: str, scheduled_for: str = "", **_more: Any) -> None:
    """What a schedule's message calls: starts the task. What supervision refuses is logged and doesn't escape."""
    try:
        task = _start(name, body, arguments, overlap, scheduled_for)
    except ConcurrencyKeyHeld as held:
        logger.info("schedule %s: skipped at %s, task %s still lives", name, scheduled_for, held.task.pk)
    except SupervisionError as error:
        logger.error("schedule %s: nothing was started at %s: %s", name, scheduled_for, error)
    else:
        logger.info("schedule %s: task %s for %s", name, task.pk, scheduled_for)


def _start(name: str, body: str, arguments: dict[str, Any], overlap: str, scheduled_for: str) -> Task:
    known = registry.get(body)
    return start(
        body,
        {**arguments, **_told(known, scheduled_for)},
        subject=name,
        idempotency_key=f"schedule:{name}:{scheduled_for}",
        concurrency_key=f"schedule:{name}" if overlap == "skip" else "",
        by=f"schedule {name}",
    )

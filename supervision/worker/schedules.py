"""Schedules: tasks that start by the clock. They are rows of django-q2's own ``Schedule``, seen in its admin too.

What starts them is ``scheduling.start_due``, by the database's clock and in one transaction with the task; django-q2's
own scheduler leaves these rows alone, since they are in a lane of that name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import connections, models, router, transaction
from django.db.models.signals import pre_save
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext
from django_q.models import Schedule

from supervision.conf import settings
from supervision.engines import registry
from supervision.errors import ScheduleNotFound, SupervisionError
from supervision.kernel import clock, storable
from supervision.kernel.models import Task
from supervision.worker.rhythm import Cron, Every, Rhythm

FUNCTION = "supervision.worker.scheduling.start_due"
LANE = "supervision:schedules"
"""The rows' ``cluster``: no django-q2 cluster has that name, so none turns them into messages."""
OVERLAPS = {
    "skip": gettext_lazy("skip this time"),
    "queue": gettext_lazy("wait until it has ended"),
    "allow": gettext_lazy("start another one beside it"),
}
MISSED = {
    "one": gettext_lazy("start one, for the latest of them"),
    "all": gettext_lazy("start each of them"),
    "none": gettext_lazy("start none of them"),
}
_PAUSED, _FOR_EVER = 0, -1  # of django-q2's ``repeats``


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

    def __str__(self) -> str:
        return str(self.name or self.pk)

    @property
    def plan(self) -> dict[str, Any]:
        """What it starts: ``body``, ``arguments``, ``overlap``, ``missed``; empty if the row was spoilt."""
        return _plan_of(self)

    @property
    def timing(self) -> Rhythm:
        """When its runs are meant, from ``next_run`` on, which is one of them."""
        if self.schedule_type == Schedule.CRON:
            return Cron(str(self.cron), timezone.get_default_timezone())
        return Every(timedelta(minutes=self.minutes or 1), self.next_run)

    @property
    def rhythm(self) -> str:
        """In words: ``every 15 min``, ``cron 0 6 * * 1``."""
        if self.schedule_type == Schedule.CRON:
            return f"cron {self.cron}"
        return str(_("every %(n)s min") % {"n": self.minutes})

    @property
    def is_paused(self) -> bool:
        return bool(self.repeats == _PAUSED)

    @property
    def key(self) -> str:
        """The concurrency key of its tasks, unless they may overlap; their idempotency keys begin with it."""
        return f"schedule:{self.pk}"

    def waits_for(self) -> Task | None:
        """The task that must end before its next one starts, if it queues them."""
        if self.plan.get("overlap") != "queue":
            return None
        return Task.objects.using(settings.DATABASE).live().filter(concurrency_key=self.key).first()

    def situation(self) -> str:
        """In words: ``paused``, ``waits until task … has ended``, ``late``; empty: it will start at ``next_run``."""
        if self.is_paused:
            return str(_("paused"))
        late = clock.now() - self.next_run
        if late < timedelta(0):
            return ""
        if last := self.waits_for():
            return str(_("waits until task %(task)s has ended") % {"task": last.pk})
        if late.total_seconds() < settings.SCHEDULE_GRACE_SECONDS:
            return str(_("due"))
        minutes = int(late.total_seconds() // 60)
        return ngettext("late by %(n)s minute", "late by %(n)s minutes", minutes) % {"n": minutes}

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Past django-q2's own, which counts a new row's next run by the host's clock."""
        super(Schedule, self).save(*args, **kwargs)


_PLAN = frozenset({"name", "body", "arguments", "overlap", "missed"})


def _plan_of(row: Any) -> dict[str, Any]:
    try:
        plan = ast.literal_eval(row.kwargs or "{}")
    except (SyntaxError, ValueError):
        return {}
    return plan if isinstance(plan, dict) and plan.keys() >= _PLAN else {}


def schedule(
    name: str,
    body: str,
    arguments: Mapping[str, Any] | None = None,
    *,
    every: timedelta | None = None,
    cron: str = "",
    first_run: datetime | None = None,
    overlap: str = "skip",
    missed: str = "one",
    save: bool = True,
) -> SupervisedSchedule:
    """Makes, or changes, the schedule of that name: a task of ``body`` ``every`` so often, or by ``cron``.

    ``every`` is elapsed time in whole minutes, from ``first_run`` (default: now) on. ``cron`` has five fields, in the
    project's time zone (``TIME_ZONE``; see ``rhythm`` for the nights on which its clocks are moved), and needs the
    package croniter. Called again, as at each deploy, it leaves a paused schedule paused, and the next run where it is,
    unless that is none of the rhythm's times from ``first_run`` on.

    ``overlap``, where the last one still lives: "skip" this time; "queue": wait until it has ended, as one that was
    missed; "allow" another beside it. ``missed``, for times that passed while no cluster ran, or while they waited:
    start "one" for the latest of them, "all" (the latest SCHEDULE_CATCH_UP), or "none": only those that are less
    than SCHEDULE_GRACE_SECONDS late. A body with a parameter ``scheduled_for`` is told the time it was meant for.

    ``save=False`` only checks. Raises ValidationError for what would never run, UnknownBody, InvalidArguments,
    NotStorable; then nothing was changed.
    """
    plan = {"name": name, "body": body, "arguments": dict(arguments or {}), "overlap": overlap, "missed": missed}
    with _changing(name) as existing:
        row = existing or SupervisedSchedule(name=name, func=FUNCTION, repeats=_FOR_EVER)
        rhythm = (row.schedule_type, row.minutes, row.cron)
        row.kwargs = repr(plan)
        if (every is None) == (not cron):
            raise ValidationError(_("Say either how often or when: every= or cron=."))
        if every is not None:
            row.schedule_type, row.minutes, row.cron = Schedule.MINUTES, _minutes(every), None
        else:
            row.schedule_type, row.minutes, row.cron = Schedule.CRON, None, cron
        _check(row)
        is_same = existing is not None and rhythm == (row.schedule_type, row.minutes, row.cron)
        if not is_same or not _is_one_of(row, first_run):
            row.next_run = _first(row, first_run)
        if save:
            row.save()
    return row


def get(name: str) -> SupervisedSchedule:
    """The schedule of that name. Raises ScheduleNotFound, which names those that there are."""
    row: SupervisedSchedule | None = SupervisedSchedule.objects.filter(name=name).first()
    if row is None:
        raise ScheduleNotFound(name, list(SupervisedSchedule.objects.order_by("name").values_list("name", flat=True)))
    return row


def remove(name: str) -> None:
    """Deletes the schedule; what it has started goes on. Raises ScheduleNotFound."""
    get(name).delete()


def pause(name: str) -> SupervisedSchedule:
    """From now on it starts nothing, also across deploys; what it has started goes on. Raises ScheduleNotFound."""
    get(name)
    with _changing(name) as row:
        assert row is not None  # noqa: S101 - just found
        row.repeats = _PAUSED
        row.save(update_fields=["repeats"])
    return row


def resume(name: str) -> SupervisedSchedule:
    """It goes on with its next time from now on: what passed while it was paused was not missed, nobody wanted it.
    Raises ScheduleNotFound; a schedule that isn't paused is left as it is."""
    get(name)
    with _changing(name) as row:
        assert row is not None  # noqa: S101 - just found
        if row.is_paused:
            row.repeats = _FOR_EVER
            row.next_run = max(row.next_run, row.timing.after(clock.now()))
            row.save(update_fields=["repeats", "next_run"])
    return row


def alias() -> str:
    """The database of django-q2's schedules."""
    return router.db_for_write(Schedule)


@contextmanager
def _changing(name: str) -> Iterator[SupervisedSchedule | None]:
    """The row of that name, locked, so that no run starts meanwhile; None: nobody else makes one meanwhile."""
    with transaction.atomic(using=alias()):
        with connections[alias()].cursor() as cursor:  # two deploys at once make one row
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s), hashtext(%s))", [LANE, name])
        yield SupervisedSchedule.objects.using(alias()).select_for_update(no_key=True).filter(name=name).first()


def _minutes(every: timedelta) -> int:
    minutes, rest = divmod(every, timedelta(minutes=1))
    if rest or not 1 <= minutes <= 32_767:
        raise ValidationError(_("every= is a whole number of minutes, from 1 to 32767."))
    return minutes


def _is_one_of(row: SupervisedSchedule, first_run: datetime | None) -> bool:
    """Whether its next run is one of the times from there on."""
    if first_run is None or timezone.is_naive(first_run):
        return first_run is None
    if row.next_run < first_run:
        return False
    is_cron: bool = row.schedule_type == Schedule.CRON
    return is_cron or (row.next_run - first_run) % timedelta(minutes=row.minutes or 1) == timedelta(0)


def _first(row: SupervisedSchedule, first_run: datetime | None) -> datetime:
    if first_run is not None and timezone.is_naive(first_run):
        raise ValidationError(_("first_run= needs a time zone."))
    if row.schedule_type == Schedule.CRON:
        # the expression's first time that isn't before
        return row.timing.after((first_run or clock.now()) - timedelta(microseconds=1))
    return first_run or clock.now()


def _check(row: Any) -> None:
    """Raises for a row that would never start anything: ValidationError, UnknownBody, InvalidArguments, NotStorable."""
    plan = _plan_of(row)
    if not plan:
        raise ValidationError(_("This row doesn’t say what to start: use schedule(), the command or the admin."))
    storable.name(plan["name"], place="name", longest=100)
    for option, known in (("overlap", OVERLAPS), ("missed", MISSED)):
        if plan[option] not in known:
            raise ValidationError(_("%(option)s= is one of %(known)s.") % {"option": option, "known": ", ".join(known)})
    body = registry.get(plan["body"])
    storable.encode(plan["arguments"], place="arguments", limit="MAX_ARGUMENTS_BYTES")
    if secret := sorted(set(plan["arguments"]) & set(body.sensitive)):
        raise ValidationError(
            _("A schedule is stored, and shown by django-q2, as it is: it can't have the sensitive %(names)s.")
            % {"names": ", ".join(secret)}
        )
    body.check_arguments({**plan["arguments"], **told(body, timezone.now().isoformat())})
    if row.schedule_type == Schedule.CRON:
        Cron(str(row.cron or ""), timezone.get_default_timezone()).checked()
    elif row.schedule_type != Schedule.MINUTES or not row.minutes:
        raise ValidationError(_("Say either how often or when: every= or cron=."))


def told(body: registry.Body, scheduled_for: str) -> dict[str, str]:
    """The time it was meant for, for a body that has a parameter for it."""
    return {"scheduled_for": scheduled_for} if "scheduled_for" in body.parameters else {}


def _refuse_broken(sender: Any, instance: Any, update_fields: Any = None, raw: bool = False, **kwargs: Any) -> None:
    """However a row of ours is saved, in django-q2's admin too: it can start something, and stays in our lane."""
    if instance.func != FUNCTION or raw or (update_fields and not {"kwargs", "cron", "minutes"} & set(update_fields)):
        return
    instance.cluster, instance.intended_date_kwarg = LANE, None
    try:
        _check(instance)
    except SupervisionError as refusal:
        raise ValidationError(str(refusal)) from refusal


pre_save.connect(_refuse_broken, sender=Schedule, dispatch_uid="supervision.schedules")
pre_save.connect(_refuse_broken, sender=SupervisedSchedule, dispatch_uid="supervision.schedules.ours")

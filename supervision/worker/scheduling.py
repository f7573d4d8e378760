"""Starting what schedules have due: each run once, whoever looks, and whatever is killed.

Each cluster looks once a second. A schedule is one transaction: its row is locked, the tasks of its times are created
and its next time is written. So two clusters, or a kill in between, start nothing twice and lose nothing; the
idempotency key of a run, its schedule and the time that it was meant for, holds even if the rows are in another
database.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from django.core.exceptions import ValidationError
from django.db import InterfaceError, OperationalError, transaction
from django.utils import timezone
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.engines import registry, start
from supervision.errors import AlreadyPruned, ConcurrencyKeyHeld
from supervision.kernel import clock, crash
from supervision.worker.rhythm import latest
from supervision.worker.schedules import SupervisedSchedule, alias, told

logger = logging.getLogger(__name__)

_complained: dict[int, datetime] = {}
"""Schedule -> the time for which it could not start: said once, not once a second."""


def start_due(**_unused: Any) -> int:
    """Starts what is due by the database's clock; how many tasks. Two at once are harmless.

    A schedule that can't start anything, for a body that is gone, is left as it is, with an error in the log: a cluster
    that knows the body will start it. It keeps nobody else waiting. May raise database errors.
    """
    rows = SupervisedSchedule.objects.using(alias()).exclude(repeats=0).filter(next_run__lte=clock.now())
    started = 0
    for pk, name, next_run in list(rows.order_by("next_run", "pk").values_list("pk", "name", "next_run")):
        try:
            started += _look_at(pk)
        except (OperationalError, InterfaceError):  # the connection, which concerns all
            raise
        except Exception as error:
            if _complained.get(pk) != next_run:
                _complained[pk] = next_run
                said = "; ".join(error.messages) if isinstance(error, ValidationError) else str(error)
                logger.error(_("schedule %(name)s: nothing was started for %(time)s: %(error)s"),
                             {"name": name, "time": next_run.isoformat(), "error": said})  # fmt: skip
    return started


def _look_at(pk: int) -> int:
    """What this schedule has due, in one transaction; another cluster that is at it right now is left to it."""
    with transaction.atomic(using=alias()):
        rows = SupervisedSchedule.objects.using(alias()).exclude(repeats=0).filter(pk=pk)
        row = rows.select_for_update(skip_locked=True, no_key=True).first()
        now = clock.now()  # after the lock
        if row is None or row.next_run > now:
            return 0
        if not row.plan:
            raise ValidationError(_("its arguments can't be read"))
        before = row.next_run
        started = _start_each(row, _chosen(row, now), now)
        if row.next_run != before:
            row.save(update_fields=["next_run", "task"])
        crash.point("schedule:before_commit")
    crash.point("schedule:after_commit")
    return started


def _chosen(row: SupervisedSchedule, now: datetime) -> list[datetime]:
    """Which of the times that have come its policy wants, oldest first."""
    missed = row.plan["missed"]
    times, is_cut = latest(row.timing, row.next_run, now, 1 if missed == "one" else settings.SCHEDULE_CATCH_UP)
    if missed == "all" and is_cut:
        logger.warning(_("schedule %(name)s: more than SCHEDULE_CATCH_UP times were missed; those before %(time)s are "
                         "left out"), {"name": row.name, "time": times[0].isoformat()})  # fmt: skip
    if missed == "none":
        grace = timedelta(seconds=settings.SCHEDULE_GRACE_SECONDS)
        return [each for each in times if now - each < grace]
    return times


def _start_each(row: SupervisedSchedule, times: Sequence[datetime], now: datetime) -> int:
    """Starts the tasks and moves ``next_run``: past now, or to the first of ``times`` that must wait."""
    timing, started = row.timing, 0
    for meant in times:
        try:
            task = _start(row, meant)
        except ConcurrencyKeyHeld as held:
            if row.plan["overlap"] == "queue":
                row.next_run = meant
                return started
            logger.info(_("schedule %(name)s: skipped at %(time)s, task %(task)s still lives"),
                        {"name": row.name, "time": meant.isoformat(), "task": held.task.pk})  # fmt: skip
        except AlreadyPruned:  # it has run
            pass
        else:
            row.task = task
            started += 1
    row.next_run = timing.after(now)
    return started


def _start(row: SupervisedSchedule, meant: datetime) -> str:
    plan, time = row.plan, meant.isoformat()
    body = registry.get(plan["body"])
    local = timezone.localtime(meant, timezone.get_default_timezone()).isoformat(timespec="seconds")
    task = start(
        body.name,
        {**plan["arguments"], **told(body, time)},
        subject=row.name or "",
        idempotency_key=f"{row.key}:{time}",
        concurrency_key="" if plan["overlap"] == "allow" else row.key,
        by=f"schedule {row.name}",
        note=_("meant for %(time)s") % {"time": local},
    )
    logger.info("schedule %s: task %s for %s", row.name, task.pk, time)
    return str(task.pk)

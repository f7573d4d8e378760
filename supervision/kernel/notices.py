"""Notices: what people are to be told of, as rows written in the transaction that they tell of.

A row is claimed, delivered, and settled; a process killed in between leaves it to the next one. So each notice reaches
each person at least once, and not again once its delivery is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from django.db import models
from django.db.models import F, Index, Q
from django.utils.translation import gettext_lazy as _

from supervision.conf import settings
from supervision.kernel import storable
from supervision.kernel.clock import Now
from supervision.kernel.models import Question, Task, new_id
from supervision.kernel.transition import committing

CLAIM = timedelta(seconds=60)
_MOST_TRIES = 12
"""With a wait that doubles up to an hour: about half a day."""


class Notice(models.Model):
    """One thing to tell: a question was asked, still waits, is about to expire; or a task became a dead letter."""

    class Kind(models.TextChoices):
        ASKED = "asked", _("question asked")
        REMINDER = "reminder", _("question still waits")
        EXPIRING = "expiring", _("question about to expire")
        DEAD_LETTER = "dead_letter", _("dead letter")

    id = models.UUIDField(primary_key=True, db_default=new_id(), editable=False)
    kind = models.CharField(max_length=12, choices=Kind.choices)
    task = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="notices")
    question = models.ForeignKey(Question, null=True, on_delete=models.PROTECT, related_name="notices")
    due_at = models.DateTimeField()
    """Moved ahead by a claim and by a failed try."""
    tries = models.PositiveIntegerField(default=0)
    delivered_to = models.JSONField(default=list)
    """``mail user:7``: through which channel, and to whom."""
    settled_at = models.DateTimeField(null=True)
    error = models.TextField(blank=True, default="")

    class Meta:
        db_table = "supervision_notice"
        verbose_name = _("notice")
        verbose_name_plural = _("notices")
        default_permissions = ("view",)
        indexes = (Index(fields=("due_at",), condition=Q(settled_at=None), name="supervision_notice_due"),)

    def __str__(self) -> str:
        return f"{self.kind} {self.task_id}"


def plan_questions(questions: Iterable[Question], now: datetime) -> None:
    """In the transaction that asks: told at once, reminded of, and warned before it expires. ``questions`` are read
    only if anybody is to be told."""
    if not settings.NOTIFY:
        return
    rows = []
    for question in questions:
        moments = {Notice.Kind.ASKED: now}
        if settings.REMIND_AFTER is not None:
            moments[Notice.Kind.REMINDER] = now + settings.REMIND_AFTER
        if settings.WARN_BEFORE is not None and question.expires_at is not None:
            moments[Notice.Kind.EXPIRING] = max(now, question.expires_at - settings.WARN_BEFORE)
        for kind, due_at in moments.items():
            # what falls into one moment is told once
            if kind == Notice.Kind.ASKED or due_at > now:
                rows.append(Notice(kind=kind, task_id=question.task_id, question=question, due_at=due_at))
    Notice.objects.using(settings.DATABASE).bulk_create(rows)


def plan_dead_letter(task: Task) -> None:
    """In the transaction that ends the task."""
    if settings.NOTIFY:
        Notice.objects.using(settings.DATABASE).create(kind=Notice.Kind.DEAD_LETTER, task=task, due_at=task.db_now)


def claim(limit: int) -> list[Notice]:
    """Up to ``limit`` due notices for this process alone, for a minute; what isn't settled by then is due again."""
    notices = Notice.objects.using(settings.DATABASE)
    with committing("notice"):
        due = notices.filter(settled_at=None, due_at__lte=Now()).order_by("due_at")
        ids = list(due.select_for_update(skip_locked=True, no_key=True).values_list("pk", flat=True)[:limit])
        notices.filter(pk__in=ids).update(due_at=Now() + CLAIM)
    return list(notices.filter(pk__in=ids).select_related("task", "question").order_by("pk"))


def delivered(notice: Notice, to: str) -> None:
    """It has reached ``to``: recorded at once, so that a crash before the next recipient tells nobody twice."""
    notice.delivered_to = [*notice.delivered_to, to]
    _of(notice).update(delivered_to=notice.delivered_to)


def settle(notice: Notice, error: str = "") -> None:
    """Nothing more is to be done about it."""
    _of(notice).update(settled_at=Now(), error=storable.text(error, 1000))


def failed(notice: Notice, error: BaseException) -> None:
    """To be tried again after a growing wait; given up, with its error, after many tries."""
    tries = notice.tries + 1
    said = storable.text(f"{type(error).__name__}: {error}", 1000)
    if tries >= _MOST_TRIES:
        settle(notice, said)
        return
    wait = min(timedelta(hours=1), timedelta(seconds=15) * 2**tries)
    _of(notice).update(tries=F("tries") + 1, due_at=Now() + wait, error=said)


def _of(notice: Notice) -> models.QuerySet[Notice, Any]:
    return Notice.objects.using(settings.DATABASE).filter(pk=notice.pk)

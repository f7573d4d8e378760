"""Where each subject of a machine stands, every event on the way there, and the events that time will bring."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Self

from django.db import models
from django.db.models import Index, Q, UniqueConstraint
from django.utils.translation import gettext_lazy as _

from supervision.kernel.clock import Now
from supervision.kernel.models import Task, database_now


class StandingQuerySet(models.QuerySet["Standing"]):
    def with_clock(self) -> Self:
        """Each row with ``db_now``, the database's time of the very statement."""
        return self.annotate(db_now=Now())


class Standing(models.Model):
    """One row for each (machine, subject), from its first event on. Of a machine without a model it is the state; of
    one with a model it is what the history says, and the row's own field is the state."""

    machine = models.CharField(_("machine"), max_length=100)
    subject = models.CharField(_("subject"), max_length=200)
    """The row's key as text, or the pointer's subject."""
    state = models.CharField(_("state"), max_length=100)
    since = models.DateTimeField(_("since"), db_default=database_now())
    """When it came from another state."""
    generation = models.BigIntegerField(default=0)
    """The number of the newest event."""
    armed = models.JSONField(default=dict)
    """Event -> seconds: the timers that were set for this stay, so that a deploy's other times are noticed."""
    erased_at = models.DateTimeField(null=True)
    """The key of the history's second door: payloads may be replaced by the erased marker."""
    is_leaving = models.BooleanField(default=False)
    """The key of its first: within one transaction the events, and this row, are deleted."""

    objects = StandingQuerySet.as_manager()

    class Meta:
        db_table = "supervision_standing"
        verbose_name = _("standing")
        verbose_name_plural = _("machines")
        ordering = ("machine", "subject")
        default_permissions = ("view",)
        permissions = (("send_event", _("Can send events to machines without a model")),)
        constraints = (UniqueConstraint(fields=("machine", "subject"), name="supervision_standing_one"),)
        # No index on what a move writes: the row stays hot (HOT).

    seen_as: int = 0
    """Of a locked one: the generation that clients saw, before a change by other means was put down."""
    if TYPE_CHECKING:  # annotated by with_clock()
        db_now: datetime

    def __str__(self) -> str:
        return f"{self.machine} {self.subject}"


class MachineEvent(models.Model):
    """One event that was accepted. Append-only by trigger, numbered without gaps for each subject, and there when the
    subject is gone."""

    pk = models.CompositePrimaryKey("standing_id", "sequence_num")
    standing = models.ForeignKey(
        Standing, on_delete=models.PROTECT, related_name="events", db_index=False, db_constraint=False
    )
    sequence_num = models.BigIntegerField(_("number"))
    event = models.CharField(_("event"), max_length=100, blank=True)
    """Empty: the state was found changed by other means than an event."""
    source = models.CharField(_("from"), max_length=100)
    target = models.CharField(_("to"), max_length=100)
    payload = models.JSONField(_("payload"), null=True)
    idempotency_key = models.CharField(_("idempotency key"), max_length=200, blank=True, default="")
    actor_ref = models.CharField(_("by"), max_length=200, blank=True, default="")
    note = models.TextField(_("note"), blank=True, default="")
    is_timed = models.BooleanField(_("timed"), default=False)
    """Time sent it, and nobody else."""
    created_at = models.DateTimeField(_("at"), db_default=database_now())

    class Meta:
        db_table = "supervision_machineevent"
        verbose_name = _("machine event")
        verbose_name_plural = _("machine events")
        ordering = ("standing", "sequence_num")
        default_permissions = ()
        constraints = (
            UniqueConstraint(
                fields=("standing", "event", "idempotency_key"),
                condition=~Q(idempotency_key=""),
                name="supervision_machineevent_key",
            ),
        )

    is_repeated = False
    """On what ``send`` returns: this event had happened before, under the same key, and nothing was done now."""

    def __str__(self) -> str:
        return f"{self.sequence_num} {self.event}"


class Timer(models.Model):
    """An event that time will bring; deleted when its state is left. Swept by the tick, which makes a task of it."""

    standing = models.ForeignKey(Standing, on_delete=models.CASCADE, related_name="timers", db_index=False)
    event = models.CharField(max_length=100)
    due_at = models.DateTimeField(null=True)
    """None: ``task`` is at it."""
    # No constraint of the database, and null: the task may have been pruned.
    task = models.ForeignKey(
        Task, null=True, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False, db_index=False
    )

    class Meta:
        db_table = "supervision_timer"
        verbose_name = _("timer")
        verbose_name_plural = _("timers")
        default_permissions = ()
        constraints = (UniqueConstraint(fields=("standing", "event"), name="supervision_timer_one"),)
        indexes = (Index(fields=("due_at",), condition=Q(due_at__isnull=False), name="supervision_timer_due"),)

    def __str__(self) -> str:
        return self.event

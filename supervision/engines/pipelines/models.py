"""Where each subject stands, and every state visit on the way there."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Self

from django.db import models
from django.db.models import UniqueConstraint
from django.utils.translation import gettext_lazy as _

from supervision.kernel.clock import Now
from supervision.kernel.models import Task, database_now
from supervision.kernel.states import LIVE


class PointerQuerySet(models.QuerySet["Pointer"]):
    def with_clock(self) -> Self:
        """Each row with ``db_now``, the database's time of the very statement."""
        return self.annotate(db_now=Now())

    def running(self) -> Self:
        """Whose run is live."""
        return self.filter(models.Exists(_live_run()))

    def stuck(self, age: timedelta) -> Self:
        """Whose run is live, and has been in one state for so long."""
        return self.running().filter(since__lte=Now() - age)


def _live_run() -> models.QuerySet[Task]:
    return Task.objects.filter(pk=models.OuterRef("run_id"), current_state__in=sorted(LIVE))


class Pointer(models.Model):
    """The state that a subject is in: one row for each (pipeline, subject), moved by the statement that logs the visit.

    It says where; whether anything is going on there says the task of its run.
    """

    pipeline = models.CharField(_("pipeline"), max_length=100)
    subject = models.CharField(_("subject"), max_length=200)
    state = models.CharField(_("state"), max_length=150)
    since = models.DateTimeField(_("since"), db_default=database_now())
    """When it came from another state."""
    generation = models.BigIntegerField(default=1)
    """Grows with each move to another state, each run and each re-pointing; a yield leaves it alone."""
    # No constraint of the database, and null: the last run may have been pruned.
    run = models.ForeignKey(
        Task, verbose_name=_("run"), null=True, on_delete=models.DO_NOTHING, related_name="+", db_constraint=False,
        db_index=False,
    )  # fmt: skip
    """The task of the current run, or of the last one."""
    counts = models.JSONField(default=dict)
    """State -> number of its latest visit in this run, counted at entry."""
    forgiven = models.JSONField(default=dict)
    """State -> visits that a person's re-pointing took off its count."""
    params = models.JSONField(_("params"), default=dict)
    """What the transitions of this run have handed on so far."""
    previous = models.JSONField(null=True)
    """The run before this one: ``run``, ``state``, ``end``, ``reason``, ``params``, ``visits`` (after, up to)."""
    entered_at = models.DateTimeField(db_default=database_now())
    """When the visit that isn't over began, or will begin."""
    left_entered_at = models.DateTimeField(null=True)
    """When the last visit that is over began: an UPDATE hands on no old values before PostgreSQL 18."""
    entered_in = models.BigIntegerField(default=0)
    """The number of the log entry that began it: what is recorded after it belongs to this visit."""
    visit_count = models.BigIntegerField(_("visits"), default=0)
    """The number of the subject's newest visit, of all its runs."""
    run_from = models.BigIntegerField(default=0)
    """Visits of the current run have higher numbers."""

    objects = PointerQuerySet.as_manager()

    class Meta:
        db_table = "supervision_pointer"
        verbose_name = _("pointer")
        verbose_name_plural = _("pointers")
        ordering = ("pipeline", "subject")
        default_permissions = ("view",)
        permissions = (("repoint_pointer", _("Can re-point pipelines")),)
        constraints = (UniqueConstraint(fields=("pipeline", "subject"), name="supervision_pointer_one"),)
        # No index on what a move writes: the row is updated as often as its task's, and stays as hot (HOT).

    if TYPE_CHECKING:  # annotated by with_clock()
        db_now: datetime

    def __str__(self) -> str:
        return f"{self.pipeline} {self.subject}"

    @property
    def number(self) -> int:
        """Of the visit that isn't over."""
        return int(self.counts.get(self.state, 0))


class Visit(models.Model):
    """One visit of a state, written at its exit. Append-only by trigger, like the log; numbered without gaps for each
    subject."""

    pk = models.CompositePrimaryKey("pointer_id", "sequence_num")
    # No constraints of the database, for the log's reason: written by statements that hold both rows.
    pointer = models.ForeignKey(
        Pointer, on_delete=models.PROTECT, related_name="visits", db_index=False, db_constraint=False
    )
    sequence_num = models.BigIntegerField(_("number"))
    run = models.ForeignKey(Task, on_delete=models.PROTECT, related_name="+", db_index=False, db_constraint=False)
    logged_in = models.BigIntegerField(null=True)
    """The number of the run's log entry that was written with it; none where a person moved an ended run."""
    state = models.CharField(_("state"), max_length=150)
    number = models.PositiveIntegerField(_("visit"))
    """Of the visits of this state in this run; given at entry, so a crash doesn't count twice."""
    outcome = models.CharField(_("outcome"), max_length=100)
    next_state = models.CharField(_("went to"), max_length=150)
    yielded = models.BooleanField(_("yielded"))
    errors = models.TextField(_("errors"), blank=True, default="")
    entered_at = models.DateTimeField(_("entered"))
    left_at = models.DateTimeField(_("left"), db_default=database_now())
    actor_ref = models.CharField(_("moved by"), max_length=200, blank=True, default="")
    """The person who moved the pointer; empty where the machine did."""
    note = models.TextField(_("note"), blank=True, default="")

    class Meta:
        db_table = "supervision_visit"
        verbose_name = _("visit")
        verbose_name_plural = _("visits")
        ordering = ("pointer", "sequence_num")
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.state} {self.number}"

"""Holds: the incident switch. While one stands, no worker takes anything of that body, or from that queue.

A hold changes no task: what is due stays due since when it was, and goes on when the hold is released. It also stops
the unwinding of cancelled tasks, which would run the very code that the hold is for.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from django.db import IntegrityError, models, transaction
from django.db.models import Index, Q, UniqueConstraint
from django.utils.translation import gettext_lazy as _

from supervision.conf import settings
from supervision.errors import AlreadyHeld, AlreadyReleased, HoldNotFound
from supervision.kernel import storable
from supervision.kernel.actors import actor_ref
from supervision.kernel.clock import Now
from supervision.kernel.models import database_now, new_id
from supervision.kernel.transition import committing, notify

events_log = logging.getLogger("supervision.events")


class HoldQuerySet(models.QuerySet["Hold"]):
    def standing(self) -> HoldQuerySet:
        """Not yet released."""
        return self.filter(released_at=None)


class Hold(models.Model):
    """Who stopped what, when and why, and who let it go again. Rows stay, as the record of the incident."""

    class Kind(models.TextChoices):
        BODY = "body", _("body")
        QUEUE = "queue", _("queue")

    id = models.UUIDField(primary_key=True, db_default=new_id(), editable=False)
    kind = models.CharField(_("kind"), max_length=5, choices=Kind.choices)
    name = models.CharField(_("name"), max_length=200)
    note = models.TextField(_("why"), blank=True, default="")
    held_at = models.DateTimeField(_("held since"), db_default=database_now(), editable=False)
    held_by_ref = models.CharField(_("held by"), max_length=200)
    released_at = models.DateTimeField(_("released"), null=True, blank=True)
    released_by_ref = models.CharField(_("released by"), max_length=200, blank=True, default="")
    release_note = models.TextField(_("note of the release"), blank=True, default="")

    objects = HoldQuerySet.as_manager()

    class Meta:
        db_table = "supervision_hold"
        verbose_name = _("hold")
        verbose_name_plural = _("holds")
        ordering = ("-id",)
        default_permissions = ("view",)
        permissions = (("hold_work", _("Can hold and release bodies and queues")),)
        constraints = (
            UniqueConstraint(
                fields=("kind", "name"), condition=Q(released_at__isnull=True), name="supervision_hold_one_standing"
            ),
        )
        indexes = (Index(fields=("kind", "name", "id"), name="supervision_hold_history"),)

    def __str__(self) -> str:
        return f"{self.get_kind_display()} {self.name}"


def hold(kind: str, name: str, *, by: Any, note: str = "") -> Hold:
    """Stops the taking of everything of a body, or from a queue, from this commit on; running drives go on.

    Raises AlreadyHeld (with the standing hold), NotStorable for a name that none can have, ValueError for a kind.
    """
    if kind not in Hold.Kind.values:
        raise ValueError(f"a hold is of a body or a queue, not of a {kind}")
    row = Hold(
        kind=kind, name=storable.name(name, place="name"), note=storable.text(note, 2000), held_by_ref=actor_ref(by)
    )
    with committing("hold"):
        try:
            with transaction.atomic(using=settings.DATABASE):
                row.save(using=settings.DATABASE, force_insert=True)
        except IntegrityError:
            standing = Hold.objects.using(settings.DATABASE).standing().filter(kind=kind, name=name).first()
            if standing is None:
                raise
            raise AlreadyHeld(standing) from None
        _tell("work_held", row, row.held_by_ref)
    return row


def release(hold_id: UUID | str, *, by: Any, note: str = "") -> Hold:
    """Lets the workers take again, and wakes them. Raises HoldNotFound, AlreadyReleased."""
    holds = Hold.objects.using(settings.DATABASE)
    with committing("release"):
        row = holds.select_for_update(no_key=True).filter(pk=hold_id).first()
        if row is None:
            raise HoldNotFound(hold_id)
        if row.released_at is not None:
            raise AlreadyReleased(row)
        holds.filter(pk=row.pk).update(
            released_at=Now(), released_by_ref=actor_ref(by), release_note=storable.text(note, 2000)
        )
        row.refresh_from_db()
        notify()
        _tell("work_released", row, row.released_by_ref)
    return row


def standing() -> dict[tuple[str, str], Hold]:
    """(kind, name) -> hold of all that stand, in one query. There are few."""
    return {(row.kind, row.name): row for row in Hold.objects.using(settings.DATABASE).standing()}


def _tell(event: str, row: Hold, actor: str) -> None:
    facts = {"event": event, "hold_id": row.pk, "kind": row.kind, "held": row.name, "actor": actor}
    transaction.on_commit(
        lambda: events_log.info("%s %s %s by %s", event, row.kind, row.name, actor, extra=facts),
        using=settings.DATABASE,
        robust=True,
    )

"""The read model of machines, and the history's two doors: a whole history leaves, or a person's data is erased."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db import models
from django.db.models import CharField, Count, Exists, OuterRef
from django.db.models.functions import Cast

from supervision.conf import settings
from supervision.engines.machines.errors import SubjectNotFound
from supervision.engines.machines.machine import Machine
from supervision.engines.machines.models import MachineEvent, Standing, Timer
from supervision.kernel import leftovers
from supervision.kernel.clock import Now
from supervision.kernel.models import ERASED
from supervision.kernel.transition import committing

ERASED_TEXT = "[erased]"
"""What stands where a note stood."""


@dataclass(frozen=True)
class Page:
    """The newest events before a number, newest first, and what was left out. Read by machine and subject, so it is
    there for a row that is gone, and for a machine that isn't part of the code any more."""

    events: list[MachineEvent]
    total_count: int
    """Of the whole history: exact, since it has no gaps."""
    older: int | None
    """``before`` of the next page; None: this is the last one."""


def page(machine: str, subject: str, *, before: int | None = None, limit: int = 50) -> Page:
    """A page of the subject's history."""
    standing = Standing.objects.using(settings.DATABASE).filter(machine=machine, subject=subject).first()
    if standing is None:
        return Page([], 0, None)
    entries = MachineEvent.objects.using(settings.DATABASE).filter(standing=standing).order_by("-sequence_num")
    if before is not None:
        entries = entries.filter(sequence_num__lt=before)
    rows = list(entries[: limit + 1])
    return Page(rows[:limit], standing.generation, rows[limit - 1].sequence_num if len(rows) > limit else None)


def counts(machine: Machine, rows: models.QuerySet[Any] | None = None) -> dict[str, int]:
    """State -> number of subjects there; of these rows of its model only, where some are given."""
    if machine.field is None or machine.model is None:
        standings = Standing.objects.using(settings.DATABASE).filter(machine=machine.name).order_by()
        return dict(standings.values_list("state").annotate(n=Count("*")))
    found = machine.model._base_manager.using(settings.DATABASE).all() if rows is None else rows
    return dict(found.order_by().values_list(machine.field.name).annotate(n=Count("*")))


def written_elsewhere(machine: Machine) -> Any:
    """Rows whose field isn't where their history ends: written by ``QuerySet.update``, SQL, or an unprotected save."""
    if machine.model is None or machine.field is None:
        return Standing.objects.none()
    elsewhere = Standing.objects.filter(machine=machine.name, subject=Cast(OuterRef("pk"), CharField()))
    rows = machine.model._base_manager.using(settings.DATABASE)
    return rows.filter(Exists(elsewhere.exclude(state=OuterRef(machine.field.name))))


def prune(machine: str, subject: str) -> int:
    """Removes a history whole, with its standing and timers; the number of its events. For rows that are gone, once the
    time has passed for which you must keep their trail: a row that is there begins a new one with its next event."""
    with committing("prune_history"):
        standing = _locked(machine, subject)
        stored = _files(standing)
        Standing.objects.using(settings.DATABASE).filter(pk=standing.pk).update(is_leaving=True)
        _raw_delete(Timer.objects, standing)
        _raw_delete(MachineEvent.objects, standing)
        Standing.objects.using(settings.DATABASE).filter(pk=standing.pk)._raw_delete(settings.DATABASE)
        leftovers.remove(stored)
    return standing.generation


def erase(machine: str, subject: str) -> None:
    """Replaces payloads and notes of a history by a marker. What happened, when, and who sent it stays."""
    with committing("erase_history"):
        standing = _locked(machine, subject)
        stored = _files(standing)
        Standing.objects.using(settings.DATABASE).filter(pk=standing.pk).update(erased_at=Now())
        entries = MachineEvent.objects.using(settings.DATABASE).filter(standing=standing)
        entries.filter(payload__isnull=False).update(payload=ERASED)
        entries.exclude(note="").update(note=ERASED_TEXT)
        leftovers.remove(stored)


def _files(standing: Standing) -> leftovers.Found:
    """What its payloads refer to: removed with them, unless another row knows it."""
    entries = MachineEvent.objects.using(settings.DATABASE).filter(standing=standing, payload__isnull=False)
    return leftovers.among(entries.values_list("payload", flat=True).iterator())


def _locked(machine: str, subject: str) -> Standing:
    rows = Standing.objects.using(settings.DATABASE).select_for_update(no_key=True)
    standing = rows.filter(machine=machine, subject=subject).first()
    if standing is None:
        raise SubjectNotFound(machine, subject)
    return standing


def _raw_delete(manager: Any, standing: Standing) -> None:
    """Without Django's look for what hangs on the rows."""
    manager.using(settings.DATABASE).filter(standing=standing)._raw_delete(settings.DATABASE)

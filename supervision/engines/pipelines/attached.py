"""Visits leave with the tasks of their runs, and a person's data in them is erased with them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from supervision.conf import settings
from supervision.engines.pipelines.models import Pointer, Visit
from supervision.kernel.models import ERASED

ERASED_TEXT = "[erased]"
"""What the trigger lets stand where errors and notes stood."""


class PipelineRows:
    """The rows of pipelines, for ``retention.attach``."""

    def prune(self, task_ids: Sequence[UUID]) -> None:
        """Removes the visits; the pointer stays, with what its run handed on: the next run builds on it."""
        Visit.objects.using(settings.DATABASE).filter(run_id__in=task_ids)._raw_delete(settings.DATABASE)

    def erase(self, task_id: UUID) -> None:
        visits = Visit.objects.using(settings.DATABASE).filter(run_id=task_id)
        visits.exclude(errors="").update(errors=ERASED_TEXT)
        visits.exclude(note="").update(note=ERASED_TEXT)
        pointers = Pointer.objects.using(settings.DATABASE)
        pointers.filter(run_id=task_id).update(params=ERASED)
        for pointer in pointers.filter(previous__run=str(task_id)).select_for_update(no_key=True):
            pointer.previous = {**(pointer.previous or {}), "params": ERASED}
            pointer.save(update_fields=["previous"])

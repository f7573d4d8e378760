"""Visits leave with the tasks of their runs, and a person's data in them is erased with them."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from supervision.conf import settings
from supervision.engines.pipelines.models import Pointer
from supervision.kernel import sql
from supervision.kernel.models import ERASED

ERASED_TEXT = "[erased]"
"""What the trigger lets stand where errors and notes stood."""

# Visits are found by the subject of their run: that is what they are numbered by.
_PRUNE = """
DELETE FROM supervision_visit AS visit
 USING supervision_task AS task JOIN supervision_pointer AS pointer
    ON pointer.pipeline = task.body AND pointer.subject = task.subject
 WHERE task.id = ANY(%(ids)s::uuid[]) AND visit.pointer_id = pointer.id AND visit.run_id = task.id
"""
_ARCHIVE = """
SELECT visit.*
  FROM supervision_task AS task JOIN supervision_pointer AS pointer
    ON pointer.pipeline = task.body AND pointer.subject = task.subject
  JOIN supervision_visit AS visit ON visit.pointer_id = pointer.id AND visit.run_id = task.id
 WHERE task.id = ANY (%(ids)s::uuid[])
 ORDER BY visit.pointer_id, visit.sequence_num
"""
_ERASE = """
UPDATE supervision_visit AS visit
   SET errors = CASE WHEN errors = '' THEN '' ELSE %(erased)s END,
       note = CASE WHEN note = '' THEN '' ELSE %(erased)s END
  FROM supervision_task AS task JOIN supervision_pointer AS pointer
    ON pointer.pipeline = task.body AND pointer.subject = task.subject
 WHERE task.id = %(id)s::uuid AND visit.pointer_id = pointer.id AND visit.run_id = task.id
"""


class PipelineRows:
    """The rows of pipelines, for ``retention.attach``."""

    archived = {"visit": _ARCHIVE}

    def prune(self, task_ids: Sequence[UUID]) -> None:
        """Removes the visits; the pointer stays, with what its run handed on: the next run builds on it."""
        sql.run(_PRUNE, {"ids": list(task_ids)})

    def erase(self, task_id: UUID) -> None:
        sql.run(_ERASE, {"id": task_id, "erased": ERASED_TEXT})
        pointers = Pointer.objects.using(settings.DATABASE)
        pointers.filter(run_id=task_id).update(params=ERASED)
        for pointer in pointers.filter(previous__run=str(task_id)).select_for_update(no_key=True):
            pointer.previous = {**(pointer.previous or {}), "params": ERASED}
            pointer.save(update_fields=["previous"])

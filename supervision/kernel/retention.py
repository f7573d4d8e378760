"""The log's two doors: whole families of ended tasks leave, and a person's data is erased. No other way is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol
from uuid import UUID

from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import Refused
from supervision.kernel import countdown, storable
from supervision.kernel.actors import actor_ref
from supervision.kernel.models import ERASED, Erasure, Heartbeat, LogEntry, Question, Signal, Task, Tombstone
from supervision.kernel.notices import Notice
from supervision.kernel.transition import committing, locked
from supervision.kernel.votes import Vote


class Attached(Protocol):
    """An engine's rows that hang on tasks. Called inside the transaction of ``prune`` or ``erase``, doors open."""

    def prune(self, task_ids: Sequence[UUID]) -> None:
        """Removes the rows of these tasks."""

    def erase(self, task_id: UUID) -> None:
        """Replaces a person's data in the rows of this task."""


_attached: list[Attached] = []


def attach(rows: Attached) -> None:
    """From now on these rows leave, and are erased, with their tasks."""
    _attached.append(rows)


def prune(task_id: UUID | str) -> list[UUID]:
    """Removes the ended task ``task_id`` and all its descendants with everything of theirs; returns their ids.

    One transaction. A tombstone of each stays, which keeps its idempotency key taken. Raises Refused while any of them
    lives, or for a task with a parent (families leave whole: prune the parent), and then removes nothing.
    """
    with committing("prune"):
        family = _lock_family(task_id)
        ids = [task.pk for task in family]
        database = settings.DATABASE
        Tombstone.objects.using(database).bulk_create(
            Tombstone(task_id=task.pk, owner_ref=task.owner_ref, body=task.body, idempotency_key=task.idempotency_key,
                      final_state=task.current_state, finished_at=task.finished_at, log_length=task.log_length)
            for task in family
        )  # fmt: skip
        Vote.objects.using(database).filter(question__task_id__in=ids).delete()
        Notice.objects.using(database).filter(task_id__in=ids).delete()
        for model in (LogEntry, Question, Signal, Heartbeat):
            model._default_manager.using(database).filter(task_id__in=ids)._raw_delete(database)
        countdown.prune(ids)
        for rows in _attached:
            rows.prune(ids)
        for pk in reversed(ids):  # children first
            Task.objects.using(database).filter(pk=pk)._raw_delete(database)
    return ids


def _lock_family(task_id: UUID | str) -> list[Task]:
    """The task and its descendants, parents before children, siblings by id, each locked and seen ended."""
    family: list[Task] = []
    generation = [task_id if isinstance(task_id, UUID) else UUID(task_id)]
    while generation:
        for pk in generation:
            with locked(pk) as task:
                if not family and task.parent_id is not None:
                    raise Refused("prune", task, _("it is a child; prune its parent, families leave whole."))
                if not task.is_terminal:
                    raise Refused("prune", task, _("it has not ended."))
                family.append(task)
        children = Task.objects.using(settings.DATABASE).filter(parent_id__in=generation).order_by("pk")
        generation = list(children.values_list("pk", flat=True))
    return family


def erase(task_id: UUID | str, *, by: Any, note: str = "") -> None:
    """Replaces a person's data in the ended task by a marker: arguments, decisions, result, answers, signals, payloads.

    The skeleton of the trail stays: what happened, when, and who did it. Raises Refused for a live task.
    """
    database = settings.DATABASE
    with committing("erase"), locked(task_id) as task:
        if not task.is_terminal:
            raise Refused("erase", task, _("it has not ended."))
        if Task.objects.using(database).live().filter(children=task).exists():
            raise Refused("erase", task, _("its parent lives and may still read its result."))
        Erasure.objects.using(database).get_or_create(
            task_id=task.pk, defaults={"actor_ref": actor_ref(by), "note": storable.text(note)}
        )
        Task.objects.using(database).filter(pk=task.pk).update(
            arguments=ERASED, locked_decisions=ERASED, result=None, failure=""
        )
        LogEntry.objects.using(database).filter(task_id=task.pk).update(payload=ERASED)
        Signal.objects.using(database).filter(task_id=task.pk).update(payload=ERASED)
        answered = Question.objects.using(database).filter(task_id=task.pk, status=Question.Status.ANSWERED)
        answered.update(answer=ERASED)
        Question.objects.using(database).filter(task_id=task.pk).update(prompt="", form={})
        Vote.objects.using(database).filter(question__task_id=task.pk).update(note="")
        countdown.erase(task.pk, ERASED)
        for rows in _attached:
            rows.erase(task.pk)

"""The log's two doors: whole families of ended tasks leave, and a person's data is erased. No other way is open."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol
from uuid import UUID

from django.db.models import Q
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import Refused, TaskNotFound
from supervision.kernel import countdown, leftovers, sql, storable
from supervision.kernel.actors import actor_ref
from supervision.kernel.models import ERASED, Erasure, LogEntry, Question, Signal, Task
from supervision.kernel.states import TERMINAL
from supervision.kernel.transition import committing, lock_each, locked
from supervision.kernel.votes import Vote


class Attached(Protocol):
    """An engine's rows that hang on tasks. Called inside the transaction of ``prune`` or ``erase``, doors open.

    May have ``archived``: a mapping of a kind to the query of the rows that an archive shall keep, with ``%(ids)s``.
    Of rows that outlive their tasks and may refer to files ``leftovers.also_in`` is told.
    """

    def prune(self, task_ids: Sequence[UUID]) -> None:
        """Removes the rows of these tasks."""

    def erase(self, task_id: UUID) -> None:
        """Replaces a person's data in the rows of this task."""


_attached: list[Attached] = []


def attach(rows: Attached) -> None:
    """From now on these rows leave, and are erased, with their tasks."""
    _attached.append(rows)


def attached() -> Sequence[Attached]:
    return _attached


# A tombstone opens the door for its task's rows, and at the commit all of them must have gone.
_PRUNE = (
    """
    INSERT INTO supervision_tombstone (task_id, owner_ref, body, idempotency_key, final_state, finished_at, log_length)
    SELECT id, owner_ref, body, idempotency_key, current_state, finished_at, log_length
      FROM supervision_task WHERE id = ANY (%(ids)s::uuid[])
    """,
    """
    DELETE FROM supervision_vote WHERE question_id IN
        (SELECT id FROM supervision_question WHERE task_id = ANY (%(ids)s::uuid[]))
    """,
    *(
        f"DELETE FROM supervision_{table} WHERE task_id = ANY (%(ids)s::uuid[])"  # noqa: S608 - constants
        for table in ("notice", "logentry", "question", "signal", "heartbeat")
    ),
)
_PRUNE_TASKS = "DELETE FROM supervision_task WHERE id = ANY (%(ids)s::uuid[])"


def prune(
    *roots: UUID | str, before: Callable[[Sequence[UUID]], None] | None = None, keep_files: bool = False
) -> list[UUID]:
    """Removes these ended tasks and all their descendants with everything of theirs; returns the ids of all.

    One transaction, of a few statements whatever the size of the families. A tombstone of each stays, which keeps its
    idempotency key taken. ``before`` is called with the ids when all are locked and nothing is deleted yet: to archive
    them. Their files leave the storage after the commit, where no other task refers to them, unless ``keep_files``.

    Raises TaskNotFound; Refused while any of them lives, or for a task with a parent (families leave whole: prune the
    parent); Busy; and then removes nothing.
    """
    with committing("prune"):
        ids = _lock_families([root if isinstance(root, UUID) else UUID(root) for root in roots])
        if before is not None:
            before(ids)
        stored = leftovers.Found() if keep_files else leftovers.found(ids)
        for statement in _PRUNE:
            sql.run(statement, {"ids": ids})
        countdown.prune(ids)
        for rows in _attached:
            rows.prune(ids)
        sql.run(_PRUNE_TASKS, {"ids": ids})
        leftovers.remove(stored)
    return ids


def _lock_families(roots: Sequence[UUID]) -> list[UUID]:
    """The tasks and their descendants, parents before children, siblings by id, all locked and seen ended.

    A statement for each generation. No child can come meanwhile: its parent has ended, and is locked.
    """
    tasks = Task.objects.using(settings.DATABASE)
    family: list[UUID] = []
    generation = sorted(set(roots))
    while generation:
        lock_each(generation)
        if not family:
            _refuse_unless_roots(generation)
        alive = tasks.filter(pk__in=generation).exclude(current_state__in=TERMINAL).first()
        if alive is not None:
            raise Refused("prune", alive, _("it has not ended."))
        family += generation
        generation = list(tasks.filter(parent_id__in=generation).order_by("pk").values_list("pk", flat=True))
    return family


def _refuse_unless_roots(roots: Sequence[UUID]) -> None:
    found = {task.pk: task for task in Task.objects.using(settings.DATABASE).filter(pk__in=roots).only("parent_id")}
    for pk in roots:
        if pk not in found:
            raise TaskNotFound(pk)
        if found[pk].parent_id is not None:
            raise Refused("prune", found[pk], _("it is a child; prune its parent, families leave whole."))


def erase(task_id: UUID | str, *, by: Any, note: str = "") -> int:
    """Replaces a person's data in the ended task by a marker: arguments, decisions, result, answers, signals, payloads.

    The skeleton of the trail stays: what happened, when, and who did it, with the names of steps, the subject and the
    keys. Files leave the storage after the commit, where no other task refers to them; returns how many. Raises Refused
    for a live task, or a child whose parent lives.
    """
    database = settings.DATABASE
    with committing("erase"), locked(task_id) as task:
        if not task.is_terminal:
            raise Refused("erase", task, _("it has not ended."))
        if Task.objects.using(database).live().filter(children=task).exists():
            raise Refused("erase", task, _("its parent lives and may still read its result."))
        stored = leftovers.found([task.pk])
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
        return leftovers.remove(stored)


def related(task_ids: Iterable[UUID]) -> list[UUID]:
    """These tasks with what may hold the same person's data: their descendants, what they were retries of, and their
    retries."""
    tasks = Task.objects.using(settings.DATABASE)
    found: set[UUID] = set()
    fresh = set(tasks.filter(pk__in=list(task_ids)).values_list("pk", flat=True))
    while fresh:
        found |= fresh
        known = list(tasks.filter(pk__in=fresh).values_list("root_id", "forked_from"))
        lineages = {each for pair in known for each in pair if each is not None} | fresh
        near = tasks.filter(
            Q(parent_id__in=fresh) | Q(root_id__in=lineages) | Q(pk__in=lineages) | Q(forked_from__in=fresh)
        )
        fresh = set(near.values_list("pk", flat=True)) - found
    return sorted(found)

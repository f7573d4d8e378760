"""Pruning by age: which families are old enough, by the command or by the policy in settings, a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.db import DatabaseError, IntegrityError
from django.db.models import Count, Q
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import Busy, Refused, SupervisionError, TaskNotFound
from supervision.kernel import ages, retention
from supervision.kernel.clock import Now
from supervision.kernel.models import Task
from supervision.kernel.states import TERMINAL

if TYPE_CHECKING:
    from supervision.kernel.archive import Archive

_ROOTS, _TASKS = 200, 2_000
"""A batch is one transaction: so many families, or fewer if they have more tasks than that."""
# a task that lives, is held by somebody, was removed by another prune, or that a row of the project's own refers to
_SKIPPED = (Refused, Busy, TaskNotFound, IntegrityError)


@dataclass
class Pruned:
    """How far it is. ``skipped`` are families of which somebody still lives, that are busy, or that
    a row of the project's own refers to."""

    families: int = 0
    tasks: int = 0
    skipped: list[UUID] = field(default_factory=list)


class Pruning:
    """What is to be pruned: tasks without a parent that ended so long ago, by the database's clock.

    ``older_than`` holds for all bodies, or for ``bodies``; without it each body has its age of
    SUPERVISION["RETENTION"], and bodies that have none there are kept. Raises ValueError where neither says anything.
    """

    def __init__(self, older_than: timedelta | None = None, bodies: Sequence[str] = ()) -> None:
        policy = ages.policy()
        if older_than is None and not policy:
            raise ValueError(_("Say how old: --older-than 90d, or SUPERVISION['RETENTION'] = {'*': '90d'}."))
        if older_than is None and ages.OTHERS not in policy and (unsaid := sorted(set(bodies) - set(policy))):
            raise ValueError(_("SUPERVISION['RETENTION'] says nothing of %(bodies)s: say --older-than 90d.")
                             % {"bodies": ", ".join(unsaid)})  # fmt: skip
        self._old = Q(pk__in=())
        named = set(policy) - {ages.OTHERS}
        if older_than is not None:
            self._old = Q(finished_at__lte=Now() - older_than)
        for body, kept in policy.items() if older_than is None else ():
            if kept is not None:
                which = ~Q(body__in=named) if body == ages.OTHERS else Q(body=body)
                self._old |= which & Q(finished_at__lte=Now() - kept)
        if bodies:
            self._old &= Q(body__in=bodies)

    def count(self) -> dict[str, int]:
        """Families that are old enough, by body; a few more may live on in a child."""
        rows = self._roots().values("body").annotate(count=Count("pk")).order_by("body")
        return dict(rows.values_list("body", "count"))

    def run(self, archive: Archive | None, *, keep_files: bool = False) -> Iterator[Pruned]:
        """Archives and removes them, the oldest first; how far it is, after each batch.

        May be killed anywhere and run again: see ``archive``. Two at once are harmless. May raise database errors.
        """
        done = Pruned()
        for batch in self._batches():
            self._prune(batch, archive, keep_files, done)
            yield done

    def _prune(self, batch: Sequence[UUID], archive: Archive | None, keep_files: bool, done: Pruned) -> None:
        try:
            ids = retention.prune(*batch, before=archive.add if archive else None, keep_files=keep_files)
        except BaseException as error:
            if archive is not None:
                with suppress(DatabaseError, SupervisionError):  # or the next run does
                    archive.mend()
            if not isinstance(error, _SKIPPED):
                raise
            if len(batch) > 1:  # each on its own, then
                for root in batch:
                    self._prune([root], archive, keep_files, done)
            elif not isinstance(error, TaskNotFound):  # which somebody else's prune has removed
                done.skipped.append(batch[0])
        else:
            done.families += len(batch)
            done.tasks += len(ids)

    def _batches(self) -> Iterator[list[UUID]]:
        last: tuple[datetime, UUID] | None = None
        while True:
            roots = self._roots().order_by("finished_at", "pk")
            if last is not None:
                roots = roots.filter(Q(finished_at__gt=last[0]) | Q(pk__gt=last[1]), finished_at__gte=last[0])
            found = list(roots.values_list("finished_at", "pk")[:_ROOTS])
            if not found:
                return
            last = found[-1]
            yield from _by_size([pk for _finished_at, pk in found])

    def _roots(self) -> Any:
        tasks = Task.objects.using(settings.DATABASE).filter(parent_id=None, current_state__in=TERMINAL)
        return tasks.filter(self._old)


def _by_size(roots: Sequence[UUID]) -> Iterator[list[UUID]]:
    """Families together, until their tasks (of two generations) are many."""
    children = Task.objects.using(settings.DATABASE).filter(parent_id__in=roots).order_by()
    sizes = dict(children.values("parent_id").annotate(count=Count("pk")).values_list("parent_id", "count"))
    batch: list[UUID] = []
    tasks = 0
    for root in roots:
        size = 1 + sizes.get(root, 0)
        if batch and tasks + size > _TASKS:
            yield batch
            batch, tasks = [], 0
        batch.append(root)
        tasks += size
    if batch:
        yield batch

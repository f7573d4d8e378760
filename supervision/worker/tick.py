"""The tick: reap, expire, give free slots away, and make tasks of due timers. Finds ids without locks, then one short
transaction a task; needs no leader."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from supervision.conf import settings
from supervision.engines.machines import machine, timers
from supervision.errors import Busy, Refused, TaskNotFound
from supervision.kernel import lifecycle, reaping
from supervision.kernel.identity import host_identity
from supervision.kernel.models import Question, Task
from supervision.worker import slots

logger = logging.getLogger("supervision.worker")

ADOPT_BATCH = 200
"""So many rows come to their timers at once: each takes a transaction."""


@dataclass(frozen=True)
class Swept:
    """What one tick did."""

    reaped: int = 0
    expired: int = 0
    woken: int = 0
    """Tasks that waited for a slot which nobody gave them."""
    timed: int = 0
    """Timers of machines that became tasks."""


def tick(*, children: Collection[int] = ()) -> Swept:
    """One sweep over what is overdue, TICK_BATCH of each kind. Two at once are harmless. May raise database errors.

    ``children`` are processes whose parent tells of their end, and knows more of it.
    """
    tasks = Task.objects.using(settings.DATABASE)
    batch = settings.TICK_BATCH
    orphaned = tasks.orphaned().order_by("pk").values_list("pk", flat=True)[:batch]
    overdue = tasks.overdue().order_by("expires_at").values_list("pk", flat=True)[:batch]
    unanswered = (
        Question.objects.using(settings.DATABASE)
        .overdue()
        .filter(task__ending="")
        .order_by("expires_at")
        .values_list("task_id", flat=True)[:batch]
    )
    return Swept(
        reaped=reaping.reap_gone(host_identity(), but_not=children) + _each(list(orphaned), reaping.reap),
        expired=_each(dict.fromkeys([*overdue, *unanswered]), lifecycle.expire),
        woken=slots.sweep(),
        timed=timers.sweep(machine.machines(), batch),
    )


def adopt() -> int:
    """Sets the timers of machines whose rows came into a timed state unseen. Looks through tables of the host, so it is
    for once a minute."""
    return timers.adopt(machine.machines(), ADOPT_BATCH)


def _each(task_ids: Iterable[UUID], verb: Callable[[UUID], Any]) -> int:
    """Runs the verb on each; what somebody else did first, or holds right now, is left to the next tick."""
    done = 0
    for task_id in task_ids:
        try:
            done += bool(verb(task_id))
        except (Busy, Refused, TaskNotFound) as skipped:
            logger.debug("tick: %s", skipped)
    return done

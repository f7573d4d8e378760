"""The slots of limited bodies, as workers see to them: after a take, after a drive, and in the tick."""

from __future__ import annotations

import logging
from datetime import timedelta
from uuid import UUID

from django.db import Error as DatabaseError

from supervision.conf import settings
from supervision.engines import registry
from supervision.kernel import clusters, limits
from supervision.kernel.models import Task

logger = logging.getLogger("supervision.worker")


def body_of(task_id: UUID | str) -> str:
    """The task's body, looked up only if it may matter: when this process knows any limited body."""
    if not registry.has_limits():
        return ""
    return Task.objects.using(settings.DATABASE).filter(pk=task_id).values_list("body", flat=True).first() or ""


def after_take(body: str) -> None:
    """A drive of the body began, or found no slot: where the rate is limited, sees to who is next."""
    limit = registry.limit_of(body)
    if limit and limit.at_most is not None:
        _wake(body, limit)


def after_drive(body: str) -> None:
    """A drive of the body has ended, however: its slot goes to whoever is next."""
    limit = registry.limit_of(body)
    if limit:
        _wake(body, limit)


def sweep() -> int:
    """For the tick: wakes those whose slot was freed by a process that died before it could say so, or by a person;
    how many. Of a body that neither this process nor any cluster knows any more all are woken: what is due and nobody
    takes is what the health check tells of."""
    known, woken = registry.known_versions(), 0
    for body in limits.waiting_bodies():
        if body in known or not clusters.knows(body, within=timedelta(seconds=settings.HEALTH_LATE_SECONDS)):
            woken += limits.wake_next(body, registry.limit_of(body))
    return woken


def _wake(body: str, limit: limits.Limit) -> None:
    try:
        limits.wake_next(body, limit)
    except DatabaseError:
        logger.debug("nobody was woken for a slot of %s; the tick will", body, exc_info=True)

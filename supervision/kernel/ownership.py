"""Whose task is whose: a person's own, and those of the organisations on whose behalf they act.

``SUPERVISION["OWNERS"]`` names a function ``(user) -> organisations``: rows of any models, whose tasks are the person's
as well. Without it a task is its user's alone.

>>> def organisations_of(user):
...     return user.organisations.all()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from django.db import models
from django.db.models import Q
from django.utils.module_loading import import_string

from supervision.conf import settings
from supervision.kernel.actors import owner_ref, person_ref
from supervision.kernel.models import Task, TaskQuerySet


def owners(user: Any) -> list[models.Model]:
    """The active user first, then the organisations; nobody for an anonymous or an inactive one."""
    if not getattr(user, "is_authenticated", False) or not user.is_active:
        return []
    more = _organisations(settings.OWNERS)
    return [user] if more is None else [user, *more(user)]


def keys(user: Any) -> list[str]:
    """The ``owner_ref`` of each of ``owners``."""
    return [owner_ref(owner) for owner in owners(user)]


def is_theirs(actor: Any, task: Task) -> bool:
    """Whether the task is the person's. A text is a person as ``person_ref`` has it."""
    if not task.owner_ref:
        return False
    if hasattr(actor, "is_authenticated"):
        return task.owner_ref in keys(actor)
    return person_ref(actor) == task.owner_ref


def theirs(user: Any) -> Q:
    """A condition on tasks: the person's. Two indexes serve it: the user's own, and those of no user."""
    mine = owners(user)
    if not mine:
        return Q(pk__in=[])
    condition = Q(owner=mine[0])
    if others := [owner_ref(owner) for owner in mine[1:]]:
        condition |= Q(owner=None, owner_ref__in=others)
    return condition


def tasks_of(user: Any) -> TaskQuerySet:
    """The person's tasks."""
    return Task.objects.using(settings.DATABASE).filter(theirs(user))


@lru_cache(maxsize=8)
def _organisations(path: str) -> Callable[[Any], Iterable[models.Model]] | None:
    return import_string(path) if path else None

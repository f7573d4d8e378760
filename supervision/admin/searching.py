"""Searching tasks: by the beginning of an id or subject, a whole idempotency key, or an owner. Each by its index."""

from __future__ import annotations

import re
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.db.models.functions import Collate, Upper

from supervision.kernel.models import Task, TaskQuerySet

_HEXADECIMAL = re.compile(r"[0-9a-f]+")
_NAMESAKES = 3
_FOUND = 1000
"""So many of each kind at most: nobody reads more, and a common beginning would find a million."""


def search(tasks: TaskQuerySet, term: str) -> TaskQuerySet:
    """Of ``tasks``, those that the term finds. One subquery per kind, each in the order of its own index: in another
    one the planner would rather read all tasks, newest first, than sort a few."""
    term = term.strip().replace("\x00", "")
    if not term:
        return tasks
    legs = [_by_subject(term), _by_key(term), *_by_owner(term)]
    span = id_span(term)
    if span is not None:
        legs.append(Task.objects.filter(pk__gte=span[0], pk__lte=span[1]).order_by("-pk"))
    found = [leg.values("pk")[:_FOUND] for leg in legs]
    return tasks.filter(pk__in=found[0].union(*found[1:], all=True))


def id_span(term: str) -> tuple[UUID, UUID] | None:
    """The first and last id that begin with these digits; None if none can."""
    digits = term.lower().replace("-", "")
    if not 4 <= len(digits) <= 32 or not _HEXADECIMAL.fullmatch(digits):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def _by_subject(term: str) -> QuerySet[Task]:
    folded = Task.objects.exclude(subject="").alias(_folded=Collate(Upper("subject"), "C"))
    return folded.filter(_folded__startswith=term.upper()).order_by("_folded")


def _by_key(term: str) -> QuerySet[Task]:
    return Task.objects.exclude(idempotency_key="").filter(idempotency_key=term).order_by()


def _by_owner(term: str) -> list[QuerySet[Task]]:
    """The newest tasks of each user of that name, in whatever case."""
    users = get_user_model()
    named = users._default_manager.filter(**{f"{users.USERNAME_FIELD}__iexact": term}).values_list("pk", flat=True)
    return [Task.objects.filter(owner_id=pk).order_by("-pk") for pk in named[:_NAMESAKES]]

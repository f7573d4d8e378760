"""Searching tasks: by the beginning of an id or subject, a whole idempotency key, or an owner. Each by its index."""

from __future__ import annotations

import re
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import QuerySet
from django.db.models.functions import Collate, Upper

from supervision.kernel.models import Task, TaskQuerySet

_HEXADECIMAL = re.compile(r"[0-9a-f]+")
_FOUND = 1000
"""So many of each kind at most: nobody reads more, and a common beginning would find a million."""


def search(tasks: TaskQuerySet, term: str) -> TaskQuerySet:
    """Of ``tasks``, those that the term finds. One subquery per kind, so that each one uses its own index."""
    term = term.strip().replace("\x00", "")
    if not term:
        return tasks
    found = [_by_subject(term), _by_key(term), _by_owner(term)]
    span = id_span(term)
    if span is not None:
        found.append(Task.objects.filter(pk__gte=span[0], pk__lte=span[1]))
    legs = [leg.order_by("-pk").values("pk")[:_FOUND] for leg in found]
    return tasks.filter(pk__in=legs[0].union(*legs[1:], all=True))


def id_span(term: str) -> tuple[UUID, UUID] | None:
    """The first and last id that begin with these digits; None if none can."""
    digits = term.lower().replace("-", "")
    if not 4 <= len(digits) <= 32 or not _HEXADECIMAL.fullmatch(digits):
        return None
    return UUID(digits.ljust(32, "0")), UUID(digits.ljust(32, "f"))


def _by_subject(term: str) -> QuerySet[Task]:
    folded = Task.objects.exclude(subject="").alias(_folded=Collate(Upper("subject"), "C"))
    return folded.filter(_folded__startswith=term.upper())


def _by_key(term: str) -> QuerySet[Task]:
    return Task.objects.exclude(idempotency_key="").filter(idempotency_key=term)


def _by_owner(term: str) -> QuerySet[Task]:
    users = get_user_model()
    named = users._default_manager.filter(**{f"{users.USERNAME_FIELD}__iexact": term})
    return Task.objects.filter(owner__in=named.values("pk"))

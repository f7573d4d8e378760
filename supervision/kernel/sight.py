"""What exists for a person, and what they may do with it: one place, which every surface asks.

Owners see their work. Staff with the permission to view tasks see all of it, or what
``SUPERVISION["VISIBLE_TASKS"]``, a function ``(user, tasks) -> tasks``, leaves of it. Everything else does not exist:
a lookup is one query whose condition holds the owner, so "not yours" and "not there" are one answer.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils.module_loading import import_string

from supervision.conf import settings
from supervision.kernel import entitlement, ownership
from supervision.kernel.models import Question, QuestionQuerySet, Task, TaskQuerySet

_NOBODY = UUID(int=0)


def visible(user: Any) -> TaskQuerySet:
    """The tasks that exist for a member of the staff, whatever they may do with them."""
    tasks = Task.objects.using(settings.DATABASE).all()
    narrow = _narrowing(settings.VISIBLE_TASKS)
    return tasks if narrow is None else narrow(user, tasks)


def readable(user: Any) -> TaskQuerySet:
    """The tasks that exist for this person outside of the control room: their own, and for staff the visible ones."""
    tasks = Task.objects.using(settings.DATABASE).all()
    if not is_overseer(user):
        return tasks.filter(ownership.theirs(user))
    if not settings.VISIBLE_TASKS:
        return tasks
    return tasks.filter(ownership.theirs(user) | Q(pk__in=visible(user).values("pk")))


def questions(user: Any) -> QuerySet[Question]:
    """The questions of readable tasks, and the pending ones that the person may answer: for lists."""
    rows = Question.objects.using(settings.DATABASE).all()
    if is_overseer(user) and not settings.VISIBLE_TASKS:
        return rows
    # a leg for each, by its own index: one condition for both would read all questions
    own = rows.filter(task__in=readable(user)).values("pk")
    return rows.filter(pk__in=own.union(_asked(user).pending().values("pk"), all=True))


def _asked(user: Any) -> QuestionQuerySet:
    """What they may answer, or might have, among visible tasks."""
    rows = Question.objects.using(settings.DATABASE).all()
    if not getattr(user, "is_active", False):
        return rows.none()
    asked = entitlement.answerable(rows, user)
    return asked.filter(task__in=visible(user)) if settings.VISIBLE_TASKS else asked


def find_task(user: Any, raw_id: object) -> Task | None:
    """The readable task of that id, with the database's clock and its beat, in one query: the same one, whether the
    task isn't there, isn't theirs, or the id is none."""
    return readable(user).with_clock().select_related("heartbeat", "owner").filter(pk=as_id(raw_id)).first()


def find_question(user: Any, raw_id: object) -> Question | None:
    """The question of that id with its task, if it exists for this person; looked up as a task is."""
    rows = Question.objects.using(settings.DATABASE).select_related("task").filter(pk=as_id(raw_id))
    return rows.filter(Q(task__in=readable(user)) | Q(pk__in=_asked(user).values("pk"))).first()


def is_overseer(user: Any) -> bool:
    """Whether they may look at work that isn't theirs: active staff with the permission ``view_task``."""
    return bool(getattr(user, "is_staff", False) and user.is_active and user.has_perm("supervision.view_task"))


def may(user: Any, codename: str, task: Task) -> bool:
    """Whether they may do to a readable task what ``supervision.<codename>`` allows: its owner may, and staff with the
    permission, for all tasks or for this one."""
    if ownership.is_theirs(user, task):
        return True
    permission = f"supervision.{codename}"
    is_staff = bool(getattr(user, "is_staff", False) and user.is_active)
    return is_staff and bool(user.has_perm(permission) or user.has_perm(permission, task))


def as_id(raw: object) -> UUID:
    """The id of an address; garbage of any kind is the id of nothing, so that it costs and tells what a miss does."""
    if isinstance(raw, UUID):
        return raw
    try:
        return UUID(raw) if isinstance(raw, str) and len(raw) == 36 else _NOBODY
    except ValueError:
        return _NOBODY


@lru_cache(maxsize=8)
def _narrowing(path: str) -> Callable[[Any, Any], Any] | None:
    return import_string(path) if path else None

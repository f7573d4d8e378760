"""Who may answer a question: the author's word, judged in one place for every surface.

A person (a user) is judged. A text as ``by`` is code, which vouches for whom it speaks; separation of duties and the
one vote a person hold for it all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext as _

from supervision.errors import NotEntitled, NotStorable
from supervision.kernel import ownership
from supervision.kernel.actors import owner_ref, person_ref
from supervision.kernel.models import Question, QuestionQuerySet, Task

PERMISSION = "supervision.answer_question"
DUTIES = ("asker", "owner")

Answerer: TypeAlias = "str | models.Model"


def refuse(question: Question, task: Task, by: Any) -> None:
    """Raises NotEntitled unless ``by`` may answer, or vote on, the question of this task."""
    me = person_ref(by)
    excluded = question.not_by.split(",")
    if "asker" in excluded and me and me == task.created_by_ref:
        raise NotEntitled(question, _("you asked for this work, so somebody else must answer."))
    if "owner" in excluded and ownership.is_theirs(by, task):
        raise NotEntitled(question, _("the work is yours, so somebody else must answer."))
    if hasattr(by, "has_perm") and not _is_among(question, task, by):
        raise NotEntitled(question, _("only %(who)s may.") % {"who": described(question)})


def is_entitled(question: Question, task: Task, by: Any) -> bool:
    """Whether ``refuse`` would let them."""
    try:
        refuse(question, task, by)
    except NotEntitled:
        return False
    return True


def answerable(questions: QuestionQuerySet, user: Any) -> QuestionQuerySet:
    """Those of ``questions`` that ``refuse`` would let the user answer, in SQL. Permissions on single objects, which
    only a backend knows, are not in it."""
    if not user.is_active:
        return questions.none()
    mine = ownership.keys(user)
    allowed = questions.exclude(Q(not_by__contains="asker") & Q(task__created_by_ref=owner_ref(user))).exclude(
        Q(not_by__contains="owner") & Q(task__owner_ref__in=mine)
    )
    if user.is_superuser:
        return allowed
    among = Q(answerable_by=f"user:{user.pk}") | Q(answerable_by="owner", task__owner_ref__in=mine)
    among |= Q(answerable_by__in=[f"group:{pk}" for pk in _groups(user)])
    if user.has_perm(PERMISSION):
        among |= Q(answerable_by="")
    return allowed.filter(among)


def described(question: Question) -> str:
    """Who may answer, for people."""
    kind, _colon, key = question.answerable_by.partition(":")
    if kind == "owner":
        return _("the owner")
    if kind == "group":
        group = Group.objects.filter(pk=key).first()
        return _("the group “%(name)s”") % {"name": group.name if group else _("deleted")}
    if kind == "user":
        user = get_user_model()._default_manager.filter(pk=key).first()
        return str(user.get_username()) if user else _("a person who was deleted")
    return _("people with the permission to answer")


def stored_answerer(spec: Answerer, *, place: str) -> str:
    """An author's ``answerable_by`` as it is stored: ``"owner"``, ``"group:finance"``, ``"user:alice"``, a Group or a
    user. Names are looked up now, so that a misspelt one fails when it asks, not when nobody can answer."""
    if isinstance(spec, Group):
        return f"group:{spec.pk}"
    if isinstance(spec, get_user_model()):
        return f"user:{spec.pk}"
    if not isinstance(spec, str):
        raise NotStorable(place, _("answerable_by must be a text, a group or a user"))
    kind, _colon, name = spec.partition(":")
    if spec in ("", "owner"):
        return spec
    found: models.Model | None = None
    if kind == "group":
        found = Group.objects.filter(name=name).first()
    elif kind == "user":
        users = get_user_model()
        found = users._default_manager.filter(**{users.USERNAME_FIELD: name}).first()
    if found is None:
        raise NotStorable(
            place, _("answerable_by=%(spec)r is nobody: use owner, group:<name> or user:<name>") % {"spec": spec}
        )
    return f"{kind}:{found.pk}"


def stored_duties(spec: str | Sequence[str], *, place: str) -> str:
    """An author's ``not_by`` as it is stored."""
    named = [spec] if isinstance(spec, str) else list(spec)
    named = [each for each in named if each]
    if not set(named) <= set(DUTIES):
        raise NotStorable(place, _("not_by must be one of %(known)s") % {"known": ", ".join(DUTIES)})
    return ",".join(sorted(set(named)))


def _is_among(question: Question, task: Task, user: Any) -> bool:
    if not user.is_active:
        return False
    if user.is_superuser:
        return True
    kind, _colon, key = question.answerable_by.partition(":")
    match kind:
        case "owner":
            return ownership.is_theirs(user, task)
        case "user":
            return str(user.pk) == key
        case "group":
            return key in {str(pk) for pk in _groups(user)}
        case _:
            return bool(user.has_perm(PERMISSION) or user.has_perm(PERMISSION, task))


def _groups(user: Any) -> list[Any]:
    groups = getattr(user, "groups", None)
    return [] if groups is None else list(groups.values_list("pk", flat=True))

"""Who may see and do what in the control room. One place; every view, action, list, count and link asks here.

A permission counts when the user has it for the model or, with a backend that knows single objects, for the task.
``SUPERVISION["VISIBLE_TASKS"]`` names a function ``(user, tasks) -> tasks`` that narrows what each person sees at all,
for hosts with several tenants: what it leaves out does not exist for them, on any page and by any verb.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.engines.machines.models import Standing
from supervision.engines.pipelines.models import Pointer
from supervision.kernel import entitlement, sight
from supervision.kernel.models import Question, Task

if TYPE_CHECKING:
    from uuid import UUID

    from supervision.engines.machines.models import StandingQuerySet
    from supervision.engines.pipelines.models import PointerQuerySet
    from supervision.kernel.models import TaskQuerySet

    User = Any


def may(user: User, codename: str, row: Task | Pointer | None = None) -> bool:
    """Whether the user has ``supervision.<codename>``, for all rows or for this one."""
    permission = f"supervision.{codename}"
    if not user.is_active:
        return False
    return bool(user.has_perm(permission) or (row is not None and user.has_perm(permission, row)))


def visible_tasks(user: User) -> TaskQuerySet:
    """The tasks that exist for this user, whatever they may do with them."""
    return sight.visible(user)


def task_or_refuse(user: User, task_id: UUID | str, codename: str = "view_task") -> Task:
    """The visible task, read with the database's clock, if the user may.

    PermissionDenied for people who may no such thing at all, Http404 else: whether a task that they may not see exists
    is not told by the status, nor by the number of queries.
    """
    tasks = visible_tasks(user).with_clock().select_related("heartbeat", "owner", "subject_type", "parent")
    task = tasks.filter(pk=task_id).first()
    if task is not None and may(user, "view_task", task) and may(user, codename, task):
        return task
    if not may(user, "view_task") or not may(user, codename):
        raise PermissionDenied
    raise Http404(_("There is no such task."))


def visible_pointers(user: User) -> PointerQuerySet:
    """The pointers that exist for this user: all, or those of the runs that do."""
    pointers = Pointer.objects.using(settings.DATABASE).all()
    return pointers.filter(run__in=visible_tasks(user)) if settings.VISIBLE_TASKS else pointers


def pointer_or_refuse(user: User, pk: int, codename: str = "view_pointer") -> Pointer:
    """The visible pointer with its run, read with the database's clock, if the user may; refused as a task is."""
    pointer = visible_pointers(user).with_clock().select_related("run").filter(pk=pk).first()
    if pointer is not None and may(user, "view_pointer", pointer) and may(user, codename, pointer):
        return pointer
    if not may(user, "view_pointer") or not may(user, codename):
        raise PermissionDenied
    raise Http404(_("There is no such pointer."))


def visible_standings(user: User) -> StandingQuerySet:
    """The standings of machines that exist for this user. Whose subjects they are is for the host to say, on its rows'
    own pages: where VISIBLE_TASKS narrows, only superusers see them here."""
    standings = Standing.objects.using(settings.DATABASE).all()
    return standings if user.is_superuser or not settings.VISIBLE_TASKS else standings.none()


def standing_or_refuse(user: User, pk: int) -> Standing:
    """The visible standing, read with the database's clock, if the user may; refused as a task is."""
    if not may(user, "view_standing"):
        raise PermissionDenied
    standing = visible_standings(user).with_clock().filter(pk=pk).first()
    if standing is None:
        raise Http404(_("There is no such standing."))
    return standing


def visible_questions(user: User) -> QuerySet[Question]:
    """Questions of visible tasks that the user may look at: all with the permission to view, else what they may
    answer."""
    questions = Question.objects.using(settings.DATABASE).all()
    if settings.VISIBLE_TASKS:
        questions = questions.filter(task__in=visible_tasks(user))
    if may(user, "view_question") or may(user, "view_task"):
        return questions
    return entitlement.answerable(questions, user)

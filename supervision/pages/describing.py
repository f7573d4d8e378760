"""What the page of a task shows to those whose work it is: secrets masked, and no machines' names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext as _

from supervision import wording
from supervision.conf import settings
from supervision.kernel import holds, masking, sight
from supervision.kernel.models import Question, Task
from supervision.kernel.states import State
from supervision.showing import downloads, log_lines
from supervision.showing.questions import QuestionBlock, block_of, blocks_of
from supervision.showing.tasks import body_label, held_by, is_beating, owner_name
from supervision.showing.texts import excerpt
from supervision.showing.verbs import VERBS

_RELATIVES = 50


def describe(
    request: HttpRequest, task: Task, *, notice: str = "", question: Question | None = None, form: Any = None
) -> dict[str, Any]:
    """``notice`` says why what was asked for didn't happen; ``form`` is a refused answer's to ``question``."""
    questions = list(Question.objects.using(task._state.db).filter(task=task).prefetch_related("votes"))
    pending = [each for each in questions if each.status == Question.Status.PENDING]
    before = request.GET.get("before", "")
    log = log_lines.page(task, before)
    secrets = task.secrets
    hold = held_by(task, holds.standing())
    return {
        "task": task,
        "notice": notice,
        "label": body_label(task.body),
        "subject": masking.mask_values(task.subject, secrets),
        "reason": masking.mask_values(wording.reason(task.watchdog_stop_reason), secrets),
        "owner": owner_name(task),
        "next": wording.next_step(task, pending=len(pending), held_by=hold, is_beating=is_beating(task)),
        "deadline": min([each for each in [task.expires_at, *(q.expires_at for q in pending)] if each], default=None),
        "verbs": _verbs(request.user, task),
        "questions": _blocks(request.user, task, questions, question, form),
        "failure": excerpt(masking.mask_values(task.failure, secrets)),
        "result": _result(task, secrets),
        "arguments": excerpt(masking.mask_values(task.masked_arguments, secrets)) if task.arguments else None,
        "files": downloads.files_of(task),
        "log": log,
        "lines": log_lines.lines(log.entries, for_operators=False),
        "is_newest": not before,
        **_family(request.user, task),
    }


def rows_of(tasks: Sequence[Task]) -> list[dict[str, Any]]:
    """Each with its subject, and why it waits or how it ended in words; of a failure what went wrong. ``tasks`` were
    read without their arguments: those of tasks with secrets are read here, in one query."""
    hidden = [task.pk for task in tasks if task.sensitive]
    rows = Task.objects.using(settings.DATABASE).filter(pk__in=hidden).values_list("pk", "arguments") if hidden else ()
    arguments = dict(rows)
    shown = []
    for task in tasks:
        secrets = masking.secrets_of(arguments.get(task.pk), task.sensitive)
        words = {"subject": task.subject, "why": _why(task)}
        shown.append({"task": task, **masking.mask_values(words, secrets)})
    return shown


def _why(task: Task) -> str:
    is_failure = task.current_state == State.FAILED and task.failure
    return task.failure if is_failure else wording.reason(task.watchdog_stop_reason)


def _blocks(
    user: Any, task: Task, questions: list[Question], refused: Question | None, form: forms.Form | None
) -> list[QuestionBlock]:
    blocks = blocks_of(user, task, questions)
    if refused is None:
        return blocks
    return [
        block_of(user, task, block.question, form) if block.question.pk == refused.pk else block for block in blocks
    ]


def _verbs(user: Any, task: Task) -> list[Any]:
    return [verb for verb in VERBS.values() if verb.is_possible(task) and sight.may(user, verb.codename, task)]


def _result(task: Task, secrets: list[str]) -> Any:
    if task.current_state != State.COMPLETED or task.result is None:
        return None
    return excerpt(masking.mask_values(task.result, secrets))


def _family(user: Any, task: Task) -> dict[str, Any]:
    """Parent, children and retries, as far as they are this person's to see."""
    tasks = sight.readable(user).with_clock().defer("arguments", "locked_decisions", "result")
    children = list(tasks.filter(parent_id=task.pk).select_related("heartbeat").order_by("pk")[: _RELATIVES + 1])
    known = {pk for pk in (task.forked_from, task.parent_id) if pk is not None}
    above = list(tasks.filter(pk__in=known)) if known else []
    retries = list(tasks.filter(root_id=task.root_id or task.pk, pk__gt=task.pk).order_by("pk")[:_RELATIVES])
    return {
        "parents": rows_of([each for each in above if each.pk == task.parent_id]),
        "retry_of": rows_of([each for each in above if each.pk == task.forked_from]),
        "retries": rows_of(retries),
        "children": rows_of(children[:_RELATIVES]),
        "has_more_children": len(children) > _RELATIVES,
    }


def title_of(task: Task) -> str:
    """For the browser's tab and history."""
    return _("%(what)s: %(state)s") % {"what": body_label(task.body), "state": wording.situation(task).label}

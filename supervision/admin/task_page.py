"""A task's page: what is it doing, since when, what does it wait for and for whom, what happens next and when.

The page and its live fragment are one template, so what refreshes looks like what was loaded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from supervision import wording
from supervision.admin import run_page, signalling
from supervision.admin.access import may, visible_tasks
from supervision.admin.columns import subject_link
from supervision.admin.verbs import VERBS
from supervision.kernel import holds, masking
from supervision.kernel.models import Question, Task
from supervision.kernel.states import State
from supervision.showing import downloads, log_lines
from supervision.showing.live import fragment
from supervision.showing.questions import blocks_of
from supervision.showing.tasks import beat_of, body_label, held_by, is_beating, owner_name
from supervision.showing.texts import Excerpt, excerpt
from supervision.signs import sign

if TYPE_CHECKING:
    from supervision.admin.tasks import TaskAdmin

_RELATIVES = 20


def page(model_admin: TaskAdmin, request: HttpRequest, task: Task) -> HttpResponse:
    """The whole page."""
    context = {
        **model_admin.admin_site.each_context(request),
        "title": body_label(task.body),
        "opts": model_admin.opts,
        "media": model_admin.media,
        **describe(model_admin, request, task),
    }
    return TemplateResponse(request, "supervision/admin/task.html", context)


def live(model_admin: TaskAdmin, request: HttpRequest, task: Task) -> HttpResponse:
    """The page's regions alone; 304 when nothing that can be read on them has changed."""
    html = render_to_string("supervision/admin/task_regions.html", describe(model_admin, request, task), request)
    return fragment(request, html)


def describe(model_admin: TaskAdmin, request: HttpRequest, task: Task) -> dict[str, Any]:
    """All that the page shows, secrets masked."""
    questions = list(Question.objects.filter(task=task).prefetch_related("votes"))
    pending = [question for question in questions if question.status == Question.Status.PENDING]
    hold = held_by(task, holds.standing())
    before = request.GET.get("before", "")
    entries = log_lines.page(task, before)
    secrets = task.secrets
    return {
        "task": task,
        "sign": sign(wording.situation(task)),
        "reason": masking.mask_values(wording.reason(task.watchdog_stop_reason), secrets),
        "subject": subject_link(task, request, model_admin.admin_site),
        "owner": owner_name(task),
        "body_label": body_label(task.body),
        "next": wording.next_step(task, pending=len(pending), held_by=hold, is_beating=is_beating(task)),
        "hold": hold,
        "beat": beat_of(task),
        "is_beating": is_beating(task),
        "waits": _waits(task, pending, secrets),
        "deadline": min([each for each in [task.expires_at, *(q.expires_at for q in pending)] if each], default=None),
        "verbs": _verbs(request, task),
        "signal_form": _signal_form(request, task),
        "questions": blocks_of(request.user, task, questions),
        "log": entries,
        "entries": log_lines.lines(entries.entries, for_operators=True),
        "is_newest": not before,
        "failure": excerpt(masking.mask_values(task.failure, secrets)),
        "result": _excerpt(task.result, secrets) if task.current_state == State.COMPLETED else None,
        "decisions": _excerpt(task.locked_decisions, secrets) if task.locked_decisions else None,
        "arguments": _excerpt(task.masked_arguments, secrets) if task.arguments else None,
        "files": downloads.files_of(task),
        **_family(request, task),
        **run_page.describe(request, task),
    }


def _excerpt(value: Any, secrets: list[str]) -> Excerpt:
    return excerpt(masking.mask_values(value, secrets))


def _verbs(request: HttpRequest, task: Task) -> list[Any]:
    return [verb for verb in VERBS.values() if verb.is_possible(task) and may(request.user, verb.codename, task)]


def _signal_form(request: HttpRequest, task: Task) -> Any:
    """For who may send a signal to a task that can still use one."""
    is_open = not task.is_terminal and not task.ending
    return signalling.form_for(task) if is_open and may(request.user, "signal_task", task) else None


def _waits(task: Task, pending: list[Question], secrets: list[str]) -> str:
    """What it waits for, in a few words; for whom is beside each question."""
    if task.current_state == State.RUNNING:
        return ""
    if len(pending) == 1:
        return _("an answer: %(prompt)s") % {"prompt": masking.mask_values(pending[0].prompt, secrets)}
    if pending:
        return _("%(n)s answers") % {"n": len(pending)}
    return ""


def _family(request: HttpRequest, task: Task) -> dict[str, Any]:
    """Parent, children and forks, as far as this person sees them."""
    tasks = visible_tasks(request.user).with_clock().defer("arguments", "locked_decisions", "result")
    children = list(tasks.filter(parent_id=task.pk).select_related("heartbeat").order_by("pk")[: _RELATIVES + 1])
    known = {pk for pk in (task.forked_from, task.parent_id) if pk is not None}
    forks = tasks.filter(root_id=task.root_id or task.pk).exclude(pk=task.pk).order_by("pk")[:_RELATIVES]
    above: dict[Any, Task] = {each.pk: each for each in tasks.filter(pk__in=known)} if known else {}
    return {
        "parent": above.get(task.parent_id),
        "forked_from": above.get(task.forked_from),
        "children": children[:_RELATIVES],
        "has_more_children": len(children) > _RELATIVES,
        "forks": [each for each in forks if each.pk not in known],
    }

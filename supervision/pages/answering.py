"""One question's form, for one person: who has an answer link (see ``Question.answer_link``), or who has signed in and
may answer it, whosesoever the task is."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import (
    AlreadyAnswered,
    AlreadyVoted,
    Busy,
    InvalidAnswer,
    NotEntitled,
    NotStorable,
    SupervisionError,
)
from supervision.kernel import links, masking, questions, sight
from supervision.kernel.links import AnswerLink
from supervision.kernel.models import Question, Task
from supervision.pages.acting import note_in, thanks
from supervision.pages.responses import or_not_found, own_page, page
from supervision.showing.questions import block_of, bound
from supervision.showing.tasks import body_label

_LINK, _PAGE = "link", "page"


@login_not_required
@page("GET", "HEAD", "POST")
def answer(request: HttpRequest) -> HttpResponse:
    """GET shows the form and changes nothing, however often mail scanners follow it; POST answers."""
    token = request.GET.get(links.PARAMETER, "")
    link = links.read_answer(token)
    found = None if link is None else _rows(link)
    if link is None or found is None:
        return _told(request, _("This link leads nowhere: it is incomplete, or what it was for is gone."), 404)
    question, task, person = found
    if task.db_now >= link.until:
        return _told(request, _("This link has expired."), 410)
    if request.user.is_authenticated and request.user.pk != person.pk:
        said = _("This link is for %(who)s, and you are signed in as somebody else.")
        return _told(request, said % {"who": person.get_username()}, 403)
    return _served(request, question, task, person, via=_LINK)


@own_page("GET", "HEAD", "POST")
@or_not_found
def asked(request: HttpRequest, pk: str) -> HttpResponse | None:
    """A question that the visitor may answer, or whose task is theirs."""
    found = sight.find_question(request.user, pk)
    if found is None:
        return None
    return _served(request, found, _task_of(found), request.user, via=_PAGE)


def _served(request: HttpRequest, question: Question, task: Task, person: Any, *, via: str) -> HttpResponse:
    if request.method == "POST":
        return _answered(request, question, task, person, via)
    return _show(request, question, task, person)


def _rows(link: AnswerLink) -> tuple[Question, Task, Any] | None:
    """What the link is about, as far as it is still there, and the person while their account is open."""
    question = Question.objects.using(settings.DATABASE).prefetch_related("votes").filter(pk=link.question_id).first()
    person = get_user_model()._default_manager.filter(pk=link.person).first()
    if question is None or person is None or not person.is_active:
        return None
    return question, _task_of(question), person


def _task_of(question: Question) -> Task:
    return Task.objects.using(settings.DATABASE).with_clock().get(pk=question.task_id)


def _show(
    request: HttpRequest, question: Question, task: Task, person: Any, form: Any = None, notice: str = "",
    status: int = 200,
) -> HttpResponse:  # fmt: skip
    """The question with its form, or why there is none."""
    block = block_of(person, task, question, form, longest=settings.MAX_PAYLOAD_BYTES)
    if block.form is None:
        return _told(request, _closed(question, block.why_not), 410)
    subject = masking.mask_values(task.subject, task.secrets)
    context = {
        "asked": block, "task": task, "person": person, "label": body_label(task.body), "subject": subject,
        "notice": notice,
    }  # fmt: skip
    return _kept_secret(render(request, "supervision/pages/answer.html", context, status=status))


def _answered(request: HttpRequest, question: Question, task: Task, person: Any, via: str) -> HttpResponse:
    form = bound(question, task.secrets, request)
    try:
        said = questions.answer(question.pk, form, by=person, via=via, note=note_in(request))
    except (InvalidAnswer, NotStorable) as refusal:
        if isinstance(refusal, NotStorable):
            form.add_error(None, str(refusal))
        return _show(request, question, task, person, form, status=422)
    except Busy as refusal:
        return _show(request, question, task, person, form, str(refusal), 503)
    except NotEntitled as refusal:
        return _told(request, str(refusal), 403)
    except (AlreadyAnswered, AlreadyVoted) as refusal:
        return _told(request, _("%(why)s Nothing was changed.") % {"why": refusal}, 409)
    except SupervisionError as refusal:
        return _told(request, str(refusal), 410)
    return _told(request, thanks(said), 200)


def _closed(question: Question, why_not: str) -> str:
    match question.status:
        case Question.Status.ANSWERED:
            return str(AlreadyAnswered(question))
        case Question.Status.PENDING:
            return why_not
    return _("This question doesn’t wait for an answer any more.")


def _told(request: HttpRequest, words: str, status: int) -> HttpResponse:
    context = {"words": words, "is_done": status == 200}
    return _kept_secret(render(request, "supervision/pages/answer_told.html", context, status=status))


def _kept_secret(response: HttpResponse) -> HttpResponse:
    """The address holds the token: no other page, not even of this site, learns it as its referrer. (Not "no-referrer",
    with which browsers name no origin either, and the CSRF check would refuse the form.)"""
    response["Referrer-Policy"] = "strict-origin"
    return response

"""Answering: one question, or the same one in many tasks; and on to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms
from django.contrib import messages
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision.admin.access import may, visible_questions, visible_tasks
from supervision.admin.actions import note_in
from supervision.errors import InvalidAnswer, NotStorable, SupervisionError
from supervision.kernel import entitlement, masking, questions
from supervision.kernel.actors import person_ref
from supervision.kernel.models import Question, Task
from supervision.showing.questions import block_of, bound
from supervision.showing.tasks import body_label, task_name

if TYPE_CHECKING:
    from supervision.admin.questions import QuestionAdmin

_VIA = "admin"
_SAME = 100
"""So many questions of one kind are offered to be answered together."""


def page(
    model_admin: QuestionAdmin, request: HttpRequest, question: Question, form: forms.Form | None = None
) -> HttpResponse:
    """The question with its form; bound, with what was typed and what is wrong with it, after a refused answer."""
    task = _task(question)
    block = block_of(request.user, task, question, form)
    ticked = set(request.POST.getlist("also") if form is not None else request.GET.get("with", "").split(","))
    same = same_questions(request.user, question, task) if block.form is not None else Question.objects.none()
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("A question of %(task)s") % {"task": body_label(task.body)},
        "opts": model_admin.opts,
        "media": model_admin.media,
        "asked": block,
        "task": task,
        "can_view_task": may(request.user, "view_task", task)
        and visible_tasks(request.user).filter(pk=task.pk).exists(),
        "same": [{"question": each, "is_ticked": str(each.pk) in ticked} for each in same[:_SAME]],
        "waiting": _inbox(request.user).exclude(pk=question.pk)[:1000].count(),
    }
    return TemplateResponse(request, "supervision/admin/answer.html", context, status=200 if form is None else 422)


def answer(model_admin: QuestionAdmin, request: HttpRequest, question: Question) -> HttpResponse:
    """Answers the question, and those that were ticked beside it, each in a transaction of its own."""
    form = bound(question, question.task.secrets, request)
    note = note_in(request)
    try:
        questions.answer(question.pk, form, by=request.user, via=_VIA, note=note)
    except (InvalidAnswer, NotStorable) as refusal:
        if isinstance(refusal, NotStorable):
            form.add_error(None, str(refusal))
        return page(model_admin, request, question, form)
    except SupervisionError as refusal:
        model_admin.message_user(request, str(refusal), messages.ERROR)
        return HttpResponseRedirect(_address(request, question))
    done = 1 + _answer_others(model_admin, request, question, note)
    waits = Question.objects.get(pk=question.pk).status == Question.Status.PENDING
    text = ngettext("%(n)s question answered.", "%(n)s questions answered.", done) % {"n": done}
    if waits:
        text = _("Your vote counts. The question waits for others.")
    model_admin.message_user(request, text, messages.SUCCESS)
    return HttpResponseRedirect(_onward(model_admin, request, question))


def _answer_others(model_admin: QuestionAdmin, request: HttpRequest, question: Question, note: str) -> int:
    """Answers the ticked ones alike; the number. What somebody else did first is reported."""
    ticked = set(request.POST.getlist("also"))
    if not ticked:
        return 0
    done = 0
    others = same_questions(request.user, question, _task(question))
    for other in others[:_SAME]:
        if str(other.pk) not in ticked:
            continue
        ticked.discard(str(other.pk))
        form = bound(question, question.task.secrets, request)
        try:
            questions.answer(other.pk, form, by=request.user, via=_VIA, note=note)
            done += 1
        except SupervisionError as refusal:
            model_admin.message_user(request, f"{task_name(other.task)}: {refusal}", messages.WARNING)
    if ticked:
        text = ngettext(
            "%(n)s ticked question was not waiting any more.", "%(n)s ticked questions were not waiting any more.",
            len(ticked),
        )  # fmt: skip
        model_admin.message_user(request, text % {"n": len(ticked)}, messages.WARNING)
    return done


def same_questions(user: Any, question: Question, task: Task) -> QuerySet[Question]:
    """The same question in other tasks: same body, same key or words, same form; waiting, and for this person, too."""
    waiting = _inbox(user).filter(task__body=task.body, form=question.form, approvals=question.approvals)
    return waiting.filter(Q(key=question.key) | Q(prompt=question.prompt)).exclude(pk=question.pk)


def _inbox(user: Any) -> QuerySet[Question]:
    pending = visible_questions(user).pending()  # type: ignore[attr-defined]
    return entitlement.answerable(pending, user).select_related("task").order_by("pk")


def _onward(model_admin: QuestionAdmin, request: HttpRequest, question: Question) -> str:
    """Where the person goes next."""
    if request.POST.get("then") != "next":
        return _address(request, question)
    inbox = _inbox(request.user).exclude(votes__voter_ref=person_ref(request.user)).exclude(pk=question.pk)
    following = inbox.filter(pk__gt=question.pk).first() or inbox.first()
    if following is None:
        model_admin.message_user(request, _("Nothing else waits for you."), messages.INFO)
        return reverse("admin:supervision_question_changelist")
    return reverse("admin:supervision_question_change", args=[following.pk])


def _address(request: HttpRequest, question: Question) -> str:
    """Back to the page that the form stood on, with the question as it now is."""
    if request.POST.get("back") == "task":
        address = reverse("admin:supervision_task_change", args=[question.task_id])
        return f"{address}#question-{question.pk}"
    return reverse("admin:supervision_question_change", args=[question.pk])


def masked_prompt(question: Question) -> str:
    """The prompt without the task's secrets. ``task`` may have been loaded without its arguments."""
    if not question.task.sensitive:
        return question.prompt
    text: str = masking.mask_values(question.prompt, question.task.secrets)
    return text


def _task(question: Question) -> Task:
    return Task.objects.with_clock().select_related("owner").get(pk=question.task_id)

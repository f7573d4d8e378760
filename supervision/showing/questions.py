"""A question as the page shows it: its form for those who may answer, who may for the others, and how it ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils.translation import gettext as _

from supervision.errors import NotEntitled
from supervision.kernel import entitlement, files, masking, question_form
from supervision.kernel.actors import person_ref
from supervision.kernel.models import Question, Task
from supervision.showing.texts import Excerpt, excerpt

_PROMPT = 3000


@dataclass(frozen=True)
class QuestionBlock:
    """What stands on the page of one question."""

    question: Question
    prompt: Excerpt
    form: forms.Form | None
    """For those who may answer it now."""
    why_not: str
    """Why this person can't answer."""
    who: str
    """Who may."""
    answer: Excerpt | None
    note: str
    """One sentence that says how it stands, for a page on which somebody is still typing."""

    @property
    def is_open(self) -> bool:
        is_open: bool = self.question.status == Question.Status.PENDING
        return is_open

    @property
    def is_single(self) -> bool:
        """One field, whose label is the prompt."""
        kind: str = self.question.form.get("kind", "")
        return kind != "form"

    @property
    def pk_text(self) -> str:
        return str(self.question.pk)

    @property
    def approvals_so_far(self) -> int:
        return sum(vote.approves for vote in self.question.votes.all())


def blocks_of(viewer: Any, task: Task, questions: Sequence[Question]) -> list[QuestionBlock]:
    """The open ones first, then what was answered, newest first."""
    is_open = [q for q in questions if q.status == Question.Status.PENDING]
    closed = [q for q in questions if q.status != Question.Status.PENDING]
    return [block_of(viewer, task, q) for q in [*is_open, *reversed(closed)]]


def block_of(
    viewer: Any, task: Task, question: Question, form: forms.Form | None = None, *, longest: int = _PROMPT
) -> QuestionBlock:
    """The block of one question; ``form`` is a bound one, with what was typed and what is wrong with it; of the prompt
    the first ``longest`` characters."""
    secrets = task.secrets
    prompt = masking.mask_values(question.prompt, secrets)
    why_not = _why_not(viewer, task, question)
    is_open = question.status == Question.Status.PENDING
    if is_open and not why_not and form is None:
        form = unbound(question, secrets)
    return QuestionBlock(
        question=question,
        prompt=excerpt(prompt, longest),
        form=form if is_open and not why_not else None,
        why_not=why_not if is_open else "",
        who=entitlement.described(question) if is_open else "",
        answer=_answer(question, secrets) if question.status == Question.Status.ANSWERED else None,
        note=_note(question, secrets),
    )


def unbound(question: Question, secrets: list[str]) -> forms.Form:
    described = masking.mask_values(question.form, secrets)
    return question_form.form_for("", described, prefix=prefix_of(question))


def bound(question: Question, secrets: list[str], request: HttpRequest) -> forms.Form:
    """The question's form with what was posted."""
    described = masking.mask_values(question.form, secrets)
    return question_form.form_for("", described, request.POST, request.FILES, prefix=prefix_of(question))


def prefix_of(question: Question) -> str:
    return f"q-{question.pk}"


def answer_in_words(question: Question, value: Any) -> Any:
    """A choice by its label, yes and no, a file by its name; else the value."""
    kind = question.form.get("kind")
    labels = dict(_pairs(question.form.get("choices", ())))
    if kind == "yes_no":
        return _("Yes") if value else _("No")
    if kind == "choice":
        return labels.get(value, value)
    if kind == "choices" and isinstance(value, list):
        return ", ".join(str(labels.get(each, each)) for each in value)
    if kind == "file" and files.is_reference(value):
        return str(value.get("name"))
    return value


def _pairs(choices: Iterable[Any]) -> Iterable[tuple[Any, Any]]:
    return ((value, label) for value, label in choices)


def _answer(question: Question, secrets: list[str]) -> Excerpt:
    return excerpt(masking.mask_values(answer_in_words(question, question.answer), secrets), _PROMPT)


def _why_not(viewer: Any, task: Task, question: Question) -> str:
    if task.ending or task.is_terminal:
        return _("Its task is ending.")
    if question.expires_at is not None and question.expires_at <= task.db_now:
        return _("Its time ran out.")
    try:
        entitlement.refuse(question, task, viewer)
    except NotEntitled as refusal:
        return str(refusal)
    voter = person_ref(viewer)
    if any(vote.voter_ref == voter for vote in question.votes.all()):
        return _("You have voted; others must, too.")
    return ""


def _note(question: Question, secrets: list[str]) -> str:
    match question.status:
        case Question.Status.ANSWERED:
            return _("Answered meanwhile by %(who)s: %(answer)s") % {
                "who": question.answered_by_ref,
                "answer": excerpt(str(_answer(question, secrets)), 200),
            }
        case Question.Status.EXPIRED:
            return _("This question has expired meanwhile.")
        case Question.Status.WITHDRAWN:
            return _("This question was withdrawn meanwhile: its task is ending or has ended.")
    return _("This question has changed meanwhile.")

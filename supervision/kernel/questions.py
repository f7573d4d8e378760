"""Ask, answer: two commits that share only rows. Neither the answer nor the wake-up exists without the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from supervision.conf import settings
from supervision.errors import AlreadyAnswered, QuestionExpired, QuestionNotFound, QuestionWithdrawn
from supervision.kernel import question_form, storable
from supervision.kernel.actors import actor_ref
from supervision.kernel.lease import Requests
from supervision.kernel.models import Question, Task
from supervision.kernel.question_form import Ask
from supervision.kernel.states import Reason, State
from supervision.kernel.transition import committing, locked, retried, write


@retried
def ask(
    task_id: UUID | str, lease: int, asks: Sequence[Ask], *, decisions: Mapping[str, Any] | None = None
) -> Requests:
    """Stores the questions that aren't there yet and parks the running task until all of ``asks`` are answered.

    ``decisions``, where given, become the row's in the same commit: what was decided before the question stays decided.
    One transaction: lock, insert, park, log. If they all have answers already the task is parked due now. Empty
    Requests: parked. Otherwise nothing was written, for the task is being ended or is past its expiry, and asks
    nothing more. Raises LeaseLost, NotStorable, TooLarge.
    """
    rows = [_row(task_id, each) for each in asks]
    keys = [row.key for row in rows]
    with committing("ask"), locked(task_id, lease=lease) as task:
        if task.ending or task.is_overdue:
            return Requests(ending=task.ending, ending_reason=task.ending_reason, is_overdue=task.is_overdue)
        known = dict(_of(task).filter(key__in=keys).values_list("key", "status"))
        fresh = [row for row in rows if row.key not in known]
        for row, each in zip(rows, asks, strict=True):
            lifetime = each.expires_after or settings.QUESTION_EXPIRES_AFTER
            row.asked_at = task.db_now
            row.expires_at = None if lifetime is None else task.db_now + lifetime
        Question.objects.using(settings.DATABASE).bulk_create(fresh)
        waiting = len(fresh) + sum(status == Question.Status.PENDING for status in known.values())
        reason = (
            Reason.AWAITING_USER_ANSWER.of(keys[0]) if len(keys) == 1 else Reason.AWAITING_USER_ANSWERS.of(len(keys))
        )
        write(
            task,
            to=State.PARKED,
            reason=reason,
            event="question_asked",
            bump=True,
            name=keys[0] if len(keys) == 1 else "",
            payload={"reason": reason, "keys": [row.key for row in fresh]},
            wake_at=None if waiting else task.db_now,
            **({} if decisions is None else {"locked_decisions": decisions}),
        )
    return Requests()


def answer(question_id: UUID | str, value: Any, *, by: Any, via: str = "code", note: str = "") -> Question:
    """Stores the answer and, if it was the last one that the task waits for, makes the task due: one commit.

    ``value`` is validated by the question's form; ``by`` is a user or a text, ``via`` the surface. Guarded by the
    question, not by the task's generation, so two forms on one page both work. Raises QuestionNotFound,
    AlreadyAnswered (with who was first), QuestionExpired, QuestionWithdrawn, InvalidAnswer, NotStorable, TooLarge,
    Busy; nothing is written then.
    """
    questions = Question.objects.using(settings.DATABASE)
    task_id = questions.filter(pk=question_id).values_list("task_id", flat=True).first()
    if task_id is None:
        raise QuestionNotFound(question_id)
    with committing("answer"), locked(task_id) as task:
        question = questions.get(pk=question_id)
        _refuse_closed(question, task)
        cleaned = question_form.validate(question.key, question.prompt, question.form, value)
        storable.encode(cleaned, place=f"the answer to {question.key}", limit="MAX_PAYLOAD_BYTES")
        question.status = Question.Status.ANSWERED
        question.answer = cleaned
        question.answered_at = task.db_now
        question.answered_by = by if hasattr(by, "pk") else None
        question.answered_by_ref = actor_ref(by)
        question.answered_via = via
        question.save(
            update_fields=["status", "answer", "answered_at", "answered_by", "answered_by_ref", "answered_via"]
        )
        # Counted after the lock in a statement of its own: two last answers that both saw one left would wake nobody.
        is_last = not _of(task).pending().exists()
        write(
            task,
            event="question_answered",
            bump=True,
            name=question.key,
            actor=question.answered_by_ref,
            payload={"answer": cleaned, "via": via, **({"note": note} if note else {})},
            wake=is_last and task.current_state == State.PARKED,
        )
    return question


def answers_of(task_id: UUID | str) -> dict[str, Any]:
    """Key -> answer of all answered questions of the task, in one query."""
    return dict(
        Question.objects.using(settings.DATABASE)
        .filter(task_id=task_id, status=Question.Status.ANSWERED)
        .values_list("key", "answer")
    )


def _of(task: Task) -> Any:
    return Question.objects.using(settings.DATABASE).filter(task_id=task.pk)


def _row(task_id: UUID | str, each: Ask) -> Question:
    form = each.form()
    place = f"question {each.key}"
    storable.encode({"prompt": each.prompt, "form": form}, place=place, limit="MAX_PAYLOAD_BYTES")
    if each.expires_after is not None and each.expires_after <= timedelta(0):
        raise ValueError(f"{place} would expire before it is asked: expires_after={each.expires_after}")
    return Question(task_id=task_id, key=storable.name(each.key, place="question key"), prompt=each.prompt, form=form)


def _refuse_closed(question: Question, task: Task) -> None:
    if question.status == Question.Status.ANSWERED:
        raise AlreadyAnswered(question)
    if question.status == Question.Status.EXPIRED or (
        question.expires_at is not None and question.expires_at <= task.db_now
    ):
        raise QuestionExpired(question)
    if question.status == Question.Status.WITHDRAWN or task.is_terminal or task.ending:
        raise QuestionWithdrawn(question)
    if task.is_overdue:
        raise QuestionExpired(question)

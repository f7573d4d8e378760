"""Ask, answer: two commits that share only rows. Neither the answer nor the wake-up exists without the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.core.files import File
from django.utils.translation import gettext as _

from supervision.conf import settings
from supervision.errors import AlreadyAnswered, InvalidAnswer, QuestionExpired, QuestionNotFound, QuestionWithdrawn
from supervision.kernel import entitlement, files, notices, question_form, storable, votes
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
        # read again: bulk_create doesn't fetch a primary key that the database made
        notices.plan_questions(_of(task).filter(key__in=[row.key for row in fresh]), task.db_now)
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
            decisions=decisions,
            recoveries=0 if fresh else task.recoveries,
        )
    return Requests()


def answer(question_id: UUID | str, value: Any, *, by: Any, via: str = "code", note: str = "") -> Question:
    """Stores the answer and, if it was the last one that the task waits for, makes the task due: one commit.

    ``value`` is validated by the question's form (or is that form, bound); ``by`` is a user or a text, ``via`` the
    surface. Guarded by the question, not by the task's generation, so two forms on one page both work. Of a question
    with several ``approvals`` it is one person's vote: the question stays pending, and nobody is woken, until a vote
    decides. Raises QuestionNotFound, AlreadyAnswered (with who was first), QuestionExpired, QuestionWithdrawn,
    NotEntitled, AlreadyVoted, InvalidAnswer, NotStorable, TooLarge, Busy; nothing is written then.
    """
    with files.kept_on_success() as stored:
        task_id, cleaned = _validated(question_id, value, by, stored)
        with committing("answer"), locked(task_id) as task:
            question = Question.objects.using(settings.DATABASE).get(pk=question_id)
            _refuse_closed(question, task)
            entitlement.refuse(question, task, by)
            if question.approvals > 1 and not votes.cast(question, task, approves=cleaned, by=by, via=via, note=note):
                write(
                    task, event="vote_cast", bump=True, name=question.key, actor=actor_ref(by),
                    payload={"approves": cleaned, "via": via, **({"note": storable.text(note)} if note else {})},
                )  # fmt: skip
            else:
                _store(question, task, cleaned, by=by, via=via, note=note)
    return question


def _validated(question_id: UUID | str, value: Any, by: Any, stored: list[files.StoredFile]) -> tuple[UUID, Any]:
    """The task's id and the answer as JSON. Before the lock: a question's form never changes, and uploads take their
    time. What is closed, or not theirs, is refused here already, so that nothing is uploaded for nothing."""
    question = Question.objects.using(settings.DATABASE).filter(pk=question_id).first()
    if question is None:
        raise QuestionNotFound(question_id)
    task = Task.objects.using(settings.DATABASE).with_clock().get(pk=question.task_id)
    _refuse_closed(question, task)
    entitlement.refuse(question, task, by)
    cleaned = question_form.validate(question.key, question.prompt, question.form, value)
    place = f"the answer to {question.key}"

    def keep(upload: File[Any]) -> dict[str, Any]:
        stored.append(files.store(upload, place=place))
        return stored[-1].reference

    answer = question_form.plain(cleaned, keep)
    if answer in (None, "", [], {}):
        raise InvalidAnswer(question.key, [_("An empty answer is no answer.")])
    storable.encode(answer, place=place, limit="MAX_PAYLOAD_BYTES")
    return question.task_id, answer


def _store(question: Question, task: Task, answer: Any, *, by: Any, via: str, note: str) -> None:
    """The locked task's question is answered; the last answer makes the task due."""
    question.status = Question.Status.ANSWERED
    question.answer = answer
    question.answered_at = task.db_now
    question.answered_by = by if hasattr(by, "pk") else None
    question.answered_by_ref = actor_ref(by)
    question.answered_via = via
    question.save(update_fields=["status", "answer", "answered_at", "answered_by", "answered_by_ref", "answered_via"])
    # Counted after the lock in a statement of its own: two last answers that both saw one left would wake nobody.
    is_last = not _of(task).pending().exists()
    write(
        task,
        event="question_answered",
        bump=True,
        name=question.key,
        actor=question.answered_by_ref,
        payload={"answer": answer, "via": via, **({"note": storable.text(note)} if note else {})},
        wake=is_last and task.current_state == State.PARKED,
    )


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
    return Question(
        task_id=task_id,
        key=storable.name(each.key, place="question key"),
        prompt=each.prompt,
        form=form,
        **each.policy(),
    )


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

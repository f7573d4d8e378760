"""What is said to a task, and what it has said: its questions, their answers, signals, its log."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from supervision.api import problems
from supervision.api.described import CURSOR, answers, page_of, route
from supervision.api.fields import Strict, Text
from supervision.api.paging import Cursor
from supervision.api.shown import LogSerializer, QuestionSerializer, SignalSerializer, where_secret
from supervision.api.values import answer_for
from supervision.api.view import ApiView, given, given_query, whole
from supervision.conf import settings
from supervision.errors import AlreadyAnswered, QuestionExpired, QuestionWithdrawn
from supervision.kernel import entitlement, log, questions, sight, signals_in, storable
from supervision.kernel.models import Question

_BIGGEST_PAGE = 200
_PAGE = page_of("QuestionPage", QuestionSerializer)
_PARAMETERS = [OpenApiParameter("status", str, enum=Question.Status.values), *CURSOR]


class NewAnswer(Strict):
    answer = serializers.JSONField(help_text="As the question’s kind wants it: true, a text, a list of choices, ...")
    note = Text(required=False, max_length=2000, allow_blank=True)


class NewSignal(Strict):
    name = Text(max_length=200)
    payload = serializers.JSONField(required=False, allow_null=True)
    key = Text(required=False, max_length=200, help_text="The same key for the same name again is the same signal.")


class QuestionsView(ApiView):
    @route(
        "questions_list",
        parameters=_PARAMETERS,
        responses=answers(_PAGE, 400),
    )
    def get(self, request: Request) -> Response:
        """The questions of your tasks, and those that you may answer; newest first."""
        return _page(self, request, sight.questions(request.user))


class TaskQuestionsView(ApiView):
    @route(
        "tasks_questions",
        parameters=_PARAMETERS,
        responses=answers(_PAGE, 400, 404),
    )
    def get(self, request: Request, pk: str) -> Response:
        """The questions of one task; newest first."""
        task = self.task_or_404(pk)
        return _page(self, request, Question.objects.using(settings.DATABASE).filter(task_id=task.pk))


class QuestionView(ApiView):
    @route("questions_retrieve", responses=answers(QuestionSerializer, 400, 404))
    def get(self, request: Request, pk: str) -> Response:
        """One question."""
        question = _question_or_404(request, pk)
        given_query(request)
        return Response(_shown(request, question))


class AnswerView(ApiView):
    @route("questions_answer", request=NewAnswer, responses=answers(QuestionSerializer, 400, 404, 409, 415))
    def post(self, request: Request, pk: str) -> Response:
        """Answers a question. It guards itself: the first answer counts."""
        question = _question_or_404(request, pk)
        if not entitlement.is_entitled(question, question.task, request.user):
            entitlement.refuse(question, question.task, request.user)
        data = given(request, NewAnswer)
        is_open = question.status == Question.Status.PENDING  # if not, it is refused, whatever it is
        value = answer_for(question, data["answer"]) if is_open else data["answer"]
        try:
            questions.answer(question.pk, value, by=request.user, via="api", note=data.get("note", ""))
        except (AlreadyAnswered, QuestionExpired, QuestionWithdrawn) as refusal:
            problem = problems.as_problem(refusal)
            assert problem is not None  # noqa: S101
            problem.current = _shown(request, _question_or_404(request, pk))
            raise problem from None
        return Response(_shown(request, _question_or_404(request, pk)))


class SignalsView(ApiView):
    @route(
        "tasks_signal", request=NewSignal,
        responses=answers(SignalSerializer, 400, 404, 409, 415, status=201),
    )  # fmt: skip
    def post(self, request: Request, pk: str) -> Response:
        """Tells the task that something has happened outside. Kept if it comes early."""
        task = self.task_or_404(pk)
        if not sight.may(request.user, "signal_task", task):
            raise PermissionDenied
        data = given(request, NewSignal)
        storable.encode(data.get("payload"), place="payload", limit="MAX_PAYLOAD_BYTES")
        signal = signals_in.send(
            task.pk, data["name"], data.get("payload"), key=data.get("key", ""), by=request.user
        )  # fmt: skip
        return Response(SignalSerializer(signal).data, status=201)


class LogView(ApiView):
    @route(
        "tasks_log",
        parameters=[
            OpenApiParameter("before", {"type": "integer", "minimum": 1}, description="`older` of the page before."),
            OpenApiParameter("size", {"type": "integer", "minimum": 1, "maximum": _BIGGEST_PAGE}),
        ],
        responses=answers(LogSerializer, 400, 404),
    )
    def get(self, request: Request, pk: str) -> Response:
        """The newest entries in chronological order, and how many there are that this page withholds."""
        task = self.task_or_404(pk)
        query = given_query(request, "before", "size")
        before = whole(query["before"], "before", least=1, most=2**62) if "before" in query else None
        size = whole(query["size"], "size", least=1, most=_BIGGEST_PAGE) if "size" in query else None
        context = {"is_overseer": sight.is_overseer(request.user)}
        return Response(LogSerializer(log.page(task.pk, before=before, size=size), context=context).data)


def _page(view: ApiView, request: Request, rows: Any) -> Response:
    query = given_query(request, "status", "cursor", "page_size")
    if (status := query.get("status")) is not None:
        if status not in Question.Status.values:
            raise problems.invalid(status=_("It must be one of %(k)s.") % {"k": ", ".join(Question.Status.values)})
        rows = rows.filter(status=status)
    cursor = Cursor()
    light = rows.select_related("task").defer("task__arguments", "task__locked_decisions", "task__result")
    page = cursor.of(view, light.annotate(secret_arguments=where_secret("task__")))
    pending = [each.pk for each in page if each.status == Question.Status.PENDING]
    mine = entitlement.answerable(Question.objects.using(settings.DATABASE).filter(pk__in=pending), request.user)
    allowed = set(mine.values_list("pk", flat=True))
    for question in page:
        question.can_answer = question.pk in allowed
        question.task.secret_arguments = question.secret_arguments
    return cursor.get_paginated_response(QuestionSerializer(page, many=True).data)


def _question_or_404(request: Request, raw_id: str) -> Question:
    question = sight.find_question(request.user, raw_id)
    if question is None:
        raise problems.not_found()
    return question


def _shown(request: Request, question: Question) -> dict[str, Any]:
    is_open = question.status == Question.Status.PENDING
    question.can_answer = is_open and entitlement.is_entitled(  # type: ignore[attr-defined]
        question, question.task, request.user
    )
    return dict(QuestionSerializer(question).data)

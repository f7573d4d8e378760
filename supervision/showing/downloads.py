"""What a page shows only the beginning of, as text; and a task's files. Both masked and permitted as the page is."""

from __future__ import annotations

from typing import Any, TypeVar

from django.http import FileResponse, Http404, HttpResponse
from django.http.response import HttpResponseBase
from django.utils.translation import gettext as _

from supervision.kernel import files, log, masking
from supervision.kernel.files import StoredFile
from supervision.kernel.models import Question, Task
from supervision.showing.texts import whole as whole_text

Response = TypeVar("Response", bound=HttpResponseBase)

_TEXT = "text/plain; charset=utf-8"


def whole(task: Task, what: str) -> HttpResponse:
    """All of ``result``, ``decisions``, ``arguments``, ``failure``, ``entry-7``, ``question-<id>``, ``answer-<id>``."""
    text = whole_text(masking.mask_values(_value(task, what), task.secrets))
    return _inert(HttpResponse(text, content_type=_TEXT))


def whole_prompt(question: Question) -> HttpResponse:
    """All of a long question, as text."""
    task = question.task
    return _inert(HttpResponse(masking.mask_values(question.prompt, task.secrets), content_type=_TEXT))


def file(task: Task, number: int) -> FileResponse:
    """The file of that place in ``files_of``: named by its number, so that no path is ever taken from an address."""
    found = files_of(task)
    if not 0 <= number < len(found):
        raise Http404
    stored = found[number]
    try:
        response = FileResponse(stored.open(), as_attachment=True, filename=str(stored.name))
    except OSError:
        raise Http404(_("This file is gone from the storage.")) from None
    response["Content-Type"] = "application/octet-stream"
    return _inert(response)


def files_of(task: Task) -> list[StoredFile]:
    """The stored files that the task's result, decisions, arguments and answers refer to, each once."""
    values: list[Any] = [task.result, task.locked_decisions, task.masked_arguments]
    answered = Question.objects.filter(task=task, status=Question.Status.ANSWERED)
    values += list(answered.filter(form__kind__in=["file", "form"]).values_list("answer", flat=True))
    found = {each.path: each for value in values for each in files.found_in(value)}
    return list(found.values())


def _value(task: Task, what: str) -> Any:
    match what:
        case "result":
            return task.result
        case "decisions":
            return task.locked_decisions
        case "arguments":
            return task.masked_arguments
        case "failure":
            return task.failure
    kind, _dash, key = what.partition("-")
    if kind == "entry" and key.isdecimal() and len(key) < 19:
        entries = log.page(task.pk, before=int(key) + 1, size=1).entries
        if entries and entries[0].sequence_num == int(key):
            return entries[0].payload
    if kind in ("question", "answer"):
        question = next((each for each in Question.objects.filter(task=task) if str(each.pk) == key), None)
        if question is not None:
            return question.prompt if kind == "question" else question.answer
    raise Http404


def _inert(response: Response) -> Response:
    """A browser neither runs it nor guesses what it is."""
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, no-store"
    return response

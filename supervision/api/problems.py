"""Errors as problem details (RFC 9457): what is wrong, with which field, and what the thing is now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import Http404
from django.utils.translation import gettext as _
from rest_framework import exceptions, serializers
from rest_framework.response import Response
from rest_framework.views import set_rollback

from supervision import errors
from supervision.engines.pipelines.errors import PointerNotFound, UnknownPipeline, UnknownState
from supervision.kernel import storable

MEDIA_TYPE = "application/problem+json"


class ProblemSerializer(serializers.Serializer[Any]):
    """A problem, for the schema."""

    type = serializers.CharField(help_text="urn:supervision:problem:<code>")
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    errors = serializers.DictField(  # type: ignore[assignment]
        child=serializers.ListField(child=serializers.CharField()), required=False, help_text="Field -> what is wrong."
    )
    current = serializers.DictField(
        child=serializers.JSONField(), required=False, help_text="What the thing is now, where it has changed."
    )


class Problem(Exception):
    """An answer that isn't success. ``current`` is the fresh representation of what was to be changed."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        *,
        fields: dict[str, list[str]] | None = None,
        current: Any = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.status, self.code, self.detail = status, code, detail
        self.fields, self.current, self.headers = fields, current, headers or {}
        super().__init__(detail)


def handle(error: Exception, context: dict[str, Any]) -> Response | None:
    """DRF's exception handler. None for what is a fault of ours: that stays an error 500 with its traceback."""
    problem = as_problem(error)
    if problem is None:
        return None
    set_rollback()
    body: dict[str, Any] = {
        "type": f"urn:supervision:problem:{problem.code}",
        "title": _TITLES.get(problem.status, _("Error")),
        "status": problem.status,
        "detail": storable.text(problem.detail),
    }
    if problem.fields:
        body["errors"] = {storable.text(name, 200): said for name, said in problem.fields.items()}
    if problem.current is not None:
        body["current"] = problem.current
    return Response(body, status=problem.status, headers=problem.headers, content_type=MEDIA_TYPE)


def as_problem(error: Exception) -> Problem | None:
    """The problem that an error is for a client; None if it is none of theirs."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, errors.SupervisionError):
        return _of_ours(error)
    if isinstance(error, Http404 | exceptions.NotFound):
        return not_found()
    if isinstance(error, PermissionDenied):
        return Problem(403, "forbidden", _("You may not do this."))
    if isinstance(error, exceptions.ValidationError):
        fields = dict(_flat(error.detail, ""))
        return Problem(400, "invalid", _("Something in the request can't be used."), fields=fields)
    if isinstance(error, exceptions.APIException):
        return Problem(error.status_code, _code(error), str(error.detail), headers=_headers(error))
    return None


def not_found() -> Problem:
    """The same for what isn't there and for what isn't theirs."""
    return Problem(404, "not_found", _("There is nothing here, or it isn’t yours."))


def invalid(**fields: str) -> Problem:
    """A 400 that names the fields."""
    return Problem(
        400, "invalid", _("Something in the request can't be used."), fields={k: [v] for k, v in fields.items()}
    )


_TITLES = {
    400: "Bad request", 401: "Not signed in", 403: "Forbidden", 404: "Not found", 405: "Method not allowed",
    409: "Conflict", 412: "Precondition failed", 415: "Unsupported media type", 428: "Precondition required",
    429: "Too many requests",
}  # fmt: skip

_CONFLICTS: dict[type[errors.SupervisionError], str] = {
    errors.Refused: "refused",
    errors.AlreadyAnswered: "already_answered",
    errors.AlreadyVoted: "already_voted",
    errors.QuestionExpired: "question_expired",
    errors.QuestionWithdrawn: "question_withdrawn",
    errors.ConcurrencyKeyHeld: "already_running",
    errors.AlreadyPruned: "already_run",
    UnknownPipeline: "unknown_pipeline",
}


def _of_ours(error: errors.SupervisionError) -> Problem:
    said = str(error)
    if isinstance(error, errors.TaskNotFound | errors.QuestionNotFound | PointerNotFound):
        return not_found()
    if isinstance(error, errors.NotEntitled):
        return Problem(403, "not_entitled", said)
    if isinstance(error, errors.Busy):
        return Problem(409, "busy", said, headers={"Retry-After": "1"})
    if isinstance(error, errors.NotStorable):
        return Problem(400, "invalid", said, fields={error.place: [error.why]})
    if isinstance(error, errors.InvalidAnswer):
        return Problem(400, "invalid", said, fields={"answer": error.errors})
    if isinstance(error, errors.InvalidArguments):
        return Problem(400, "invalid", said, fields={"arguments": [said]})
    if isinstance(error, errors.UnknownBody):
        return Problem(400, "invalid", said, fields={"body": [said]})
    if isinstance(error, UnknownState):
        return Problem(400, "invalid", said, fields={"state": [said]})
    return Problem(409, _CONFLICTS.get(type(error), "conflict"), said)


def _code(error: exceptions.APIException) -> str:
    code = error.get_codes()
    return code if isinstance(code, str) else error.default_code


def _headers(error: exceptions.APIException) -> dict[str, str]:
    headers = {}
    if (scheme := getattr(error, "auth_header", None)) is not None:
        headers["WWW-Authenticate"] = scheme
    if (wait := getattr(error, "wait", None)) is not None:
        headers["Retry-After"] = str(max(1, round(wait)))
    return headers


def _flat(detail: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    """DRF's nested errors as path -> sentences."""
    if isinstance(detail, dict):
        for name, below in detail.items():
            yield from _flat(below, path if name == "non_field_errors" else f"{path}.{name}".lstrip("."))
    elif isinstance(detail, list) and any(isinstance(each, dict | list) for each in detail):
        for at, below in enumerate(detail):
            yield from _flat(below, f"{path}[{at}]")
    else:
        yield path or "request", [str(each) for each in (detail if isinstance(detail, list) else [detail])]

"""What every view of the API is: signed in, throttled, JSON in and out, errors as problems, nothing kept by caches."""

from __future__ import annotations

from typing import Any, NoReturn

from django.http import HttpRequest
from django.utils.translation import gettext as _
from drf_spectacular.openapi import AutoSchema
from rest_framework import serializers
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.permissions import IsAuthenticated
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from supervision.api import problems
from supervision.api.parsing import ObjectParser
from supervision.api.throttling import PersonThrottle
from supervision.kernel import sight
from supervision.kernel.models import Task


class AsciiRenderer(JSONRenderer):
    """Escapes what isn't ASCII: whatever a value holds, it can be written."""

    ensure_ascii = True


class OneFormat(BaseContentNegotiation):
    """JSON, whatever is asked for: there is nothing else to choose."""

    def select_parser(self, request: Request, parsers: Any) -> Any:
        media_type = (request.content_type or "").partition(";")[0].strip().lower()
        return next((parser for parser in parsers if parser.media_type == media_type), None)

    def select_renderer(self, request: Request, renderers: Any, format_suffix: str | None = None) -> Any:
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    """Authenticates as the host's REST_FRAMEWORK settings say."""

    schema = AutoSchema()
    permission_classes = [IsAuthenticated]
    throttle_classes = [PersonThrottle]
    renderer_classes = [AsciiRenderer]
    parser_classes = [ObjectParser]
    content_negotiation_class = OneFormat
    metadata_class = None
    versioning_class = None

    def get_exception_handler(self) -> Any:
        return problems.handle

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        response["Cache-Control"] = "no-store"
        return response

    def task_or_404(self, raw_id: str) -> Task:
        """The readable task, in one query; the problem is the same for all ids that aren't one of theirs."""
        task = sight.find_task(self.request.user, raw_id)
        if task is None:
            raise problems.not_found()
        return task


def given(request: Request, kind: type[serializers.Serializer[Any]]) -> dict[str, Any]:
    """The validated body. Fields that nobody knows are refused."""
    form = kind(data=request.data)
    form.is_valid(raise_exception=True)
    return dict(form.validated_data)


def given_query(request: Request, *known: str) -> dict[str, str]:
    """The query's parameters; unknown ones are refused, so that a misspelt filter isn't taken for none."""
    unknown = sorted(set(request.query_params) - set(known))
    if unknown:
        raise problems.Problem(
            400, "invalid", _("Something in the request can't be used."),
            fields={name: [unknown_field(known)] for name in unknown},
        )  # fmt: skip
    return {name: request.query_params[name] for name in known if name in request.query_params}


def whole(raw: str, name: str, *, least: int, most: int) -> int:
    """A whole number of the query."""
    if not (raw.isascii() and raw.isdecimal() and len(raw) < 19 and least <= int(raw) <= most):
        raise problems.invalid(**{name: _("It must be a whole number from %(a)s to %(b)s.") % {"a": least, "b": most}})
    return int(raw)


def unknown_field(known: Any) -> str:
    return _("Unknown. Known: %(known)s.") % {"known": ", ".join(sorted(known)) or _("none")}


class Nothing(ApiView):
    """Whatever address isn't one of ours: answered as what isn't there is."""

    schema = None  # type: ignore[assignment]

    def _nothing(self, request: Request, **kwargs: Any) -> NoReturn:
        raise problems.not_found()

    get = post = put = patch = delete = _nothing

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        raise problems.not_found()

"""What the schema says of the API's routes: every status that a route can answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from drf_spectacular.openapi import AutoSchema
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers

from supervision.api.problems import MEDIA_TYPE, ProblemSerializer
from supervision.api.shown import TaskDetailSerializer

F = TypeVar("F", bound=Callable[..., Any])

_SAID = {
    400: "A field can't be used; `errors` names it.", 401: "Not signed in.",
    403: "Not allowed, or the CSRF token is missing.", 404: "It isn't there, or it isn't yours.",
    409: "It has changed, or can't be done; `current` is what it is now.",
    412: "If-Match is stale; `current` is what it is now.", 415: "The body must be application/json.",
    428: "Say which generation you have seen.", 429: "Too often, or too many wait; see Retry-After.",
}  # fmt: skip

IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, description='The generation as the ETag tells it: `"7"`.'
)
CURSOR = (
    OpenApiParameter("cursor", str, description="From `next` or `previous`."),
    OpenApiParameter("page_size", {"type": "integer", "minimum": 1, "maximum": 200}),
)


def route(operation_id: str, **options: Any) -> Callable[[F], F]:
    """Describes a method of a view: ``extend_schema``, whatever DEFAULT_SCHEMA_CLASS the host has."""

    def describe(method: F) -> F:
        method.schema = AutoSchema  # type: ignore[attr-defined]
        summary = (method.__doc__ or "").partition("\n")[0].removesuffix(".")
        described: F = extend_schema(operation_id=operation_id, **{"summary": summary, **options})(method)
        return described

    return describe


def answers(success: Any, *statuses: int, status: int = 200) -> dict[Any, Any]:
    """The responses of a route: its success, what every route may answer, and ``statuses``."""
    problems = {
        (each, MEDIA_TYPE): OpenApiResponse(ProblemSerializer, description=_SAID[each])
        for each in sorted({401, 403, 429, *statuses})
    }
    return {status: success, **problems}


def page_of(name: str, item: type[serializers.Serializer[Any]]) -> Any:
    """A page of a list by cursor."""
    return inline_serializer(
        name,
        {
            "next": serializers.URLField(allow_null=True),
            "previous": serializers.URLField(allow_null=True),
            "results": item(many=True),
        },
    )


class DoneSerializer(serializers.Serializer[Any]):
    """What a verb did, and the task as it now is (a retry's: the new one)."""

    outcome = serializers.CharField(help_text="What is true now: “pausing after the current step”.")
    task = TaskDetailSerializer()

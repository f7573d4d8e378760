"""The API described by itself: the OpenAPI schema, and a page that shows it, from files of this server alone."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django.contrib.auth.mixins import LoginRequiredMixin
from django.http import HttpRequest
from django.urls import reverse
from django.views.generic import TemplateView
from drf_spectacular.generators import SchemaGenerator
from drf_spectacular.renderers import OpenApiJsonRenderer
from drf_spectacular.settings import patched_settings
from rest_framework.request import Request
from rest_framework.response import Response

from supervision import __version__
from supervision.api.view import ApiView, OneFormat


class SchemaView(ApiView):
    """The schema as JSON; its ``servers`` name where the API is mounted."""

    schema = None  # type: ignore[assignment]
    renderer_classes = [OpenApiJsonRenderer]
    content_negotiation_class = OneFormat

    def get(self, request: Request) -> Response:
        return Response(described(reverse("supervision_api:tasks").removesuffix("tasks/")))


@lru_cache(maxsize=4)
def described(mounted_at: str) -> dict[str, Any]:
    """The OpenAPI description of the API as it is mounted there; the same for everybody, and made once: its settings
    are drf-spectacular's own for that moment."""
    with patched_settings(
        {
            "TITLE": "Supervised work", "VERSION": __version__, "SERVERS": [{"url": mounted_at}],
            "DESCRIPTION": "What those whose work it is may see and do.", "COMPONENT_SPLIT_REQUEST": True,
            "SCHEMA_PATH_PREFIX": "/", "ENUM_NAME_OVERRIDES": _ENUMS, "PREPROCESSING_HOOKS": [],
        }
    ):  # fmt: skip
        generator: Any = SchemaGenerator
        schema: dict[str, Any] = generator(urlconf="supervision.api.urls").get_schema(request=None, public=True)
    return schema


_ENUMS = {
    "TaskState": "supervision.kernel.states.State",
    "QuestionStatus": "supervision.kernel.models.Question.Status",
}


class DocsView(LoginRequiredMixin, TemplateView):
    """The page: Swagger UI, without a network of other people's servers and without inline code."""

    template_name = "supervision/api/docs.html"
    request: HttpRequest

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(schema=reverse("supervision_api:schema"), **kwargs)

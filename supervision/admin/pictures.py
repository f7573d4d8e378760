"""Pictures of tables as responses of their own."""

from __future__ import annotations

from collections.abc import Callable

from django.http import Http404, HttpResponse

from supervision import diagrams
from supervision.diagrams import Graph
from supervision.errors import SupervisionError


def picture(graph: Callable[[], Graph]) -> HttpResponse:
    """An image, and nothing that could run: shown by an ``img`` element, and inert when it is opened by itself."""
    try:
        svg = diagrams.render(graph(), "svg")
    except SupervisionError as error:
        raise Http404(str(error)) from None
    response = HttpResponse(svg, content_type="image/svg+xml")
    response["X-Content-Type-Options"] = "nosniff"
    response["Content-Security-Policy"] = "default-src 'none'; sandbox"
    response["Cache-Control"] = "private, no-cache"
    return response

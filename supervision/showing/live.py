"""Fragments of pages that refresh themselves."""

from __future__ import annotations

import hashlib
import re

from django.http import HttpRequest, HttpResponse, HttpResponseNotModified

_VARYING = re.compile(r'(<time\b[^>]*>)[^<]*|(name="csrfmiddlewaretoken" value=")[^"]*')


def fragment(request: HttpRequest, html: str) -> HttpResponse:
    """HTML with a tag of what can be read in it: spoken times and tokens, which differ each time, don't count.
    304 for who has it."""
    digest = hashlib.sha256(_VARYING.sub(r"\1\2", html).encode()).hexdigest()[:32]
    tag = f'"{digest}"'
    if request.headers.get("If-None-Match") == tag:
        response: HttpResponse = HttpResponseNotModified()
    else:
        response = HttpResponse(html)
    response["ETag"] = tag
    response["Cache-Control"] = "private, no-cache"
    return response

"""What every page here has in common: who gets in, how it is sent, and the one answer for what isn't there."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.views.decorators.cache import cache_control
from django.views.decorators.clickjacking import xframe_options_deny
from django.views.decorators.csrf import csrf_protect
from django.views.decorators.http import require_http_methods

View = TypeVar("View", bound=Callable[..., HttpResponseBase])


def page(*methods: str) -> Callable[[View], View]:
    """A view of this app for these methods: behind CSRF protection, in no frame, kept by no cache."""

    def protect(view: View) -> View:
        # not never_cache: its Expires is a clock, and answers that should be one would differ
        kept_by_nobody = cache_control(private=True, no_cache=True, no_store=True)
        return csrf_protect(xframe_options_deny(kept_by_nobody(require_http_methods(methods)(view))))

    return protect


def own_page(*methods: str) -> Callable[[View], View]:
    """``page`` for people who have signed in: others are sent to do so, whatever the address."""

    def protect(view: View) -> View:
        return page(*methods)(login_required(view))

    return protect


def or_not_found(view: Callable[..., HttpResponseBase | None]) -> Callable[..., HttpResponseBase]:
    """A view that returns None for what isn't there, isn't theirs, or can't be: to all of them one answer."""

    @wraps(view)
    def respond(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
        response = view(request, *args, **kwargs)
        return not_found(request) if response is None else response

    return respond


def not_found(request: HttpRequest) -> HttpResponse:
    """Not Http404: the project's 404 page may quote the address."""
    return render(request, "supervision/pages/not_found.html", status=404)

"""The pages that are read: the list, a task, its live fragment, its files. None changes anything."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.template.loader import render_to_string

from supervision.kernel import ownership, sight
from supervision.kernel.models import Task
from supervision.pages.describing import describe, rows_of, title_of
from supervision.pages.filters import TaskFilter
from supervision.pages.responses import or_not_found, own_page
from supervision.showing import downloads
from supervision.showing.live import fragment

_LISTED = 25
_COUNTED = 100
_WIDE = ("arguments", "locked_decisions", "result")
_READABLE = ("result", "arguments", "failure", "question-", "answer-")
"""Of a task, what owners may have whole. Decisions and the payloads of the log are the control room's."""


@own_page("GET", "HEAD")
def tasks(request: HttpRequest) -> HttpResponse:
    """My tasks, newest first, page by page: the cursor is the last id of the page before."""
    filters = TaskFilter(request.GET, request.user)
    found = filters.found().select_related("heartbeat", "owner").defer(*_WIDE)
    before = sight.as_id(request.GET.get("before", ""))
    rows = list((found.filter(pk__lt=before) if before.int else found)[: _LISTED + 1])
    shown, has_older = rows[:_LISTED], len(rows) > _LISTED
    chosen = {name: value for name, value in request.GET.items() if value and name in filters.filters}
    context = {
        "filter": filters,
        "rows": rows_of(shown),
        "is_filtered": bool(chosen),
        "waiting": ownership.tasks_of(request.user).awaiting_answer()[:_COUNTED].count(),
        "is_newest": not before.int,
        "shows_owners": "whose" in chosen,
        "newest": "?" + urlencode(chosen),
        "older": "?" + urlencode({**chosen, "before": shown[-1].pk}) if has_older else "",
    }
    return render(request, "supervision/pages/tasks.html", context)


@own_page("GET", "HEAD")
@or_not_found
def task(request: HttpRequest, pk: str) -> HttpResponse | None:
    """One task."""
    found = sight.find_task(request.user, pk)
    return None if found is None else task_page(request, found)


def task_page(request: HttpRequest, task: Task, *, status: int = 200, **said: Any) -> HttpResponse:
    """The page as it now stands; also what a refused action is answered with."""
    context = {"title": title_of(task), **describe(request, task, **said)}
    return render(request, "supervision/pages/task.html", context, status=status)


@own_page("GET", "HEAD")
@or_not_found
def live(request: HttpRequest, pk: str) -> HttpResponse | None:
    """The page's regions alone; 304 when nothing that can be read on them has changed."""
    found = sight.find_task(request.user, pk)
    if found is None:
        return None
    return fragment(request, render_to_string("supervision/pages/task_regions.html", describe(request, found), request))


@own_page("GET", "HEAD")
@or_not_found
def file(request: HttpRequest, pk: str, number: str) -> HttpResponseBase | None:
    """A file of the task, by its place on the page."""
    found = sight.find_task(request.user, pk)
    if found is None:
        return None
    is_number = number.isascii() and number.isdecimal() and len(number) < 6
    try:
        return downloads.file(found, int(number) if is_number else -1)
    except Http404:
        return None


@own_page("GET", "HEAD")
@or_not_found
def whole(request: HttpRequest, pk: str, what: str) -> HttpResponse | None:
    """All of what the page shows the beginning of, as text."""
    found = sight.find_task(request.user, pk)
    if found is None or not what.startswith(_READABLE):
        return None
    try:
        return downloads.whole(found, what)
    except Http404:
        return None

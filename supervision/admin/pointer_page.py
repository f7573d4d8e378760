"""A pointer's page: where the subject stands, since when, in the picture and in words; its visits; and re-pointing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.http import urlencode

from supervision import diagrams, wording
from supervision.admin.access import may, visible_tasks
from supervision.engines.pipelines import pipeline
from supervision.engines.pipelines.definition import Table
from supervision.engines.pipelines.errors import UnknownPipeline
from supervision.engines.pipelines.models import Pointer
from supervision.engines.pipelines.picture import graph_of
from supervision.kernel.states import State
from supervision.showing.live import fragment
from supervision.showing.tasks import body_label
from supervision.showing.texts import excerpt
from supervision.signs import sign

if TYPE_CHECKING:
    from supervision.admin.pipelines import PointerAdmin

VISITS = 50


def page(model_admin: PointerAdmin, request: HttpRequest, pointer: Pointer) -> HttpResponse:
    """The whole page."""
    context = {
        **model_admin.admin_site.each_context(request),
        "title": pointer.subject,
        "opts": model_admin.opts,
        "media": model_admin.media,
        **describe(request, pointer),
    }
    return TemplateResponse(request, "supervision/admin/pointer.html", context)


def live(request: HttpRequest, pointer: Pointer) -> HttpResponse:
    """The page's regions alone; 304 when nothing that can be read on them has changed."""
    html = render_to_string("supervision/admin/pointer_regions.html", describe(request, pointer), request)
    return fragment(request, html)


def describe(request: HttpRequest, pointer: Pointer) -> dict[str, Any]:
    """All that the page shows."""
    try:
        table = pipeline.get(pointer.pipeline)
    except UnknownPipeline:
        table = None
    before = request.GET.get("before", "")
    run = pointer.run
    state = table.states.get(pointer.state) if table else None
    return {
        "request": request,
        "pointer": pointer,
        "label": body_label(pointer.pipeline),
        "run": run,
        "can_see_run": run is not None and may(request.user, "view_task", run)
                       and visible_tasks(request.user).filter(pk=run.pk).exists(),
        "sign": sign(wording.situation(run)) if run else "",
        "reason": wording.reason(run.watchdog_stop_reason) if run else "",
        "cap": state.max_visits if state else None,
        "number": pointer.number - int(pointer.forgiven.get(pointer.state, 0)),
        "table": table,
        "can_render": diagrams.can_render() and table is not None,
        "mermaid": diagrams.mermaid(graph_of(table, current=pointer.state)) if table else "",
        "targets": [*table.states, *table.terminal] if table else [],
        "can_repoint": table is not None and may(request.user, "repoint_pointer", pointer)
                       and not (run is not None and run.current_state == State.RUNNING),
        "params": excerpt(pointer.params) if pointer.params else None,
        "previous": excerpt(pointer.previous) if pointer.previous else None,
        "is_newest": not before,
        **_visits(pointer, int(before) if before.isdecimal() and len(before) < 19 else None),
    }  # fmt: skip


def _visits(pointer: Pointer, before: int | None) -> dict[str, Any]:
    """A page of them, newest first, and the number that the older ones are before."""
    visits = pointer.visits.order_by("-sequence_num")
    if before is not None:
        visits = visits.filter(sequence_num__lt=before)
    rows = list(visits[: VISITS + 1])
    return {"visits": rows[:VISITS], "older": rows[VISITS - 1].sequence_num if len(rows) > VISITS else None}


def pictured(name: str, table: Table, counts: dict[str, int]) -> dict[str, Any]:
    """A pipeline as its page shows it: the picture, and the same in words, with a link to those in each state."""
    everyone = reverse("admin:supervision_pointer_changelist")

    def row(state: str) -> dict[str, Any]:
        link = f"{everyone}?{urlencode({'pipeline': name, 'state': state})}"
        return {"name": state, "count": counts.get(state, 0), "link": link}

    strangers = sorted(set(counts) - {*table.states, *table.terminal})
    return {
        "name": name,
        "label": body_label(name),
        "picture": reverse("admin:supervision_pointer_pictures", args=[name]),
        "mermaid": diagrams.mermaid(graph_of(table, counts=counts)),
        "rows": [row(state) for state in (*table.states, *table.terminal, *strangers)],
        "link": f"{everyone}?{urlencode({'pipeline': name})}",
        "total": sum(counts.values()),
    }

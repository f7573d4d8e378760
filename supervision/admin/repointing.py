"""Re-pointing in the control room: of one pointer on its page, or of many that were chosen in the list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.admin.access import may, visible_pointers
from supervision.admin.actions import LONGEST_NOTE, note_in
from supervision.engines import repoint
from supervision.engines.pipelines import pipeline
from supervision.engines.pipelines.errors import UnknownPipeline
from supervision.engines.pipelines.models import Pointer
from supervision.errors import SupervisionError

if TYPE_CHECKING:
    from supervision.admin.pipelines import PointerAdmin


class Outcome:
    """What became of one pointer, in words."""

    def __init__(self, is_done: bool, text: str) -> None:
        self.is_done, self.text = is_done, text


def one(pointer: Pointer, request: HttpRequest) -> Outcome:
    """Moves it as the posted form says, if the person may; compared with the generation that they saw."""
    state, generation = request.POST.get("state", ""), _generation(request, pointer.pk)
    if not may(request.user, "view_pointer", pointer) or not may(request.user, "repoint_pointer", pointer):
        return Outcome(False, _("%(pointer)s: you may not move it.") % {"pointer": pointer})
    if generation is None:
        text = _("%(pointer)s: unchanged, for the page did not say what it showed.")
        return Outcome(False, text % {"pointer": pointer})
    try:
        moved = repoint(pointer.pipeline, pointer.subject, state, by=request.user, note=note_in(request),
                        expected_generation=generation)  # fmt: skip
    except SupervisionError as refusal:
        return Outcome(False, f"{pointer}: {refusal}")
    return Outcome(True, _("%(pointer)s is at %(state)s now.") % {"pointer": moved, "state": moved.state})


@admin.action(description=gettext_lazy("Re-point"), permissions=["repoint"])
def repoint_chosen(model_admin: PointerAdmin, request: HttpRequest, queryset: Any) -> HttpResponse | None:
    """Asks where to, then moves each of the chosen; one that has moved meanwhile is reported and left as it is."""
    pointers = _chosen(request)
    names = {pointer.pipeline for pointer in pointers}
    if request.POST.get("select_across") == "1" or len(names) != 1:
        text = _("Choose pointers of one pipeline on this page: what you haven't seen can't be compared.")
        model_admin.message_user(request, text, messages.ERROR)
        return None
    try:
        table = pipeline.get(names.pop())
    except UnknownPipeline as unknown:
        model_admin.message_user(request, str(unknown), messages.ERROR)
        return None
    if "confirmed" in request.POST:
        for outcome in [one(pointer, request) for pointer in pointers]:
            model_admin.message_user(request, outcome.text, messages.SUCCESS if outcome.is_done else messages.WARNING)
        return HttpResponseRedirect(request.get_full_path())
    rows = [{"pointer": pointer, "generation": _generation(request, pointer.pk)} for pointer in pointers]
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("Re-point"),
        "opts": model_admin.opts,
        "media": model_admin.media,
        "rows": rows,
        "targets": [*table.states, *table.terminal],
        "longest_note": LONGEST_NOTE,
        "action_checkbox_name": helpers.ACTION_CHECKBOX_NAME,
    }
    return TemplateResponse(request, "supervision/admin/repoint.html", context)


def _chosen(request: HttpRequest) -> list[Pointer]:
    """The visible ones among the rows of the form, whether or not they are still in the filter."""
    raw = [each for each in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME) if each.isascii() and each.isdecimal()]
    keys = [int(each) for each in raw if len(each) < 19]
    return list(visible_pointers(request.user).filter(pk__in=keys).order_by("pk"))


def _generation(request: HttpRequest, pk: int) -> int | None:
    raw = request.POST.get(f"generation-{pk}", "")
    return int(raw) if raw.isascii() and raw.isdecimal() and len(raw) < 19 else None

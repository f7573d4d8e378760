"""The list's actions: a page to confirm on, with a note, then the verb on each row with the generation it showed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision.admin.access import visible_tasks
from supervision.admin.verbs import VERBS, Outcome, Verb, carry_out
from supervision.kernel.models import Task

if TYPE_CHECKING:
    from supervision.admin.tasks import TaskAdmin

_REPORTED = 20
"""So many rows are reported by name; of more, the number."""
LONGEST_NOTE = 2000

Chosen = list[tuple[UUID, int | None]]


def list_actions() -> list[Callable[..., Any]]:
    """One action of the list for each verb, with the verb's own permission."""
    return [_action(verb) for verb in VERBS.values()]


def _action(verb: Verb) -> Callable[..., Any]:
    def act(model_admin: TaskAdmin, request: HttpRequest, queryset: Any) -> HttpResponse | None:
        # Not the queryset: a row that has left the filter meanwhile must be reported, not dropped silently.
        if request.POST.get("select_across") == "1":
            model_admin.message_user(
                request,
                _("Select rows on this page: what you haven't seen can't be compared with what it is now."),
                messages.ERROR,
            )
            return None
        chosen = chosen_in(request)
        if "confirmed" not in request.POST:
            return _confirmation(model_admin, request, verb, chosen)
        outcomes = carry_out(verb, chosen, by=request.user, note=note_in(request))
        report(model_admin, request, outcomes)
        return HttpResponseRedirect(request.get_full_path())

    act.__name__ = act.__qualname__ = verb.name
    declared: Callable[..., Any] = admin.action(act, description=verb.label, permissions=[verb.grant])
    return declared


def chosen_in(request: HttpRequest) -> Chosen:
    """The rows of the form, each with the generation that the list showed."""
    return [(UUID(pk), generation_in(request, UUID(pk))) for pk in request.POST.getlist(helpers.ACTION_CHECKBOX_NAME)]


def generation_in(request: HttpRequest, pk: UUID) -> int | None:
    raw = request.POST.get(f"generation-{pk}", "")
    return int(raw) if raw.isascii() and raw.isdecimal() and len(raw) < 19 else None


def note_in(request: HttpRequest) -> str:
    return request.POST.get("note", "").replace("\x00", "").strip()[:LONGEST_NOTE]


def _confirmation(model_admin: TaskAdmin, request: HttpRequest, verb: Verb, chosen: Chosen) -> HttpResponse:
    generations = dict(chosen)
    tasks = visible_tasks(request.user).with_clock().select_related("heartbeat").filter(pk__in=generations)
    rows = [
        {
            "task": task,
            "generation": generations[task.pk],
            "is_stale": task.generation != generations[task.pk],
            "is_possible": verb.is_possible(task),
        }
        for task in tasks
    ]
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("%(verb)s: are you sure?") % {"verb": verb.label},
        "opts": model_admin.opts,
        "verb": verb,
        "rows": rows,
        "missing": len(generations) - len(rows),
        "longest_note": LONGEST_NOTE,
        "action_checkbox_name": helpers.ACTION_CHECKBOX_NAME,
        "media": model_admin.media,
    }
    return TemplateResponse(request, "supervision/admin/confirm.html", context)


def report(model_admin: admin.ModelAdmin[Any], request: HttpRequest, outcomes: Sequence[Outcome]) -> None:
    """Tells what was done and, row by row, what wasn't."""
    done = [each for each in outcomes if each.is_done]
    left = [each for each in outcomes if not each.is_done]
    if len(done) == 1:
        model_admin.message_user(request, done[0].text, messages.SUCCESS)
    elif done:
        text = ngettext("Done: %(n)s task.", "Done: %(n)s tasks.", len(done)) % {"n": len(done)}
        model_admin.message_user(request, text, messages.SUCCESS)
    for outcome in left[:_REPORTED]:
        model_admin.message_user(request, outcome.text, messages.WARNING)
    if len(left) > _REPORTED:
        text = _("%(n)s more are unchanged.") % {"n": len(left) - _REPORTED}
        model_admin.message_user(request, text, messages.WARNING)


def act_on_one(model_admin: TaskAdmin, request: HttpRequest, task: Task, verb: Verb) -> HttpResponse:
    """A button of the task's page: its form is the confirmation."""
    options: dict[str, Any] = {}
    if verb.name == "retry":
        step = request.POST.get("from_step", "").replace("\x00", "").strip()[:400]
        options = {"from_scratch": request.POST.get("from_scratch") == "yes", "from_step": step}
    chosen = [(task.pk, generation_in(request, task.pk))]
    outcomes = carry_out(verb, chosen, by=request.user, note=note_in(request), **options)
    report(model_admin, request, outcomes)
    result = outcomes[0].result if outcomes[0].is_done and outcomes[0].result is not None else task
    return HttpResponseRedirect(reverse("admin:supervision_task_change", args=[result.pk]))

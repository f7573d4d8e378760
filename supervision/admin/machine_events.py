"""What people see of a machine's subject, and the page on which they send it an event."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.loader import render_to_string
from django.template.response import TemplateResponse
from django.utils.translation import gettext as _

from supervision import diagrams
from supervision.admin.actions import LONGEST_NOTE, note_in
from supervision.engines.forms import dump
from supervision.engines.machines import Machine, Transition, histories
from supervision.engines.machines.models import Standing
from supervision.engines.machines.picture import graph_of
from supervision.errors import SupervisionError
from supervision.kernel import files
from supervision.showing.texts import excerpt

_SHOWN = 25
BEFORE = "events_before"


@dataclass(frozen=True)
class Place:
    """A subject on a page: what it is called there, what is offered, and where its pages are."""

    machine: Machine
    key: str
    """As the history knows it."""
    label: str
    state: str
    allow: Callable[[Transition], bool]
    """What this page asks of a transition, besides its own permission."""
    page: str
    send: str
    picture: str

    def offered(self, user: Any) -> dict[str, Transition]:
        """What the person may send: event -> the transition that it would take."""
        found = self.machine.offered(self.key, user)
        return {event: each for event, each in found.items() if self.allow(each)}

    def address_of(self, event: str) -> str:
        return f"{self.send}?{urlencode({'machine': self.machine.name, 'event': event})}"


def panel(request: HttpRequest, place: Place) -> str:
    """State, buttons, timers, history and picture, as HTML."""
    machine, standing = place.machine, place.machine.standing(place.key)
    before = request.GET.get(f"{BEFORE}-{machine.name}", "")
    found = histories.page(machine.name, place.key, before=_number(before), limit=_SHOWN)
    context = {
        "place": place,
        "machine": machine,
        "state": state_label(machine, place.state),
        "standing": standing,
        "buttons": [
            {"text": each.text, "url": place.address_of(event)} for event, each in place.offered(request.user).items()
        ],
        "timers": standing.timers.select_related("task").order_by("due_at", "event") if standing else (),
        "events": shown(machine, found.events),
        "total": found.total_count,
        "older": found.older and f"?{urlencode({f'{BEFORE}-{machine.name}': found.older})}",
        "is_newest": not before,
        "now": standing.db_now if standing else None,
        "can_render": diagrams.can_render(),
        "mermaid": "" if diagrams.can_render() else diagrams.mermaid(graph_of(machine.table, current=place.state)),
    }
    return render_to_string("supervision/admin/machine_panel.html", context, request)


def shown(machine: Machine | None, events: list[Any]) -> list[dict[str, Any]]:
    """Entries of a history with the words for them."""
    return [
        {
            "entry": entry,
            "source": state_label(machine, entry.source),
            "target": state_label(machine, entry.target),
            "payload": None if entry.payload is None else excerpt(entry.payload, 2_000),
        }
        for entry in events
    ]


def state_label(machine: Machine | None, state: str) -> str:
    """The choice's words, where the field has choices."""
    choices = dict(machine.field.flatchoices) if machine is not None and machine.field is not None else {}
    return str(choices.get(state, state))


def event_view(model_admin: admin.ModelAdmin[Any], request: HttpRequest, place: Place, subject: Any) -> HttpResponse:
    """A page to send the event on, with its form; or the event itself, compared with the generation that was shown."""
    event = request.GET.get("event", "")
    transition = place.offered(request.user).get(event)
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    if transition is None:
        said = _("“%(event)s” can't be sent now: %(subject)s is “%(state)s”.")
        values = {"event": event[:100], "subject": place.label, "state": state_label(place.machine, place.state)}
        model_admin.message_user(request, said % values, messages.WARNING)
        return HttpResponseRedirect(place.page)
    form = _form(transition, request)
    if request.method == "POST" and form.is_valid():
        _send(model_admin, request, place, subject, event, transition, form)
        return HttpResponseRedirect(place.page)
    standing: Standing | None = place.machine.standing(place.key)
    context = {
        **model_admin.admin_site.each_context(request),
        "title": _("%(event)s: %(subject)s") % {"event": transition.text, "subject": place.label},
        "opts": model_admin.opts,
        "media": model_admin.media + form.media,
        "place": place,
        "event": transition.text,
        "form": form,
        "source": state_label(place.machine, place.state),
        "targets": [
            state_label(place.machine, state)
            for state in dict.fromkeys(each.target for each in place.machine.table.rows[place.state, event])
        ],
        "is_self": transition.target == place.state,
        "generation": request.POST.get("generation") or (standing.generation if standing else 0),
        "longest_note": LONGEST_NOTE,
        "action": place.address_of(event),
    }
    return TemplateResponse(request, "supervision/admin/machine_event.html", context)


def _send(model_admin: admin.ModelAdmin[Any], request: HttpRequest, place: Place, subject: Any, event: str,
          transition: Transition, form: forms.Form) -> None:  # fmt: skip
    generation = _number(request.POST.get("generation", ""))
    if generation is None:
        model_admin.message_user(request, _("Nothing was sent: the page did not say what it showed."), messages.WARNING)
        return
    try:
        with files.kept_on_success() as stored:

            def keep(upload: Any) -> Any:
                stored.append(files.store(upload))
                return stored[-1]

            payload = dump(form.cleaned_data, keep) if transition.form is not None else None
            entry = place.machine.send(subject, event, actor=request.user, payload=payload, note=note_in(request),
                                       expected_generation=generation, allow=place.allow)  # fmt: skip
    except SupervisionError as refusal:
        model_admin.message_user(request, str(refusal), messages.WARNING)
        return
    text = _("%(event)s: %(subject)s is “%(state)s” now.")
    values = {"event": transition.text, "subject": place.label, "state": state_label(place.machine, entry.target)}
    model_admin.message_user(request, text % values, messages.SUCCESS)


def _form(transition: Transition, request: HttpRequest) -> forms.Form:
    kind = transition.form or forms.Form
    return kind(request.POST, request.FILES) if request.method == "POST" else kind()


def _number(raw: str) -> int | None:
    return int(raw) if raw.isascii() and raw.isdecimal() and len(raw) < 19 else None

"""Sending a signal by hand: what the outside world would have told the task, and didn't."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.errors import SupervisionError
from supervision.kernel import signals_in
from supervision.kernel.models import Task
from supervision.kernel.states import Reason

if TYPE_CHECKING:
    from supervision.admin.tasks import TaskAdmin


class SignalForm(forms.Form):
    """A name and, if need be, what it carries."""

    name = forms.CharField(label=gettext_lazy("Signal"), max_length=200)
    payload = forms.JSONField(
        label=gettext_lazy("Payload, as JSON (optional)"), required=False, widget=forms.Textarea(attrs={"rows": 2})
    )


def form_for(task: Task) -> SignalForm:
    """With the name that the task waits for."""
    word, _colon, name = task.watchdog_stop_reason.partition(":")
    return SignalForm(initial={"name": name if word == Reason.AWAITING_SIGNAL else ""}, prefix="signal")


def send(model_admin: TaskAdmin, request: HttpRequest, task: Task) -> HttpResponse:
    """Sends what the form says, through the kernel's verb, and tells what came of it."""
    form = SignalForm(request.POST, prefix="signal")
    if form.is_valid():
        name = form.cleaned_data["name"]
        try:
            signals_in.send(task.pk, name, form.cleaned_data["payload"], by=request.user)
        except SupervisionError as refusal:
            model_admin.message_user(request, str(refusal), messages.WARNING)
        else:
            model_admin.message_user(request, _("The signal “%(name)s” was sent.") % {"name": name}, messages.SUCCESS)
    else:
        said = " ".join(str(error) for errors in form.errors.values() for error in errors)
        model_admin.message_user(request, _("Nothing was sent: %(why)s") % {"why": said}, messages.WARNING)
    return HttpResponseRedirect(reverse("admin:supervision_task_change", args=[task.pk]))

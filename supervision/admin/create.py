"""Starting a task: choose a body, fill in its form. Only registered bodies that are meant for a form."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from django import forms
from django.contrib import messages
from django.contrib.contenttypes.models import ContentType
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.core.files import File
from django.db import models
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.engines import registry, start
from supervision.engines.forms import ArgumentsForm, dump
from supervision.engines.registry import Body
from supervision.errors import SupervisionError
from supervision.kernel import files, holds
from supervision.kernel.files import StoredFile
from supervision.showing.tasks import task_name

if TYPE_CHECKING:
    from supervision.admin.tasks import TaskAdmin


class OptionsForm(forms.Form):
    """What every task may be given beside its arguments."""

    subject = forms.CharField(
        label=gettext_lazy("What it is about"), required=False, max_length=200,
        help_text=gettext_lazy("Shown in lists, found by the search. Empty: the name of the uploaded file, if any."),
    )  # fmt: skip
    start_at = forms.DateTimeField(
        label=gettext_lazy("Start at"), required=False, help_text=gettext_lazy("Empty: now."),
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}, format="%Y-%m-%dT%H:%M"),
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M"],
    )  # fmt: skip
    expires_hours = forms.IntegerField(
        label=gettext_lazy("Expires after hours"), required=False, min_value=1, max_value=24 * 366 * 5
    )
    priority = forms.IntegerField(
        label=gettext_lazy("Priority"), required=False, min_value=0, max_value=9,
        help_text=gettext_lazy("0 runs first, 9 last. Empty: the body’s own."),
    )  # fmt: skip
    note = forms.CharField(
        label=gettext_lazy("Note, for the log"), required=False, max_length=2000,
        widget=forms.Textarea(attrs={"rows": 2}),
    )  # fmt: skip


def view(model_admin: TaskAdmin, request: HttpRequest) -> HttpResponse:
    """The list of bodies; with ``?body=``, its form; by POST, the task. The caller has checked the permission."""
    if request.method not in ("GET", "HEAD", "POST"):
        return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
    subject = _subject(model_admin, request)
    name = request.GET.get("body", "")
    offered = {body.name: body for body in registry.bodies() if body.form is not None}
    if not name:
        return _choose(model_admin, request, list(offered.values()), subject)
    if name not in offered:
        raise Http404(_("No such body can be started here."))
    return _form(model_admin, request, offered[name], subject)


def _choose(model_admin: TaskAdmin, request: HttpRequest, bodies: list[Body], subject: Any) -> HttpResponse:
    standing = holds.standing()
    rows = [
        {
            "body": body,
            "summary": (body.function.__doc__ or "").strip().partition("\n")[0],
            "hold": standing.get(("body", body.name)) or standing.get(("queue", body.queue)),
        }
        for body in bodies
    ]
    context = {"title": _("Start a task"), "rows": rows, "subject": subject, "subject_query": _subject_query(subject)}
    return TemplateResponse(request, "supervision/admin/choose.html", _context(model_admin, request, context))


def _form(model_admin: TaskAdmin, request: HttpRequest, body: Body, subject: Any) -> HttpResponse:
    assert body.form is not None  # noqa: S101 - the caller offers no other
    posted = request.method == "POST"
    data, uploads = (request.POST, request.FILES) if posted else (None, None)
    form = body.form(data, uploads, prefix="a", initial=_initial(body, subject))
    if isinstance(form, ArgumentsForm):
        form.for_user(request.user)
    options = OptionsForm(data, prefix="o")
    if posted and form.is_valid() & options.is_valid():
        task = _start(request, body, form, options, subject)
        if task is not None:
            text = _("Started: %(task)s.") % {"task": task_name(task)}
            model_admin.message_user(request, text, messages.SUCCESS)
            return HttpResponseRedirect(reverse("admin:supervision_task_change", args=[task.pk]))
    once = request.POST.get("once", "") if posted else ""
    context = {
        "title": body.label,
        "body": body,
        "summary": (body.function.__doc__ or "").strip(),
        "form": form,
        "options": options,
        "options_open": bool(options.errors),
        "subject": subject,
        "once": once[:40] or uuid4().hex,
    }
    response = TemplateResponse(request, "supervision/admin/start.html", _context(model_admin, request, context))
    response.status_code = 422 if posted else 200
    return response


def _start(request: HttpRequest, body: Body, form: forms.Form, options: forms.Form, subject: Any) -> Any:
    """The new task, or None with what stood against it in the form's errors. Uploads of a refused one are removed."""
    chosen = options.cleaned_data
    hours = chosen["expires_hours"]
    once = request.POST.get("once", "")[:40]
    try:
        with files.kept_on_success() as stored:

            def keep(upload: File[Any]) -> StoredFile:
                stored.append(files.store(upload))
                return stored[-1]

            arguments = {name: dump(value, keep) for name, value in _given(form).items()}
            return start(
                body.name,
                arguments,
                owner=request.user,
                by=request.user,
                subject=_subject_text(chosen["subject"], subject, stored),
                subject_object=subject,
                start_at=chosen["start_at"],
                expires_after=timedelta(hours=hours) if hours else None,
                priority=chosen["priority"],
                note=chosen["note"],
                idempotency_key=f"admin:{once}" if once else "",  # a double click starts one
            )
    except SupervisionError as refusal:
        form.add_error(None, str(refusal))
        return None


def _subject_text(typed: str, subject: Any, stored: list[StoredFile]) -> str:
    return typed or ("" if subject is not None or not stored else str(stored[0].name))


def _given(form: forms.Form) -> dict[str, Any]:
    """The cleaned values, without optional fields left empty: the code's own defaults are for those."""
    return {
        name: value
        for name, value in form.cleaned_data.items()
        if form.fields[name].required or isinstance(value, bool) or value not in (None, "", [], {})
    }


def _initial(body: Body, subject: Any) -> dict[str, Any]:
    """The subject fills the parameter that takes a row of its model."""
    if subject is None or body.form is None:
        return {}
    fields = body.form.base_fields.items()
    return {
        name: subject.pk
        for name, field in fields
        if isinstance(field, forms.ModelChoiceField)
        and field.queryset is not None
        and isinstance(subject, field.queryset.model)
    }


def _subject(model_admin: TaskAdmin, request: HttpRequest) -> models.Model | None:
    """The row that the task is about, if the address names one that this person may see in admin."""
    label, key = request.GET.get("subject_type", ""), request.GET.get("subject", "")
    if not label or not key:
        return None
    app_label, _dot, model_name = label.partition(".")
    try:
        model = ContentType.objects.get_by_natural_key(app_label, model_name).model_class()
    except ContentType.DoesNotExist:
        raise Http404 from None
    subject_admin = model_admin.admin_site._registry.get(model) if model is not None else None
    if model is None or subject_admin is None:
        raise Http404
    try:
        row: models.Model = subject_admin.get_queryset(request).get(pk=key)
    except (ObjectDoesNotExist, ValidationError, ValueError):
        raise Http404 from None
    if not subject_admin.has_view_permission(request, row):
        raise Http404
    return row


def _subject_query(subject: models.Model | None) -> str:
    return "" if subject is None else f"&subject_type={subject._meta.label_lower}&subject={subject.pk}"


def _context(model_admin: TaskAdmin, request: HttpRequest, context: dict[str, Any]) -> dict[str, Any]:
    site = model_admin.admin_site.each_context(request)
    return {**site, "opts": model_admin.opts, "media": model_admin.media, **context}

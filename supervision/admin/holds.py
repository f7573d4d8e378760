"""Holds: the incident switch, with its history. Held and released through the kernel's verbs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseNotAllowed, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import URLPattern, path, reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.admin.access import may
from supervision.admin.actions import LONGEST_NOTE, note_in
from supervision.admin.closed import ClosedAdmin
from supervision.conf import settings
from supervision.engines import registry
from supervision.errors import SupervisionError
from supervision.kernel import holds
from supervision.kernel.clock import Now
from supervision.kernel.holds import Hold

_HISTORY = 50


class HoldForm(forms.Form):
    """What to stop, and why: a hold without a reason is a riddle at night."""

    what = forms.ChoiceField(label=gettext_lazy("Hold"))
    note = forms.CharField(
        label=gettext_lazy("Why"), max_length=LONGEST_NOTE, widget=forms.Textarea(attrs={"rows": 2}),
        help_text=gettext_lazy("Everybody sees it beside what is held."),
    )  # fmt: skip

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        bodies = [(f"body:{body.name}", f"{body.label} ({body.name})") for body in registry.bodies()]
        queues = sorted({"default", *(body.queue for body in registry.bodies())})
        field = self.fields["what"]
        assert isinstance(field, forms.ChoiceField)  # noqa: S101
        field.choices = [
            ("", "---------"),
            (_("a queue"), [(f"queue:{name}", name) for name in queues]),
            (_("a body"), bodies),
        ]


class HoldAdmin(ClosedAdmin):
    """One page: what stands, with its release; what stood; and the form to hold something."""

    actions = None

    def get_urls(self) -> list[URLPattern]:
        release = self.admin_site.admin_view(self.release_view)
        return [path("<uuid:pk>/release/", release, name="supervision_hold_release"), *super().get_urls()]

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        if request.method == "POST":
            return self._hold(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD", "POST"])
        return self._page(request, HoldForm())

    def release_view(self, request: HttpRequest, pk: UUID) -> HttpResponse:
        if not may(request.user, "hold_work"):
            raise PermissionDenied
        if request.method != "POST":
            return HttpResponseNotAllowed(["POST"])
        try:
            hold = holds.release(pk, by=request.user, note=note_in(request))
        except SupervisionError as refusal:
            self.message_user(request, str(refusal), messages.ERROR)
        else:
            self.message_user(request, _("Released: %(hold)s.") % {"hold": hold}, messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:supervision_hold_changelist"))

    def _hold(self, request: HttpRequest) -> HttpResponse:
        if not may(request.user, "hold_work"):
            raise PermissionDenied
        form = HoldForm(request.POST)
        if not form.is_valid():
            return self._page(request, form, status=422)
        kind, _colon, name = form.cleaned_data["what"].partition(":")
        try:
            hold = holds.hold(kind, name, by=request.user, note=form.cleaned_data["note"])
        except SupervisionError as refusal:
            self.message_user(request, str(refusal), messages.ERROR)
        else:
            text = _("On hold: %(hold)s. What runs goes on to its end; nothing more is taken.") % {"hold": hold}
            self.message_user(request, text, messages.SUCCESS)
        return HttpResponseRedirect(reverse("admin:supervision_hold_changelist"))

    def _page(self, request: HttpRequest, form: HoldForm, status: int = 200) -> HttpResponse:
        rows = list(Hold.objects.using(settings.DATABASE).annotate(db_now=Now()).order_by("-id")[:_HISTORY])
        context = {
            **self.admin_site.each_context(request),
            "title": _("Holds"),
            "opts": self.opts,
            "media": self.media,
            "standing": [row for row in rows if row.released_at is None],
            "released": [row for row in rows if row.released_at is not None],
            "form": form if may(request.user, "hold_work") else None,
            "longest_note": LONGEST_NOTE,
        }
        return TemplateResponse(request, "supervision/admin/holds.html", context, status=status)

    # --- permissions

    def has_view_permission(self, request: HttpRequest, obj: Hold | None = None) -> bool:
        user = request.user
        return may(user, "view_hold") or may(user, "hold_work") or may(user, "view_task")

    def has_module_permission(self, request: HttpRequest) -> bool:
        return self.has_view_permission(request)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> Any:
        if not self.has_view_permission(request):
            raise PermissionDenied
        raise Http404

    def history_view(self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None) -> Any:
        raise PermissionDenied

"""The columns of the task list. Made anew for each request: each one knows who looks, and none asks anything a row."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.contrib.contenttypes.models import ContentType
from django.http import HttpRequest
from django.urls import NoReverseMatch, reverse
from django.utils.functional import cached_property
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision import wording
from supervision.kernel import holds
from supervision.kernel.holds import Hold
from supervision.kernel.models import Task
from supervision.kernel.states import State
from supervision.showing.tasks import (
    beat_of,
    body_label,
    held_by,
    is_beating,
    moment,
    owner_name,
    progress_bar,
    shortened,
)
from supervision.signs import shape, sign

_LONG = 120


class Columns:
    """What the list shows of a task, for one request."""

    def __init__(self, request: HttpRequest, site: admin.AdminSite) -> None:
        self._request = request
        self._site = site
        self._linkable: dict[int, str] = {}

    def all(self) -> tuple[Any, ...]:
        return (self.task, self.state, self.progress, self.owner)

    @admin.display(description=gettext_lazy("task"))
    def task(self, task: Task) -> SafeString:
        """What it is and what it is about; the subject links to its own page."""
        return format_html(
            '<a class="sv-body" href="{}" title="{}">{}</a> <span class="sv-id">{}</span>'
            '<span class="sv-line">{}</span>',
            reverse("admin:supervision_task_change", args=[task.pk]), task.body, body_label(task.body),
            str(task.pk)[-8:], subject_link(task, self._request, self._site, self._linkable),
        )  # fmt: skip

    @admin.display(description=gettext_lazy("state and reason"))
    def state(self, task: Task) -> SafeString:
        """With the generation that this list shows, which an action on the row brings back."""
        return format_html(
            '{} {}<span class="sv-line">{}</span><input type="hidden" name="generation-{}" value="{}">',
            sign(wording.situation(task)), self._flags(task), self._why(task), task.pk, task.generation,
        )  # fmt: skip

    @admin.display(description=gettext_lazy("progress and worker"))
    def progress(self, task: Task) -> Any:
        return format_html("{}{}", progress_bar(task), self._driver(task))

    @admin.display(description=gettext_lazy("created"))
    def owner(self, task: Task) -> SafeString:
        """When, and for whom."""
        return format_html(
            '{}<span class="sv-line"><bdi>{}</bdi></span>', moment(task.created_at, task.db_now), owner_name(task)
        )

    def _why(self, task: Task) -> Any:
        """The reason in words, raw on hover; of a failure what went wrong."""
        if task.current_state == State.FAILED and task.failure:
            return format_html('<span title="{}">{}</span>', task.watchdog_stop_reason, shortened(task.failure, _LONG))
        if not task.watchdog_stop_reason:
            return ""
        words = shortened(wording.reason(task.watchdog_stop_reason), _LONG)
        return format_html('<span title="{}">{}</span>', shortened(task.watchdog_stop_reason, 500), words)

    def _driver(self, task: Task) -> Any:
        beat = beat_of(task)
        if beat is None:
            return ""
        if is_beating(task):
            return format_html('<span class="sv-worker sv-line">{}</span>', beat.worker)
        return format_html('<span class="sv-worker sv-line sv-silent" title="{}">{} {}</span>',
                           _("last heard of %(when)s") % {"when": wording.moment(beat.beat_at, task.db_now)},
                           shape("stuck"), _("%(worker)s (silent)") % {"worker": beat.worker})  # fmt: skip

    @cached_property
    def _holds(self) -> dict[tuple[str, str], Hold]:
        return holds.standing()

    def _flags(self, task: Task) -> Any:
        """What a glance must not miss beside the state: on hold, overdue, due now."""
        flags = []
        if held_by(task, self._holds) is not None:
            flags.append(_("on hold"))
        if task.is_overdue and not task.is_terminal:
            flags.append(_("overdue"))
        if task.wake_at is not None and task.wake_at > task.db_now:
            flags.append(_("due %(when)s") % {"when": wording.moment(task.wake_at, task.db_now)})
        elif task.wake_at is not None and not task.is_held:
            flags.append(_("due"))
        return format_html(' <span class="sv-flags">{}</span>', ", ".join(flags)) if flags else ""


def subject_link(task: Task, request: HttpRequest, site: admin.AdminSite, known: dict[int, str] | None = None) -> Any:
    """The subject's text, linked to its page in admin for those who may view it there."""
    text = format_html("<bdi>{}</bdi>", shortened(task.subject, 80)) if task.subject else ""
    if task.subject_type_id is None or not task.subject_pk:
        return text
    known = {} if known is None else known
    if task.subject_type_id not in known:
        known[task.subject_type_id] = _change_page(task.subject_type_id, request, site)
    name = known[task.subject_type_id]
    if not name:
        return text
    return format_html('<a href="{}">{}</a>', reverse(name, args=[quote(task.subject_pk)]), text or task.subject_pk)


def _change_page(type_id: int, request: HttpRequest, site: admin.AdminSite) -> str:
    """The name of the model's change page on this site; empty if there is none, or not for this person."""
    model = ContentType.objects.get_for_id(type_id).model_class()
    model_admin = site._registry.get(model) if model is not None else None
    if model is None or model_admin is None or not model_admin.has_view_permission(request):
        return ""
    name = f"{site.name}:{model._meta.app_label}_{model._meta.model_name}_change"
    try:
        reverse(name, args=["0"])
    except NoReverseMatch:
        return ""
    return name

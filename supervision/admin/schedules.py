"""Schedules: what starts by the clock, when next, and a simple form for another one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from supervision.engines import registry
from supervision.errors import SupervisionError
from supervision.worker import schedules
from supervision.worker.schedules import MISSED, OVERLAPS, SupervisedSchedule, schedule


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]
    """What, with which arguments, and either how often or by which cron expression."""

    name = forms.CharField(max_length=100, label=gettext_lazy("Name"))
    body = forms.ChoiceField(label=gettext_lazy("Body"))
    arguments = forms.JSONField(label=gettext_lazy("Arguments"), required=False, initial=dict,
                                help_text=gettext_lazy('As JSON, for example {"customer": 7}.'))  # fmt: skip
    every = forms.IntegerField(label=gettext_lazy("Every … minutes"), required=False, min_value=1, max_value=32_767)
    expression = forms.CharField(label=gettext_lazy("Or by cron"), required=False,
                           help_text=gettext_lazy("Five fields, project's time zone: 30 6 * * 1-5."))  # fmt: skip
    overlap = forms.ChoiceField(label=gettext_lazy("If the last one still lives"), choices=[*OVERLAPS.items()])
    missed = forms.ChoiceField(label=gettext_lazy("Times that were missed"), choices=[*MISSED.items()], initial="one",
                               help_text=gettext_lazy("While no cluster ran, or while one waited."))  # fmt: skip

    class Meta:
        model = SupervisedSchedule
        fields = ("name",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        body = self.fields["body"]
        assert isinstance(body, forms.ChoiceField)  # noqa: S101
        body.choices = [(each.name, f"{each.label} ({each.name})") for each in registry.bodies()]
        if self.instance.pk:
            plan = self.instance.plan
            self.initial.update({key: plan.get(key) for key in ("body", "arguments", "overlap", "missed")})
            self.initial.update(every=self.instance.minutes, expression=self.instance.cron)
            self.fields["name"].disabled = True

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if not self.instance.pk and SupervisedSchedule.objects.filter(name=name).exists():
            raise ValidationError(_("There is a schedule of that name already."))
        return name

    def clean(self) -> dict[str, Any]:
        """Saves nothing: tries what ``schedule`` will check, so that its refusal stands in the form."""
        data: dict[str, Any] = super().clean() or {}
        if not self.errors:
            try:
                _apply(data, save=False)
            except SupervisionError as refusal:
                raise ValidationError(str(refusal)) from None
        return data


class ScheduleAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """The list with the next run of each; added, changed and deleted with Django's own permissions."""

    form = ScheduleForm
    list_display = ("name", "next_time", "stands", "what", "rhythm", "if_busy", "if_missed")
    ordering = ("next_run",)
    search_fields = ("name",)
    actions = ("pause", "resume")

    @admin.display(description=gettext_lazy("starts"))
    def what(self, row: SupervisedSchedule) -> str:
        return str(row.plan.get("body", "?"))

    @admin.display(description=gettext_lazy("when"))
    def rhythm(self, row: SupervisedSchedule) -> str:
        return row.rhythm

    @admin.display(description=gettext_lazy("next run"), ordering="next_run")
    def next_time(self, row: SupervisedSchedule) -> Any:
        return None if row.is_paused else timezone.localtime(row.next_run, timezone.get_default_timezone())

    @admin.display(description=gettext_lazy("stands"))
    def stands(self, row: SupervisedSchedule) -> str:
        situation = row.situation()
        if not situation or row.is_paused or row.waits_for() is None:
            return situation or "-"
        # by way of the list, which shows what this person may see
        tasks = f"{reverse('admin:supervision_task_changelist')}?{urlencode({'q': row.name or ''})}"
        return format_html(_("waits until {} has ended"), format_html('<a href="{}">{}</a>', tasks, _("the last one")))

    @admin.display(description=gettext_lazy("if the last one lives"))
    def if_busy(self, row: SupervisedSchedule) -> str:
        return str(OVERLAPS.get(row.plan.get("overlap", ""), "?"))

    @admin.display(description=gettext_lazy("if missed"))
    def if_missed(self, row: SupervisedSchedule) -> str:
        return str(MISSED.get(row.plan.get("missed", ""), "?"))

    @admin.action(description=gettext_lazy("Pause"), permissions=["change"])
    def pause(self, request: HttpRequest, rows: QuerySet[SupervisedSchedule]) -> None:
        for row in rows:
            schedules.pause(str(row.name))
        self.message_user(request, _("Paused. What they have started goes on."))

    @admin.action(description=gettext_lazy("Resume"), permissions=["change"])
    def resume(self, request: HttpRequest, rows: QuerySet[SupervisedSchedule]) -> None:
        for row in rows:
            schedules.resume(str(row.name))
        self.message_user(request, _("Resumed, with the next time of each from now on."))

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        obj.pk = _apply(form.cleaned_data).pk


def _apply(data: dict[str, Any], *, save: bool = True) -> SupervisedSchedule:
    every = timedelta(minutes=data["every"]) if data.get("every") else None
    return schedule(
        data["name"], data["body"], data.get("arguments") or {}, every=every, cron=data.get("expression") or "",
        overlap=data["overlap"], missed=data["missed"], save=save,
    )  # fmt: skip

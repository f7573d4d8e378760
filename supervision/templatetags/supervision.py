"""What templates say of tasks: signs, words, moments."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django import template

from supervision import signs, wording
from supervision.showing import tasks

register = template.Library()


@register.simple_tag
def sign_of(task: Any) -> Any:
    """The task's situation as a pill."""
    return signs.sign(wording.situation(task))


@register.simple_tag
def shape(name: str) -> Any:
    """A bare shape, beside a word."""
    return signs.shape(name)


@register.filter
def reason_words(raw: str) -> str:
    """A stop reason in words."""
    return wording.reason(raw) if raw else ""


@register.simple_tag
def moment(at: datetime | None, now: datetime) -> Any:
    """A time as people say it, exact on hover."""
    return tasks.moment(at, now)


@register.filter
def task_name(task: Any) -> str:
    """What it does, and the end of its id."""
    return tasks.task_name(task)


@register.filter
def owner_name(task: Any) -> str:
    """Whose it is."""
    return tasks.owner_name(task)


@register.filter
def body_label(name: str) -> str:
    """A body as people know it."""
    return tasks.body_label(name)


@register.simple_tag
def progress(task: Any) -> Any:
    """The progress bar."""
    return tasks.progress_bar(task)


# The rest is the admin's. Imported when used: a host without django.contrib.admin loads this library, too.


@register.simple_tag
def counted(changelist: Any) -> str:
    """``1,204 tasks`` or ``10,000+ tasks``."""
    from supervision.admin.paging import shown_count  # noqa: PLC0415

    options = changelist.opts
    noun = options.verbose_name if changelist.result_count == 1 else options.verbose_name_plural
    return f"{shown_count(changelist.result_count)} {noun}"


@register.inclusion_tag("supervision/admin/holds_banner.html")
def holds_banner() -> dict[str, Any]:
    """What is on hold, wherever tasks are listed."""
    from supervision.kernel import holds  # noqa: PLC0415

    return {"holds": list(holds.standing().values())}


@register.inclusion_tag("supervision/admin/dashboard.html", takes_context=True)
def supervision_dashboard(context: dict[str, Any]) -> dict[str, Any]:
    """The state of everything, on the app's index."""
    from supervision.admin.dashboard import describe  # noqa: PLC0415

    return describe(context["request"])

"""A task in a few words and signs: its name, owner, worker, progress, and moments on the database's clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.contrib.auth import get_user_model
from django.utils.html import format_html
from django.utils.timezone import localtime
from django.utils.translation import gettext as _

from supervision import wording
from supervision.conf import settings
from supervision.engines import registry
from supervision.errors import UnknownBody
from supervision.kernel.holds import Hold
from supervision.kernel.models import Task
from supervision.kernel.states import State


def held_by(task: Task, standing: dict[tuple[str, str], Hold]) -> Hold | None:
    """The hold that keeps workers from the task, if one does."""
    if task.is_terminal:
        return None
    return standing.get(("body", task.body)) or standing.get(("queue", task.queue))


def beat_of(task: Task) -> Any:
    """The beat row of whoever drives the task now; None if nobody does."""
    beat = getattr(task, "heartbeat", None)
    return beat if beat is not None and task.current_state == State.RUNNING and beat.lease == task.lease else None


def is_beating(task: Task) -> bool:
    """Whether the driver was heard of within the lease time, by the database's clock."""
    beat = beat_of(task)
    return beat is not None and beat.beat_at > task.db_now - timedelta(seconds=settings.LEASE_SECONDS)


def progress_bar(task: Task) -> Any:
    """Done of total as a bar with its numbers; the text alone where the total isn't known."""
    beat = getattr(task, "heartbeat", None)
    if beat is None or (beat.progress_done is None and not beat.progress_text):
        return ""
    text = shortened(beat.progress_text, 80)
    if not beat.progress_total or beat.progress_done is None:
        done = "" if beat.progress_done is None else f"{beat.progress_done:,} "
        return format_html('<span class="sv-progress">{}{}</span>', done, text)
    return format_html(
        '<span class="sv-progress"><progress max="{}" value="{}" aria-label="{}"></progress> <span>{} {}</span></span>',
        beat.progress_total, min(beat.progress_done, beat.progress_total), _("progress"),
        f"{beat.progress_done:,} / {beat.progress_total:,}", text,
    )  # fmt: skip


def moment(at: datetime | None, now: datetime) -> Any:
    """A time as people say it, with the exact one on hover; the page's script keeps it right."""
    if at is None:
        return ""
    exact = localtime(at).isoformat(sep=" ", timespec="seconds")
    return format_html(
        '<time datetime="{}" title="{}" data-relative>{}</time>', at.isoformat(), exact, wording.moment(at, now)
    )


def body_label(name: str) -> str:
    try:
        return registry.get(name).label
    except UnknownBody:
        return name


def task_name(task: Task) -> str:
    """A task as people point at it: what it does, and the end of its id."""
    return f"{body_label(task.body)} {str(task.pk)[-8:]}"


def owner_name(task: Task) -> str:
    """The user's name, also of one who is gone; an organisation as ``owner_ref`` has it."""
    if task.owner is not None:
        return str(task.owner.get_username())
    is_user = task.owner_ref.startswith(f"{get_user_model()._meta.model_name}:")
    return _("%(who)s (deleted)") % {"who": task.owner_ref} if is_user else task.owner_ref


def shortened(text: str, longest: int) -> str:
    return text if len(text) <= longest else text[: longest - 1] + "…"

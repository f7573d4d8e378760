"""The state of everything at a glance, on the app's index. Each figure reads an index, and stops counting at 10,000."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count
from django.db.models.functions import TruncHour
from django.http import HttpRequest
from django.urls import reverse
from django.utils.timezone import localtime

from supervision.admin.access import may, visible_questions, visible_tasks
from supervision.admin.paging import capped_count, shown_count
from supervision.admin.throughput import Bar, chart
from supervision.conf import settings
from supervision.kernel import entitlement, holds, sql
from supervision.kernel.clock import Now
from supervision.kernel.clusters import Cluster
from supervision.kernel.models import Heartbeat
from supervision.kernel.states import TERMINAL, State
from supervision.signs import sign
from supervision.wording import Situation

HOURS = 24
_MANY_DRIVEN = 200
_FAILURES = 4
_SEEN = timedelta(seconds=15)
"""A cluster announces itself every second or so."""


def describe(request: HttpRequest) -> dict[str, Any]:
    """What this person may see of it; nothing else is asked of the database."""
    user = request.user
    context: dict[str, Any] = {"request": request, "can_view": may(user, "view_task")}
    pending = visible_questions(user).pending()  # type: ignore[attr-defined]
    mine = entitlement.answerable(pending, user).annotate(db_now=Now()).order_by("pk")
    context |= {"questions": capped_count(mine), "oldest": mine.first()}
    context["questions_shown"] = shown_count(context["questions"])
    if not context["can_view"]:
        return context
    tasks = visible_tasks(user)
    oldest_due = tasks.due().with_clock().order_by("wake_at").only("wake_at").first()
    return {
        **context,
        "states": [_count(tasks, state) for state in State],
        "dead": shown_count(capped_count(tasks.dead_lettered())),
        "overdue": shown_count(capped_count(tasks.overdue().order_by("expires_at"))),
        "waiting": shown_count(capped_count(tasks.due().order_by())),
        "due": oldest_due,
        "held": shown_count(capped_count(tasks.held())),
        "workers": _workers(tasks),
        "clusters": list(Cluster.objects.using(settings.DATABASE).alive(_SEEN)),
        "failures": _failures(tasks),
        "holds": list(holds.standing().values()),
        "can_start": may(user, "add_task"),
        "can_health": user.is_superuser or not settings.VISIBLE_TASKS,
        "list": reverse("admin:supervision_task_changelist"),
        **_throughput(tasks),
    }


def _count(tasks: Any, state: State) -> dict[str, Any]:
    count = capped_count(tasks.filter(current_state=state))
    return {"state": state, "sign": sign(Situation(str(state), str(state.label))), "count": shown_count(count)}


def _failures(tasks: Any) -> list[Any]:
    """The newest tasks that failed."""
    failed = tasks.with_clock().filter(current_state=State.FAILED).order_by("-id")
    return list(failed.defer("arguments", "locked_decisions", "result")[:_FAILURES])


def _workers(tasks: Any) -> list[dict[str, Any]]:
    """Who drives what: from the beats of running tasks. Idle workers drive nothing, and have no row."""
    beats = Heartbeat.objects.using(settings.DATABASE).annotate(db_now=Now()).select_related("task")
    driven = tasks.filter(current_state=State.RUNNING).order_by("pk").values("pk")[:_MANY_DRIVEN]
    found: dict[str, dict[str, Any]] = {}
    for beat in beats.filter(task__in=driven).defer("task__arguments", "task__locked_decisions", "task__result"):
        if beat.lease != beat.task.lease:
            continue
        is_alive = beat.beat_at > beat.db_now - timedelta(seconds=settings.LEASE_SECONDS)
        row = found.setdefault(beat.worker, {"name": beat.worker, "tasks": [], "is_alive": False, "beat": beat})
        row["is_alive"] |= is_alive
        row["tasks"].append(beat.task)
    return sorted(found.values(), key=lambda row: (row["is_alive"], row["name"]))


def _throughput(tasks: Any) -> dict[str, Any]:
    """What ended in each of the last hours, as a picture and in words."""
    now = _now()
    first = localtime(now).replace(minute=0, second=0, microsecond=0) - timedelta(hours=HOURS - 1)
    ended = tasks.filter(finished_at__gte=first, current_state__in=sorted(TERMINAL))
    rows = ended.order_by().values_list(TruncHour("finished_at"), "current_state").annotate(n=Count("*"))
    counts = {(hour, state): n for hour, state, n in rows}
    bars = []
    for hour in (first + timedelta(hours=n) for n in range(HOURS)):
        done = counts.get((hour, State.COMPLETED), 0)
        bad = sum(counts.get((hour, state), 0) for state in TERMINAL - {State.COMPLETED})
        bars.append(Bar(hour, done, bad))
    return {
        "chart": chart(bars),
        "ended": sum(bar.good + bar.bad for bar in bars),
        "ended_badly": sum(bar.bad for bar in bars),
        "hours": HOURS,
    }


def _now() -> datetime:
    moment: datetime = sql.run("SELECT supervision_now_v1()", {})[0][0]
    return moment

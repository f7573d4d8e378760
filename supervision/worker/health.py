"""Whether work is being done: what a monitor asks, each check a function that returns its findings.

Everything is judged from rows, by the database's clock: the process that asks need not be on a worker's host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Any

from django.db.models import Count, F
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from supervision.conf import settings
from supervision.engines.machines.models import Timer
from supervision.kernel import clock, sql
from supervision.kernel.clock import Now
from supervision.kernel.clusters import Cluster
from supervision.kernel.models import Heartbeat, Question, Task
from supervision.kernel.states import Reason, State
from supervision.worker import stuck
from supervision.worker.schedules import SupervisedSchedule


class Severity(IntEnum):
    """As monitoring plugins number it: the exit status of the command."""

    WARNING = 1
    """A person should look; work goes on."""
    CRITICAL = 2
    """Work that should be done isn't."""


@dataclass(frozen=True)
class Finding:
    """What is wrong: the check's name, a sentence for people, and the facts behind it as JSON."""

    check: str
    severity: Severity
    message: str
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Limits:
    """From when on something is late. The defaults are the settings of the same names."""

    late: timedelta
    """A cluster not heard of, a tick, a due task while a worker is free, an expiry (HEALTH_LATE_SECONDS)."""
    backlog: timedelta
    """A due task while every worker is busy (HEALTH_BACKLOG_SECONDS)."""
    dead_letters: int
    """New dead letters within the last hour that are still no finding (HEALTH_DEAD_LETTERS)."""

    @classmethod
    def from_settings(cls) -> Limits:
        return cls(
            late=timedelta(seconds=settings.HEALTH_LATE_SECONDS),
            backlog=timedelta(seconds=settings.HEALTH_BACKLOG_SECONDS),
            dead_letters=settings.HEALTH_DEAD_LETTERS,
        )


@dataclass(frozen=True)
class Report:
    """The state of everything. ``status``: 0 is healthy, else the gravest finding's severity."""

    findings: list[Finding]
    clusters: list[Cluster]
    """Those that live."""
    at: datetime

    @property
    def status(self) -> int:
        return max((finding.severity for finding in self.findings), default=0)


Clusters = list[Cluster]


def report(limits: Limits | None = None) -> Report:
    """All checks, one after the other, in some ten queries. May raise database errors, which are findings too."""
    limits = limits or Limits.from_settings()
    known = list(Cluster.objects.using(settings.DATABASE).annotate(db_now=Now()))
    alive = [cluster for cluster in known if cluster.beat_at > _now(cluster) - limits.late]
    silent = [cluster for cluster in known if cluster not in alive]
    findings = [*_clusters(alive, silent), *_ticks(alive, limits)]
    for check in CHECKS:
        findings += check(alive, limits)
    findings.sort(key=lambda finding: -finding.severity)
    return Report(findings, alive, sql.run("SELECT supervision_now_v1()", {})[0][0])


def _now(cluster: Any) -> datetime:
    """The database's time when the row was read."""
    now: datetime = cluster.db_now
    return now


def _clusters(alive: Clusters, silent: Clusters) -> Iterator[Finding]:
    if not alive:
        yield Finding("clusters", Severity.CRITICAL, _("No cluster is alive: nothing runs. Start supervision_worker."))
    for cluster in silent:
        seconds = (_now(cluster) - cluster.beat_at).total_seconds()
        message = _("Cluster %(cluster)s has not been heard of for %(seconds)d s; it did not stop, it was killed.")
        yield Finding("silent_cluster", Severity.WARNING, message % {"cluster": cluster, "seconds": seconds},
                      {"cluster": str(cluster), "seconds": round(seconds)})  # fmt: skip


def _ticks(alive: Clusters, limits: Limits) -> Iterator[Finding]:
    for cluster in alive:
        since = cluster.ticked_at or cluster.started_at
        late = (_now(cluster) - since).total_seconds()
        if late > max(limits.late.total_seconds(), 3 * settings.TICK_SECONDS):
            message = _("The last tick of cluster %(cluster)s was %(seconds)d s ago: it reaps and expires nothing.")
            yield Finding("tick", Severity.CRITICAL, message % {"cluster": cluster, "seconds": late},
                          {"cluster": str(cluster), "seconds": round(late)})  # fmt: skip


# --- due tasks -------------------------------------------------------------------------------------------------------

# Oldest due of each queue, body and version; what is on hold is meant not to run.
_DUE = """
SELECT task.queue, task.body, task.body_version, task.watchdog_stop_reason LIKE 'version_changed:%%' AS is_asked,
       count(*)::int,
       extract(epoch FROM supervision_now_v1() - min(task.wake_at))::float
  FROM supervision_task AS task
 WHERE task.wake_at IS NOT NULL AND (task.pause_requested_at IS NULL OR task.ending <> '')
   AND task.wake_at <= supervision_now_v1() - %(late)s::interval
   AND NOT EXISTS (SELECT 1 FROM supervision_hold AS hold
                    WHERE hold.released_at IS NULL
                      AND (hold.kind, hold.name) IN (('body', task.body), ('queue', task.queue)))
 GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
"""


def _due(alive: Clusters, limits: Limits) -> Iterator[Finding]:
    """What has been due for too long: nobody serves its queue, nobody knows its body, nobody takes it, all are busy."""
    for queue, body, version, is_asked, count, oldest in sql.run(_DUE, {"late": limits.late}):
        facts = {"queue": queue, "body": body, "version": version, "count": count, "seconds": round(oldest)}
        serving = [cluster for cluster in alive if cluster.queues is None or queue in cluster.queues]
        knowing = [cluster for cluster in serving if [body, version] in cluster.bodies]
        words = {"tasks": ngettext("%d task", "%d tasks", count) % count, "queue": queue, "body": body,
                 "version": version, "seconds": oldest}  # fmt: skip
        if not alive:
            message = _("%(tasks)s of body “%(body)s” due for up to %(seconds)d s, and no cluster to take it.")
            yield Finding("due", Severity.CRITICAL, message % words, facts)
        elif not serving:
            message = _("%(tasks)s due in queue “%(queue)s”, which no cluster serves.")
            yield Finding("unserved_queue", Severity.CRITICAL, message % words, facts)
        elif not knowing and is_asked:
            message = _("%(tasks)s of body “%(body)s”, version %(version)s, wait for an operator: the code is newer.")
            yield Finding("operator", Severity.WARNING, message % words, facts)
        elif not knowing:
            message = _("%(tasks)s of body “%(body)s”, version %(version)s, due; no cluster knows that. Deploy it.")
            yield Finding("unknown_body", Severity.CRITICAL, message % words, facts)
        elif any(cluster.free is None or cluster.free > 0 for cluster in knowing):
            message = _("%(tasks)s of body “%(body)s” due for up to %(seconds)d s, and free workers don't take it: "
                        "%(clusters)s is frozen. Restart it.")  # fmt: skip
            names = ", ".join(str(cluster) for cluster in knowing)
            yield Finding("frozen", Severity.CRITICAL, message % {**words, "clusters": names}, facts)
        elif oldest > limits.backlog.total_seconds():
            message = _("%(tasks)s of body “%(body)s” due for up to %(seconds)d s: all workers of its queue are busy.")
            yield Finding("backlog", Severity.WARNING, message % words, facts)


# --- late, lost and dead ---------------------------------------------------------------------------------------------


def _stale_beats(alive: Clusters, limits: Limits) -> Iterator[Finding]:
    """Running by the rows, beaten for by nobody, and yet not reaped."""
    stale = Now() - timedelta(seconds=settings.LEASE_SECONDS) - limits.late
    beats = Heartbeat.objects.using(settings.DATABASE).filter(
        task__current_state=State.RUNNING, task__lease=F("lease"), beat_at__lte=stale
    )
    count = beats.count()
    if count:
        message = ngettext(
            "%(count)d running task has had no beat for long, and nobody reaps it.",
            "%(count)d running tasks have had no beat for long, and nobody reaps them.", count,
        ) % {"count": count}  # fmt: skip
        examples = [str(pk) for pk in beats.order_by("task_id").values_list("task_id", flat=True)[:5]]
        yield Finding("beats", Severity.CRITICAL, message, {"count": count, "examples": examples})


def _expiries(alive: Clusters, limits: Limits) -> Iterator[Finding]:
    """Past their time, and nobody has ended them. (A running task is asked to end at its next checkpoint.)"""
    before = Now() - limits.late
    tasks = Task.objects.using(settings.DATABASE).overdue().filter(expires_at__lte=before)
    questions = Question.objects.using(settings.DATABASE).overdue().filter(expires_at__lte=before, task__ending="")
    count = tasks.count() + questions.count()
    if count:
        message = ngettext("%(count)d task or question is past its time, and nobody expires it.",
                           "%(count)d tasks or questions are past their time, and nobody expires them.",
                           count)  # fmt: skip
        yield Finding("expiry", Severity.CRITICAL, message % {"count": count}, {"count": count})


def _timers(alive: Clusters, limits: Limits) -> Iterator[Finding]:
    """Timed events of machines whose moment has come, and no tick has made tasks of them."""
    late = Timer.objects.using(settings.DATABASE).filter(due_at__lte=Now() - limits.late)
    for machine, count in late.values_list("standing__machine").annotate(n=Count("*")).order_by("standing__machine"):
        message = ngettext(
            "%(count)d timed event of the machine “%(machine)s” is late: no cluster knows it. Deploy it.",
            "%(count)d timed events of the machine “%(machine)s” are late: no cluster knows it. Deploy it.", count,
        )  # fmt: skip
        facts = {"machine": machine, "count": count}
        yield Finding("timers", Severity.CRITICAL, message % facts, facts)


def _stuck(alive: Clusters, limits: Limits) -> Iterator[Finding]:
    for found in stuck.find():
        facts = {"kind": found.kind, "count": found.count, "examples": found.examples}
        yield Finding("stuck", Severity.CRITICAL, found.message, facts)


def _for_a_person(alive: Clusters, limits: Limits) -> Iterator[Finding]:
    tasks = Task.objects.using(settings.DATABASE)
    dead = tasks.dead_lettered().filter(finished_at__gt=Now() - timedelta(hours=1)).count()
    if dead > limits.dead_letters:
        message = ngettext("%(count)d new dead letter within the last hour.",
                           "%(count)d new dead letters within the last hour.", dead)  # fmt: skip
        yield Finding("dead_letters", Severity.WARNING, message % {"count": dead}, {"count": dead})
    waiting = tasks.parked().for_reasons(Reason.UNKNOWN_BODY, Reason.REPLAY_MISMATCH).count()
    if waiting:
        message = ngettext("%(count)d task is parked for an operator's word.",
                           "%(count)d tasks are parked for an operator's word.", waiting)  # fmt: skip
        yield Finding("operator", Severity.WARNING, message % {"count": waiting}, {"count": waiting})


def _schedules(alive: Clusters, limits: Limits) -> Iterator[Finding]:
    """Whose time has come and that nobody starts: its body is known nowhere, or its row was spoilt."""
    late = SupervisedSchedule.objects.exclude(repeats=0).filter(next_run__lte=clock.now() - limits.late)
    names = [str(row) for row in late.order_by("next_run") if row.waits_for() is None]
    if alive and names:
        message = ngettext("%(count)d schedule is late, and no cluster starts its work: %(names)s.",
                           "%(count)d schedules are late, and no cluster starts their work: %(names)s.",
                           len(names))  # fmt: skip
        yield Finding("schedules", Severity.CRITICAL, message % {"count": len(names), "names": ", ".join(names[:5])},
                      {"count": len(names), "examples": names[:5]})  # fmt: skip


CHECKS: tuple[Callable[[Clusters, Limits], Iterator[Finding]], ...] = (
    _due, _stale_beats, _expiries, _timers, _stuck, _schedules, _for_a_person,
)  # fmt: skip

"""Prometheus metrics (extra ``prometheus``), read from the rows when somebody asks.

Any process with the database can tell them all, so nothing has to be added up over workers that come and go. Register
the collector where your metrics are served already::

    from prometheus_client import REGISTRY
    REGISTRY.register(SupervisionCollector())

or have ``manage.py supervision_health --prometheus`` write them for a textfile collector.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from supervision.conf import settings
from supervision.kernel import sql
from supervision.kernel.clusters import Cluster
from supervision.kernel.models import Question, Task
from supervision.kernel.states import State
from supervision.worker import health

if TYPE_CHECKING:
    from prometheus_client import Metric

_LIVE = """
SELECT current_state, count(*) FROM supervision_task
 WHERE current_state IN ('pending', 'running', 'parked') GROUP BY 1
"""
_DUE = """
SELECT queue, count(*), GREATEST(0, extract(epoch FROM supervision_now_v1() - min(wake_at)))::float
  FROM supervision_task
 WHERE wake_at IS NOT NULL AND (pause_requested_at IS NULL OR ending <> '') AND wake_at <= supervision_now_v1()
 GROUP BY 1
"""
_ENDED = """
SELECT current_state, body, count(*) FROM supervision_task
 WHERE finished_at > supervision_now_v1() - %(within)s::interval GROUP BY 1, 2
"""
WINDOW = timedelta(minutes=5)
"""What ``supervision_tasks_ended`` counts: a gauge over a window, since pruned tasks can't be counted for ever."""


class SupervisionCollector:
    """For a ``prometheus_client`` registry. Some eight queries for each scrape."""

    def describe(self) -> Iterable[Metric]:
        """Nothing: so that registering it asks no database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """May raise database errors: the scrape fails, then, which is an alert of its own."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - an extra

        tasks = GaugeMetricFamily("supervision_tasks", "Live tasks by state.", labels=["state"])
        counts = dict(sql.run(_LIVE, {}))
        for state in (State.PENDING, State.RUNNING, State.PARKED):
            tasks.add_metric([state.value], counts.get(state.value, 0))
        yield tasks

        due = GaugeMetricFamily("supervision_tasks_due", "Tasks that wait for a worker.", labels=["queue"])
        oldest = GaugeMetricFamily("supervision_due_seconds", "How long the oldest of them waits.", labels=["queue"])
        for queue, count, seconds in sql.run(_DUE, {}):
            due.add_metric([queue], count)
            oldest.add_metric([queue], seconds)
        yield from (due, oldest)

        ended = GaugeMetricFamily(
            "supervision_tasks_ended", "Tasks that ended within five minutes.", labels=["state", "body"]
        )
        for ended_state, body, count in sql.run(_ENDED, {"within": WINDOW}):
            ended.add_metric([ended_state, body], count)
        yield ended

        clusters = list(Cluster.objects.using(settings.DATABASE).alive(health.Limits.from_settings().late))
        dead = Task.objects.using(settings.DATABASE).dead_lettered().count()
        pending = Question.objects.using(settings.DATABASE).pending().count()
        gauges = {
            "supervision_dead_letters": ("Dead letters.", dead),
            "supervision_questions_pending": ("Questions that wait for an answer.", pending),
            "supervision_clusters": ("Clusters that live.", len(clusters)),
            "supervision_workers": ("Worker processes.", sum(cluster.workers for cluster in clusters)),
            "supervision_workers_free": ("Workers that wait.", sum(cluster.free or 0 for cluster in clusters)),
            "supervision_health": ("0 healthy, 1 warning, 2 critical.", health.report().status),
        }  # fmt: skip
        for name, (text, value) in gauges.items():
            yield GaugeMetricFamily(name, text, value=value)


def exposition() -> str:
    """All metrics in Prometheus's text format."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - an extra

    registry = CollectorRegistry()
    registry.register(SupervisionCollector())
    return generate_latest(registry).decode()

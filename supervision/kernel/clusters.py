"""Clusters that announce themselves: which live, and which bodies and queues they know. For the health check; nothing
that decides about a task reads it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from django.db import models
from django.utils.translation import gettext_lazy as _

from supervision.conf import settings
from supervision.kernel import sql
from supervision.kernel.clock import Now


class ClusterQuerySet(models.QuerySet["Cluster"]):
    def alive(self, within: timedelta) -> ClusterQuerySet:
        """Heard of within that time."""
        return self.filter(beat_at__gt=Now() - within)


class Cluster(models.Model):
    """One running ``supervision_worker`` (or stock ``qcluster``). A stop removes the row; a kill leaves it to age."""

    id = models.UUIDField(primary_key=True, editable=False)
    node = models.CharField(_("node"), max_length=200)
    host = models.CharField(max_length=200)
    pid = models.IntegerField(_("process"))
    process_started = models.CharField(max_length=30, blank=True, default="")
    queues = models.JSONField(_("queues"), null=True)
    """Names, or null: all."""
    bodies = models.JSONField(_("bodies"), default=list)
    """[name, version] of every task that it can drive."""
    workers = models.PositiveIntegerField(_("workers"))
    free = models.PositiveIntegerField(_("free workers"), null=True)
    """Null: unknown."""
    started_at = models.DateTimeField(_("started"))
    beat_at = models.DateTimeField(_("last heard of"))
    ticked_at = models.DateTimeField(_("last tick"), null=True)

    objects = ClusterQuerySet.as_manager()

    class Meta:
        db_table = "supervision_cluster"
        verbose_name = _("cluster")
        verbose_name_plural = _("clusters")
        ordering = ("node", "pid")

    def __str__(self) -> str:
        return f"{self.node}:{self.pid}"


@dataclass(frozen=True)
class Announcement:
    """What a cluster says of itself each time."""

    id: UUID
    node: str
    host: str
    pid: int
    process_started: str
    queues: Sequence[str] | None
    bodies: Iterable[tuple[str, int]]
    workers: int
    free: int | None
    ticked_before: timedelta | None
    """How long ago its last tick was, by its own clock."""


_ANNOUNCE = """
INSERT INTO supervision_cluster AS cluster
       (id, node, host, pid, process_started, queues, bodies, workers, free, started_at, beat_at, ticked_at)
VALUES (%(id)s::uuid, %(node)s, %(host)s, %(pid)s, %(process_started)s, %(queues)s::jsonb, %(bodies)s::jsonb,
        %(workers)s, %(free)s, supervision_clock_v1(), supervision_clock_v1(),
        supervision_clock_v1() - %(ticked_before)s::interval)
ON CONFLICT (id) DO UPDATE
   SET queues = excluded.queues, bodies = excluded.bodies, workers = excluded.workers, free = excluded.free,
       beat_at = excluded.beat_at, ticked_at = excluded.ticked_at
"""


def knows(body: str, *, within: timedelta) -> bool:
    """Whether any cluster that was heard of within that time can drive tasks of the body, of whatever version."""
    alive = Cluster.objects.using(settings.DATABASE).alive(within)
    return any(name == body for bodies in alive.values_list("bodies", flat=True) for name, _version in bodies)


FORGOTTEN_AFTER = timedelta(minutes=15)
"""How long a cluster that was killed is remembered, so that somebody can be told."""


def announce(cluster: Announcement) -> None:
    """Says that the cluster lives. One statement."""
    sql.run(
        _ANNOUNCE,
        {
            "id": str(cluster.id), "node": cluster.node, "host": cluster.host, "pid": cluster.pid,
            "process_started": cluster.process_started,
            "queues": None if cluster.queues is None else json.dumps(list(cluster.queues)),
            "bodies": json.dumps(sorted(cluster.bodies)), "workers": cluster.workers, "free": cluster.free,
            "ticked_before": cluster.ticked_before,
        },
    )  # fmt: skip


def withdraw(cluster_id: UUID) -> None:
    """The cluster has stopped."""
    Cluster.objects.using(settings.DATABASE).filter(pk=cluster_id).delete()


def forget_old() -> int:
    """Drops the rows of clusters that were killed long ago; the count."""
    old = Cluster.objects.using(settings.DATABASE).filter(beat_at__lte=Now() - FORGOTTEN_AFTER)
    return old.delete()[0]

"""Nodes: what a task has set out to run as children, some of which wait for others, and how each stands.

A task with a ``Plan`` is a *run*. Its nodes are started by the end of the last one that they wait for: see
``countdown``. Both kinds of rows are only written under the lock of the run's task, so they need none of their own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import models
from django.db.models import CheckConstraint, Index, Q, UniqueConstraint
from django.utils.translation import gettext_lazy as _

from supervision.conf import settings
from supervision.kernel import sql
from supervision.kernel.fields import Numbers
from supervision.kernel.models import Task

STEP = "node:"
"""What the ``parent_step`` of a node's child begins with; its number follows."""


class NodeState(models.TextChoices):
    PENDING = "pending", _("pending")
    RUNNING = "running", _("running")
    SUCCEEDED = "succeeded", _("succeeded")
    FAILED = "failed", _("failed")
    SKIPPED = "skipped", _("skipped")


OVER = frozenset({NodeState.SUCCEEDED, NodeState.FAILED, NodeState.SKIPPED})


class Plan(models.Model):
    """How far a run is. The counts spare each child's end a look at all nodes."""

    task = models.OneToOneField(
        Task, primary_key=True, on_delete=models.DO_NOTHING, related_name="plan", db_constraint=False
    )
    max_parallel = models.PositiveIntegerField(null=True)
    """How many children may live at a time; None: no limit."""
    total = models.PositiveIntegerField()
    """Nodes in all, without the items of mapped ones."""
    unfinished = models.PositiveIntegerField()
    running = models.PositiveIntegerField(default=0)
    """Children that live."""
    needs_run = models.BooleanField(default=False)
    """Something has happened that only a drive of the run can deal with: a failure, a condition, a map."""

    class Meta:
        db_table = "supervision_plan"
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.done}/{self.total}"

    @property
    def done(self) -> int:
        """How many of its nodes are over."""
        return self.total - self.unfinished


class Node(models.Model):
    """One part of a run. ``name`` is unique in its run; ``number`` is above those of what it waits for."""

    # Alone the key: with the run before it, the planner sought a few nodes by reading all of their run.
    number = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(
        Task, on_delete=models.DO_NOTHING, related_name="nodes", db_index=False, db_constraint=False
    )
    name = models.CharField(_("name"), max_length=300)
    state = models.CharField(_("state"), max_length=10, choices=NodeState.choices, default=NodeState.PENDING)
    waiting_for = models.PositiveIntegerField(default=0)
    """How many successes must still come before it is ready (of a mapped node that runs: before it is over)."""
    is_ready = models.BooleanField(default=False)
    """Whoever comes next, and finds a free place, starts it."""
    is_driven = models.BooleanField(default=False)
    """Once it waits for nothing, the run itself must be driven: a condition, a map, work of the run's own."""
    after = Numbers(default=list)
    """The numbers of the nodes that it waits for,"""
    dependents = Numbers(default=list)
    """and of those that wait for it."""
    join = models.CharField(max_length=10, default="all")
    required = models.BooleanField(default=True)
    kind = models.CharField(max_length=10)
    """What the engine makes of it; the kernel doesn't look."""
    map_over = models.CharField(max_length=300, blank=True, default="")
    item = models.PositiveIntegerField(null=True)
    """Its place among the items of the mapped node that waits for it."""
    # the child that it becomes
    body = models.CharField(max_length=200)
    body_version = models.PositiveIntegerField(null=True)
    """None: the run's, also when a person has accepted a newer one meanwhile."""
    queue = models.CharField(max_length=100)
    priority = models.PositiveSmallIntegerField()
    arguments = models.JSONField(default=dict)
    sensitive = models.JSONField(default=list)
    subject = models.CharField(max_length=200, blank=True, default="")
    concurrency_key = models.CharField(max_length=200, blank=True, default="")
    root_id = models.UUIDField()
    """The same in each fork of the run, so that its steps keep their idempotency keys."""
    task_id = models.UUIDField(null=True)
    """The child, once there is one; of a node that a retry has kept, the child of the run before."""
    # what became of it
    output = models.JSONField(null=True)
    """Only of what no child of this run has computed; else it is the child's result."""
    failure = models.TextField(blank=True, default="")
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    class Meta:
        db_table = "supervision_node"
        verbose_name = _("node")
        verbose_name_plural = _("nodes")
        ordering = ("run_id", "number")
        default_permissions = ()
        constraints = (
            UniqueConstraint(fields=("name", "run"), name="supervision_node_one"),
            CheckConstraint(condition=Q(state__in=NodeState.values), name="supervision_node_state_known"),
            CheckConstraint(
                condition=Q(is_ready=False) | Q(state="pending", waiting_for=0), name="supervision_node_ready_waits"
            ),
        )
        # none on waiting_for: counting down stays a HOT update
        indexes = (
            Index(fields=("run", "number"), name="supervision_node_of_run"),
            Index(fields=("run", "number"), condition=Q(is_ready=True), name="supervision_node_ready"),
        )

    def __str__(self) -> str:
        return self.name


def of(run_id: UUID) -> list[Node]:
    """The nodes of that run by number, without their outputs and arguments, in one query."""
    rows = Node.objects.using(settings.DATABASE).filter(run_id=run_id).order_by("number")
    return list(rows.defer("output", "arguments"))


# A node's output: its own where the run has computed or kept it, else its child's result; of a mapped one its items'.
_OUTPUTS = """
SELECT node.name, CASE WHEN node.state = 'succeeded' THEN COALESCE(node.output, child.result, (
           SELECT jsonb_agg(COALESCE(part.output, result.result) ORDER BY part.item)
             FROM supervision_node AS part LEFT JOIN supervision_task AS result ON result.id = part.task_id
            WHERE node.kind = 'map' AND part.run_id = node.run_id AND part.item IS NOT NULL
              AND part.dependents[1] = node.number))::text END
  FROM supervision_node AS node LEFT JOIN supervision_task AS child ON child.id = node.task_id
 WHERE node.number = ANY (%(numbers)s::bigint[])
 ORDER BY node.number
"""
_INPUTS = _OUTPUTS.replace(
    "%(numbers)s::bigint[]",
    """ARRAY(
       SELECT unnest(after) FROM supervision_node WHERE run_id = %(run_id)s::uuid AND name = %(name)s)""",
)


def inputs(run_id: UUID | str, name: str) -> dict[str, Any]:
    """The outputs of what that node waits for, by name; None of what has not succeeded."""
    return _values(sql.run(_INPUTS, {"run_id": str(run_id), "name": name}))


def outputs(numbers: Sequence[int]) -> dict[str, Any]:
    """The outputs of the nodes of these numbers, by name; None of what has not succeeded."""
    return _values(sql.run(_OUTPUTS, {"numbers": list(numbers)}))


_NUMBERS = "SELECT nextval(pg_get_serial_sequence('supervision_node', 'number')) FROM generate_series(1, %(count)s)"


def fresh_numbers(count: int) -> list[int]:
    """So many numbers that no node has, ascending."""
    return sorted(number for (number,) in sql.run(_NUMBERS, {"count": count}))


def _values(rows: list[tuple[Any, ...]]) -> dict[str, Any]:
    return {name: None if text is None else json.loads(text) for name, text in rows}

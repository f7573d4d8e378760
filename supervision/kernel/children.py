"""Children: started once under their parent's lease, waited for without a worker, counted down as they end.

Lock order: the parent before its children, siblings by id. So a child's end, which locks its parent first, and the
parent's wait, which counts under its own lock, see each other: the last child wakes the parent once, whoever is last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db.models import Q

from supervision.conf import settings
from supervision.errors import ConcurrencyKeyHeld, SupervisionError
from supervision.kernel import creation
from supervision.kernel.lease import Requests
from supervision.kernel.models import Task
from supervision.kernel.states import Reason, State
from supervision.kernel.transition import committing, locked, retried, write


@dataclass(frozen=True)
class Outcome:
    """How one child stands. ``result`` is its result if it completed; ``failure`` one line if it failed."""

    id: UUID
    step: str
    state: str
    reason: str
    result: Any
    failure: str

    @property
    def is_completed(self) -> bool:
        return self.state == State.COMPLETED

    @property
    def is_live(self) -> bool:
        return self.state in (State.PENDING, State.RUNNING, State.PARKED)


def steps_of(name: str, count: int) -> list[str]:
    """The ``parent_step`` of each child of one start."""
    return [f"{name}/{at:06d}" for at in range(count)]


@retried
def start(
    task_id: UUID | str,
    lease: int,
    name: str,
    body: str,
    arguments: Sequence[Mapping[str, Any]],
    *,
    payload: Mapping[str, Any],
    decisions: Mapping[str, Any] | None = None,
    **options: Any,
) -> Requests:
    """Starts one child for each of ``arguments``, and records it under ``name``: one lease-checked transaction.

    ``options`` are ``creation.create_many``'s, the same for all; the owner is the parent's. Due at its commit.
    Non-empty Requests: nothing was started, the parent is being ended. Raises LeaseLost, NotStorable, TooLarge,
    ConcurrencyKeyHeld.
    """
    with committing("create"), locked(task_id, lease=lease) as task:
        if task.ending or task.is_overdue:
            return Requests(ending=task.ending, ending_reason=task.ending_reason, is_overdue=task.is_overdue)
        created = creation.create_many(
            body, arguments, parent=task, parent_steps=steps_of(name, len(arguments)), **options
        )
        if len(created) != len(arguments) and options.get("concurrency_key"):
            raise ConcurrencyKeyHeld(options["concurrency_key"], None)
        if len(created) != len(arguments):
            raise SupervisionError(f"Children of {name!r} are there already, but their start isn't in the log.")
        write(task, event="children_started", name=name, payload={**payload, "count": len(arguments)},
              decisions=decisions)  # fmt: skip
    return Requests()


@dataclass(frozen=True)
class Waited:
    """What a wait for children came to: all that it needs have ended; parked; or requests that forbid to wait."""

    over: bool = False
    requests: Requests | None = None


@retried
def wait(
    task_id: UUID | str,
    lease: int,
    name: str,
    *,
    steps: Sequence[str] = (),
    prefix: str = "",
    still: int = 0,
    decisions: Mapping[str, Any] | None = None,
) -> Waited:
    """Parks until at most ``still`` of the children of ``steps`` (or whose step begins with ``prefix``) live, or says
    that it is so. Counted under the parent's lock, in a statement of its own. Raises LeaseLost."""
    needed = Q(parent_step__startswith=prefix) if prefix else Q(parent_step__in=steps)
    with committing("park"), locked(task_id, lease=lease) as task:
        children = Task.objects.using(settings.DATABASE).filter(parent_id=task.pk).live()
        live = children.filter(needed).count()
        if live <= still:
            return Waited(over=True)
        if task.ending or task.is_overdue:
            return Waited(
                requests=Requests(ending=task.ending, ending_reason=task.ending_reason, is_overdue=task.is_overdue)
            )
        children.exclude(needed).filter(is_awaited=True).update(is_awaited=False)
        children.filter(needed, is_awaited=False).update(is_awaited=True)
        write(task, to=State.PARKED, reason=Reason.AWAITING_CHILDREN, event="task_parked", name=name,
              payload={"reason": Reason.AWAITING_CHILDREN, "live": live}, children_awaited=live - still,
              decisions=decisions, wake_at=None)  # fmt: skip
        return Waited()


def outcomes(task_id: UUID, *, steps: Sequence[str] = (), prefix: str = "") -> list[Outcome]:
    """How the children of ``steps`` (or whose step begins with ``prefix``) stand, ordered by step, in one query."""
    wanted = Q(parent_step__startswith=prefix) if prefix else Q(parent_step__in=steps)
    rows = Task.objects.using(settings.DATABASE).filter(wanted, parent_id=task_id).order_by("parent_step")
    return [
        Outcome(*row)
        for row in rows.values_list("id", "parent_step", "current_state", "watchdog_stop_reason", "result", "failure")
    ]

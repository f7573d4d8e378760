"""Every interleaving of every pair of verbs, stepped through two sessions.

Each verb has two steps: it has written everything and holds its locks; it has committed. Whatever the order of the
four steps, the outcome must be the one of running the two verbs one after the other, in one order or the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any
from uuid import UUID

import pytest

from supervision.errors import LeaseLost, SupervisionError
from supervision.kernel import ends, lease, lifecycle, questions
from supervision.kernel.models import Heartbeat, Question
from supervision.kernel.states import TRANSITIONS
from tests.integration import rows
from tests.integration.races import Actor, Stage, held

STARTS = {
    "due": {"take", "pause", "cancel", "expire"},
    "running": {"checkpoint", "beat", "reap", "pause", "cancel", "expire", "complete"},
    "waiting": {"take", "answer", "pause", "cancel", "expire"},
}
"""Starting state -> what a task in it doesn't refuse. Pairs that it refuses both are left out."""
ORDERS = sorted({"".join(order) for order in permutations("AABB")}, key=lambda order: (order[0] != order[1], order))
"""AABB and BBAA, the two that don't overlap, first."""


@dataclass
class Scene:
    """A task in one of the starting states; a worker that holds ``lease``, and a package of it for another one."""

    pk: UUID
    lease: int
    package: int
    question: UUID | None = None

    @classmethod
    def of(cls, start: str) -> Scene:
        if start == "due":
            return cls(rows.due(), lease=0, package=0)
        if start == "running":
            running = rows.running()
            rows.lose_worker(running.pk)
            return cls(running.pk, running.lease, package=running.lease + 1)  # as it is offered after a reap
        waiting = rows.waiting()
        return cls(waiting.pk, waiting.lease, waiting.lease, waiting.questions["q"])


VERBS: dict[str, Callable[[Scene, str], Callable[[], Any]]] = {
    "take": lambda scene, who: lambda: lease.take(scene.pk, scene.package, lease.Worker(who, who, 1)),
    "checkpoint": lambda scene, who: held(lambda: lease.checkpoint(scene.pk, scene.lease, name=who)),
    "beat": lambda scene, who: held(lambda: lease.beat(scene.pk, scene.lease)),
    "reap": lambda scene, who: lambda: lease.reap(scene.pk),
    "answer": lambda scene, who: lambda: scene.question and questions.answer(scene.question, who, by=who),
    "pause": lambda scene, who: lambda: lifecycle.pause(scene.pk, by=who),
    "cancel": lambda scene, who: lambda: lifecycle.cancel(scene.pk, by=who),
    "expire": lambda scene, who: lambda: lifecycle.expire(scene.pk, by=who),
    "complete": lambda scene, who: lambda: ends.complete(scene.pk, scene.lease, who),
}


@pytest.mark.parametrize("a", VERBS)
def test_every_interleaving_of_two_verbs_ends_as_one_of_their_two_orders(stage: Stage, a: str) -> None:
    for b in list(VERBS)[list(VERBS).index(a) :]:
        for start, accepted in STARTS.items():
            if {a, b} & accepted:
                _play_all(stage, start, a, b)


def _play_all(stage: Stage, start: str, a: str, b: str) -> None:
    serial: list[dict[str, Any]] = []
    for order in ORDERS:
        outcome = _play(stage, start, a, b, order)
        if order in ("AABB", "BBAA"):
            serial.append(outcome)
        else:
            assert outcome in serial, f"{start}: {a} and {b} in the order {order}"


def _play(stage: Stage, start: str, a: str, b: str, order: str) -> dict[str, Any]:
    scene = Scene.of(start)
    verbs = {"A": VERBS[a](scene, "ann"), "B": VERBS[b](scene, "bob")}
    actors: dict[str, Actor] = {}
    state = rows.fresh(scene.pk).current_state
    for who in order:
        if who not in actors:
            actors[who] = stage.begin(verbs[who])
        else:
            actors[who].step()
        state = _legal(state, scene.pk)
    for who in sorted(actors, key=lambda who: actors[who].is_blocked()):
        actors[who].finish()
        state = _legal(state, scene.pk)
    rows.assert_sound(scene.pk)
    outcomes = {who: _outcome(actor) for who, actor in actors.items()}
    assert [outcomes["A"], outcomes["B"]] != ["Taken", "Taken"], "two owners"
    return outcomes | _row(scene.pk)


def _legal(before: str, pk: UUID) -> str:
    after = rows.fresh(pk).current_state
    assert before == after or (before, after) in TRANSITIONS
    return after


def _outcome(actor: Actor) -> str:
    """What a caller sees. Errors that no caller is told of, such as a deadlock, are raised."""
    if actor.error is not None:
        if not isinstance(actor.error, SupervisionError | LeaseLost):
            raise actor.error
        return type(actor.error).__name__
    result = actor.result
    return repr(result) if isinstance(result, lease.Requests | bool | None) else type(result).__name__


def _row(pk: UUID) -> dict[str, Any]:
    task = rows.fresh(pk)
    question = Question.objects.filter(task_id=pk).values_list("status", "answer").first()
    beat = Heartbeat.objects.filter(task_id=pk).values_list("lease", "worker").first()
    kept = ("current_state", "watchdog_stop_reason", "generation", "lease", "ending", "ending_reason", "recoveries",
            "result")  # fmt: skip
    return {
        **{name: getattr(task, name) for name in kept},
        "woken": task.wake_at is not None,
        "paused": task.pause_requested_at is not None,
        "cancelled": task.cancel_requested_at is not None,
        "question": question,
        "beat": beat,
        "events": rows.events(pk),
    }

"""Random DAGs with failures, conditions, maps and kills end as a model of a dozen lines says."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from supervision.engines import Context, Dag, Failure, registry
from supervision.errors import LeaseLost
from supervision.kernel import crash, due, lease
from supervision.kernel.lease import Worker, host_identity
from supervision.kernel.models import LogEntry, Task
from supervision.kernel.nodes import Node, Plan
from supervision.worker.drive import drive_one

pytestmark = pytest.mark.django_db

_NAMES = itertools.count()
bounded = settings(
    max_examples=int(os.environ.get("SUPERVISION_EXAMPLES", "40")),
    derandomize="SUPERVISION_EXAMPLES" not in os.environ,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


@dataclass(frozen=True)
class Spec:
    """One node: ``after`` are places of earlier ones, ``items`` how many a mapped one has (-1: it isn't mapped)."""

    after: tuple[int, ...]
    join: str
    fails: bool
    when: str
    required: bool
    kind: str
    items: int


@st.composite
def dags(draw: st.DrawFn) -> list[Spec]:
    specs: list[Spec] = []
    for at in range(draw(st.integers(1, 8))):
        after = draw(st.sets(st.integers(max(0, at - 4), at - 1), max_size=2)) if at else set()
        kind = draw(st.sampled_from(["child", "child", "inline", "map"]))
        specs.append(
            Spec(
                tuple(sorted(after)), draw(st.sampled_from(["all", "all", "any", "all_done"])),
                draw(st.integers(0, 4)) == 0, draw(st.sampled_from(["", "", "", "yes", "no", "raises"])),
                draw(st.integers(0, 3)) > 0, kind if after or kind != "map" else "child", draw(st.integers(0, 3)),
            )
        )  # fmt: skip
    return specs


def expected(specs: list[Spec]) -> list[str]:
    """The model: what becomes of each node, in order."""
    states: list[str] = []
    for spec in specs:
        before = [states[at] for at in spec.after]
        succeeded = before.count("succeeded")
        starts = {"all": succeeded == len(before), "any": succeeded > 0 or not before, "all_done": True}[spec.join]
        is_mapped = spec.kind == "map"
        if not starts or spec.when == "no":
            states.append("skipped")
        elif spec.when == "raises" or (is_mapped and states[spec.after[0]] != "succeeded"):
            states.append("failed")  # None is no list
        elif is_mapped:
            states.append("failed" if spec.fails and specs[spec.after[0]].items else "succeeded")
        else:
            states.append("failed" if spec.fails else "succeeded")
    return states


class World:
    """One run from its start to its end. The process dies at each of ``kills``: so many crash points of the kernel
    after the last one."""

    def __init__(self, specs: list[Spec], kills: list[int], max_parallel: int | None) -> None:
        self.specs, self._kills, self._passed = specs, list(kills), 0
        self.faults: list[str] = []
        self.dag = Dag(f"random.{next(_NAMES)}", max_parallel=max_parallel)
        for at, spec in enumerate(specs):
            conditions: dict[str, Any] = {"": None, "yes": lambda _: True, "no": lambda _: False, "raises": _raises}
            self.dag.node(
                f"n{at}", after=[f"n{each}" for each in spec.after], join=spec.join, required=spec.required,
                when=conditions[spec.when], inline=spec.kind == "inline",
                map_over=f"n{spec.after[0]}" if spec.kind == "map" else None,
            )(partial(self._work, at))  # fmt: skip
        self.task = self.dag.start()
        self.most = 0

    def _work(self, at: int, task: Context, **outputs: Any) -> Any:
        spec = self.specs[at]
        states = dict(Node.objects.filter(run=self.task).values_list("name", "state"))
        # what a run does itself it settles in batches, and only knows meanwhile
        before = [states[f"n{each}"] for each in spec.after] if spec.kind != "inline" else []
        if spec.join == "all" and any(state != "succeeded" for state in before):
            self.faults.append(f"n{at} began although {before}")
        if spec.join == "all_done" and not set(before) <= {"succeeded", "failed", "skipped"}:
            self.faults.append(f"n{at} began although {before}")
        if set(outputs) != {f"n{each}" for each in spec.after}:
            self.faults.append(f"n{at} was handed {sorted(outputs)}")
        self._compare(at, outputs)
        if spec.fails:
            raise Failure("as told")
        return list(range(spec.items))

    def _compare(self, at: int, outputs: dict[str, Any]) -> None:
        """What a node is handed is what the model says that the others returned; of ``any`` it may be early."""
        spec, states = self.specs[at], expected(self.specs)
        for each in spec.after:
            returned: list[Any] = list(range(self.specs[each].items))
            if self.specs[each].kind == "map":
                returned = [returned] * self.specs[self.specs[each].after[0]].items
            if spec.kind == "map" and each == spec.after[0]:
                fits = outputs[f"n{each}"] in returned
            else:
                given = outputs[f"n{each}"]
                fits = given == (returned if states[each] == "succeeded" else None)
                fits |= given is None and spec.join == "any"
            if not fits:
                self.faults.append(f"n{at} was handed {outputs[f'n{each}']!r} of n{each}")

    def point(self, name: str) -> None:
        """In the place of ``crash.point``."""
        if self._kills:
            self._passed += 1
            if self._passed >= self._kills[0]:
                del self._kills[0]
                self._passed = 0
                raise LeaseLost

    def to_the_end(self) -> None:
        tasks = Task.objects.filter(pk=self.task.pk) | Task.objects.filter(parent=self.task.pk)
        with pytest.MonkeyPatch.context() as patch:
            for _ in range(500):
                patch.setattr(crash, "point", self.point)
                offers = due.offer(1, queues=None, bodies=registry.drivable())
                for offered in offers:
                    with suppress(LeaseLost):  # it died at its take
                        drive_one(offered.task_id, offered.lease, stopping=lambda: False, thread=False)
                patch.undo()
                self.most = max(self.most, Task.objects.live().filter(parent=self.task.pk).count())
                for died in tasks.filter(current_state="running"):
                    lease.reap(died.pk, lost=Worker("", host_identity(), os.getpid()))
                if not offers and not tasks.live().exists():
                    return
                if not offers:
                    # offered, and never taken
                    tasks.filter(offered_until__isnull=False).update(offered_until=None)
        raise AssertionError(f"{self.states()} after 500 turns")

    def states(self) -> list[str]:
        rows = dict(Node.objects.filter(run=self.task.pk, item=None).values_list("name", "state"))
        return [rows[f"n{at}"] for at in range(len(self.specs))]


def _raises(outputs: Any) -> bool:
    raise ValueError("as told")


@bounded
@given(
    specs=dags(), kills=st.lists(st.integers(1, 12), max_size=4), max_parallel=st.sampled_from([None, None, 1, 2])
)  # fmt: skip
def test_a_random_dag_ends_as_the_model_says(specs: list[Spec], kills: list[int], max_parallel: int | None) -> None:
    world = World(specs, kills, max_parallel)
    try:
        world.to_the_end()
    finally:
        registry.unregister(world.dag.name)
        registry.unregister(f"{world.dag.name}/node")
    states = expected(specs)
    assert world.states() == states
    assert not world.faults
    assert world.most <= (max_parallel or 99)
    run = Task.objects.get(pk=world.task.pk)
    bad = any(state == "failed" and spec.required for state, spec in zip(states, specs, strict=True))
    assert run.current_state == ("failed" if bad else "completed")
    plan = Plan.objects.get(task=run)
    assert (plan.unfinished, plan.running, plan.needs_run) == (0, 0, False)

    # each that succeeded was completed once, and began after the end of those that it waited for
    entries = LogEntry.objects.filter(task__parent=run.pk, event="task_completed").values_list("task_id", flat=True)
    inline = LogEntry.objects.filter(task=run.pk, event="step_completed").values_list("name", flat=True)
    times = Counter([*map(str, entries), *inline])
    for node in Node.objects.filter(run=run.pk, state="succeeded").exclude(kind="map"):
        assert times[f"node {node.name}" if node.kind == "inline" else str(node.task_id)] == 1

"""Random programs: what a body does, as data; the body that interprets them; and a world that lives with it."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import Group

from supervision.engines import Cancelled, Context, Failure, Retry, StepFailed
from supervision.engines.bodies.asynchronous import AsyncContext
from supervision.errors import LeaseLost
from supervision.kernel import crash, lease, lifecycle, questions, signals_in
from supervision.kernel.lease import Worker, host_identity
from supervision.kernel.models import LogEntry, Question, Task
from supervision.kernel.question_form import Ask
from supervision.kernel.states import State
from supervision.testing import travel
from supervision.worker.drive import drive_one

Op = dict[str, Any]
SETTLED = ("step_completed", "step_failed", "signal_consumed", "slept", "continued_as_new")


class Died(LeaseLost):
    """The process is gone: nothing that it still does is recorded. Private, and no ``Exception``."""


class Run:
    """One task, from its start to its end, with what is done to it on the way.

    ``plan`` is a list of (points, kind): after so many crash points of the kernel the process dies, the worker is asked
    to stop, or somebody pauses or cancels the task.
    """

    def __init__(self, task_id: UUID, plan: list[tuple[int, str]]) -> None:
        self.task_id = task_id
        self.computed: list[tuple[str, int]] = []
        """(step, how many intentions of it were recorded) of each call of a step's function, in order."""
        self.failures = Counter[str]()
        """How many failed attempts of each step are recorded."""
        self.faults: list[str] = []
        self._plan = list(plan)
        self._may_die = any(kind == "die" for _, kind in plan)
        self._passed = 0
        self._stopping = False
        self._is_acting = False

    # --- what happens to it

    def point(self, name: str) -> None:
        """In the place of ``crash.point``."""
        if self._is_acting or not self._plan:
            return
        self._passed += 1
        points, kind = self._plan[0]
        if self._passed < points or (kind in ("pause", "cancel") and name.endswith("before_commit")):
            return
        del self._plan[0]
        self._passed = 0
        if kind == "die":
            raise Died
        if kind == "stop":
            self._stopping = True
            return
        self._is_acting = True
        task = self.task
        if not task.is_terminal and not task.ending and (kind == "cancel" or task.pause_requested_at is None):
            (lifecycle.pause if kind == "pause" else lifecycle.cancel)(self.task_id, by="alice")
        self._is_acting = False

    # --- how it goes on

    def to_the_end(self) -> Run:
        with ExitStack() as journey:
            journey.enter_context(_patched_point(self))
            for _ in range(500):
                task = self.task
                if task.is_terminal:
                    self._judge(task)
                    return self
                try:
                    wait = self._turn(task)
                except Died:
                    wait = None
                if wait is not None:
                    journey.enter_context(travel(wait))
        raise AssertionError(f"still {task.current_state} ({task.watchdog_stop_reason}) after 500 turns")

    def _turn(self, task: Task) -> timedelta | None:
        """Drives the task, or acts on it, or says how long until it wakes."""
        if task.current_state == State.RUNNING:
            lease.reap(self.task_id, lost=Worker("", host_identity(), os.getpid()))  # its process died
        elif task.pause_requested_at is not None and not task.ending:
            lifecycle.resume(task.pk, by="alice")
        elif task.wake_at is not None and task.wake_at <= task.db_now:
            self._drive(task)
        elif not self._act(task):
            assert task.wake_at is not None, f"{task.watchdog_stop_reason!r} waits for nobody"
            return task.wake_at - task.db_now + timedelta(seconds=1)
        return None

    def _drive(self, task: Task) -> None:
        recorded, seen = self.settled(task.replay_from), len(self.computed)
        failed = LogEntry.objects.filter(task=task.pk, event="step_attempt_failed", sequence_num__gt=task.replay_from)
        self.failures = Counter(failed.values_list("name", flat=True))
        try:
            drive_one(task.pk, task.lease, stopping=lambda: self._stopping, thread=False)
        finally:
            self._stopping = False
            again = {name for name, _ in self.computed[seen:]} & recorded
            if again:
                self.faults.append(f"recorded, and computed again: {sorted(again)}")

    def _act(self, task: Task) -> bool:
        """A person who knows what happened, and a sender of signals."""
        question = Question.objects.filter(task=task).pending().order_by("pk").first()
        if question is not None:
            questions.answer(question.pk, self._said(task, question.key), by="alice")
            return True
        reason, _, name = task.watchdog_stop_reason.partition(":")
        if reason == "awaiting_signal" and task.wake_at is None:
            signals_in.send(task.pk, name, task.signals.filter(name=name).count())
            return True
        return False

    def _said(self, task: Task, key: str) -> str:
        if not key.startswith("uncertain:"):
            return f"answer to {key}"
        full = key.split(":")[1]
        if key.endswith(":result"):
            return f'"{full}"'
        intended = LogEntry.objects.filter(task=task, event="step_intended", name=full).count()
        return "happened" if (full, intended) in self.computed else "run"

    # --- what became of it

    @property
    def task(self) -> Task:
        return Task.objects.with_clock().get(pk=self.task_id)

    def settled(self, after: int) -> set[str]:
        entries = LogEntry.objects.filter(task=self.task_id, event__in=SETTLED, sequence_num__gt=after)
        return set(entries.values_list("name", flat=True))

    def history(self) -> list[tuple[str, str]]:
        """What is recorded for good, in order."""
        entries = LogEntry.objects.filter(task=self.task_id, event__in=SETTLED).order_by("sequence_num")
        return list(entries.values_list("event", "name"))

    def outcome(self) -> Any:
        task = self.task
        return task.current_state, task.watchdog_stop_reason, task.result, task.failure

    def _judge(self, task: Task) -> None:
        entries = LogEntry.objects.filter(task=self.task_id).order_by("sequence_num")
        numbers = list(entries.values_list("sequence_num", flat=True))
        assert numbers == list(range(1, task.log_length + 1))
        assert not self.faults
        twice = [call for call, times in Counter(self.computed).items() if call[1] and times > 1]
        assert not twice, f"one intention, executed twice: {twice}"
        if not self._may_die:
            ends = ("step_completed", "step_failed", "step_attempt_failed")
            recorded = Counter(entries.filter(event__in=ends).values_list("name", flat=True))
            assert Counter(name for name, _ in self.computed) == recorded, "computed, and not recorded"
        effects = Counter(Group.objects.filter(name__startswith=f"{self.task_id} ").values_list("name", flat=True))
        expected = entries.filter(event="step_completed", name__startswith="atomic")
        assert len(effects) == expected.count()


@contextmanager
def _patched_point(run: Run) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crash, "point", run.point)
        yield


# --- the bodies that interpret a program


class Program:
    """A body made of ``rounds`` of operations; the last round returns, the others continue as new."""

    def __init__(self, rounds: list[list[Op]]) -> None:
        self.rounds = rounds
        self.run: Run | None = None

    def body(self, task: Context, *, round: int = 0, so_far: Any = None) -> Any:
        done: list[Any] = list(so_far or [])
        try:
            self._all(task, self.rounds[round], done, "")
            if round + 1 < len(self.rounds):
                task.continue_as_new(round=round + 1, so_far=done)
        except Cancelled:
            task.step("undo", self._compute, "undo", 0, "undo")
            raise
        return done

    def _all(self, task: Context, ops: list[Op], done: list[Any], path: str) -> None:
        for place, op in enumerate(ops):
            getattr(self, f"_{op['op']}")(task, op, done, f"{path}.{place}")

    def _step(self, task: Context, op: Op, done: list[Any], path: str) -> None:
        # a name of its own for each kind, since occurrences of one name must be the same call
        # (a step of kind once doesn't fail: what failed unrecorded, nobody could tell in the words of its error)
        fails = 0 if op["kind"] == "once" else op["fails"]
        name = f"{op['kind']} {fails} {op['attempts']}"
        key = path if op["keyed"] else None
        options: dict[str, Any] = {"atomic": True} if op["kind"] == "atomic" else {}
        if op["kind"] == "once":
            options = {"once": True}
        else:
            options["retry"] = Retry(attempts=op["attempts"], first_delay=op["delay"], jitter=0)
        work = partial(self._compute, fails=fails, kind=op["kind"])
        done.append(task.step(name, lambda: work(full=task.idempotency_key.partition(":")[2]), key=key, **options))

    def _compute(self, full: str = "", fails: int = 0, kind: str = "plain") -> str:
        run = self.run
        assert run is not None
        intended = 0
        if kind == "once":
            entries = LogEntry.objects.filter(task=run.task_id, event="step_intended", name=full)
            intended = entries.count()
        run.computed.append((full, intended))
        if kind == "atomic":
            Group.objects.create(name=f"{run.task_id} {len(run.computed)}")
        if run.failures[full] < fails:
            run.failures[full] += 1
            raise OSError("not yet")
        return full

    def _try(self, task: Context, op: Op, done: list[Any], path: str) -> None:
        try:
            self._all(task, op["ops"], done, path)
        except StepFailed as failed:
            done.append([failed.step, failed.attempts])
            self._all(task, op["handler"], done, f"{path}.h")

    def _loop(self, task: Context, op: Op, done: list[Any], path: str) -> None:
        for turn in range(op["times"]):
            self._all(task, op["ops"], done, f"{path}.{turn}")

    def _ask(self, task: Context, op: Op, done: list[Any], path: str) -> None:
        done.append(task.ask_all([Ask(key, "?") for key in op["keys"]]))

    def _sleep(self, task: Context, op: Op, done: list[Any], path: str) -> None:
        task.sleep(op["seconds"])

    def _signal(self, task: Context, op: Op, done: list[Any], path: str) -> None:
        signal = task.wait_for_signal(op["name"], timeout=timedelta(hours=1) if op["timeout"] else None)
        done.append(signal.payload if signal else "timed out")

    def _note(self, task: Context, op: Op, done: list[Any], path: str) -> None:
        task.log("note") if op["log"] else task.checkpoint("note")

    def _fail(self, task: Context, op: Op, done: list[Any], path: str) -> None:
        raise Failure("as it was told to")


class AsyncProgram:
    """Branches of keyed operations, gathered: each is in order, and they are in any order among themselves."""

    def __init__(self, branches: list[list[Op]]) -> None:
        self.branches = branches
        self.run: Run | None = None

    async def body(self, task: AsyncContext) -> Any:
        return await asyncio.gather(*(self._branch(task, ops, place) for place, ops in enumerate(self.branches)))

    async def _branch(self, task: AsyncContext, ops: list[Op], branch: int) -> list[Any]:
        done: list[Any] = []
        for place, op in enumerate(ops):
            key = f"{branch}.{place}"
            match op["op"]:
                case "step":
                    retry = Retry(attempts=op["attempts"], first_delay=op["delay"], jitter=0)
                    try:
                        done.append(await task.astep("part", self._compute, key, op, key=key, retry=retry))
                    except StepFailed as failed:
                        done.append([failed.step, failed.attempts])
                case "ask":
                    done.append(await task.aask(f"q {key}", "?"))
                case "sleep":
                    await task.asleep(op["seconds"], key=key)
                case "signal":
                    # a name of its own: which of two waits for one name comes first, nobody can say
                    signal = await task.await_for_signal(f"s {key}", key=key)
                    done.append(signal.payload if signal else None)
                case "note":
                    await task.alog("note")
        return done

    async def _compute(self, key: str, op: Op) -> str:
        run = self.run
        assert run is not None
        full = f"part[{key}]"
        run.computed.append((full, 0))
        for _ in range(op["turns"]):
            await asyncio.sleep(0)
        if run.failures[full] < op["fails"]:
            run.failures[full] += 1
            raise OSError("not yet")
        return full

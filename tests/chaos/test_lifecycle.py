"""Every verb at every moment: the rows do what a model in few words says they must, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db.models import F
from django.test import override_settings
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from supervision.errors import DriveEnded, SupervisionError
from supervision.kernel import creation, ends, forks, lease, lifecycle, questions, signals_in
from supervision.kernel.clock import Now
from supervision.kernel.models import Heartbeat, Question, Task
from supervision.kernel.question_form import Ask
from supervision.testing import prune_all
from supervision.worker import stuck
from tests.chaos.life import CAP, TERMINAL, Life
from tests.chaos.world import IS_LONG, World, times
from tests.integration.rows import BODY, WORKER, assert_sound

pytestmark = pytest.mark.slow

EXAMPLES = times(200)
STEPS = 30
OUTCOMES: Counter[tuple[str, str]] = Counter()
"""(verb, what it said) -> how often: so that the test knows what it has tried."""
STATES: Counter[str] = Counter()
"""Where lives were when their story ended."""

ages = st.sampled_from([0, 0, 0, 0, 0, -1, 1])
"""How far a worker's lease is from the row's: mostly it holds it."""
keys = st.sampled_from(["a", "b"])
picks = st.tuples(st.integers(0, 9), st.integers(0, 99))
"""Which task, and how much the choice cares for one that the verb suits."""


class Lifecycle(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.models: dict[UUID, Life] = {}
        self.create()

    def _pick(self, pick: tuple[int, int], suits: Callable[[Life], bool]) -> UUID:
        """Mostly a task that the verb suits, if there is one: else most of all that is tried would be refused."""
        fitting = [pk for pk, life in self.models.items() if suits(life)]
        among = fitting if fitting and pick[1] < 85 else list(self.models)
        return among[pick[0] % len(among)]

    def _driven(self, pick: tuple[int, int]) -> UUID:
        """Mostly a task that runs; one that may be taken is taken, so that a worker has something to write under."""
        pk = self._pick(pick, lambda life: _runs(life) or _may_be_taken(life))
        life = self.models[pk]
        if pick[1] < 85 and _may_be_taken(life):
            number = life.lease
            self._try(pk, "take", lambda: lease.take(pk, number, WORKER) or False, life.take(number))
        return pk

    def _try(self, pk: UUID, verb: str, act: Callable[[], Any], expected: str) -> Any:
        """Does it, and compares what it says and what becomes of the row with the model, which has done it already."""
        said, result = _said(act)
        OUTCOMES[verb, said] += 1
        assert said == expected, (verb, said, expected, self.models[pk])
        self._compare(pk)
        return result

    def _compare(self, pk: UUID) -> None:
        life, row = self.models[pk], Task.objects.with_clock().get(pk=pk)
        shown = (row.current_state, row.lease, row.ending, row.pause_requested_at is not None)
        assert shown[:2] == (life.state, life.lease), life
        if not life.is_terminal:
            assert shown[2:] == (life.ending, life.is_held), life
        assert (row.wake_at is not None and row.wake_at <= row.db_now) == life.is_due, life
        assert_sound(pk)

    @precondition(lambda self: sum(not life.is_terminal for life in self.models.values()) < 2)
    @rule()
    def create(self) -> None:
        self.models[creation.create(BODY).pk] = Life()

    # --- workers

    @rule(pick=picks, age=ages)
    def take(self, pick: tuple[int, int], age: int) -> None:
        pk = self._pick(pick, _is_due)
        number = self.models[pk].lease + age
        self._try(pk, "take", lambda: lease.take(pk, number, WORKER) or False, self.models[pk].take(number))

    @rule(pick=picks, age=ages)
    def checkpoint(self, pick: tuple[int, int], age: int) -> None:
        pk = self._driven(pick)
        number = self.models[pk].lease + age
        self._try(pk, "checkpoint", lambda: lease.checkpoint(pk, number), self.models[pk].checkpoint(number))

    @rule(pick=picks, age=ages, key=keys)
    def ask(self, pick: tuple[int, int], age: int, key: str) -> None:
        pk = self._driven(pick)
        number = self.models[pk].lease + age
        expected = self.models[pk].ask(number, key)
        self._try(pk, "ask", lambda: "requests" if questions.ask(pk, number, [Ask(key, "?")]) else "parked", expected)

    @rule(pick=picks, age=ages)
    def consume(self, pick: tuple[int, int], age: int) -> None:
        pk = self._driven(pick)
        number = self.models[pk].lease + age
        self._try(pk, "consume", lambda: signals_in.consume_or_park(pk, number, "s"), self.models[pk].consume(number))

    @rule(pick=picks, age=ages)
    def park(self, pick: tuple[int, int], age: int) -> None:
        pk = self._driven(pick)
        number = self.models[pk].lease + age
        day = timedelta(days=1)
        self._try(pk, "park", lambda: lease.park(pk, number, "sleeping", wake_after=day), self.models[pk].park(number))

    @rule(pick=picks, age=ages, how=st.sampled_from(["completed", "failed", ""]))
    def end(self, pick: tuple[int, int], age: int, how: str) -> None:
        pk = self._driven(pick)
        number = self.models[pk].lease + age
        acts: dict[str, Callable[[], None]] = {
            "completed": lambda: ends.complete(pk, number, 1),
            "failed": lambda: ends.fail(pk, number, "failed:X", "x", {}),
            "": lambda: ends.end(pk, number),
        }
        self._try(pk, f"end {how}", acts[how], self.models[pk].end(number, how))

    @rule(pick=picks, is_stale=st.booleans())
    def crash(self, pick: tuple[int, int], is_stale: bool) -> None:
        """The worker is heard of no more, or is; and somebody sweeps."""
        pk = self._driven(pick)
        if is_stale:
            Heartbeat.objects.filter(task_id=pk).update(beat_at=F("beat_at") - timedelta(hours=1))
        self._try(pk, "reap", lambda: lease.reap(pk), self.models[pk].reap(is_stale=is_stale))

    # --- people, the world and time

    @rule(pick=picks, key=keys)
    def answer(self, pick: tuple[int, int], key: str) -> None:
        pk = self._pick(pick, _asks)
        question = Question.objects.filter(task_id=pk, key=key).first()
        if question is not None:
            expected = self.models[pk].answer(key)
            self._try(pk, "answer", lambda: questions.answer(question.pk, "yes", by="ann"), expected)

    @rule(pick=picks)
    def signal(self, pick: tuple[int, int]) -> None:
        pk = self._pick(pick, _lives)
        self._try(pk, "signal", lambda: signals_in.send(pk, "s"), self.models[pk].signal())

    @rule(pick=picks, verb=st.sampled_from(["pause", "resume", "pause", "resume", "cancel", "expire", "terminate"]))
    def ask_for(self, pick: tuple[int, int], verb: str) -> None:
        pk = self._pick(pick, _lives)
        self._try(pk, verb, lambda: getattr(lifecycle, verb)(pk, by="ann"), getattr(self.models[pk], verb)())

    @rule(pick=picks)
    def sleep_ends(self, pick: tuple[int, int]) -> None:
        pk = self._pick(pick, _sleeps)
        Task.objects.filter(pk=pk, wake_at__gt=Now()).update(wake_at=Now())
        self.models[pk].wake()
        self._compare(pk)

    @rule(pick=picks)
    def time_runs_out(self, pick: tuple[int, int]) -> None:
        pk = self._pick(pick, _lives)
        if not self.models[pk].is_terminal:
            Task.objects.filter(pk=pk).update(expires_at=Now() - timedelta(seconds=1))
            self.models[pk].is_overdue = True
            self._compare(pk)

    @rule(pick=picks)
    def sweep(self, pick: tuple[int, int]) -> None:
        pk = self._pick(pick, _is_late)
        self._try(pk, "sweep", lambda: lifecycle.expire(pk), self.models[pk].sweep())

    @precondition(lambda self: sum(not life.is_terminal for life in self.models.values()) < 2)
    @rule(pick=picks)
    def fork(self, pick: tuple[int, int]) -> None:
        pk = self._pick(pick, _has_ended)
        life = self.models[pk]
        said, task = _said(lambda: forks.fork(pk, by="ann"))
        OUTCOMES["fork", said] += 1
        assert said == ("ok" if life.is_terminal else "Refused"), life
        if said == "ok" and task.pk not in self.models:
            self.models[task.pk] = Life(answered=set(life.answered), signals=life.signals)
            self._compare(task.pk)

    def teardown(self) -> None:
        assert stuck.find() == [], "it waits for what has happened"
        STATES.update(life.state for life in self.models.values())
        prune_all()


def _is_due(life: Life) -> bool:
    return life.is_due and not life.is_terminal


def _may_be_taken(life: Life) -> bool:
    return _is_due(life) and not _runs(life) and bool(life.ending or not (life.is_held or life.is_overdue))


def _runs(life: Life) -> bool:
    return life.state == "running"


def _lives(life: Life) -> bool:
    return not life.is_terminal


def _asks(life: Life) -> bool:
    return bool(life.pending)


def _sleeps(life: Life) -> bool:
    return life.waits == "time"


def _is_late(life: Life) -> bool:
    return life.is_overdue and not life.is_terminal


def _has_ended(life: Life) -> bool:
    return life.is_terminal


def _said(act: Callable[[], Any]) -> tuple[str, Any]:
    """In the model's words, with the result."""
    try:
        result = act()
    except (SupervisionError, DriveEnded) as refusal:
        return type(refusal).__name__, None
    if isinstance(result, lease.Requests):
        asked = [result.pause and "pause", result.ending, result.is_overdue and "overdue"]
        words = ",".join(each for each in asked if each) or "ok"
    elif isinstance(result, signals_in.Waited):
        words = "signal" if result.signal else "parked" if result.parked else "requests"
    elif isinstance(result, bool | str):
        words = str(result)
    else:
        words = type(result).__name__ if isinstance(result, lease.Taken) else "ok"
    return words, result


def test_every_verb_at_every_moment_does_what_the_model_says(world: World) -> None:
    OUTCOMES.clear()
    profile = settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, database=None, print_blob=True,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink] if IS_LONG else [Phase.generate],  # shrinking takes minutes
    )  # fmt: skip
    with override_settings(SUPERVISION={"MAX_RECOVERIES": CAP, "QUESTION_EXPIRES_AFTER": None}):
        run_state_machine_as_test(seed(world.seed)(Lifecycle), settings=profile)
    print({f"{verb}: {said}": count for (verb, said), count in sorted(OUTCOMES.items())})  # noqa: T201
    assert sum(OUTCOMES.values()) > EXAMPLES * STEPS / 4
    tried = Counter(verb for verb, _said in OUTCOMES.elements())
    assert len(tried) >= 15
    for verb in (verb for verb, count in tried.items() if count > 40):
        assert len([said for each, said in OUTCOMES if each == verb]) > 1, f"{verb} was never both done and refused"
    assert STATES.keys() >= TERMINAL

"""The memoised calls: step, sleep, wait_for_signal, continue_as_new. Each is found again by its name.

The order within a call: is the drive still on, is it recorded, was something requested, then the work, then its record.
What was requested during a step is observed at the next call, so that a step always hands over its result.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NoReturn, TypeVar, cast

from django.db import DatabaseError, transaction

from supervision.conf import settings
from supervision.engines import registry, steps
from supervision.engines.replay import Names, Recorded, Replay
from supervision.engines.steps import ONCE, Retry
from supervision.errors import (
    AwaitingSignal,
    Busy,
    Cancelled,
    ConnectionLost,
    ContinuedAsNew,
    NotStorable,
    ReplayMismatch,
    Retrying,
    Sleeping,
    StepFailed,
    SupervisionError,
)
from supervision.kernel import crash, masking, signals_in, sql, storable, waits
from supervision.kernel import lease as leases
from supervision.kernel.branches import Branch
from supervision.kernel.models import Signal
from supervision.kernel.states import Reason

R = TypeVar("R")

_TRIES = 5
SHORT_WAIT = 2.0
"""A retry sooner than this is waited for in the worker; a longer wait parks."""


class Durable:
    """The part of ``Context`` that remembers. Mixed into it; see there for what it stands on."""

    # what Context provides
    _taken: leases.Taken
    _secrets: list[str]
    _enter: Callable[..., None]
    _end: Any
    _kernel: Any
    _changed: Any
    _decided: str
    _requests: leases.Requests
    _decisions: dict[str, Any]
    _has_read_decisions: bool
    unwinding: Cancelled | None
    ask: Callable[..., Any]
    _unwind: Callable[..., Any]
    _go_on: Callable[[], None]
    remember_to_undo: Callable[..., None]
    _once: Callable[..., Any]

    def _start_remembering(self) -> None:
        self._step: str | None = None
        self._begin_part("", after=self._taken.replay_from)

    def _begin_part(self, scope: str, *, after: int | None) -> None:
        """From here on calls have names of their own, behind ``scope``, and find what was recorded after the entry of
        that number. None: nothing can have been. For an engine whose tasks consist of parts."""
        self._scope = scope
        self._replay_after = after
        self._replayed: Replay | None = None
        self._names = Names()
        self._answers: dict[str, Any] | None = None

    @property
    def _replay(self) -> Replay:
        """Read at the first memoised call of the drive, or of a part of it, in one query."""
        if self._replayed is None:
            with self._kernel():
                self._replayed = Replay(self._taken.task_id, after=self._replay_after)
        return self._replayed

    @property
    def idempotency_key(self) -> str:
        """Inside a step: the same for every retry, recovery and fork of that step, for services that take one."""
        return self.idempotency_key_of(self._step or "")

    def idempotency_key_of(self, step: str) -> str:
        """The key of the step of that full name."""
        if not step:
            raise SupervisionError("task.idempotency_key is of a step: read it inside one.")
        rounds = f"@{self._taken.round}" if self._taken.round else ""
        return f"{self._taken.root_id}{rounds}:{step}"

    def step(
        self,
        name: str,
        function: Callable[..., R],
        /,
        *args: Any,
        key: object | None = None,
        retry: Retry | None = None,
        timeout: float | timedelta | None = None,
        atomic: bool = False,
        once: bool = False,
        compensate: Callable[[Any], Any] | None = None,
        compensate_retry: Retry | None = None,
        **kwargs: Any,
    ) -> R:
        """The result of ``function(*args, **kwargs)``, as JSON: recorded once, then never computed again.

        Found by ``name`` and ``key`` (or by its occurrence). Without ``retry`` it has one attempt; a step that failed
        for good raises StepFailed. ``timeout`` seconds bound each attempt. ``atomic`` commits the function's own
        effects, on the kernel's database, together with the record. ``once`` records the intention first: if the worker
        dies in between, a person decides what happened. ``compensate`` undoes it: called with its result, in reverse
        order of the steps, when the task fails, is cancelled or expires, retried by ``compensate_retry``. A function
        recorded under this name with other arguments parks the task (``replay_mismatch``).
        """
        if once and retry is not None:
            raise SupervisionError(f"Step {name!r}: once=True and retry= contradict each other.")
        if once and atomic:
            raise SupervisionError(f"Step {name!r}: an atomic step needs no once=True, it happens exactly once.")
        self._go_on()
        full = self.identify(name, key)
        call = steps.describe(function, args, kwargs, compensate)
        found, result = self.recorded(full, call)
        if found is None or not found.outcome:
            self._enter(full, is_recorded=False)
            work = partial(function, *args, **kwargs)
            if once:
                result = self._once(full, found, call, work, timeout)
            else:
                result = self._attempts(full, found, call, work, retry or ONCE, timeout, atomic)
        self.remember_to_undo(full, found, compensate, compensate_retry, result)
        return cast(R, result)

    def sleep(self, duration: timedelta | float, *, key: object | None = None) -> None:
        """Parks for ``duration`` (seconds or a timedelta) of the database's clock, once; no worker is held."""
        self._sleep(key, duration=duration if isinstance(duration, timedelta) else timedelta(seconds=duration))

    def sleep_until(self, moment: datetime, *, key: object | None = None) -> None:
        """Parks until ``moment`` (aware) on the database's clock; at once if it has passed."""
        if moment.tzinfo is None:
            raise SupervisionError("sleep_until needs an aware datetime: a naive one is another moment in each zone.")
        self._sleep(key, until=moment)

    def wait_for_signal(
        self, name: str, *, timeout: timedelta | None = None, key: object | None = None
    ) -> Signal | None:
        """The next unconsumed signal of that name (always truthy), or None once ``timeout`` has passed.

        Parks meanwhile. The deadline is recorded at the first call; a signal that is there wins over it.
        """
        self._go_on()
        full = self.identify(f"signal:{name}", key)
        found = self._replay.get(full)
        self._enter(full, is_recorded=bool(found and found.outcome))
        if found is not None and found.outcome:
            return signals_in.replayed(self._taken.task_id, found.number, self._replay.payload(found.number))
        with self._kernel():
            came = signals_in.consume_or_park(
                self._taken.task_id, self._taken.lease, name, timeout=timeout, deadline=self._deadline(found),
                wait=full, decisions=self._changed(),
            )  # fmt: skip
        self._refuse(came.requests, full)
        if came.parked:
            raise self._end(AwaitingSignal())
        return came.signal

    def continue_as_new(self, **arguments: Any) -> None:
        """Ends this round and starts the body afresh with ``arguments``: nothing before is replayed any more.

        For endless work, whose replay would grow without end. Decisions are cleared; questions keep their keys.
        """
        self._go_on()
        if self._step is not None:
            raise SupervisionError(f"task.continue_as_new() was called inside the step {self._step!r}; move it out.")
        checked = registry.get(self._taken.body).check_arguments({**self._taken.arguments, **arguments})
        self._enter("continue_as_new", is_recorded=False)
        with self._kernel():
            waits.continue_as_new(self._taken.task_id, self._taken.lease, checked)
        raise self._end(ContinuedAsNew())

    # --- names

    def identify(self, base: str, key: object | None) -> str:
        """The full name of this call: pure, and in the order of the calls."""
        if self._step is not None:
            raise SupervisionError(f"{base!r} was called inside the step {self._step!r}; steps don't nest.")
        if key is None and self._has_read_decisions and self._decisions:
            raise SupervisionError(
                f"{base!r} needs a key=: this body skips ahead by its decisions, so the occurrence of a call says "
                "nothing about which one it is."
            )
        return self._scope + self._names.name(base, key)

    # --- replay

    def recorded(self, full: str, call: Mapping[str, str]) -> tuple[Recorded | None, Any]:
        """What is recorded of the step, and its result if it is settled. Raises StepFailed if it failed for good; parks
        the task if another call was recorded under its name."""
        found = self._replay.get(full)
        return found, self._recorded_result(full, found, call) if found is not None and found.outcome else None

    def _recorded_result(self, full: str, found: Recorded, call: Mapping[str, str]) -> Any:
        payload = self._replay.payload(found.number)
        differs = [what for what in ("function", "digest") if payload.get(what) != call[what]]
        if differs:
            self._park_mismatch(full, {what: payload.get(what) for what in differs}, call)
        if found.outcome == "step_failed":
            raise StepFailed(full, payload["error_type"], payload["error"], payload["attempts"])
        return payload["result"]

    def _park_mismatch(self, full: str, recorded: Mapping[str, Any], called: Mapping[str, str]) -> NoReturn:
        """The code calls something else under a recorded name: for an operator; or, if the task is being ended, the
        point up to which it can be replayed."""
        if self._requests.ending or self._requests.is_overdue:
            raise self._unwind(self._requests, full)
        reason = Reason.REPLAY_MISMATCH.of(full)
        with self._kernel():
            leases.park(self._taken.task_id, self._taken.lease, reason,
                        payload={"recorded": dict(recorded),
                                 "called": {what: called[what] for what in recorded}})  # fmt: skip
        raise self._end(ReplayMismatch(reason))

    def _deadline(self, found: Recorded | None) -> datetime | None:
        """Of a wait that an earlier drive began."""
        if found is None or not found.parked:
            return None
        text = self._replay.payload(found.parked).get("deadline")
        return datetime.fromisoformat(text) if text else None

    def _sleep(self, key: object | None, **moment: Any) -> None:
        self._go_on()
        full = self.identify("sleep", key)
        found = self._replay.get(full)
        self._enter(full, is_recorded=bool(found and found.outcome))
        if found is not None and found.outcome:
            return
        deadline = self._deadline(found)
        if deadline is not None:
            moment = {"until": deadline}
        with self._kernel():
            slept = waits.sleep(self._taken.task_id, self._taken.lease, full, decisions=self._changed(), **moment)
        self._refuse(slept.requests, full)
        if not slept.over:
            raise self._end(Sleeping())

    def _refuse(self, requests: leases.Requests | None, full: str) -> None:
        """A wait that isn't begun because the task is being ended: raises Cancelled, again in a clean-up."""
        if requests:
            self._decided = ""  # nothing was written: the next record takes the decisions along
            raise self._unwind(requests, full)

    # --- attempts

    def _attempts(
        self,
        full: str,
        found: Recorded | None,
        call: dict[str, str],
        work: Callable[[], Any],
        retry: Retry,
        timeout: float | timedelta | None,
        atomic: bool,
    ) -> Any:
        failed = found.failed_attempts if found else 0
        while True:
            try:
                if atomic:
                    return self._atomically(full, call, work, timeout)
                result = self._call(full, work, timeout)
                return self._completed(full, call, result)
            except Exception as error:
                failed += 1
                delay = self._attempt_failed(full, call, error, failed, retry)
                if self._may_try_again(full, delay):
                    time.sleep(delay)

    def _attempt_failed(self, full: str, call: dict[str, str], error: Exception, failed: int, retry: Retry) -> float:
        """Records the failed attempt; the seconds until the next one. Raises StepFailed if there is none, and
        ConnectionLost if it was no fault of the step's."""
        self._raise_if_lost(error)
        if isinstance(error, NotStorable) or not retry.wants(error, failed):
            raise self._failed(full, call, error, failed) from error
        delay = retry.delay(failed)
        payload = {"error_type": type(error).__name__, "error": self._clean(error), "attempt": failed,
                   "next_in": round(delay, 3), "traceback": self._traceback(error)}  # fmt: skip
        self._write("step_attempt_failed", full, storable.encode(payload, place=full, limit="MAX_PAYLOAD_BYTES"))
        return delay

    def _may_try_again(self, full: str, delay: float) -> bool:
        """Whether the wait is so short that this worker waits; else parks until the next attempt."""
        self._enter(full, is_recorded=False)
        if delay <= SHORT_WAIT:
            return True
        with self._kernel():
            leases.park(self._taken.task_id, self._taken.lease, Reason.RETRYING.of(full),
                        wake_after=timedelta(seconds=delay), decisions=self._changed(),
                        while_ending=self.unwinding is not None)  # fmt: skip
        raise self._end(Retrying())

    def _call(self, full: str, work: Callable[[], Any], timeout: float | timedelta | None) -> Any:
        """The author's function, alone: with its timeout, and with no call of the context inside it."""
        self._step = full
        try:
            return steps.within(full, timeout, work)
        finally:
            self._step = None

    def _completed(self, full: str, call: dict[str, str], result: Any) -> Any:
        encoded = _encode(full, result)
        self._write("step_completed", full, _with_result(encoded, call), compensations="compensate" in call)
        return storable.as_stored(encoded)

    def _atomically(
        self, full: str, call: dict[str, str], work: Callable[[], Any], timeout: float | timedelta | None
    ) -> Any:
        """Effects first, lease-checked record last, one commit. The author's deferred constraints are checked before
        the record, so that their errors are the author's. A deadlock undid everything, so it is simply run again."""
        for left in range(_TRIES - 1, -1, -1):
            before = self._decided
            try:
                with transaction.atomic(using=settings.DATABASE, durable=True):
                    result = self._call(full, work, timeout)
                    sql.connection().check_constraints()
                    encoded = _encode(full, result)
                    with self._kernel():
                        changed = self._changed()
                        requests = leases.record_in_transaction(
                            self._taken.task_id, self._taken.lease, event="step_completed", name=full,
                            payload=_with_result(encoded, call),
                            decisions=None if changed is None else self._decided, compensations="compensate" in call,
                        )  # fmt: skip
                    crash.point("checkpoint:before_commit")
            except BaseException as error:
                self._decided = before
                if left == 0 or not _is_undone(error):
                    raise
            else:
                crash.point("checkpoint:after_commit")
                self._requests = requests
                return storable.as_stored(encoded)
        raise AssertionError("unreachable")

    def _raise_if_lost(self, error: Exception) -> None:
        """A database that went away beneath the author's function is no failed attempt."""
        if isinstance(error, DatabaseError) and sql.is_connection_lost(error) and not sql.connection().is_usable():
            raise self._end(ConnectionLost()) from error

    def _failed(self, full: str, call: dict[str, str], error: Exception, attempts: int) -> StepFailed:
        """Records the failure for good; what to raise."""
        kind, message = type(error).__name__, self._clean(error)
        self._write("step_failed", full, storable.encode(
            {**call, "error_type": kind, "error": message, "attempts": attempts, "traceback": self._traceback(error)},
            place=full, limit="MAX_PAYLOAD_BYTES"))  # fmt: skip
        return StepFailed(full, kind, message, attempts)

    def _write(
        self, event: str, name: str, payload: str, *, compensations: int = 0, branches: Sequence[Branch] = ()
    ) -> None:
        """A record under a name; what was requested meanwhile is observed by the next call."""
        with self._kernel():
            changed = self._changed()
            self._requests = leases.checkpoint(
                self._taken.task_id, self._taken.lease, event=event, name=name, payload=payload,
                decisions=None if changed is None else self._decided, compensations=compensations, branches=branches,
            )  # fmt: skip

    def _clean(self, error: BaseException) -> str:
        return storable.text(masking.mask_values(storable.error_text(error), self._secrets), 10_000)

    def _traceback(self, error: BaseException) -> str:
        whole = storable.error_text("".join(traceback.format_exception(error)))
        return storable.text(masking.mask_values(whole, self._secrets), 20_000)


def _is_undone(error: BaseException) -> bool:
    """Whether the transaction did nothing, through no fault of the function: a deadlock, a row that stayed locked."""
    return isinstance(error, Busy) or (isinstance(error, DatabaseError) and sql.sqlstate(error) in sql.RETRYABLE)


def _encode(full: str, result: Any) -> str:
    """The result as JSON: what is recorded, and what this drive and every replay hand to the author."""
    return storable.encode(result, place=f"the result of step {full}", limit="MAX_PAYLOAD_BYTES")


def _with_result(encoded: str, call: dict[str, str]) -> str:
    """The payload of a completed step; the result isn't encoded a second time."""
    return f'{{"result":{encoded},{json.dumps(call)[1:]}'

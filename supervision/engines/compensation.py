"""Undoing what was done: the compensations of completed steps, in reverse, before a task's end is written."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from supervision.engines import steps
from supervision.engines.replay import Recorded, Replay
from supervision.engines.steps import Retry
from supervision.errors import CompensationExhausted, Retrying
from supervision.kernel import lease as leases
from supervision.kernel import storable
from supervision.kernel.states import Reason

SHORT_WAIT = 2.0
_PATIENT = Retry(attempts=5, first_delay=1, factor=4, max_delay=300)


@dataclass(frozen=True)
class _Undo:
    """One completed step to be undone."""

    order: int
    step: str
    compensate: Callable[[Any], Any]
    retry: Retry
    result: Any


class Compensating:
    """The part of ``Context`` that undoes. Mixed into it; see there for what it stands on."""

    _taken: leases.Taken
    _replay: Replay
    _kernel: Any
    _write: Callable[..., None]
    _end: Any
    _go_on: Callable[[], None]
    _stop_if_asked: Callable[[], None]
    _clean: Callable[[BaseException], str]
    _traceback: Callable[[BaseException], str]

    def _start_to_undo(self) -> None:
        self._undo: list[_Undo] = []

    @property
    def has_to_undo(self) -> bool:
        return bool(self._undo)

    def remember_to_undo(
        self,
        step: str,
        found: Recorded | None,
        compensate: Callable[[Any], Any] | None,
        retry: Retry | None,
        result: Any,
    ) -> None:
        """Called with each completed step, replayed or new; in the order in which they were recorded."""
        if compensate is None or (found is not None and found.is_compensated):
            return
        order = found.number if found is not None and found.outcome else 2**62 + len(self._undo)
        self._undo.append(_Undo(order, step, compensate, retry or _PATIENT, result))

    def undo(self) -> None:
        """Runs what is outstanding in reverse, each recorded as it is done, so that a crash goes on from there.

        Parks between attempts that are far apart. Raises CompensationExhausted for one whose attempts are used up: it
        and what was done before it stay done.
        """
        undone: list[str] = []
        while self._undo:
            each = max(self._undo, key=lambda item: item.order)
            self._go_on()
            self._stop_if_asked()
            self._undo_one(each, undone)
            self._undo.remove(each)
            undone.append(each.step)

    def _undo_one(self, each: _Undo, undone: list[str]) -> None:
        name = f"undo:{each.step}"
        before = self._replay.get(name)
        failed = before.failed_attempts if before else 0
        while True:
            try:
                outcome = each.compensate(each.result)
                if inspect.iscoroutine(outcome):
                    asyncio.run(_awaited(outcome))
                break
            except Exception as error:
                failed += 1
                if not each.retry.wants(error, failed):
                    left = [other.step for other in sorted(self._undo, key=lambda item: -item.order)]
                    raise CompensationExhausted(each.step, self._clean(error), undone, left) from error
                self._wait_to_undo(name, error, failed, each.retry.delay(failed))
        payload = storable.encode(
            {"function": steps.function_name(each.compensate)}, place=name, limit="MAX_PAYLOAD_BYTES"
        )
        self._write("step_compensated", each.step, payload, compensations=-1)

    def _wait_to_undo(self, name: str, error: Exception, failed: int, delay: float) -> None:
        payload = {"error_type": type(error).__name__, "error": self._clean(error), "attempt": failed,
                   "next_in": round(delay, 3), "traceback": self._traceback(error)}  # fmt: skip
        self._write("step_attempt_failed", name, storable.encode(payload, place=name, limit="MAX_PAYLOAD_BYTES"))
        if delay <= SHORT_WAIT:
            time.sleep(delay)
            return
        with self._kernel():
            leases.park(self._taken.task_id, self._taken.lease, Reason.RETRYING.of(name),
                        wake_after=timedelta(seconds=delay), while_ending=True)  # fmt: skip
        raise self._end(Retrying())


async def _awaited(outcome: Any) -> None:
    await outcome

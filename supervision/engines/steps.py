"""Durable steps: an author's function whose result is recorded once and never computed again. Pure parts here:
the retry policy, the digest of a call, the timeout. ``Context.step`` puts them together."""

from __future__ import annotations

import hashlib
import json
import random
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from django.db.models import Model

from supervision.engines import tracing
from supervision.errors import StepTimedOut, SupervisionError

R = TypeVar("R")


@dataclass(frozen=True)
class Retry:
    """How often and when a failed step is tried again. Delays are in seconds, or a timedelta.

    The n-th wait is ``first_delay * factor ** (n - 1)``, at most ``max_delay``, and up to ``jitter`` of it shorter, so
    that tasks that failed together don't return together. ``on`` names the exceptions that are worth another attempt;
    ``never`` wins over it.

    >>> Retry(attempts=5, first_delay=2, factor=2, max_delay=300)
    """

    attempts: int = 3
    first_delay: float | timedelta = 1.0
    factor: float = 2.0
    max_delay: float | timedelta = 300.0
    jitter: float = 0.1
    on: tuple[type[Exception], ...] = (Exception,)
    never: tuple[type[Exception], ...] = ()

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.factor < 1 or not 0 <= self.jitter <= 1 or _seconds(self.first_delay) < 0:
            raise ValueError(f"attempts and factor are at least 1, jitter is from 0 to 1, delays are positive: {self}")

    def delay(self, failed: int) -> float:
        """Seconds to wait after the ``failed``-th failure."""
        full = min(_seconds(self.first_delay) * self.factor ** (failed - 1), _seconds(self.max_delay))
        return full * (1 - self.jitter * random.random())  # noqa: S311 - no secret

    def wants(self, error: Exception, failed: int) -> bool:
        """Whether there is another attempt after ``failed`` failures, the last of which was ``error``."""
        return failed < self.attempts and isinstance(error, self.on) and not isinstance(error, self.never)


def _seconds(value: float | timedelta) -> float:
    return value.total_seconds() if isinstance(value, timedelta) else value


_VALUE_MODULES = frozenset({"datetime", "decimal", "uuid", "fractions", "ipaddress", "zoneinfo"})
"""Whose values' text is their value; the text of other objects may hold an address."""

ONCE = Retry(attempts=1)


def function_name(function: Callable[..., Any]) -> str:
    """What is recorded of a step's function; a lambda or partial is named by what it is made of."""
    inner = getattr(function, "func", function)
    return f"{getattr(inner, '__module__', '?')}.{getattr(inner, '__qualname__', type(inner).__name__)}"


def describe(
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    compensate: Callable[..., Any] | None = None,
) -> dict[str, str]:
    """What is recorded of a call beside its result. Function and digest are compared when it is replayed."""
    call = {"function": function_name(function), "digest": digest(args, kwargs)}
    if compensate is not None:
        call["compensate"] = function_name(compensate)
    return call


def digest(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """A short digest of a call's arguments, the same in every process: by value where they are JSON, by model and key
    for rows, by type for the rest."""
    call = [list(args), dict(kwargs)]
    try:
        text = json.dumps(call, default=_stable, sort_keys=True, skipkeys=True)
    except TypeError:  # keys of several types can't be sorted
        text = json.dumps(call, default=_stable, skipkeys=True)
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16]


def _stable(value: Any) -> Any:
    if isinstance(value, Model):
        return f"{value._meta.label}:{value.pk}"
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    kind = type(value)
    if kind.__module__ in _VALUE_MODULES or isinstance(value, Enum | Path):
        return f"{kind.__qualname__}:{value}"
    return kind.__qualname__


def within(step: str, timeout: float | timedelta | None, work: Callable[[], R]) -> R:
    """What ``work`` returns, measured by whoever traces; see ``_within``."""
    if tracing.step is None:
        return _within(step, timeout, work)
    with tracing.step(step):
        return _within(step, timeout, work)


def _within(step: str, timeout: float | timedelta | None, work: Callable[[], R]) -> R:
    """What ``work`` returns; raises StepTimedOut in it after ``timeout``. Armed only around the author's function.

    By SIGALRM, hence only in the main thread of a process; elsewhere a timeout is refused, not ignored. C code that
    doesn't return is only interrupted when it does.
    """
    if timeout is None:
        return work()
    seconds = _seconds(timeout)
    if seconds <= 0:
        raise SupervisionError(f"The timeout of step {step!r} is {seconds:g} s; it must be more than nothing.")
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        raise SupervisionError(
            f"The timeout of step {step!r} can only be armed in the main thread of a worker process."
        )
    armed = True

    def ring(*_: Any) -> None:
        if armed:
            raise _Ring

    before = signal.signal(signal.SIGALRM, ring)
    began, (around, _interval) = time.monotonic(), signal.getitimer(signal.ITIMER_REAL)
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            return work()
        finally:
            armed = False  # an alarm that rings just before this is caught below like any other
    except _Ring:
        raise StepTimedOut(step, seconds) from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if around:  # of a node, around its steps
            signal.setitimer(signal.ITIMER_REAL, max(0.001, around - (time.monotonic() - began)))


class _Ring(KeyboardInterrupt):
    """The alarm. No Exception, so that ``except Exception`` in the author's function doesn't swallow it; and of that
    kind because psycopg cancels the query that it interrupts, which else would leave the connection unusable."""

"""``async def`` bodies. The body runs in an event loop on a thread of its own; the thread that drives the task serves
its calls into the kernel, one after the other, so that the task has one connection and one writer.

The first call that would suspend stops new steps; the running ones finish and are recorded; then the park commits.
"""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from django.db import connections

from supervision.engines import steps
from supervision.engines.context import Context
from supervision.engines.registry import Body
from supervision.engines.steps import ONCE, Retry
from supervision.errors import Cancelled, StepFailed, StepTimedOut, SupervisionError
from supervision.kernel.models import Signal
from supervision.kernel.question_form import Ask

R = TypeVar("R")

_inside: ContextVar[str] = ContextVar("supervision_step", default="")


class AsyncBodyEngine:
    """Runs the coroutine to its end; what it returns or raises is what a plain body would."""

    context = Context
    keeps_steps = True

    def run(self, body: Body, context: Context) -> Any:
        arguments = body.load_arguments(context.arguments)
        bridge = _Bridge()
        task = AsyncContext(context, bridge)
        outcome: Future[Any] = Future()

        def loop() -> None:
            try:
                outcome.set_result(asyncio.run(body.function(task, **arguments)))
            except BaseException as error:
                outcome.set_exception(error)
            finally:
                bridge.close()

        thread = threading.Thread(target=loop, name=f"supervision-{body.name}")
        thread.start()
        bridge.serve()
        thread.join()
        try:
            return outcome.result()
        except BaseExceptionGroup as group:
            # a TaskGroup wraps what ends the drive, and the step that failed
            if context.ended is not None:
                raise context.ended from None
            if context.unwinding is not None:
                raise context.unwinding from None
            _, rest = group.split(StepFailed)
            if rest is None:
                raise _first(group) from group
            raise


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


class _Bridge:
    """Calls from the loop's thread, run by the thread that serves."""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()

    async def call(self, function: Callable[[], R]) -> R:
        future: Future[R] = Future()
        self._calls.put((function, future))
        return await asyncio.wrap_future(future)

    def serve(self) -> None:
        while (call := self._calls.get()) is not None:
            function, future = call
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

    def close(self) -> None:
        self._calls.put(None)


class AsyncContext:
    """``task`` in an ``async def`` body: the calls of ``Context`` with an ``a`` before their names."""

    def __init__(self, context: Context, bridge: _Bridge) -> None:
        self._context, self._bridge = context, bridge
        self._running = 0
        self._suspending = False
        self._callers: set[asyncio.Task[Any] | None] = set()
        self._to_tell: set[asyncio.Task[Any] | None] = set()
        self._waiting: list[asyncio.Future[None]] = []

    @property
    def id(self) -> UUID:
        return self._context.id

    @property
    def body(self) -> str:
        return self._context.body

    @property
    def subject(self) -> str:
        return self._context.subject

    @property
    def arguments(self) -> dict[str, Any]:
        return self._context.arguments

    @property
    def decisions(self) -> dict[str, Any]:
        return self._context.decisions

    @property
    def version_at_start(self) -> int:
        return self._context.version_at_start

    @property
    def idempotency_key(self) -> str:
        """Inside a step; see ``Context.idempotency_key``."""
        return self._context.idempotency_key_of(_inside.get())

    def signal_url(self, name: str, *, key: str = "") -> str:
        """Inside a step; see ``Context.signal_url``."""
        return self._context.signal_url_of(_inside.get(), name, key)

    def progress(self, done: int | None = None, total: int | None = None, text: str | None = None) -> None:
        self._context.show_progress(done, total, text)

    async def acheckpoint(self, name: str = "", /, *, note: Any = None, **decisions: Any) -> None:
        await self._quietly(lambda: self._context.checkpoint(name, note=note, **decisions))

    async def alog(self, message: str, **data: Any) -> None:
        await self._bridge.call(lambda: self._context.log(message, **data))

    async def aask(self, key: str, prompt: str = "", **options: Any) -> Any:
        return await self._quietly(lambda: self._context.ask(key, prompt, **options))

    async def aask_all(self, asks: Sequence[Ask]) -> dict[str, Any]:
        return await self._quietly(lambda: self._context.ask_all(asks))

    async def asleep(self, duration: timedelta | float, *, key: object | None = None) -> None:
        await self._quietly(lambda: self._context.sleep(duration, key=key))

    async def asleep_until(self, moment: datetime, *, key: object | None = None) -> None:
        await self._quietly(lambda: self._context.sleep_until(moment, key=key))

    async def await_for_signal(
        self, name: str, *, timeout: timedelta | None = None, key: object | None = None
    ) -> Signal | None:
        return await self._quietly(lambda: self._context.wait_for_signal(name, timeout=timeout, key=key))

    async def acontinue_as_new(self, **arguments: Any) -> None:
        await self._quietly(lambda: self._context.continue_as_new(**arguments))

    async def astep(
        self,
        name: str,
        function: Callable[..., Any],
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
    ) -> Any:
        """As ``Context.step``, of an ``async def`` function or an ordinary one (which runs in a thread).

        Steps may be gathered; each is recorded as it finishes. Give calls of one name that run at the same time a
        ``key``, since their occurrence depends on who comes first. ``atomic`` and ``once`` take ordinary functions, run
        on the driving thread, and wait for running siblings; a ``timeout`` of an ordinary function needs one of them.
        """
        if _inside.get():
            raise SupervisionError(f"{name!r} was called inside the step {_inside.get()!r}; steps don't nest.")
        if atomic or once:
            _refuse_coroutine(name, function)
            return await self._quietly(
                lambda: self._context.step(name, function, *args, key=key, retry=retry, timeout=timeout, atomic=atomic,
                                           once=once, compensate=compensate,
                                           compensate_retry=compensate_retry, **kwargs)
            )  # fmt: skip
        full = self._context.identify(name, key)
        call = steps.describe(function, args, kwargs, compensate)
        found, result = await self._bridge.call(lambda: self._context.recorded(full, call))
        if found is None or not found.outcome:
            work = partial(function, *args, **kwargs)
            failed = found.failed_attempts if found else 0
            with self._calling():
                result = await self._attempts(full, call, work, retry or ONCE, timeout, failed)
        self._context.remember_to_undo(full, found, compensate, compensate_retry, result)
        return result

    async def _attempts(
        self, full: str, call: dict[str, str], work: partial[Any], retry: Retry,
        timeout: float | timedelta | None, failed: int,
    ) -> Any:  # fmt: skip
        while True:
            await self._begin(full)
            try:
                result = await _run(full, work, timeout)
                return await self._bridge.call(partial(self._context._completed, full, call, result))
            except Exception as error:
                failed += 1
                delay = await self._bridge.call(
                    partial(self._context._attempt_failed, full, call, error, failed, retry)
                )
            finally:
                self._finish()
            await self._quietly(partial(self._context._may_try_again, full, delay))
            await asyncio.sleep(delay)

    # --- one suspension at a time, and none beside a running step
    #
    # Counted and waited for without a lock: only the loop's thread is here, and it is left at an ``await`` alone. Every
    # count is undone where it stands, so that a call that the author's code cancels leaves nobody waiting.

    @contextmanager
    def _calling(self) -> Iterator[None]:
        """Of a call that does something new: siblings that are in one when ``Cancelled`` is raised get it at their
        next one, so that only who caught it goes on, to clean up."""
        me = asyncio.current_task()
        if me in self._to_tell and self._context.unwinding is not None:
            self._to_tell.discard(me)
            raise self._context.unwinding
        is_outermost = me not in self._callers
        self._callers.add(me)
        try:
            yield
        except Cancelled:
            self._to_tell |= self._callers - {me}
            raise
        finally:
            if is_outermost:
                self._callers.discard(me)

    async def _begin(self, full: str) -> None:
        """Waits while a suspension is being decided; ends the drive if something was requested; counts as running."""
        while True:
            await self._until(lambda: not self._suspending)
            self._running += 1  # before anything is awaited: no suspension is decided beside it
            must_end = True
            try:
                must_end = await self._bridge.call(self._context._must_end)
            finally:
                if must_end:
                    self._finish()
            if not must_end:
                return
            await self._quietly(lambda: self._context._enter(full, is_recorded=False))

    def _finish(self) -> None:
        self._running -= 1
        self._wake()

    async def _quietly(self, call: Callable[[], R]) -> R:
        """Runs what may suspend, when no step is running and while none begins."""
        with self._calling():
            await self._until(lambda: not self._suspending)
            self._suspending = True
            try:
                await self._until(lambda: self._running == 0)
                return await self._bridge.call(call)
            finally:
                self._suspending = False
                self._wake()

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            await turn

    def _wake(self) -> None:
        for turn in self._waiting:
            if not turn.done():
                turn.set_result(None)
        self._waiting.clear()


async def _run(full: str, work: partial[Any], timeout: float | timedelta | None) -> Any:
    """The author's function: awaited, or in a thread."""
    token = _inside.set(full)
    try:
        if not inspect.iscoroutinefunction(work.func):
            if timeout is not None:
                raise SupervisionError(
                    f"The timeout of step {full!r} can't be armed: its function is an ordinary one, and an async body "
                    "runs those in threads. Make it `async def`, or use atomic=True or once=True."
                )
            return await asyncio.to_thread(_in_thread, work)
        if timeout is None:
            return await work()
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        try:
            async with asyncio.timeout(seconds) as limit:
                return await work()
        except TimeoutError:
            if limit.expired():
                raise StepTimedOut(full, seconds) from None
            raise
    finally:
        _inside.reset(token)


def _in_thread(work: Callable[[], Any]) -> Any:
    """The thread goes back to a pool: the connections that the function opened must not stay with it."""
    try:
        return work()
    finally:
        connections.close_all()


def _refuse_coroutine(name: str, function: Callable[..., Any]) -> None:
    if inspect.iscoroutinefunction(function):
        raise SupervisionError(f"Step {name!r}: atomic=True and once=True take an ordinary function, not `async def`.")

"""One drive: take, run the body, write how it ended. The seam between the kernel and whatever calls workers."""

from __future__ import annotations

import logging
import os
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import DatabaseError

from supervision.conf import settings
from supervision.engines import registry
from supervision.engines.context import Context
from supervision.engines.registry import Body
from supervision.errors import (
    Cancelled,
    CompensationExhausted,
    ConnectionLost,
    DriveEnded,
    Failure,
    LeaseLost,
    NotStorable,
    QuestionAsked,
    StepFailed,
    SupervisionError,
    Suspended,
    UnknownBody,
)
from supervision.kernel import due, ends, lease, masking, sql, storable
from supervision.kernel.due import Offer
from supervision.kernel.lease import Taken
from supervision.kernel.states import Reason, State
from supervision.worker import slots, telemetry
from supervision.worker.heart import beating
from supervision.worker.stop import stopping

logger = logging.getLogger("supervision.worker")
_NOW = timedelta(0)
OUT_OF_MEMORY = 71
"""Exit status of a worker that couldn't even record that it had no memory left."""


@dataclass(frozen=True)
class Lane:
    """What the worker of this process serves: the queues of its cluster, None for all."""

    queues: Sequence[str] | None


_lane: Lane | None = None

GO_ON_SECONDS = 0.25
"""How long a worker goes from one short task to the next by itself, before it asks for the next package: so that
ordinary django-q2 messages get their turn."""


def serve(lane: Lane | None) -> None:
    """Have ``drive`` go on with what is due in that lane, as the free worker that it then is. None: one at a time."""
    global _lane
    _lane = lane


def drive(task_id: str, task_lease: int, body: str = "") -> None:
    """Drives the task as far as it goes, if this process wins it; then, for a moment, what is due. Nothing escapes,
    nothing is returned.

    Called by a worker with what ``due.offer`` handed out; called twice, or too late, it does nothing.
    """
    until = time.monotonic() + GO_ON_SECONDS
    _drive(task_id, task_lease, body)
    while _lane is not None and time.monotonic() < until and not stopping() and (offered := _next(_lane)):
        _drive(offered.task_id, offered.lease, offered.body)


def _next(lane: Lane) -> Offer | None:
    try:
        offers = due.offer(1, queues=lane.queues, bodies=registry.drivable())
    except Exception:
        logger.debug("no look at what is due", exc_info=True)  # the pusher looks too, and says what is wrong
        return None
    return offers[0] if offers else None


def _drive(task_id: UUID | str, task_lease: int, body: str) -> None:
    try:
        drive_one(task_id, task_lease, body, stopping=stopping, thread=True)
    except MemoryError:
        # Not even the failure could be recorded, so nothing that follows in this process could: whoever sees it end
        # makes the task due, and counts.
        os._exit(OUT_OF_MEMORY)
    except BaseException:
        logger.exception("the drive of task %s ended in an error of the supervisor; it will be recovered", task_id)


def drive_one(
    task_id: UUID | str, task_lease: int, body: str = "", *, stopping: Callable[[], bool], thread: bool
) -> bool:
    """Takes and drives; whether it was taken. Errors of the supervisor itself are raised.

    A body that this process doesn't know, or knows only an older version of, is left to another one. ``body`` is the
    task's, for its limit: looked up if it isn't given.
    """
    measured = telemetry.begin()
    body, taken = _take(task_id, task_lease, body, note=measured.note if measured else None)
    slots.after_take(body)
    if taken is None:
        return False
    try:
        with measured.of(taken) if measured else nullcontext():
            _go(taken, stopping=stopping, thread=thread)
    finally:
        slots.after_drive(body)
    return True


def _go(taken: Taken, *, stopping: Callable[[], bool], thread: bool) -> None:
    try:
        body = registry.get(taken.body)
    except UnknownBody:
        lease.park(taken.task_id, taken.lease, Reason.UNKNOWN_BODY.of(taken.body))
        return
    is_old = taken.body_version < body.version and taken.body_version not in body.compatible_with
    if is_old and not taken.requests.ending:
        change = f"{taken.body_version}->{body.version}"
        # due all the same, for a worker that still has the old code; those like this one aren't offered it again
        lease.park(taken.task_id, taken.lease, Reason.VERSION_CHANGED.of(change), wake_after=_NOW)
        return
    if taken.body_version > body.version:
        # it was offered as an old one, and an operator has said "go on with the new code" before it was taken
        lease.park(taken.task_id, taken.lease, Reason.YIELDED.of("newer_version"), wake_after=_NOW)
        return
    try:
        with beating(taken.task_id, taken.lease, thread=thread) as heart:
            _run(body, taken, body.engine.context(taken, pulse=heart, stopping=stopping))
    except LeaseLost:
        logger.warning("task %s was taken over; this worker records nothing more", taken.task_id)
    except ConnectionLost:
        _let_go(taken, stopping)


def _take(task_id: UUID | str, task_lease: int, body: str, note: Mapping[str, Any] | None) -> tuple[str, Taken | None]:
    """The body, and a take on a connection that is known to work: the last one may have died while the worker was
    idle."""

    def attempt() -> tuple[str, Taken | None]:
        known = body or slots.body_of(task_id)
        return known, lease.take(task_id, task_lease, note=note, body=known, limit=registry.limit_of(known))

    try:
        return attempt()
    except DatabaseError as error:
        if not sql.is_connection_lost(error):
            raise
        sql.connection().close()
        return attempt()


def _run(body: Body, taken: Taken, context: Context) -> None:
    """Runs the body and writes its end. Raises LeaseLost and ConnectionLost, and nothing else that a body can cause."""
    try:
        try:
            result = _call(body, context)
        except Cancelled:
            _unwound(taken, context)
        except DriveEnded:
            raise
        except BaseException as error:
            _raised(error, taken, context)
        else:
            _returned(result, taken, context)
    except Suspended:
        pass


def _call(body: Body, context: Context) -> Any:
    try:
        return body.engine.run(body, context)
    except QuestionAsked as question:
        if context.ended is None:
            _ask(context, question)
        raise


def _returned(result: Any, taken: Taken, context: Context) -> None:
    if context.ended is not None:
        _swallowed(context.ended, taken)
    elif context.has_begun_to_unwind:
        _unwound(taken, context)
    else:
        try:
            _write(
                lambda: ends.complete(taken.task_id, taken.lease, result, is_child=taken.is_child, run_id=taken.run_id)
            )
        except NotStorable as refusal:
            _raised(refusal, taken, context)


def _raised(error: BaseException, taken: Taken, context: Context) -> None:
    """What a body raised is its failure, unless the database went away beneath it or the drive was over already."""
    if context.ended is not None:
        _swallowed(context.ended, taken)
        return
    if isinstance(error, DatabaseError) and sql.is_connection_lost(error) and not sql.connection().is_usable():
        raise ConnectionLost from error
    failed = _Failed.of(error, taken)
    if context.unwinding is not None and taken.requests.ending != State.FAILED:
        # the clean-up itself failed: what can be undone is undone all the same
        _unwound(taken, context, failed.instead(Reason.UNWINDING_FAILED))
    elif taken.requests.ending:
        _unwound(taken, context, failed, is_intended=True)
    elif context.has_to_undo:
        _write(lambda: ends.intend(taken.task_id, taken.lease, failed.reason, failed.failure, failed.details))
        _unwound(taken, context)
    else:
        _write(lambda: ends.fail(taken.task_id, taken.lease, failed.reason, failed.failure, failed.details))


def _unwound(taken: Taken, context: Context, failed: _Failed | None = None, *, is_intended: bool = False) -> None:
    """The body is out: undoes what is to be undone, then writes the intended end, or ``failed`` in its place.

    ``is_intended``: the body raised ``failed`` while it was replayed for an end that stands. If it came before steps
    that are to be undone, it is tried again: most likely something was away.
    """
    try:
        context.undo()
    except CompensationExhausted as exhausted:
        failed = _Failed.of(exhausted, taken).instead(Reason.COMPENSATION_EXHAUSTED, exhausted.step)
        failed.details.update(undone=", ".join(exhausted.undone), not_undone=", ".join(exhausted.left))
        is_intended = False
    if is_intended and failed is not None:
        details = failed.details
        _write(lambda: ends.end(taken.task_id, taken.lease, details))
    elif failed is None:
        _write(lambda: ends.end(taken.task_id, taken.lease))
    else:
        reason, failure, details = failed.reason, failed.failure, failed.details
        _write(lambda: ends.fail(taken.task_id, taken.lease, reason, failure, details))


@dataclass(frozen=True)
class _Failed:
    """A failure as it is recorded: the reason, one line for people, and the whole of it for the log."""

    kind: str
    reason: str
    failure: str
    details: dict[str, str]

    @classmethod
    def of(cls, error: BaseException, taken: Taken) -> _Failed:
        kind = type(error).__name__
        secrets = masking.secrets_of(taken.arguments, taken.sensitive)
        message = storable.text(masking.mask_values(storable.error_text(error), secrets))
        details = {"error": f"{kind}: {message}"}
        is_told = isinstance(error, SupervisionError)
        if not is_told:
            details["traceback"] = storable.text(masking.mask_values(_traceback(error), secrets))
        reason = Reason.BODY_FAILED.of(kind)
        if isinstance(error, StepFailed):
            reason = Reason.RETRIES_EXHAUSTED.of(error.step)
        elif isinstance(error, Failure) and error.stop_reason:
            reason = error.stop_reason
        return cls(kind, reason, (message if is_told else details["error"]) or kind, details)

    def instead(self, reason: Reason, about: str = "") -> _Failed:
        return replace(self, reason=reason.of(about or self.kind))


def _traceback(error: BaseException) -> str:
    """Without the supervisor's own frames at its start; never raises."""
    try:
        return storable.error_text("".join(traceback.format_exception(error)))
    except Exception as broken:
        return f"<no traceback: {type(broken).__name__}>"


def _swallowed(end: DriveEnded, taken: Taken) -> None:
    """The author's code caught what ended the drive. Whatever it returned or raised since is refused."""
    logger.error(
        "the body %s of task %s swallowed %s: let what derives from BaseException pass (`except Exception`, no bare "
        "`except`). What it did after that was not recorded.",
        taken.body, taken.task_id, type(end).__name__,
    )  # fmt: skip
    if not isinstance(end, Suspended):
        raise end


def _ask(context: Context, question: QuestionAsked) -> None:
    """A body raised QuestionAsked itself: ask it, and park."""
    if question.key in context.answers:
        failure = Failure(
            f"The body raised QuestionAsked({question.key!r}), which has been answered: read task.answers first."
        )
        raise failure from None
    context.ask(question.key, question.prompt, **question.options)


def _write(verb: Callable[[], None]) -> None:
    """A last write of the drive, with a lost connection called by its name."""
    try:
        verb()
    except DatabaseError as error:
        if sql.is_connection_lost(error):
            raise ConnectionLost from error
        raise


def _let_go(taken: Taken, stopping: Callable[[], bool]) -> None:
    """Parks the task once the database is back, uncounted. Too late, or not at all: the reaper has it.

    The outcome of the last statement is unknown, so this is the only write that still follows, and it is fenced.
    """
    logger.warning("task %s: the database went away; waiting for it to park the task", taken.task_id)
    deadline = time.monotonic() + settings.RECONNECT_SECONDS
    pause = 0.1
    while time.monotonic() < deadline:
        sql.connection().close()
        try:
            lease.park(taken.task_id, taken.lease, Reason.CONNECTION_LOST.value, wake_after=timedelta(0))
        except LeaseLost:
            return
        except DatabaseError:
            if stopping():
                return
            time.sleep(pause)
            pause = min(2.0, pause * 2)
        else:
            return

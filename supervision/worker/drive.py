"""One drive: take, run the body, write how it ended. The seam between the kernel and whatever calls workers."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable
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
from supervision.kernel import ends, lease, masking, sql, storable
from supervision.kernel.lease import Taken
from supervision.kernel.states import Reason
from supervision.worker.heart import beating
from supervision.worker.stop import stopping

logger = logging.getLogger("supervision.worker")


def drive(task_id: str, task_lease: int) -> None:
    """Drives the task as far as it goes, if this process wins it. Nothing escapes, nothing is returned.

    Called by a worker with what ``due.offer`` handed out; called twice, or too late, it does nothing.
    """
    try:
        drive_one(task_id, task_lease, stopping=stopping, thread=True)
    except BaseException:
        logger.exception("the drive of task %s ended in an error of the supervisor; it will be recovered", task_id)


def drive_one(task_id: UUID | str, task_lease: int, *, stopping: Callable[[], bool], thread: bool) -> bool:
    """Takes and drives; whether it was taken. Errors of the supervisor itself are raised.

    A body that this process doesn't know, or knows only an older version of, is left to another one.
    """
    taken = _take(task_id, task_lease)
    if taken is None:
        return False
    try:
        body = registry.get(taken.body)
    except UnknownBody:
        lease.park(taken.task_id, taken.lease, Reason.UNKNOWN_BODY.of(taken.body))
        return True
    is_old = taken.body_version < body.version and taken.body_version not in body.compatible_with
    if is_old and not taken.requests.ending:
        change = f"{taken.body_version}->{body.version}"
        lease.park(taken.task_id, taken.lease, Reason.VERSION_CHANGED.of(change))
        return True
    try:
        with beating(taken.task_id, taken.lease, thread=thread) as heart:
            _run(body, taken, body.engine.context(taken, pulse=heart, stopping=stopping))
    except LeaseLost:
        logger.warning("task %s was taken over; this worker records nothing more", taken.task_id)
    except ConnectionLost:
        _let_go(taken, stopping)
    return True


def _take(task_id: UUID | str, task_lease: int) -> Taken | None:
    """A take on a connection that is known to work: the last one may have died while the worker was idle."""
    try:
        return lease.take(task_id, task_lease)
    except DatabaseError as error:
        if not sql.is_connection_lost(error):
            raise
        sql.connection().close()
        return lease.take(task_id, task_lease)


def _run(body: Body, taken: Taken, context: Context) -> None:
    """Runs the body and writes its end. Raises LeaseLost and ConnectionLost, and nothing else that a body can cause."""
    try:
        try:
            result = body.engine.run(body, context)
        except QuestionAsked as question:
            if context.ended is not None:
                raise
            _ask(context, question)
            raise
    except Cancelled:
        _write(lambda: ends.end(taken.task_id, taken.lease))
    except Suspended:
        pass
    except (LeaseLost, ConnectionLost):
        raise
    except BaseException as error:
        _failed(error, taken, context)
    else:
        _returned(result, taken, context)


def _returned(result: Any, taken: Taken, context: Context) -> None:
    if context.ended is not None:
        _swallowed(context.ended, taken)
    elif context.unwinding is not None:
        _write(lambda: ends.end(taken.task_id, taken.lease))
    else:
        try:
            _write(lambda: ends.complete(taken.task_id, taken.lease, result))
        except NotStorable as refusal:
            _record(refusal, taken, context)


def _failed(error: BaseException, taken: Taken, context: Context) -> None:
    """What a body raised is its failure, unless the database went away beneath it or the drive was over already."""
    if context.ended is not None:
        _swallowed(context.ended, taken)
        return
    if isinstance(error, DatabaseError) and sql.is_connection_lost(error) and not sql.connection().is_usable():
        raise ConnectionLost from error
    _record(error, taken, context)


def _record(error: BaseException, taken: Taken, context: Context) -> None:
    kind = type(error).__name__
    secrets = masking.secrets_of(taken.arguments, taken.sensitive)
    message = masking.mask_values(storable.text(error), secrets)
    details = {"error": f"{kind}: {message}"}
    if not isinstance(error, Failure | SupervisionError):
        details["traceback"] = masking.mask_values(_traceback(error), secrets)
    failure = message if isinstance(error, Failure | SupervisionError) else details["error"]
    reason = _reason(error, is_unwinding=context.unwinding is not None)
    _write(lambda: ends.fail(taken.task_id, taken.lease, reason, failure or kind, details))


def _reason(error: BaseException, *, is_unwinding: bool) -> str:
    detail = error.step if isinstance(error, StepFailed) else type(error).__name__
    if is_unwinding:
        return Reason.UNWINDING_FAILED.of(detail)
    if isinstance(error, Failure) and error.stop_reason:
        return error.stop_reason
    return (Reason.RETRIES_EXHAUSTED if isinstance(error, StepFailed) else Reason.BODY_FAILED).of(detail)


def _traceback(error: BaseException) -> str:
    """Without the supervisor's own frames at its start; never raises."""
    try:
        return storable.text("".join(traceback.format_exception(error)))
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

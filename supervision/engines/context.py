"""What every engine hands to the author's code: the durable side of one drive.

Every call either returns, having recorded what it says, or ends the drive. After an end each further call raises it
again, so a bare ``except:`` in the author's code can't make a parked task go on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Protocol
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db import DatabaseError
from django.forms import Form

from supervision.engines.compensation import Compensating
from supervision.engines.durable import Durable
from supervision.engines.family import Family
from supervision.engines.once import AtMostOnce
from supervision.errors import (
    Cancelled,
    ConnectionLost,
    DriveEnded,
    LeaseLost,
    Paused,
    QuestionAsked,
    SupervisionError,
    WorkerStopping,
)
from supervision.kernel import ends, links, masking, questions, sql, storable
from supervision.kernel import lease as leases
from supervision.kernel.lease import Requests, Taken
from supervision.kernel.question_form import Ask
from supervision.kernel.states import Reason, State

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger("supervision.bodies")
_NOW = timedelta(0)


class Pulse(Protocol):
    """The beat of the worker, as far as the context needs it."""

    def is_fresh(self) -> bool:
        """Whether a beat got through within two thirds of the lease time."""

    def is_lost(self) -> bool:
        """Whether a beat learned that the lease is gone."""

    def beat(self) -> bool:
        """Beats now, on the calling thread; False: the lease is gone."""

    def progress(self, done: int | None, total: int | None, text: str | None) -> None:
        """Shown with one of the next beats."""


class Context(Family, Compensating, AtMostOnce, Durable):
    """``task`` in an author's body. One thread's, for one drive."""

    def __init__(self, taken: Taken, *, pulse: Pulse, stopping: Callable[[], bool]) -> None:
        self._taken = taken
        self._pulse = pulse
        self._stopping = stopping
        self._thread = threading.get_ident()
        self._secrets = masking.secrets_of(taken.arguments, taken.sensitive)
        self._decided = storable.encode(taken.decisions, place="decisions", limit="MAX_DECISIONS_BYTES")
        self._requests = taken.requests
        """What was last seen to be asked of the task; observed by the next call that does anything new."""
        self._start_remembering()
        self._start_to_undo()
        self.ended: DriveEnded | None = None
        """Why this drive is over, once it is; for the driver."""
        self.unwinding: Cancelled | None = None
        """Set once ``Cancelled`` was raised: the body may only clean up."""
        self._decisions: dict[str, Any] = taken.decisions
        self._has_read_decisions = False

    # --- who I am

    @property
    def id(self) -> UUID:
        return self._taken.task_id

    @property
    def body(self) -> str:
        return self._taken.body

    @property
    def subject(self) -> str:
        return self._taken.subject

    @property
    def arguments(self) -> dict[str, Any]:
        return self._taken.arguments

    @property
    def version_at_start(self) -> int:
        """The body's version when the task was created: for code that goes on with old tasks in the old way."""
        return self._taken.version_at_start

    @property
    def owner(self) -> Any:
        """The owning user as stored now, or None."""
        if self._taken.owner_id is None:
            return None
        return get_user_model()._default_manager.filter(pk=self._taken.owner_id).first()

    def signal_url(self, name: str, *, key: str = "") -> str:
        """Inside the step that hands it out: the address at which the outside world sends the signal ``name``, once.
        See ``Task.signal_url``.

        It changes with SECRET_KEY, so a step that took it as an argument would be another call after a rotation.
        """
        return self.signal_url_of(self._step or "", name, key)

    def signal_url_of(self, step: str, name: str, key: str) -> str:
        """The address, for the step of that full name."""
        if not step:
            raise SupervisionError("task.signal_url() belongs into the step that hands the address out: call it there.")
        return links.signal_url(self.id, name, key)

    @property
    def decisions(self) -> dict[str, Any]:
        """The durable ``locked_decisions``: change it, and the next checkpoint records it. Keep it small.

        A body that has read them may skip ahead by them, so from then on its steps need a ``key``.
        """
        self._has_read_decisions = True
        return self._decisions

    @property
    def answers(self) -> Mapping[str, Any]:
        """Key -> answer of every answered question of this task (in a pipeline: of this visit)."""
        if self._answers is None:
            with self._kernel():
                answers = questions.answers_of(self.id)
            scope = self._scope
            self._answers = {key[len(scope) :]: answers[key] for key in answers if key.startswith(scope)}
        return self._answers

    # --- the calls

    def checkpoint(self, name: str = "", /, *, note: Any = None, **decisions: Any) -> None:
        """Makes ``decisions`` (and what was changed in ``task.decisions``) durable, and observes requests.

        One statement. Afterwards a crash costs what came after this point. Ends the drive when a pause was requested or
        the worker is stopping; raises ``Cancelled`` when the task is being ended. ``note`` goes to the log.

        >>> for row in rows[task.decisions.get("row", 0):]:
        ...     handle(row)
        ...     task.checkpoint(row=task.decisions.get("row", 0) + 1)
        """
        self._go_on()
        self._refuse_in_step("checkpoint")
        if name:
            storable.name(name, place="checkpoint", longest=400)
        self._decisions.update(decisions)
        self._record("task_checkpointed", name, {} if note is None else {"note": note})
        self._enter(name or "checkpoint", is_recorded=False)

    def ask(
        self,
        key: str,
        prompt: str = "",
        *,
        kind: str = "",
        choices: Mapping[str, str] | Sequence[str] = (),
        help: str = "",
        expires_after: timedelta | None = None,
        answer_form: str | type[Form] = "",
        answerable_by: Any = "",
        not_by: str | Sequence[str] = "",
        approvals: int = 1,
    ) -> Any:
        """The answer to the question ``key``, if it has one; else asks a person and parks (QuestionAsked).

        The same key gives the same answer for ever: a new question needs a new key. See ``Ask`` for the
        kinds, and for who may answer.
        """
        ask = Ask(key, prompt, kind, choices, help, expires_after, answer_form, answerable_by, not_by, approvals)
        return self.ask_all([ask])[key]

    def ask_all(self, asks: Sequence[Ask]) -> dict[str, Any]:
        """Key -> answer, if all have one; else asks those that are new, together, and parks until all are answered."""
        self._go_on()
        keys = [each.key for each in asks]
        if len(set(keys)) < len(keys):
            raise SupervisionError(f"Two questions of one ask_all have the same key: {sorted(keys)}")
        if all(key in self.answers for key in keys):
            return {key: self.answers[key] for key in keys}
        self._refuse_in_step("ask")
        self._enter(keys[0], is_recorded=False)
        with self._kernel():
            scoped = [replace(each, key=self._scope + each.key) for each in asks] if self._scope else asks
            refused = questions.ask(self.id, self._taken.lease, scoped, decisions=self._changed())
        self._refuse(refused, keys[0])
        raise self._end(QuestionAsked(keys[0]))

    def log(self, message: str, **data: Any) -> None:
        """Adds a message for people to the task's log: one statement, durable at once."""
        self._go_on()
        self._refuse_in_step("log")
        text = storable.text(message, 10_000)
        self._record("message_logged", "", {"message": text, "data": data} if data else {"message": text})

    def progress(self, done: int | None = None, total: int | None = None, text: str | None = None) -> None:
        """Shows how far it is. Cheap: written with one of the next beats, and never to the task's row."""
        self._go_on()
        self.show_progress(done, total, text)

    def show_progress(self, done: int | None, total: int | None, text: str | None) -> None:
        """``progress`` from any thread."""
        self._pulse.progress(done, total, masking.mask_values(text, self._secrets))

    # --- how a drive goes on or ends

    def _record(self, event: str, name: str, payload: dict[str, Any]) -> None:
        """One checkpoint statement with an entry for people, in which secrets are masked."""
        masked = masking.mask_values(payload, self._secrets)
        self._write(event, name, storable.encode(masked, place=name or event, limit="MAX_PAYLOAD_BYTES"))

    def _changed(self) -> dict[str, Any] | None:
        """The decisions, if they differ from what was last recorded."""
        if not self._decisions and self._decided == "{}":
            return None
        decided = storable.encode(self._decisions, place="decisions", limit="MAX_DECISIONS_BYTES")
        if decided == self._decided:
            return None
        self._decided = decided
        return self._decisions

    @property
    def has_begun_to_unwind(self) -> bool:
        """Whether this or an earlier drive has told the body of its end, or undone a step: then it can't complete."""
        return self.unwinding is not None or (
            bool(self._taken.requests.ending)
            and (self._taken.requests.ending == State.FAILED or self._replay.has_begun_to_unwind)
        )

    def _must_end(self) -> bool:
        """Whether the next new call would end the drive or raise ``Cancelled``. Raises what has ended it already."""
        self._go_on()
        return self._stopping() or (self.unwinding is None and bool(self._requests))

    def _enter(self, call: str, *, is_recorded: bool) -> None:
        """At the start of a call: refuses it after the end of the drive; observes requests before anything new begins.

        Cancel beats pause, and pause a stopping worker; in a body that cleans up only the worker's stop counts.
        """
        self._go_on()
        if is_recorded:
            return
        if self.unwinding is None:
            if self._requests.ending or self._requests.is_overdue:
                raise self._unwind(self._requests, call)
            if self._requests.pause:
                self._park(Reason.USER_PAUSED)
                raise self._end(Paused())
        self._stop_if_asked()

    def _stop_if_asked(self) -> None:
        if self._stopping():
            self._park(Reason.WORKER_STOPPING)
            raise self._end(WorkerStopping())

    def _unwind(self, requests: Requests, call: str) -> Cancelled:
        """What to raise in a body whose task is being ended; the first time it is logged with the call it is raised at.

        Replayed, it is raised at the same call: the first one that is not recorded.
        """
        if self.unwinding is None:
            reason = requests.ending_reason or Reason.EXPIRED.value
            self.unwinding = Cancelled(requests.ending or State.EXPIRED, reason)
            with self._kernel():
                ends.begin_unwinding(self.id, self._taken.lease, call[:400])
        return self.unwinding

    def _park(self, reason: Reason) -> None:
        with self._kernel():
            leases.park(self.id, self._taken.lease, reason.value, wake_after=_NOW, decisions=self._changed())

    def _end(self, end: DriveEnded) -> DriveEnded:
        self.ended = end
        return end

    def _refuse_in_step(self, call: str) -> None:
        if self._step is not None:
            raise SupervisionError(f"task.{call}() was called inside the step {self._step!r}; move it out of the step.")

    def _go_on(self) -> None:
        """Refuses a call after the end of the drive, from another thread, or without a beating heart."""
        if self.ended is not None:
            raise self.ended
        if threading.get_ident() != self._thread:
            raise SupervisionError("task.* may only be called from the thread that runs the body.")
        if self._pulse.is_lost():
            raise self._end(LeaseLost())
        if not self._pulse.is_fresh():
            with self._kernel():
                lives = self._pulse.beat()
            if not lives:
                raise self._end(LeaseLost())

    @contextmanager
    def _kernel(self) -> Iterator[None]:
        """A call into the kernel: what ends the drive there is remembered, a lost connection is called by its name."""
        before = self._decided
        try:
            yield
        except DriveEnded as end:
            self.ended = end
            raise
        except DatabaseError as error:
            self._decided = before
            if sql.is_connection_lost(error):
                raise self._end(ConnectionLost()) from error
            raise
        except BaseException:
            self._decided = before  # nothing was written: the next record takes the decisions along
            raise

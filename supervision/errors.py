"""What can go wrong for a caller, and the control flow that ends a drive.

Errors own their words: callers pass data, the class says what happened and what to do.
"""

from typing import Any

from django.utils.translation import gettext as _


class SupervisionError(Exception):
    """The root of everything that a caller may want to catch."""


# --- a caller asked for something that can't be had -------------------------------------------------------------------


class TaskNotFound(SupervisionError):
    """There is no task of that id."""

    def __init__(self, task_id: object) -> None:
        super().__init__(_("There is no task %(id)s.") % {"id": task_id})


class QuestionNotFound(SupervisionError):
    """There is no question of that id."""

    def __init__(self, question_id: object) -> None:
        super().__init__(_("There is no question %(id)s.") % {"id": question_id})


class Conflict(SupervisionError):
    """The client's ``expected_generation`` is not the row's: somebody acted first. ``task`` is the fresh row."""

    def __init__(self, task: Any, expected: int) -> None:
        self.task = task
        self.expected = expected
        super().__init__(
            _("This task has changed since you opened it (it was at generation %(old)s, it is at %(new)s). "
              "Look at it again, then decide.")
            % {"old": expected, "new": task.generation}
        )  # fmt: skip


class GenerationMissing(SupervisionError):
    """A client wants to act and doesn't say what it saw. Nothing was written."""

    def __init__(self) -> None:
        super().__init__(
            _("Say which generation you have seen (expected_generation, or the header If-Match): nobody shall act on "
              "what has changed meanwhile.")
        )  # fmt: skip


class Refused(SupervisionError):
    """The task's state doesn't allow the verb. Nothing was written."""

    def __init__(self, verb: str, task: Any, why: str) -> None:
        self.verb, self.task, self.why = verb, task, why
        super().__init__(_("Can't %(verb)s this task: %(why)s") % {"verb": verb, "why": why})


class IllegalTransition(SupervisionError):
    """A pair of states that the transition table doesn't have: a fault of the calling code."""

    def __init__(self, old: str, new: str) -> None:
        super().__init__(_("A task can't go from %(old)s to %(new)s.") % {"old": old, "new": new})


class Busy(SupervisionError):
    """Another transaction held the row for longer than ``LOCK_TIMEOUT_SECONDS``. Nothing was written."""

    def __init__(self, task_id: object) -> None:
        super().__init__(_("Task %(id)s is busy right now. Nothing was changed; try again.") % {"id": task_id})


class InsideTransaction(SupervisionError):
    """A worker's verb was called inside ``atomic()``, whose rollback would undo it."""

    def __init__(self) -> None:
        super().__init__(
            _("This call commits on its own and can't stand inside a transaction: move it out of atomic().")
        )


class WrongIsolation(SupervisionError):
    """The transaction is not READ COMMITTED, on which the kernel's locking rests."""

    def __init__(self, level: str) -> None:
        super().__init__(
            _("supervision needs READ COMMITTED transactions, this one is %(level)s. "
              "Remove isolation_level from the OPTIONS of the database.")
            % {"level": level.upper()}
        )  # fmt: skip


class ConcurrencyKeyHeld(SupervisionError):
    """A live task holds that concurrency key. ``task`` is the holder."""

    def __init__(self, key: str, task: Any) -> None:
        self.key, self.task = key, task
        super().__init__(_("A live task already holds the concurrency key “%(key)s”.") % {"key": key})


class AlreadyPruned(SupervisionError):
    """A task of that owner, body and idempotency key existed, ended, and was pruned."""

    def __init__(self, key: str) -> None:
        super().__init__(
            _("A task with the idempotency key “%(key)s” has run and was pruned; it isn't started again.")
            % {"key": key}
        )


class UnknownBody(SupervisionError):
    """No body of that name is registered in this process."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(
            _("No body “%(name)s” is registered. Known: %(known)s. Bodies stand in an installed app's supervised.py.")
            % {"name": name, "known": ", ".join(known) or _("none")}
        )


class ScheduleNotFound(SupervisionError):
    """There is no schedule of that name."""

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(
            _("There is no schedule “%(name)s”. Known: %(known)s.")
            % {"name": name, "known": ", ".join(known) or _("none")}
        )


class InvalidArguments(SupervisionError):
    """The arguments don't fit the body's signature."""

    def __init__(self, body: str, why: str) -> None:
        super().__init__(_("The arguments don't fit body “%(body)s”: %(why)s.") % {"body": body, "why": why})


# --- values -----------------------------------------------------------------------------------------------------------


class ArchiveUnusable(SupervisionError):
    """The archive's file can't be added to. Nothing was written to it, and nothing removed from the tables."""

    def __init__(self, path: object, why: str) -> None:
        super().__init__(_("%(path)s can't be used as the archive: %(why)s.") % {"path": path, "why": why})


class NotStorable(SupervisionError):
    """A value that jsonb can't hold, or that is no JSON at all. ``place`` is a path like ``rows[3].name``."""

    def __init__(self, place: str, why: str) -> None:
        self.place, self.why = place, why
        super().__init__(_("%(place)s can't be stored: %(why)s.") % {"place": place, "why": why})


class TooLarge(NotStorable):
    """A value over its limit."""

    def __init__(self, place: str, size: int, limit: int, setting: str) -> None:
        self.size, self.limit = size, limit
        super().__init__(
            place,
            _("it has %(size)s bytes, the limit is %(limit)s (%(setting)s). Store a reference instead")
            % {"size": size, "limit": limit, "setting": setting},
        )


# --- questions --------------------------------------------------------------------------------------------------------


class InvalidAnswer(SupervisionError):
    """The answer doesn't pass the question's form. ``errors`` is a list of sentences."""

    def __init__(self, key: str, errors: list[str]) -> None:
        self.key, self.errors = key, errors
        super().__init__(_("“%(key)s”: %(errors)s") % {"key": key, "errors": " ".join(errors)})


class AlreadyAnswered(SupervisionError):
    """Somebody was first. ``question`` is the answered row."""

    def __init__(self, question: Any) -> None:
        self.question = question
        super().__init__(
            _("This question was already answered by %(who)s.") % {"who": question.answered_by_ref or _("somebody")}
        )


class QuestionExpired(SupervisionError):
    """The question's time ran out."""

    def __init__(self, question: Any) -> None:
        self.question = question
        super().__init__(_("This question has expired; it can't be answered any more."))


class QuestionWithdrawn(SupervisionError):
    """The task ended, or is ending, without the answer."""

    def __init__(self, question: Any) -> None:
        self.question = question
        super().__init__(_("This question was withdrawn: its task ended without it."))


class NotEntitled(SupervisionError):
    """This person may not answer this question. Nothing was written."""

    def __init__(self, question: Any, why: str) -> None:
        self.question, self.why = question, why
        super().__init__(_("You can't answer this question: %(why)s") % {"why": why})


class AlreadyVoted(SupervisionError):
    """One vote a person. ``vote`` is the first one."""

    def __init__(self, vote: Any) -> None:
        self.vote = vote
        said = _("yes") if vote.approves else _("no")
        super().__init__(_("You have voted on this question already (%(vote)s).") % {"vote": said})


class LinkImpossible(SupervisionError):
    """A signed link was asked for, and the project doesn't say where its pages are."""

    def __init__(self, why: str) -> None:
        super().__init__(
            _("No link can be made: %(why)s. Links lead to the pages of supervision.pages, at SUPERVISION['BASE_URL'].")
            % {"why": why}
        )


# --- holds ------------------------------------------------------------------------------------------------------------


class HoldNotFound(SupervisionError):
    """There is no hold of that id."""

    def __init__(self, hold_id: object) -> None:
        super().__init__(_("There is no hold %(id)s.") % {"id": hold_id})


class AlreadyHeld(SupervisionError):
    """A hold of that body or queue stands. ``hold`` is the row."""

    def __init__(self, hold: Any) -> None:
        self.hold = hold
        super().__init__(
            _("The %(kind)s “%(name)s” is held already, by %(who)s.")
            % {"kind": hold.get_kind_display(), "name": hold.name, "who": hold.held_by_ref}
        )


class AlreadyReleased(SupervisionError):
    """Somebody was first. ``hold`` is the row."""

    def __init__(self, hold: Any) -> None:
        self.hold = hold
        super().__init__(_("This hold was already released by %(who)s.") % {"who": hold.released_by_ref})


# --- the end of a drive -----------------------------------------------------------------------------------------------
#
# These derive from BaseException: `except Exception` in an author's code must not swallow them.


class DriveEnded(BaseException):
    """The worker must let go of this task now. Let it pass."""


class Suspended(DriveEnded):
    """The task is parked, durably; it will be driven again from its row. ``finally`` runs here: it is no clean-up."""


class QuestionAsked(Suspended):
    """Parks the task until a person has answered. ``task.ask()`` raises it after it has stored the question.

    A body may raise it itself, ``raise QuestionAsked("approve_budget", "May we spend 400 EUR?", choices=...)``, which
    asks and parks; the next drive finds the answer in ``task.answers["approve_budget"]``.
    """

    def __init__(self, key: str, prompt: str = "", **options: Any) -> None:
        self.key, self.prompt, self.options = key, prompt, options
        super().__init__(key)


class Paused(Suspended):
    """A person asked for a pause, and this checkpoint observed it."""


class WorkerStopping(Suspended):
    """The worker is shutting down; another one goes on from this checkpoint."""


class AwaitingSignal(Suspended):
    """Parked until a signal arrives or the wait times out."""


class Sleeping(Suspended):
    """Parked until a moment on the database's clock."""


class LeaseLost(DriveEnded):
    """Another worker has the task, or it has ended: nothing that this worker still tries is recorded."""


class ConnectionLost(DriveEnded):
    """The database went away. The outcome of the last statement is unknown, so nothing continues on it."""


class Cancelled(BaseException):
    """Raised once in a body whose task is being ended (cancelled, expired, failed by an operator): clean up here.

    >>> try:
    ...     task.wait_for_signal("ready")
    ... except Cancelled:
    ...     deprovision()      # steps are allowed
    ...     raise
    """

    def __init__(self, ending: str, reason: str) -> None:
        self.ending, self.reason = ending, reason
        super().__init__(reason)


class StepFailed(SupervisionError):
    """A step failed for good: its attempts are used up. Recorded, and raised again by every replay.

    A body may catch it and go on another way. ``error_type`` and ``error`` are of the last attempt.
    """

    def __init__(self, step: str, error_type: str, error: str, attempts: int) -> None:
        self.step, self.error_type, self.error, self.attempts = step, error_type, error, attempts
        tries = _("after %(n)s attempts") % {"n": attempts} if attempts > 1 else _("at its only attempt")
        super().__init__(
            _("Step “%(step)s” failed %(tries)s: %(type)s: %(error)s")
            % {"step": step, "tries": tries, "type": error_type, "error": error}
        )


class CompensationExhausted(SupervisionError):
    """A step could not be undone. ``undone`` were undone before; ``left``, it first, stay done."""

    def __init__(self, step: str, error: str, undone: list[str], left: list[str]) -> None:
        self.step, self.error, self.undone, self.left = step, error, undone, left
        super().__init__(
            _("Step “%(step)s” could not be undone: %(error)s. Undone: %(undone)s. Not undone: %(left)s.")
            % {"step": step, "error": error, "undone": ", ".join(undone) or _("none"), "left": ", ".join(left)}
        )


class ChildFailed(SupervisionError):
    """A child that the body needs did not complete. ``outcomes`` are those that didn't."""

    def __init__(self, outcomes: list[Any]) -> None:
        self.outcomes = outcomes
        first = outcomes[0]
        said = first.failure or first.reason
        super().__init__(
            _("%(n)s of the children did not complete; the first: %(state)s, %(said)s")
            % {"n": len(outcomes), "state": first.state, "said": said}
        )


class AwaitingChildren(Suspended):
    """Parked until its children have ended."""


class StepTimedOut(SupervisionError):
    """A step's function ran longer than its ``timeout``: counted as a failed attempt."""

    def __init__(self, step: str, seconds: float) -> None:
        super().__init__(_("Step “%(step)s” ran longer than %(s)s s.") % {"step": step, "s": f"{seconds:g}"})


class ReplayMismatch(Suspended):
    """The code calls another function, or with other arguments, under the name of a recorded step. The task is parked
    for an operator: a wrong result is never handed on."""


class Retrying(Suspended):
    """Parked until the next attempt of a step."""


class ContinuedAsNew(Suspended):
    """The body starts afresh with new arguments."""


class Failure(SupervisionError):
    """Raise it in a body to fail the task with a sentence for people, without a traceback: ``raise Failure("...")``."""

    stop_reason = ""
    """The task's ``watchdog_stop_reason``, where an engine has a better one than ``failed:Failure``."""

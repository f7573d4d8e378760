"""What a task is doing, in words for people: the same in the control room, on pages and on the command line. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from supervision.kernel.states import OPERATOR_REASONS, Reason, State, first_word


@dataclass(frozen=True)
class Situation:
    """What a glance tells: a word, and a sign of its own shape. ``sign`` names the icon and the colour."""

    sign: str
    label: str


def situation(task: Any) -> Situation:
    """The state as an operator thinks of it: a parked task may be paused, wait for somebody, or go on by itself."""
    state = task.current_state
    if task.is_terminal:
        return Situation(str(state), str(State(state).label))
    if task.ending:
        words = {
            State.CANCELLED: _("being cancelled"),
            State.EXPIRED: _("expiring"),
            State.FAILED: _("being failed"),
        }
        return Situation("ending", words.get(task.ending, _("ending")))
    if task.pause_requested_at is not None:
        return Situation("running", _("pausing")) if state == State.RUNNING else Situation("paused", _("paused"))
    if state == State.PARKED:
        return _parked(first_word(task.watchdog_stop_reason))
    return Situation(str(state), str(State(state).label))


def _parked(word: str) -> Situation:
    match word:
        case Reason.AWAITING_USER_ANSWER | Reason.AWAITING_USER_ANSWERS:
            return Situation("asking", _("needs an answer"))
        case Reason.SLEEPING:
            return Situation("sleeping", _("sleeping"))
        case Reason.RETRYING | Reason.WORKER_LOST | Reason.CONNECTION_LOST:
            return Situation("retrying", _("recovering") if word != Reason.RETRYING else _("will retry"))
        case word if word in OPERATOR_REASONS:
            return Situation("stuck", _("needs a person"))
        case _:
            return Situation("parked", _("waiting"))


_REASONS: dict[str, Promise | str] = {
    Reason.AWAITING_USER_ANSWER: gettext_lazy("waits for an answer to “{0}”"),
    Reason.AWAITING_USER_ANSWERS: gettext_lazy("waits for {0} answers"),
    Reason.USER_PAUSED: gettext_lazy("paused by a person"),
    Reason.SLEEPING: gettext_lazy("sleeps until its time"),
    Reason.RETRYING: gettext_lazy("tries “{0}” again"),
    Reason.AWAITING_SIGNAL: gettext_lazy("waits for the signal “{0}”"),
    Reason.AWAITING_CHILDREN: gettext_lazy("waits for its children"),
    Reason.AWAITING_SLOT: gettext_lazy("waits for a free slot"),
    Reason.YIELDED: gettext_lazy("let go of its worker at “{0}”, and looks again"),
    Reason.WORKER_LOST: gettext_lazy("its worker was lost; another one goes on"),
    Reason.WORKER_STOPPING: gettext_lazy("its worker was stopped; another one goes on"),
    Reason.CONNECTION_LOST: gettext_lazy("lost the database; goes on"),
    Reason.VERSION_CHANGED: gettext_lazy("its code has a new version ({0}): resume to accept it"),
    Reason.UNKNOWN_BODY: gettext_lazy("no worker knows the body “{0}”: deploy it, then resume"),
    Reason.REPLAY_MISMATCH: gettext_lazy("its code no longer matches what it has done, at “{0}”"),
    Reason.UNKNOWN_STATE: gettext_lazy("its pipeline has no state “{0}” any more: move it to another"),
    Reason.UNKNOWN_NODE: gettext_lazy("its code has no node “{0}” any more: deploy it, then resume"),
    Reason.CANCELLED: gettext_lazy("cancelled by {0}"),
    Reason.BODY_FAILED: gettext_lazy("its code raised {0}"),
    Reason.UNWINDING_FAILED: gettext_lazy("its clean-up raised {0}"),
    Reason.TERMINATED: gettext_lazy("ended without clean-up by {0}"),
    Reason.RETRIES_EXHAUSTED: gettext_lazy("“{0}” failed too often"),
    Reason.RECOVERIES_EXHAUSTED: gettext_lazy("its worker was lost {0} times in a row"),
    Reason.COMPENSATION_EXHAUSTED: gettext_lazy("“{0}” could not be undone"),
    Reason.VISITS_EXHAUSTED: gettext_lazy("went through “{0}” too often"),
    Reason.NODES_FAILED: gettext_lazy("failed at “{0}”"),
    Reason.NO_PROGRESS: gettext_lazy("none of its nodes could go on"),
}


def reason(raw: str) -> str:
    """A ``watchdog_stop_reason`` as a sentence's end; as it is, if it has no words of its own."""
    word, _colon, details = raw.partition(":")
    if word == Reason.EXPIRED:
        prior = reason(details)
        return _("ran out of time") if not prior else _("ran out of time: %(prior)s") % {"prior": prior}
    if raw == Reason.BODY_FAILED.of("Failure"):
        return _("its code gave up, and said why")
    words = _REASONS.get(word)
    if words is None:
        return raw
    spoken = str(words)
    return word.replace("_", " ") if "{0}" in spoken and not details else spoken.replace("{0}", details)


def reason_word(word: str) -> str:
    """A reason's first word as the name of a filter."""
    return word.replace("_", " ")


def moment(at: datetime, now: datetime) -> str:
    """``3 h ago``, ``in 2 h``: coarse, as a person would say it."""
    away = at - now
    spoken = duration(abs(away))
    if abs(away) < timedelta(seconds=5):
        return _("now")
    return _("in %(time)s") % {"time": spoken} if away > timedelta(0) else _("%(time)s ago") % {"time": spoken}


def duration(length: timedelta) -> str:
    """``40 s``, ``7 min``, ``3 h``, ``5 days``."""
    seconds = int(length.total_seconds())
    if seconds < 60:
        return _("%(n)s s") % {"n": seconds}
    if seconds < 3600:
        return _("%(n)s min") % {"n": seconds // 60}
    if seconds < 48 * 3600:
        return _("%(n)s h") % {"n": seconds // 3600}
    days = seconds // 86400
    return ngettext("%(n)s day", "%(n)s days", days) % {"n": days}


def next_step(task: Any, *, pending: int, held_by: Any = None, is_beating: bool = True) -> str:
    """What happens next, and what a person can do about it; the moment itself (``next_moment``) is not in it."""
    if task.is_terminal:
        return _("Nothing more: it has ended. A retry is a new task.")
    if held_by is not None and task.current_state != State.RUNNING:
        return _("Held back: no worker takes it until the hold on the %(kind)s “%(name)s” is released.") % {
            "kind": held_by.get_kind_display(),
            "name": held_by.name,
        }
    if task.ending:
        return _("A worker lets it clean up, then it ends.")
    if task.current_state == State.RUNNING:
        return _next_while_running(task, is_beating)
    if task.pause_requested_at is not None:
        return _("Stays paused until somebody resumes it.")
    if pending:
        return ngettext(
            "Goes on as soon as its question is answered.",
            "Goes on as soon as its questions are all answered.",
            pending,
        )
    return _next_while_idle(task)


def _next_while_running(task: Any, is_beating: bool) -> str:
    if not is_beating:
        return _("Its worker is silent. If it stays so, another one goes on from the last checkpoint.")
    if task.pause_requested_at is not None:
        return _("Pauses after the current step.")
    return _("Goes on until its next checkpoint, question or end.")


def _next_while_idle(task: Any) -> str:
    word = first_word(task.watchdog_stop_reason)
    if word in OPERATOR_REASONS and task.wake_at is None:
        return _("Waits for an operator: resume it, or cancel it.")
    if task.wake_at is None:
        return _("Goes on when what it waits for has come.")
    if task.wake_at <= task.db_now:
        return _("Due: the next free worker takes it.")
    return _("Starts at its time.") if task.current_state == State.PENDING else _("Goes on at its time.")


def outcome(verb: str, task: Any) -> str:
    """What a verb of a person truthfully did to the task that it returned: a request isn't its fulfilment."""
    match verb:
        case "pause":
            return _("pausing after the current step") if task.current_state == State.RUNNING else _("paused")
        case "resume":
            if task.current_state == State.RUNNING or task.wake_at is not None:
                return _("goes on")
            return _("no longer paused; it still waits")
        case "retry":
            return _("tried again, as a new task")
    ended = {"cancel": _("cancelled"), "expire": _("expired")}
    under_way = {"cancel": _("being cancelled"), "expire": _("expiring")}
    if task.is_terminal:
        return ended.get(verb, _("done"))
    if task.current_state == State.RUNNING:
        return _("%(doing)s after the current step") % {"doing": under_way.get(verb, _("ending"))}
    return _("%(doing)s: a worker lets it clean up first") % {"doing": under_way.get(verb, _("ending"))}


EVENTS: dict[str, Promise] = {
    "task_created": gettext_lazy("created"),
    "task_taken": gettext_lazy("taken by a worker"),
    "task_checkpointed": gettext_lazy("checkpoint"),
    "task_parked": gettext_lazy("parked"),
    "task_resumed": gettext_lazy("resumed"),
    "task_completed": gettext_lazy("completed"),
    "task_failed": gettext_lazy("failed"),
    "task_expired": gettext_lazy("expired"),
    "task_cancelled": gettext_lazy("cancelled"),
    "pause_requested": gettext_lazy("pause requested"),
    "ending_requested": gettext_lazy("end requested"),
    "question_asked": gettext_lazy("question asked"),
    "question_answered": gettext_lazy("question answered"),
    "vote_cast": gettext_lazy("vote"),
    "signal_sent": gettext_lazy("signal arrived"),
    "signal_consumed": gettext_lazy("signal used"),
    "message_logged": gettext_lazy("message"),
    "step_completed": gettext_lazy("step done"),
    "step_failed": gettext_lazy("step failed"),
    "step_attempt_failed": gettext_lazy("attempt failed"),
    "step_intended": gettext_lazy("step begun"),
    "unwinding_started": gettext_lazy("clean-up begun"),
    "slept": gettext_lazy("woke up"),
    "run_started": gettext_lazy("run begun"),
    "state_visited": gettext_lazy("state visited"),
    "repointed": gettext_lazy("re-pointed"),
    "nodes_laid_out": gettext_lazy("nodes laid out"),
    "children_ended": gettext_lazy("children have ended"),
}


def event(raw: str) -> str:
    """A log entry's event for people."""
    return str(EVENTS.get(raw, raw.replace("_", " ")))

"""States, the transition table and the vocabulary of reasons. Pure: the code checks it, tests enumerate it."""

from enum import StrEnum

from django.db.models import TextChoices
from django.utils.translation import gettext_lazy as _


class State(TextChoices):
    PENDING = "pending", _("pending")
    RUNNING = "running", _("running")
    PARKED = "parked", _("parked")
    COMPLETED = "completed", _("completed")
    FAILED = "failed", _("failed")
    EXPIRED = "expired", _("expired")
    CANCELLED = "cancelled", _("cancelled")


TERMINAL = frozenset({State.COMPLETED, State.FAILED, State.EXPIRED, State.CANCELLED})
LIVE = frozenset(State) - TERMINAL
ENDINGS = TERMINAL - {State.COMPLETED}
"""What an ending may be asked for: a person can't ask for success."""

TRANSITIONS: frozenset[tuple[State, State]] = frozenset(
    {
        (State.PENDING, State.RUNNING),
        (State.PENDING, State.PARKED),
        (State.PENDING, State.FAILED),
        (State.PENDING, State.EXPIRED),
        (State.PENDING, State.CANCELLED),
        (State.RUNNING, State.PARKED),
        (State.RUNNING, State.COMPLETED),
        (State.RUNNING, State.FAILED),
        (State.RUNNING, State.EXPIRED),
        (State.RUNNING, State.CANCELLED),
        (State.PARKED, State.RUNNING),
        (State.PARKED, State.PARKED),  # due, but no slot is free
        (State.PARKED, State.FAILED),
        (State.PARKED, State.EXPIRED),
        (State.PARKED, State.CANCELLED),
    }
)
"""Every allowed pair, and no other. A terminal state leads nowhere: a retry is a new task."""


class Reason(StrEnum):
    """The first word of a ``watchdog_stop_reason``; details follow behind colons."""

    # parked
    AWAITING_USER_ANSWER = "awaiting_user_answer"
    AWAITING_USER_ANSWERS = "awaiting_user_answers"
    USER_PAUSED = "user_paused"
    SLEEPING = "sleeping"
    RETRYING = "retrying"
    AWAITING_SIGNAL = "awaiting_signal"
    AWAITING_CHILDREN = "awaiting_children"
    AWAITING_SLOT = "awaiting_slot"
    YIELDED = "yielded"
    WORKER_LOST = "worker_lost"
    WORKER_STOPPING = "worker_stopping"
    CONNECTION_LOST = "connection_lost"
    VERSION_CHANGED = "version_changed"
    UNKNOWN_BODY = "unknown_body"
    REPLAY_MISMATCH = "replay_mismatch"
    UNKNOWN_STATE = "unknown_state"
    UNKNOWN_NODE = "unknown_node"
    # ended
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    BODY_FAILED = "failed"
    UNWINDING_FAILED = "unwinding_failed"
    TERMINATED = "terminated"
    RETRIES_EXHAUSTED = "retries_exhausted"
    RECOVERIES_EXHAUSTED = "recoveries_exhausted"
    COMPENSATION_EXHAUSTED = "compensation_exhausted"
    VISITS_EXHAUSTED = "max retries reached"
    NODES_FAILED = "nodes_failed"
    NO_PROGRESS = "no_progress"

    def of(self, *details: object) -> str:
        """The reason with its details: ``Reason.RETRYING.of("welcome") == "retrying:welcome"``."""
        return ":".join([self.value, *(str(detail) for detail in details if detail != "")])


PARK_REASONS = frozenset(
    {
        Reason.AWAITING_USER_ANSWER,
        Reason.AWAITING_USER_ANSWERS,
        Reason.USER_PAUSED,
        Reason.SLEEPING,
        Reason.RETRYING,
        Reason.AWAITING_SIGNAL,
        Reason.AWAITING_CHILDREN,
        Reason.AWAITING_SLOT,
        Reason.YIELDED,
        Reason.WORKER_LOST,
        Reason.WORKER_STOPPING,
        Reason.CONNECTION_LOST,
        Reason.VERSION_CHANGED,
        Reason.UNKNOWN_BODY,
        Reason.REPLAY_MISMATCH,
        Reason.UNKNOWN_STATE,
        Reason.UNKNOWN_NODE,
    }
)
OPERATOR_REASONS = frozenset(
    {Reason.VERSION_CHANGED, Reason.UNKNOWN_BODY, Reason.REPLAY_MISMATCH, Reason.UNKNOWN_STATE, Reason.UNKNOWN_NODE}
)
"""Parked for an operator's word: resume makes these due."""

DEAD_LETTER_REASONS = frozenset(
    {
        Reason.RETRIES_EXHAUSTED,
        Reason.RECOVERIES_EXHAUSTED,
        Reason.COMPENSATION_EXHAUSTED,
        Reason.VISITS_EXHAUSTED,
    }
)


def first_word(reason: str) -> str:
    """``"retrying:welcome"`` -> ``"retrying"``."""
    return reason.partition(":")[0]

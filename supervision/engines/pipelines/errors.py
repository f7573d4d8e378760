"""What can go wrong with pipelines, and what ends their drives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext as _

from supervision.errors import Conflict, Failure, SupervisionError, Suspended
from supervision.kernel.states import Reason


class InvalidPipeline(SupervisionError):
    """A definition that can't work; raised where it is written, at import. For its author, so it isn't translated."""

    def __init__(self, name: object, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        super().__init__("\n  - ".join([f"The pipeline {name!r} can't work:", *faults]))


class UnknownPipeline(SupervisionError):
    """No pipeline of that name is registered in this process."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            _("No pipeline “%(name)s” is registered. Known: %(known)s.")
            % {"name": name, "known": ", ".join(known) or _("none")}
        )


class UnknownState(SupervisionError):
    """The pipeline's table has no such state."""

    def __init__(self, pipeline: str, state: str, known: Sequence[str]) -> None:
        super().__init__(
            _("The pipeline “%(pipeline)s” has no state “%(state)s”. Known: %(known)s.")
            % {"pipeline": pipeline, "state": state, "known": ", ".join(known)}
        )


class PointerNotFound(SupervisionError):
    """The subject has never been through that pipeline."""

    def __init__(self, pipeline: str, subject: str) -> None:
        super().__init__(
            _("The pipeline “%(pipeline)s” has not begun with “%(subject)s” yet, so there is no pointer to move.")
            % {"pipeline": pipeline, "subject": subject}
        )


class PointerMoved(Conflict):
    """The client's ``expected_generation`` is not the pointer's. ``pointer`` is the fresh row."""

    def __init__(self, pointer: Any, expected: int) -> None:
        self.pointer, self.expected, self.task = pointer, expected, None
        SupervisionError.__init__(
            self,
            _("“%(subject)s” has moved since you looked: it is at “%(state)s” now. Look again, then decide.")
            % {"subject": pointer.subject, "state": pointer.state},
        )


class VisitsExhausted(Failure):
    """A run was about to enter a state once more than ``max_visits`` allows: a dead letter."""

    def __init__(self, state: str, error: str) -> None:
        self.stop_reason = Reason.VISITS_EXHAUSTED.of(state)
        text = _("Max retries reached: “%(state)s” may not be entered once more.") % {"state": state}
        super().__init__(f"{text} {_last(error)}".strip())


class EndedBadly(Failure):
    """A run has reached a terminal state that means failure."""

    def __init__(self, state: str, error: str) -> None:
        self.stop_reason = Reason.BODY_FAILED.of(state)
        super().__init__(f"{_('It ended in “%(state)s”.') % {'state': state}} {_last(error)}".strip())


def _last(error: str) -> str:
    return _("Last error: %(error)s") % {"error": error} if error else ""


class Yielded(Suspended):
    """Parked until the next look at what a state waits for."""


class StateLost(Suspended):
    """Parked: the pointer is in a state that the table no longer has. An operator deploys it again, or re-points."""

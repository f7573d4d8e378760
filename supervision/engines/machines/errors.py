"""What can go wrong with machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from django.utils.translation import gettext as _

from supervision.errors import Busy, Conflict, SupervisionError


class InvalidMachine(SupervisionError):
    """A definition that can't work; raised where it is written, at import. For its author, so it isn't translated."""

    def __init__(self, name: object, faults: Sequence[str]) -> None:
        self.faults = list(faults)
        super().__init__("\n  - ".join([f"The machine {name!r} can't work:", *faults]))


class UnknownMachine(SupervisionError):
    """No machine of that name is registered in this process."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(
            _("No machine “%(name)s” is registered. Known: %(known)s.")
            % {"name": name, "known": ", ".join(known) or _("none")}
        )


class EventRefused(SupervisionError):
    """An event that changed nothing, history included. ``allowed`` are the events that would have been accepted."""

    words = ""

    def __init__(self, machine: str, subject: str, state: str, event: str, allowed: Iterable[str]) -> None:
        self.machine, self.subject, self.state, self.event = machine, subject, state, event
        self.allowed = list(allowed)
        said = self._said() % {"subject": f"{machine} {subject}", "state": state, "event": event}
        super().__init__(
            f"{said} {_('Allowed now: %(events)s.') % {'events': ', '.join(self.allowed) or _('nothing')}}"
        )

    def _said(self) -> str:
        raise NotImplementedError


class InvalidTransition(EventRefused):
    """The table has no transition for this event from this state."""

    def _said(self) -> str:
        return _("%(subject)s is “%(state)s”, where the event “%(event)s” leads nowhere.")


class GuardRejected(EventRefused):
    """The table has one, and its guard says no."""

    def _said(self) -> str:
        return _("%(subject)s is “%(state)s”, and a guard rejects the event “%(event)s”.")


class NotPermitted(EventRefused):
    """The guard says yes, but the actor lacks the transition's permission."""

    def _said(self) -> str:
        return _("%(subject)s is “%(state)s”, and you may not send the event “%(event)s”.")


class SubjectNotFound(SupervisionError):
    """There is no such row, or it was never saved."""

    def __init__(self, machine: str, subject: object) -> None:
        super().__init__(_("%(machine)s: there is no row %(subject)s.") % {"machine": machine, "subject": subject})


class SubjectMoved(Conflict):
    """The client's ``expected_generation`` is not the subject's: somebody acted first."""

    def __init__(self, machine: str, subject: str, state: str, generation: int, expected: int) -> None:
        self.task, self.state, self.generation, self.expected = None, state, generation, expected
        SupervisionError.__init__(
            self,
            _("%(subject)s has moved since you looked: it is “%(state)s” now. Look again, then decide.")
            % {"subject": f"{machine} {subject}", "state": state},
        )


class SubjectBusy(Busy):
    """Another transaction held the row for longer than ``LOCK_TIMEOUT_SECONDS``. Nothing was written."""

    def __init__(self, machine: str, subject: str) -> None:
        SupervisionError.__init__(
            self,
            _("%(subject)s is busy right now. Nothing was changed; try again.") % {"subject": f"{machine} {subject}"},
        )


class Tangled(SupervisionError):
    """A guard, an action or ``on_exit`` sent another event to the row that it is moving. For the author."""

    def __init__(self, machine: str, subject: str, event: str) -> None:
        super().__init__(
            f"{machine} {subject}: the action of {event!r} has moved the row itself, so nothing was changed. Send the "
            "following event from on_enter, which runs when the move is recorded, or from after_commit."
        )


class WrongDatabase(SupervisionError):
    """The row lives in another database than the history. For the author."""

    def __init__(self, machine: str, alias: str, database: str) -> None:
        super().__init__(
            f"The machine {machine!r} can't move a row of the database {alias!r}: row, history and tasks change in one "
            f"transaction, and supervision's are in {database!r}. Move the model there, or SUPERVISION['DATABASE']."
        )


class ProtectedField(SupervisionError, AttributeError):
    """The state was assigned. For the author."""

    def __init__(self, machine: str, model: str, field: str) -> None:
        super().__init__(
            f"{model}.{field} belongs to the machine {machine!r} and can't be assigned: send an event, "
            f"or declare the machine with protected=False."
        )

"""Event machines: ``(state, event) -> state`` with guards and actions, on a row of the host's own model or a pointer.

>>> from supervision.engines.machines import Machine, Transition
"""

from supervision.engines.machines.definition import Transition
from supervision.engines.machines.errors import (
    EventRefused,
    GuardRejected,
    InvalidMachine,
    InvalidTransition,
    NotPermitted,
    ProtectedField,
    SubjectMoved,
    SubjectNotFound,
)
from supervision.engines.machines.machine import Machine
from supervision.engines.machines.sending import Event
from supervision.kernel import leftovers

__all__ = [
    "Event", "EventRefused", "GuardRejected", "InvalidMachine", "InvalidTransition", "Machine", "NotPermitted",
    "ProtectedField", "SubjectMoved", "SubjectNotFound", "Transition",
]  # fmt: skip

leftovers.also_in("supervision_machineevent", "payload")  # a history outlives the tasks that knew its files

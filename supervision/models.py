"""Index: Django looks for models here."""

from supervision.engines.pipelines.models import Pointer, Visit
from supervision.kernel.holds import Hold
from supervision.kernel.models import Erasure, Heartbeat, LogEntry, Question, Signal, Task, Tombstone
from supervision.kernel.votes import Vote

__all__ = [
    "Erasure", "Heartbeat", "Hold", "LogEntry", "Pointer", "Question", "Signal", "Task", "Tombstone", "Visit", "Vote",
]  # fmt: skip

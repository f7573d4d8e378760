"""Index: Django looks for models here."""

from supervision.kernel.models import Erasure, Heartbeat, LogEntry, Question, Signal, Task, Tombstone

__all__ = ["Erasure", "Heartbeat", "LogEntry", "Question", "Signal", "Task", "Tombstone"]

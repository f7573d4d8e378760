"""Index: Django looks for models here."""

from supervision.kernel.clusters import Cluster
from supervision.kernel.holds import Hold
from supervision.kernel.models import Erasure, Heartbeat, LogEntry, Question, Signal, Task, Tombstone
from supervision.kernel.votes import Vote

__all__ = ["Cluster", "Erasure", "Heartbeat", "Hold", "LogEntry", "Question", "Signal", "Task", "Tombstone", "Vote"]

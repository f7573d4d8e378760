"""Index: Django looks for models here."""

from supervision.engines.pipelines.models import Pointer, Visit
from supervision.kernel.clusters import Cluster
from supervision.kernel.holds import Hold
from supervision.kernel.models import Erasure, Heartbeat, LogEntry, Question, Signal, Start, Task, Tombstone
from supervision.kernel.notices import Notice
from supervision.kernel.votes import Vote
from supervision.worker.schedules import SupervisedSchedule

__all__ = [
    "Cluster", "Erasure", "Heartbeat", "Hold", "LogEntry", "Notice", "Pointer", "Question", "Signal",
    "Start", "SupervisedSchedule", "Task", "Tombstone", "Visit", "Vote",
]  # fmt: skip

"""Index: Django looks for models here."""

from supervision.engines.machines.models import MachineEvent, Standing, Timer
from supervision.engines.pipelines.models import Pointer, Visit
from supervision.kernel.clusters import Cluster
from supervision.kernel.holds import Hold
from supervision.kernel.models import Erasure, Heartbeat, LogEntry, Question, Signal, Start, Task, Tombstone
from supervision.kernel.nodes import Node, Plan
from supervision.kernel.notices import Notice
from supervision.kernel.votes import Vote
from supervision.worker.schedules import SupervisedSchedule

__all__ = [
    "Cluster", "Erasure", "Heartbeat", "Hold", "LogEntry", "MachineEvent", "Node", "Notice", "Plan", "Pointer",
    "Question", "Signal", "Standing", "Start", "SupervisedSchedule", "Task", "Timer", "Tombstone", "Visit", "Vote",
]  # fmt: skip

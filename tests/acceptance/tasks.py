"""Tasks of ``tests.bodies`` for a real cluster to run, and what became of them."""

from uuid import UUID

from supervision.kernel import creation
from supervision.kernel.models import Heartbeat, LogEntry, Task
from tests.processes import wait_for


def start(steps: int = 1, seconds: float = 0.0, *, queue: str = "default") -> UUID:
    """A new task of so many steps, each of so many seconds."""
    return creation.create("steps", {"steps": steps, "seconds": seconds}, queue=queue).pk


def state(task_id: UUID) -> str:
    return Task.objects.values_list("current_state", flat=True).get(pk=task_id)


def reason(task_id: UUID) -> str:
    return Task.objects.values_list("watchdog_stop_reason", flat=True).get(pk=task_id)


def driver_of(task_id: UUID) -> int:
    """The pid of the process that drives the task, or drove it last."""
    return Heartbeat.objects.values_list("pid", flat=True).get(task=task_id)


def wait_for_state(task_id: UUID, wanted: str, seconds: float = 10.0) -> None:
    wait_for(lambda: state(task_id) == wanted, f"task {task_id} is {wanted}", seconds)


def wait_for_progress(task_id: UUID) -> None:
    """Wait until the task is running and has made a checkpoint since it was last taken."""

    def has_progressed() -> bool:
        entries = LogEntry.objects.filter(task_id=task_id).order_by("-sequence_num")
        return entries.values_list("event", flat=True).first() == "task_checkpointed"

    wait_for(lambda: state(task_id) == "running" and has_progressed(), f"task {task_id} makes progress")

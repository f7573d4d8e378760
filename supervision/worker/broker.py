"""The broker class for django-q2: the task table is the queue.

``Q_CLUSTER = {"broker_class": "supervision.worker.broker.Broker", ...}``, or an instance for our own cluster.
"""

import logging
import multiprocessing
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

from django.db import connections, transaction
from django.utils import timezone
from django.utils.translation import gettext as _
from django_q.brokers import Broker as DjangoQBroker
from django_q.conf import Conf
from django_q.signing import SignedPackage

from supervision.conf import settings
from supervision.engines.registry import drivable
from supervision.kernel.due import CHANNEL, Offer, offer, seconds_until_next
from supervision.worker import ordinary, stop
from supervision.worker.housekeeping import Housekeeping
from supervision.worker.listener import Listener
from supervision.worker.presence import Presence
from supervision.worker.trouble import Trouble

logger = logging.getLogger(__name__)

DRIVE = "supervision.worker.drive.drive"

Message = tuple[int | None, str]
"""What django-q2's pusher gets: the id to acknowledge (None: nothing is acknowledged) and a signed package."""
R = TypeVar("R")


class Capacity(Protocol):
    """How much the workers behind a pusher can take: our task queue."""

    def free(self) -> int: ...
    def bell(self) -> int: ...


class Broker(DjangoQBroker):  # type: ignore[misc]  # django-q2 is untyped
    """Hands out due tasks, then ordinary django-q2 messages, then waits for a notification.

    ``queues`` limits both to those names (an ordinary message's queue is its cluster name); None means every queue of
    tasks, and the messages of this cluster. ``capacity`` is set by our own cluster: no more is handed out than its free
    workers take at once. Without it (stock ``qcluster``) one at a time is handed out, and the due ones that then wait
    for a worker are offered again when their offer runs out.
    """

    ORDINARY_SECONDS = 1.0
    """A cluster that is busy with tasks looks at ordinary messages first this often, so that they don't starve."""

    def __init__(self, list_key: str | None = None, queues: Sequence[str] | None = None) -> None:
        super().__init__(list_key)
        self.queues = list(queues) if queues is not None else None
        self.capacity: Capacity | None = None
        self._begin()

    def _begin(self) -> None:
        self._listener = Listener(CHANNEL)
        self._trouble = Trouble(logger, _("looking for due tasks"))
        self._housekeeping: Housekeeping | None = None
        self._ordinary_at = 0.0
        self._was_idle = False

    def __getstate__(self) -> Any:
        return super().__getstate__(), self.queues

    def __setstate__(self, state: Any) -> None:
        base, self.queues = state
        super().__setstate__(base)
        self.capacity = None
        self._begin()

    # --- handing out ---

    def dequeue(self) -> list[Message]:
        """What the free workers should run now; empty after at most ``poll`` seconds. Never raises."""
        try:
            messages = self._dequeue()
        except Exception as error:
            self._trouble.met(error)
            connections.close_all()
            stop.wait([], min(1.0, 0.1 * 2 ** min(self._trouble.count, 6)))
            return []
        self._trouble.over()
        return messages

    def _dequeue(self) -> list[Message]:
        free = self._free()
        if not free or stop.stopping():
            return []
        self._listener.subscribe()  # before the look: what comes after it is notified
        started = time.monotonic()
        # Before the look, too: what falls due between the two is then waited for no longer than until it does.
        next_in = seconds_until_next(queues=self.queues) if self._was_idle else 0.0
        messages = self._look(free)
        if messages:
            self._was_idle = False
        elif self._was_idle:
            self._wait(Conf.POLL if next_in is None else started + next_in - time.monotonic())
        else:
            self._was_idle = True
        return messages

    def _free(self) -> int:
        if self.capacity is None:
            self._keep_house()
            return 1
        free = self.capacity.free()
        if not free:
            stop.wait([self.capacity.bell()], Conf.POLL)
        return free

    def _look(self, free: int) -> list[Message]:
        messages: list[Message] = []
        if time.monotonic() >= self._ordinary_at:
            messages += self._messages(1)
        if len(messages) < free:
            messages += map(_packed, offer(free - len(messages), queues=self.queues, bodies=drivable()))
        if len(messages) < free:
            messages += self._messages(free - len(messages))
        return messages

    def _messages(self, limit: int) -> list[Message]:
        self._ordinary_at = time.monotonic() + self.ORDINARY_SECONDS
        return list(ordinary.claim(limit, self.queues if self.queues is not None else [self.list_key]))

    def _wait(self, seconds: float) -> None:
        file = self._listener.fileno()
        is_notified = bool(stop.wait([] if file is None else [file], min(Conf.POLL, seconds)))
        self._was_idle = not is_notified  # then look first: somebody waits for it

    def _keep_house(self) -> None:
        """In a stock ``qcluster`` nobody else ticks. A thread, in the pusher: that process never forks."""
        if self._housekeeping is None and multiprocessing.parent_process() is not None:
            self._housekeeping = Housekeeping(Presence(queues=self.queues, workers=int(Conf.WORKERS)))
            self._housekeeping.start()

    def close(self) -> None:
        """Give this broker's own connection back. It may be used again."""
        self._listener.close()

    # --- ordinary messages ---

    def enqueue(self, task: str) -> int:
        """Store an ordinary message in the caller's transaction, and wake a cluster when that has committed."""
        pk = ordinary.store(self.list_key or Conf.CLUSTER_NAME, task)
        # After the commit, not in it: NOTIFY makes commits wait for each other.
        transaction.on_commit(_notify, using=ordinary.alias(), robust=True)
        return pk

    def acknowledge(self, task_id: int) -> None:
        """Forget a message that was run. Outlasts a short absence of the database, as a lost one would run again."""
        _outlasting(partial(ordinary.delete, task_id))

    def fail(self, task_id: int | None) -> None:
        """Forget a message that can't be run."""
        if task_id is not None:
            _outlasting(partial(ordinary.delete, task_id))

    def delete(self, task_id: int) -> None:
        ordinary.delete(task_id)

    def queue_size(self) -> int:
        return ordinary.count_waiting(self.list_key)

    def lock_size(self) -> int:
        return ordinary.count_handed_out(self.list_key)

    def purge_queue(self) -> None:
        ordinary.purge(self.list_key)

    def delete_queue(self) -> None:
        ordinary.purge(self.list_key)

    def ping(self) -> bool:
        return True

    def info(self) -> str:
        return f"supervision on PostgreSQL ({settings.DATABASE})"


def _packed(due: Offer) -> Message:
    """The offer as a package of django-q2's. Without a time limit, a saved result or an acknowledgement: the row is
    the truth."""
    package = {
        "id": due.task_id.hex,
        "name": f"{due.task_id}/{due.lease}",
        "func": DRIVE,
        "args": (str(due.task_id), due.lease, due.body),
        "kwargs": {},
        "started": timezone.now(),  # for django-q2's display
        "timeout": -1,
        "save": False,
        "ack_failure": True,
    }
    return None, str(SignedPackage.dumps(package))


def _notify() -> None:
    with connections[ordinary.alias()].cursor() as cursor:
        cursor.execute(f"NOTIFY {CHANNEL}")


def _outlasting(verb: Callable[[], R], tries: int = 8) -> R | None:
    """What the verb returns. Database errors are tried again over some ten seconds, then logged: None."""
    trouble = Trouble(logger, _("acknowledging a message"))
    for attempt in range(tries):
        try:
            return verb()
        except Exception as error:
            if connections[ordinary.alias()].in_atomic_block:
                raise
            trouble.met(error)
            connections[ordinary.alias()].close()
            stop.wait([], min(2.0, 0.1 * 2**attempt))
    return None

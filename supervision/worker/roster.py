"""Who is who in a cluster: each process says that it is ready, the sentinel says which have ended, main listens."""

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from supervision.worker.packets import Packets

logger = logging.getLogger(__name__)

Role = Literal["main", "sentinel", "worker", "pusher", "monitor"]


@dataclass(frozen=True)
class News:
    has_ended: bool
    role: str
    pid: int


class Roster:
    """The news of a cluster's processes, for its main process. Saying something never waits for anybody."""

    def __init__(self) -> None:
        self._packets = Packets()

    def fileno(self) -> int:
        """The file descriptor that is readable while there is news."""
        return self._packets.fileno()

    def close(self) -> None:
        self._packets.close()

    def ready(self, role: Role) -> None:
        """This process is ready. The line that is logged is one that others may parse."""
        logger.info("supervision worker ready pid=%d role=%s", os.getpid(), role)
        self._packets.send(f"ready {role} {os.getpid()}".encode(), seconds=1.0)

    def ended(self, role: Role, pid: int) -> None:
        self._packets.send(f"ended {role} {pid}".encode(), seconds=1.0)

    def news(self) -> Iterator[News]:
        """What was said since the last call."""
        while (message := self._packets.receive()) is not None:
            event, role, pid = message.decode().split()
            yield News(event == "ended", role, int(pid))

"""Who is who in a cluster: each process says that it is ready, the sentinel says which have ended, main listens."""

import json
import logging
import os
from collections.abc import Iterator
from dataclasses import astuple, dataclass
from typing import Literal

from supervision.kernel.identity import started_of
from supervision.worker.packets import Packets

logger = logging.getLogger(__name__)

Role = Literal["main", "sentinel", "worker", "pusher", "monitor"]


@dataclass(frozen=True)
class News:
    """A process is ready, or has ended: ``how``, if the sentinel saw it."""

    has_ended: bool
    role: str
    pid: int
    started: str
    how: str


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
        self._say(News(False, role, os.getpid(), started_of(os.getpid()), ""))

    def ended(self, role: Role, pid: int, started: str, how: str) -> None:
        self._say(News(True, role, pid, started, how))

    def news(self) -> Iterator[News]:
        """What was said since the last call."""
        while (message := self._packets.receive()) is not None:
            yield News(*json.loads(message))

    def _say(self, news: News) -> None:
        self._packets.send(json.dumps(astuple(news)).encode(), seconds=1.0)

"""Signs of life of a cluster's processes, in memory that they share: no database, and no lock, between them.

A process that is stopped (SIGSTOP), or whose C code holds the interpreter's lock for ever, lives and does nothing. Its
beats stop, so another worker takes its task; but only whoever sees that the process itself is silent may replace it.
"""

import ctypes
import mmap
import threading
import time


class Pulse:
    """A counter for each seat of a cluster. Make it before the fork."""

    SECONDS = 0.5

    def __init__(self, seats: int) -> None:
        self._counts = (ctypes.c_uint64 * seats).from_buffer(mmap.mmap(-1, 8 * seats))

    def show(self, seat: int) -> None:
        """Have a thread of this process count for that seat from now on, as long as it gets to run."""
        threading.Thread(target=self._beat, args=(seat,), name="supervision-pulse", daemon=True).start()

    def count(self, seat: int) -> int:
        return self._counts[seat]

    def _beat(self, seat: int) -> None:
        while True:
            self._counts[seat] += 1
            time.sleep(self.SECONDS)


class Watch:
    """How long the seats have been silent, as the one process saw it that asks often.

    A pause of that process itself (it was stopped too, or the machine slept) counts for nobody.
    """

    OWN_PAUSE_SECONDS = 2.0

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._seen: dict[int, tuple[int, float]] = {}
        """Seat -> its count, and how long it has stood."""
        self._looked_at = time.monotonic()

    def begin(self, seat: int) -> None:
        """Another process sits there now."""
        self._seen.pop(seat, None)

    def silent(self, seats: set[int], *, seconds: float) -> set[int]:
        """Which of the seats have shown no sign of life for so long. Ask for all of them at once."""
        now = time.monotonic()
        passed = min(now - self._looked_at, self.OWN_PAUSE_SECONDS)
        self._looked_at = now
        found = set()
        for seat in seats:
            count = self._pulse.count(seat)
            before, stood = self._seen.get(seat, (count, -passed))
            stood = stood + passed if count == before else 0.0
            self._seen[seat] = count, stood
            if stood >= seconds:
                found.add(seat)
        return found

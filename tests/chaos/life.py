"""A model of one task's life: what each verb must do to it, said a second time and in few words. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

TERMINAL = frozenset({"completed", "failed", "expired", "cancelled"})
CAP = 3
"""Recoveries in the machine's settings."""


@dataclass
class Life:
    """A method for each verb: it changes the model and says what the verb must say."""

    state: str = "pending"
    lease: int = 0
    was_taken: bool = False
    is_due: bool = True
    is_held: bool = False
    is_overdue: bool = False
    ending: str = ""
    waits: str = ""
    """What a parked task waits for: ``answer``, ``signal``, ``time``, or nothing any more."""
    pending: set[str] = field(default_factory=set)
    answered: set[str] = field(default_factory=set)
    signals: int = 0
    recoveries: int = 0

    @property
    def is_terminal(self) -> bool:
        return self.state in TERMINAL

    # --- workers

    def take(self, lease: int) -> str:
        may_run = self.ending or not (self.is_held or self.is_overdue)
        if self.state not in ("pending", "parked") or not self.is_due or lease != self.lease or not may_run:
            return "False"
        self.state, self.lease, self.was_taken, self.is_due, self.waits = "running", lease + 1, True, False, ""
        return "Taken"

    def checkpoint(self, lease: int) -> str:
        if not self._runs(lease):
            return "LeaseLost"
        self.recoveries = 0
        asked = [self.is_held and "pause", self.ending, self.is_overdue and "overdue"]
        return ",".join(each for each in asked if each) or "ok"

    def ask(self, lease: int, key: str) -> str:
        if not self._runs(lease):
            return "LeaseLost"
        if self.ending or self.is_overdue:
            return "requests"
        if key not in self.answered:
            self.pending.add(key)
        self._park("answer", is_due=key in self.answered)
        return "parked"

    def consume(self, lease: int) -> str:
        if not self._runs(lease):
            return "LeaseLost"
        if self.signals:
            self.signals -= 1
            return "signal"
        if self.ending or self.is_overdue:
            return "requests"
        self._park("signal")
        return "parked"

    def park(self, lease: int) -> str:
        if not self._runs(lease):
            return "LeaseLost"
        self._park("time", is_due=bool(self.ending))
        return "ok"

    def end(self, lease: int, state: str) -> str:
        """The body returned, failed, or has unwound (``state`` empty)."""
        if not self._runs(lease):
            return "LeaseLost"
        self._end(state or self.ending or "expired")
        return "ok"

    def reap(self, *, is_stale: bool) -> str:
        if self.state != "running" or not is_stale:
            return "False"
        self.lease += 1
        self.recoveries += 1
        if self.recoveries > CAP:
            self._end("failed")
        else:
            self._park("", is_due=True)
        return "True"

    # --- people and the world

    def answer(self, key: str) -> str:
        if key in self.answered:
            return "AlreadyAnswered"
        if self.is_terminal or self.ending:
            return "QuestionWithdrawn"
        if self.is_overdue:
            return "QuestionExpired"
        self.pending.discard(key)
        self.answered.add(key)
        if self.state == "parked" and not self.pending:
            self.is_due = True
        return "ok"

    def signal(self) -> str:
        if self.is_terminal or self.ending:
            return "Refused"
        self.signals += 1
        if self.state == "parked" and self.waits == "signal":
            self.is_due = True
        return "ok"

    def pause(self) -> str:
        if self.is_terminal or self.ending or self.is_held:
            return "Refused"
        self.is_held = True
        return "ok"

    def resume(self) -> str:
        if self.is_terminal or self.ending or self.is_overdue or not self.is_held:
            return "Refused"
        self.is_held = False
        return "ok"

    def cancel(self) -> str:
        return self._ask_to_end("cancelled", at_once=not self.was_taken)

    def expire(self) -> str:
        return self._ask_to_end("expired", at_once=self.state != "running")

    def sweep(self) -> str:
        """The tick's own expiry."""
        return self.expire() if self.is_overdue else "Refused"

    def terminate(self) -> str:
        if self.is_terminal:
            return "Refused"
        self.lease += 1
        self._end("cancelled")
        return "ok"

    # --- time

    def wake(self) -> None:
        if self.state == "parked" and self.waits == "time":
            self.is_due = True

    # --- inside

    def _runs(self, lease: int) -> bool:
        return self.state == "running" and lease == self.lease

    def _park(self, waits: str, *, is_due: bool = False) -> None:
        self.state, self.waits, self.is_due = "parked", waits, is_due

    def _ask_to_end(self, state: str, *, at_once: bool) -> str:
        if self.is_terminal or self.ending:
            return "Refused"
        if at_once:
            self._end(state)
        else:
            self.ending = state
            self.is_due = self.state != "running"
        return "ok"

    def _end(self, state: str) -> None:
        self.state, self.is_due, self.waits = state, False, ""
        self.pending.clear()

"""A stepping device: verbs in threads with sessions of their own, stopped inside their transactions, holding locks.

    def test_two_resumes(stage: Stage) -> None:
        first = stage.begin(lambda: lifecycle.resume(pk))      # has done everything but the commit
        second = stage.begin(lambda: lifecycle.resume(pk))     # is seen waiting for the first one's lock
        assert second.is_blocked_by(first)
        assert first.commit().current_state == "parked"
        assert isinstance(second.refusal(), Refused)

Nothing sleeps: a thread is waited for until it has stopped, ended, or PostgreSQL says that it waits for a lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import Any, TypeVar

import psycopg
from django.db import connection, connections, transaction

from supervision.kernel import crash

DEADLINE = 15.0
T = TypeVar("T")

HELD = "held:before_commit"

_here = threading.local()


def point(name: str) -> None:
    """What stands in for ``crash.point``: the actor of this thread stops here, in its transaction."""
    actor: Actor | None = getattr(_here, "actor", None)
    # The point of a verb that is one statement is passed before it: outside of any transaction, or of the held one.
    is_held = getattr(_here, "is_held", False) and name != HELD
    if actor is not None and name.endswith(":before_commit") and connection.in_atomic_block and not is_held:
        actor._stop(name)


def held(verb: Callable[[], T]) -> Callable[[], T]:
    """A verb of one autocommitted statement, whose commit can be held back: as if the server were that slow."""

    def run() -> T:
        with transaction.atomic():
            block: Any = connection.atomic_blocks[-1]
            block._from_testcase = True  # or the verb refuses the transaction
            _here.is_held = True
            try:
                result = verb()
                crash.point(HELD)
            finally:
                _here.is_held = False
        return result

    return run


class Actor:
    """One verb in a thread with a session of its own. It stops before each commit until ``commit()`` lets it go."""

    def __init__(self, stage: Stage, verb: Callable[[], Any], *, stops: bool) -> None:
        self._stage, self._verb, self._stops = stage, verb, stops
        self._changed = threading.Condition()
        self._is_stopped = self._has_ended = self._may_go = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.pid = 0
        stage.threads.submit(self._run)
        self._wait(lambda: self.pid != 0 or self._has_ended, "has a session")

    # --- in its thread

    def _run(self) -> None:
        _here.actor = self
        try:
            connection.ensure_connection()
            self._stage.sessions[threading.get_ident()] = connections["default"]
            pid = connection.connection.info.backend_pid
            with self._changed:
                self.pid = pid
                self._changed.notify_all()
            self.result = self._verb()
        except BaseException as error:
            self.error = error
        finally:
            with self._changed:
                self._has_ended = True
                self._changed.notify_all()

    def _stop(self, name: str) -> None:
        if not self._stops:
            return
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
            if not self._changed.wait_for(lambda: self._may_go, DEADLINE):
                raise AssertionError(f"stopped at {name}, nobody let it go")
            self._may_go = self._is_stopped = False

    # --- in the test's

    @property
    def is_stopped(self) -> bool:
        """It has written everything and not committed."""
        return self._is_stopped

    @property
    def has_ended(self) -> bool:
        return self._has_ended

    def is_blocked(self) -> bool:
        """PostgreSQL says that its session waits for somebody's lock."""
        return not self._has_ended and bool(self._stage.blockers(self.pid))

    def is_blocked_by(self, *others: Actor | int) -> bool:
        """It waits for a lock that one of the others holds, or has asked for before it."""
        pids = {other if isinstance(other, int) else other.pid for other in others}
        return bool(pids & self._stage.blockers(self.pid))

    def settle(self) -> Actor:
        """Waits until it has stopped, has ended, or waits for a lock."""
        self._wait(lambda: self._is_stopped or self._has_ended or self.is_blocked(), "stops, ends or waits for a lock")
        return self

    def let_go(self) -> None:
        """Lets it commit, without waiting for it."""
        with self._changed:
            self._may_go = True
            self._changed.notify_all()

    def step(self) -> Actor:
        """One step further: commits if it has stopped; then as ``settle``."""
        if self._is_stopped:
            with self._changed:
                self._is_stopped = False
            self.let_go()
        return self.settle()

    def finish(self) -> None:
        """Lets it go to its end, through every stop."""
        deadline = time.monotonic() + DEADLINE
        while not self._has_ended:
            with self._changed:
                self._changed.wait_for(lambda: self._is_stopped or self._has_ended, 0.05)
                if self._is_stopped:
                    self._is_stopped, self._may_go = False, True
                    self._changed.notify_all()
            assert time.monotonic() < deadline, "it waits for a lock that nobody gives up"

    def commit(self) -> Any:
        """Lets it go to its end; its result, or its error raised."""
        self.finish()
        if self.error is not None:
            raise self.error
        return self.result

    def refusal(self) -> BaseException:
        """Lets it go to its end, which must be an error."""
        try:
            result = self.commit()
        except BaseException as error:
            return error
        raise AssertionError(f"it was not refused, but returned {result!r}")

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            with self._changed:
                if not (self._is_stopped or self._has_ended):
                    self._changed.wait(0.001)
            assert time.monotonic() < deadline, f"waited in vain until it {what}"


class Stage:
    """Begins actors, watches their locks from a session of its own, and holds rows as a slow client would."""

    def __init__(self) -> None:
        self._watcher = session()
        self._actors: list[Actor] = []
        self.threads = ThreadPoolExecutor(max_workers=16, thread_name_prefix="actor")
        self.sessions: dict[int, Any] = {}
        """Kept from actor to actor, by thread: connecting takes longer than most verbs."""

    def begin(self, verb: Callable[[], Any]) -> Actor:
        """The verb up to its commit: it has stopped before it, has ended, or waits for a lock."""
        return self._enter(verb, stops=True)

    def run(self, verb: Callable[[], Any]) -> Actor:
        """The verb without a stop: it has ended, or waits for a lock."""
        return self._enter(verb, stops=False)

    def _enter(self, verb: Callable[[], Any], *, stops: bool) -> Actor:
        actor = Actor(self, verb, stops=stops)
        self._actors.append(actor)
        return actor.settle()

    def blockers(self, pid: int) -> set[int]:
        row = self._watcher.execute("SELECT pg_blocking_pids(%s)", [pid]).fetchone()
        assert row is not None
        return set(row[0])

    @contextmanager
    def holding(self, query: str, *parameters: Any) -> Iterator[int]:
        """Another session's transaction that has run this query, until the block ends; its backend's pid."""
        with session(autocommit=False) as holder:
            holder.execute(query, parameters)
            yield holder.info.backend_pid
            holder.commit()

    @contextmanager
    def holding_task(self, pk: Any) -> Iterator[int]:
        """A client that holds the task's row."""
        with self.holding("SELECT 1 FROM supervision_task WHERE id = %s FOR NO KEY UPDATE", pk) as pid:
            yield pid

    @contextmanager
    def counting_wakes(self) -> Iterator[list[str]]:
        """After the block, the list has one item for each notification of the brokers that was sent within it."""
        heard: list[str] = []
        with session() as listener:
            listener.execute("LISTEN supervision_wake")
            listener.execute("LISTEN races_end")
            yield heard
            self._watcher.execute("NOTIFY races_end")  # delivered in the order of the commits, so after all others
            for notification in listener.notifies(timeout=DEADLINE):
                if notification.channel == "races_end":
                    return
                heard.append(notification.channel)
        raise AssertionError("the notifications did not come")

    def now(self) -> datetime:
        """The database's time."""
        row = self._watcher.execute("SELECT clock_timestamp()").fetchone()
        assert row is not None
        now: datetime = row[0]
        return now

    def wait_until_past(self, moment: datetime) -> None:
        """Waits for the database's clock."""
        deadline = time.monotonic() + DEADLINE
        while self.now() <= moment:
            assert time.monotonic() < deadline
            time.sleep(0.005)

    def close(self) -> None:
        for actor in self._actors:
            actor._stops = False
            actor.let_go()
        self.threads.shutdown()
        for wrapper in self.sessions.values():
            wrapper.inc_thread_sharing()
            wrapper.close()
        self._watcher.close()


def session(*, autocommit: bool = True) -> psycopg.Connection[Any]:
    """A plain session on the test's database, as another process would have."""
    parameters = connection.get_connection_params()
    names = ("dbname", "user", "password", "host", "port")
    return psycopg.connect(autocommit=autocommit, **{name: parameters[name] for name in names if name in parameters})

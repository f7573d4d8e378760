"""Children in an author's code: start, wait, run, map. A start is recorded once; a redrive finds the same children."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NoReturn

from supervision.engines import registry, steps
from supervision.engines.replay import Replay
from supervision.errors import AwaitingChildren, Cancelled, ChildFailed, SupervisionError
from supervision.kernel import children
from supervision.kernel.children import Outcome
from supervision.kernel.lease import Requests, Taken


@dataclass(frozen=True)
class Children:
    """What ``start_children`` and ``start_child`` hand out: which children, to be waited for."""

    name: str
    count: int

    @property
    def places(self) -> list[str]:
        return children.steps_of(self.name, self.count)


class Family:
    """The part of ``Context`` that has children. Mixed into it; see there for what it stands on."""

    _taken: Taken
    _replay: Replay
    _kernel: Any
    _changed: Any
    _refuse: Any
    _end: Any
    _enter: Callable[..., None]
    _go_on: Callable[[], None]
    _requests: Requests
    unwinding: Cancelled | None
    _park_mismatch: Callable[..., NoReturn]
    identify: Callable[[str, object | None], str]

    def start_child(
        self, body: str, arguments: Mapping[str, Any] | None = None, *, key: object | None = None, **options: Any
    ) -> Children:
        """Starts a task of ``body`` as a child, once, and goes on. ``options``: ``queue``, ``priority``,
        ``expires_after``, and ``subject``, which a pipeline needs. It has the parent's owner, and doesn't outlive the
        parent's end."""
        return self.start_children(body, [arguments or {}], key=key, **options)

    def start_children(
        self,
        body: str,
        arguments: Sequence[Mapping[str, Any]],
        *,
        key: object | None = None,
        queue: str = "",
        priority: int | None = None,
        expires_after: timedelta | None = None,
        subject: str = "",
    ) -> Children:
        """Starts a child for each of ``arguments``, all in one lease-checked transaction, once."""
        self._go_on()
        full = self._in_round(self.identify(f"child:{body}", key))
        return self._start(
            full, body, arguments, queue=queue, priority=priority, expires_after=expires_after, subject=subject
        )

    def _in_round(self, full: str) -> str:
        """Each round of ``continue_as_new`` has children of its own."""
        return f"{full}@{self._taken.round}" if self._taken.round else full

    def _start(
        self,
        full: str,
        body: str,
        arguments: Sequence[Mapping[str, Any]],
        *,
        queue: str = "",
        priority: int | None = None,
        expires_after: timedelta | None = None,
        subject: str = "",
        compared: bool = True,
    ) -> Children:
        digest = steps.digest([dict(each) for each in arguments], {})
        found = self._replay.get(full)
        if found is not None and found.outcome:
            self._enter(full, is_recorded=True)
            recorded = self._replay.payload(found.number)
            if compared and recorded.get("digest") != digest:
                self._park_mismatch(full, {"digest": recorded.get("digest")}, {"digest": digest})
            return Children(full, recorded["count"])
        self._enter(full, is_recorded=False)
        known = registry.get(body)
        checked = [known.check_arguments(each) for each in arguments]
        with self._kernel():
            requests = children.start(
                self._taken.task_id, self._taken.lease, full, known.name, checked,
                payload={"body": known.name, "digest": digest}, decisions=self._changed(),
                body_version=known.version, queue=queue or known.queue,
                priority=known.priority if priority is None else priority, sensitive=known.sensitive,
                expires_after=expires_after or known.expires_after,
                subjects=[subject] * len(checked) if subject else (),
                concurrency_key=known.key_of(subject) if known.key_of is not None else "",
            )  # fmt: skip
        self._refuse(requests, full)
        return Children(full, len(arguments))

    def wait_for(self, started: Children | Sequence[Children]) -> list[Outcome]:
        """How the children ended, in the order they were given; parks until the last of them has. What a failed child
        means is the body's to decide."""
        self._go_on()
        groups = [started] if isinstance(started, Children) else list(started)
        places = [place for group in groups for place in group.places]
        if not places:
            return []
        outcomes = self._ended(groups[0].name, places=places)
        by_step = {outcome.step: outcome for outcome in outcomes}
        return [by_step[place] for place in places]

    def run_child(
        self, body: str, arguments: Mapping[str, Any] | None = None, *, key: object | None = None, **options: Any
    ) -> Any:
        """The result of a child, started once and waited for. Raises ChildFailed if it didn't complete."""
        return _results(self.wait_for(self.start_child(body, arguments, key=key, **options)))[0]

    def map(
        self,
        body: str,
        arguments: Sequence[Mapping[str, Any]],
        *,
        at_most: int | None = None,
        key: object | None = None,
        **options: Any,
    ) -> list[Any]:
        """The results of a child for each of ``arguments``, in order; at most ``at_most`` live at a time.

        With a bound the children are started in batches: the parent is woken when half of a batch has ended, so it is
        driven a few times for each ``at_most`` children, not once for each. Raises ChildFailed when all have ended and
        some did not complete.
        """
        if at_most is not None and at_most < 1:
            raise SupervisionError(f"at_most must be at least 1, not {at_most}.")
        self._go_on()
        full = self._in_round(self.identify(f"map:{body}", key))
        prefix = f"{full}~"
        allowed = len(arguments) if at_most is None else at_most
        refill = max(1, allowed - allowed // 2)
        begun = 0
        while begun < len(arguments):
            size = allowed if begun == 0 else refill
            if begun:
                self._ended(full, prefix=prefix, still=allowed - refill, upto=begun)
            # what a batch held is in the log: ``at_most`` may have changed with a deploy
            batch = self._start(
                f"{prefix}{begun:06d}", body, arguments[begun : begun + size], compared=False, **options
            )
            begun += batch.count
        return _results(self._ended(full, prefix=prefix)) if arguments else []

    def _ended(
        self, name: str, *, places: Sequence[str] = (), prefix: str = "", still: int = 0, upto: int | None = None
    ) -> list[Outcome]:
        """The outcomes, once no more than ``still`` live. ``upto``: a later batch that was started proves the wait."""
        if upto is not None and self._replay.get(f"{prefix}{upto:06d}") is not None:
            return []
        if self._requests.ending and self.unwinding is None:
            self._enter(name, is_recorded=False)
        with self._kernel():
            outcomes = children.outcomes(self._taken.task_id, steps=places, prefix=prefix)
        if sum(outcome.is_live for outcome in outcomes) <= still:
            return outcomes
        self._enter(name, is_recorded=False)
        with self._kernel():
            waited = children.wait(
                self._taken.task_id, self._taken.lease, name, steps=places, prefix=prefix, still=still,
                decisions=self._changed(),
            )  # fmt: skip
        self._refuse(waited.requests, name)
        if not waited.over:
            raise self._end(AwaitingChildren())
        with self._kernel():
            return children.outcomes(self._taken.task_id, steps=places, prefix=prefix)


def _results(outcomes: list[Outcome]) -> list[Any]:
    failed = [outcome for outcome in outcomes if not outcome.is_completed]
    if failed:
        raise ChildFailed(failed)
    return [outcome.result for outcome in outcomes]

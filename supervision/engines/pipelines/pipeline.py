"""A pipeline: its table, registered as a body of its name, and how runs of it are started."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import models

from supervision.engines import registry, starting
from supervision.engines.pipelines.definition import State, Table
from supervision.engines.pipelines.engine import PipelineEngine
from supervision.engines.pipelines.errors import InvalidPipeline, UnknownPipeline
from supervision.engines.pipelines.run import Run, key_of
from supervision.engines.registry import Body
from supervision.errors import ConcurrencyKeyHeld, SupervisionError
from supervision.kernel import sql, storable
from supervision.kernel.limits import Limit
from supervision.kernel.models import Task

_LONGEST_KEY = 200


class Pipeline:
    """A state machine that a subject goes through, one run at a time.

    ``states`` is the table, ``terminal`` names its ends (state -> "completed" or "failed"). Registered under ``name``
    where it is written: InvalidPipeline there tells all that is wrong with it. ``on_cancel(run)`` is called when a run
    is cancelled or expires, before it ends; it may step. The other options are those of ``body``.

    >>> retraining = Pipeline("retraining", initial="SUBMIT", terminal={"DONE": "completed", "FAILED": "failed"},
    ...                       states={
    ...     "SUBMIT": State(submit, "POLL", "FAILED", True),
    ...     "POLL": State(poll, "DONE", "POLL", False, poll_every=timedelta(minutes=3)),
    ... })
    >>> retraining.start("customer 7")
    """

    def __init__(
        self,
        name: str,
        *,
        initial: str,
        terminal: Mapping[str, str],
        states: Mapping[str, State],
        on_cancel: Callable[[Run], Any] | None = None,
        version: int = 1,
        compatible_with: Collection[int] = (),
        queue: str = "default",
        priority: int = 5,
        expires_after: timedelta | None = None,
        label: str = "",
        max_running: int | None = None,
        at_most: int | None = None,
        per: timedelta | None = None,
    ) -> None:
        self.table = Table(name, initial, terminal, states)
        if name in registry.known_versions():
            raise InvalidPipeline(name, ["another pipeline or body of this name is registered already"])
        if not 0 <= priority <= 9:
            raise InvalidPipeline(name, [f"priority is {priority}; it must be from 0 to 9"])
        registry.register(
            Body(
                name=name, function=_run, engine=PipelineEngine(self.table, on_cancel), version=version, queue=queue,
                priority=priority, expires_after=expires_after, label=label or name,
                compatible_with=frozenset(compatible_with), form=None, key_of=self._key,
                limit=Limit(max_running=max_running, at_most=at_most, per=per) or None,
            )
        )  # fmt: skip

    @property
    def name(self) -> str:
        return self.table.name

    def start(
        self,
        subject: str | models.Model,
        params: Mapping[str, Any] | None = None,
        *,
        owner: Any = None,
        by: Any = None,
        note: str = "",
        queue: str = "",
        priority: int | None = None,
        start_at: datetime | None = None,
        expires_at: datetime | None = None,
        expires_after: timedelta | None = None,
    ) -> Task:
        """The task of a new run of the subject, from ``initial``; or of its live one, if there is one.

        ``params`` are what the run begins with. In the caller's transaction, if there is one. A subject that is a row
        is known by its model and key. Raises SupervisionError for a subject that is empty or too long, NotStorable,
        TooLarge.
        """
        text = subject_of(subject)
        try:
            return starting.start(
                self.name, _checked(params), owner=owner, subject=text,
                subject_object=subject if isinstance(subject, models.Model) else None, queue=queue, priority=priority,
                start_at=start_at, expires_at=expires_at, expires_after=expires_after,
                concurrency_key=self._key(text), by=by, note=note,
            )  # fmt: skip
        except ConcurrencyKeyHeld as held:
            task: Task = held.task
            return task

    def start_all(
        self, subjects: Iterable[str | models.Model], *, spread_over: timedelta = timedelta(0), **options: Any
    ) -> list[Task]:
        """``start`` for each, evenly spread over the time from now on, in the order given."""
        rows = list(subjects)
        begin: datetime = sql.run("SELECT supervision_now_v1()", {})[0][0]
        return [
            self.start(subject, start_at=begin + spread_over * at / len(rows) if spread_over else None, **options)
            for at, subject in enumerate(rows)
        ]

    def _key(self, subject: str) -> str:
        key = key_of(self.name, subject)
        if not subject or len(key) > _LONGEST_KEY:
            longest = _LONGEST_KEY - len(key_of(self.name, ""))
            raise SupervisionError(
                f"A subject of {self.name!r} must have 1 to {longest} characters, not {len(subject)}."
            )
        return key


def get(name: str) -> Table:
    """The table of the registered pipeline of that name. Raises UnknownPipeline."""
    found = tables()
    if name not in found:
        raise UnknownPipeline(name, sorted(found))
    return found[name]


def tables() -> dict[str, Table]:
    """Name -> table of all registered pipelines."""
    return {body.name: body.engine.table for body in registry.bodies() if isinstance(body.engine, PipelineEngine)}


def subject_of(subject: str | models.Model) -> str:
    """The subject as pointers know it: a text as it is, a row as ``app.model:key``."""
    return f"{subject._meta.label_lower}:{subject.pk}" if isinstance(subject, models.Model) else subject


def _checked(params: Mapping[str, Any] | None) -> dict[str, Any]:
    given = dict(params or {})
    storable.encode(given, place="params", limit="MAX_DECISIONS_BYTES")
    return given


def _run(task: Run, **params: Any) -> None:
    """What a pipeline's arguments are checked against: any. The engine drives the table instead of calling this."""

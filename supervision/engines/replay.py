"""What a task has already done: its recorded steps and waits, found by name, read in one query."""

from __future__ import annotations

import json
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from supervision.errors import SupervisionError
from supervision.kernel import log

LONGEST = 360
"""Of a step's name: the log's column has 400, and undoing or batches put something before or behind it."""
_WHOLE = 2_000
"""Entries whose payloads come with the first query."""
_WINDOW = 500
"""Payloads of later entries are read this many at a time,"""
_WINDOWS = 8
"""and so many windows are kept: memory is bounded by names and numbers, a few dozen bytes an entry."""


@dataclass(slots=True)
class Recorded:
    """Everything recorded under one name."""

    outcome: str = ""
    """The event that settled it (step_completed, signal_consumed, children_started, ...); empty while it is open."""
    number: int = 0
    failed_attempts: int = 0
    intentions: list[int] = field(default_factory=list)
    is_compensated: bool = False
    parked: int = 0
    """The number of the park that began a wait."""


class Replay:
    """What is recorded of one task after the entry of number ``after``; None: nothing can be, so nothing is read."""

    def __init__(self, task_id: UUID, *, after: int | None) -> None:
        self._task_id = task_id
        self._by_name: dict[str, Recorded] = {}
        self._payloads: dict[int, str] = {}
        self.has_begun_to_unwind = False
        self._windows: OrderedDict[int, dict[int, str]] = OrderedDict()
        if after is None:
            return
        for number, event, name, payload in log.recorded(task_id, after=after, whole=_WHOLE):
            if payload is not None:
                self._payloads[number] = payload
            self._add(number, event, name)

    def _add(self, number: int, event: str, name: str) -> None:
        if event in ("unwinding_started", "step_compensated"):
            self.has_begun_to_unwind = True
        if event == "unwinding_started":
            return
        found = self._by_name.setdefault(name, Recorded())
        if event == "step_attempt_failed":
            found.failed_attempts += 1
        elif event == "step_intended":
            found.intentions.append(number)
        elif event == "step_compensated":
            found.is_compensated = True
        elif event == "task_parked":
            found.parked = found.parked or number
        else:
            found.outcome, found.number = event, number

    def get(self, name: str) -> Recorded | None:
        return self._by_name.get(name)

    def payload(self, number: int) -> dict[str, Any]:
        """The payload of the entry of that number; entries past the first query come in windows."""
        text = self._payloads.get(number)
        if text is None:
            text = self._window(number)
        payload: dict[str, Any] = json.loads(text)
        return payload

    def _window(self, number: int) -> str:
        first = number - number % _WINDOW
        if first not in self._windows:
            self._windows[first] = log.payloads(self._task_id, first, _WINDOW)
            if len(self._windows) > _WINDOWS:
                self._windows.popitem(last=False)
        return self._windows[first][number]


class Names:
    """The names of the calls of one drive: by key, or by occurrence in the order of the calls."""

    def __init__(self) -> None:
        self._occurrences: dict[str, int] = {}
        self._keyed: set[str] = set()

    def name(self, base: str, key: object | None) -> str:
        """``welcome``, ``welcome#2`` for the second unkeyed call, ``welcome[7]`` for ``key=7``.

        Raises SupervisionError for a name that could be mistaken for such a form, and for a key used twice.
        """
        if not base or "#" in base or "[" in base:
            raise SupervisionError(
                f"A step needs a name without “#” and “[”, not {base!r}; use key= to tell calls apart."
            )
        if key is not None:
            name = f"{base}[{key}]"
            if name in self._keyed:
                raise SupervisionError(f"The step {name!r} was called twice in one drive; each needs a key of its own.")
            self._keyed.add(name)
        else:
            self._occurrences[base] = count = self._occurrences.get(base, 0) + 1
            name = base if count == 1 else f"{base}#{count}"
        if len(name) > LONGEST:
            raise SupervisionError(
                f"The name of the step {name[:60]}… has {len(name)} characters; the limit is {LONGEST}."
            )
        return name

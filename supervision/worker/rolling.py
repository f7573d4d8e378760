"""Rolling schedules on django-q2's own ``Schedule``: each subject of a pipeline is started again when it is due.

Put the definition beside the pipeline, in the app's ``supervised.py``, and run ``manage.py supervision_rolling`` with
each deploy, which writes the rows that django-q2 goes by. Such a row names one function, of this module, and the
pipeline: what is started stands in the code.

>>> from supervision.worker.rolling import Rolling, rolling
>>> rolling(Rolling(retraining, active_customers, every=timedelta(days=1), spread_over=timedelta(hours=6)))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from django.db import models
from django_q.models import Schedule

from supervision.conf import settings
from supervision.engines.pipelines import Pipeline
from supervision.engines.pipelines.models import Pointer
from supervision.engines.pipelines.pipeline import subject_of
from supervision.errors import SupervisionError
from supervision.kernel.clock import Now
from supervision.kernel.models import Task

FUNCTION = "supervision.worker.rolling.start_due"


@dataclass(frozen=True)
class Rolling:
    """Every subject that ``subjects()`` names is started ``every`` so long after its last start. Many that are due at
    once, as on the first day, are spread over ``spread_over``. Looked at each ``look_every``."""

    pipeline: Pipeline
    subjects: Callable[[], Iterable[str | models.Model]]
    every: timedelta
    spread_over: timedelta = timedelta(0)
    look_every: timedelta = timedelta(minutes=10)

    def __post_init__(self) -> None:
        if self.every <= timedelta(0) or self.look_every < timedelta(minutes=1) or self.spread_over < timedelta(0):
            raise ValueError(f"{self.pipeline.name}: every is positive, look_every at least a minute: {self}")


_rolling: dict[str, Rolling] = {}


def rolling(definition: Rolling) -> Rolling:
    """Registers the schedule of a pipeline; each has one."""
    _rolling[definition.pipeline.name] = definition
    return definition


def install() -> list[str]:
    """Writes the rows of django-q2 for all that is registered, and removes those of pipelines that have none any more;
    the names. A row that is there keeps its next run, so this may be called as often as one likes."""
    for name, definition in _rolling.items():
        minutes = max(1, int(definition.look_every.total_seconds() // 60))
        Schedule.objects.update_or_create(
            name=_row(name),
            defaults={"func": FUNCTION, "args": repr((name,)), "schedule_type": Schedule.MINUTES, "minutes": minutes,
                      "repeats": -1},
        )  # fmt: skip
    Schedule.objects.filter(func=FUNCTION).exclude(name__in=[_row(name) for name in _rolling]).delete()
    return sorted(_rolling)


def start_due(name: str) -> int:
    """Starts what is due of that pipeline's schedule; how many. What django-q2 calls; may be called at any time, and
    by several at once: a subject has one live run."""
    definition = _rolling.get(name)
    if definition is None:
        raise SupervisionError(f"No rolling schedule of {name!r} is registered here; see supervision.worker.rolling.")
    subjects = {subject_of(subject): subject for subject in definition.subjects()}
    busy = _live(name) | _recent(name, definition.every)
    due = [subject for text, subject in subjects.items() if text not in busy]
    definition.pipeline.start_all(due, spread_over=definition.spread_over, by="schedule")
    return len(due)


def _live(name: str) -> set[str]:
    return set(Task.objects.using(settings.DATABASE).live().filter(body=name).values_list("subject", flat=True))


def _recent(name: str, every: timedelta) -> set[str]:
    """Subjects whose last run was started less than ``every`` ago."""
    last: Any = Pointer.objects.using(settings.DATABASE).filter(pipeline=name, run__created_at__gt=Now() - every)
    return set(last.values_list("subject", flat=True))


def _row(name: str) -> str:
    return f"supervision: {name}"[:100]

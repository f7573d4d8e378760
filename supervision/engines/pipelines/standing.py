"""Reading where subjects stand: how many in each state, and who is in a state that their table has lost."""

from __future__ import annotations

from django.db.models import Count, Q

from supervision.conf import settings
from supervision.engines.pipelines import pipeline
from supervision.engines.pipelines.definition import Table, exhausted
from supervision.engines.pipelines.models import Pointer, PointerQuerySet


def counts(name: str, pointers: PointerQuerySet | None = None) -> dict[str, int]:
    """State -> number of subjects there, of all or of these pointers."""
    rows = Pointer.objects.using(settings.DATABASE).all() if pointers is None else pointers
    found = rows.filter(pipeline=name).order_by().values_list("state").annotate(n=Count("*"))
    return dict(found)


def lost() -> PointerQuerySet:
    """Pointers that no code here can move: of a pipeline that isn't registered, or in a state that its table lost.

    Before a deploy, asked by the new code: what would park with ``unknown_state``.
    """
    known = Q()
    for name, table in pipeline.tables().items():
        known |= Q(pipeline=name, state__in=_states(table))
    pointers = Pointer.objects.using(settings.DATABASE)
    return pointers.exclude(known) if known else pointers.all()


def _states(table: Table) -> list[str]:
    return [*table.states, *table.terminal, *map(exhausted, table.states)]

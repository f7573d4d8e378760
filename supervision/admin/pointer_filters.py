"""Filters of the list of pointers."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.contrib.admin import SimpleListFilter
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from supervision.engines.pipelines import pipeline, standing
from supervision.kernel.states import Reason

if TYPE_CHECKING:
    from django.contrib.admin import ModelAdmin

    from supervision.engines.pipelines.models import Pointer

    Admin = ModelAdmin[Pointer]
    Choices = Sequence[tuple[str, Any]]

AGES = {
    "hour": (_("an hour"), timedelta(hours=1)),
    "day": (_("a day"), timedelta(days=1)),
    "week": (_("a week"), timedelta(days=7)),
}
_EXHAUSTED = Reason.VISITS_EXHAUSTED.value


class PipelineFilter(SimpleListFilter):
    title = _("pipeline")
    parameter_name = "pipeline"

    def lookups(self, request: HttpRequest, model_admin: Admin) -> Choices:
        chosen = request.GET.get(self.parameter_name)
        return [(name, name) for name in dict.fromkeys([*pipeline.tables(), *([chosen] if chosen else [])])]

    def queryset(self, request: HttpRequest, pointers: Any) -> Any:
        return pointers if self.value() is None else pointers.filter(pipeline=self.value())


class StateFilter(SimpleListFilter):
    """The states of the chosen pipeline, or of all."""

    title = _("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Admin) -> Choices:
        chosen = request.GET.get(PipelineFilter.parameter_name)
        tables = [table for name, table in pipeline.tables().items() if chosen in (None, name)]
        names = dict.fromkeys(name for table in tables for name in (*table.states, *table.terminal))
        mine = request.GET.get(self.parameter_name)
        more = [mine] if mine and mine != _EXHAUSTED else []
        return [*[(name, name) for name in dict.fromkeys([*names, *more])], (_EXHAUSTED, _("max retries reached"))]

    def queryset(self, request: HttpRequest, pointers: Any) -> Any:
        if self.value() is None:
            return pointers
        if self.value() == _EXHAUSTED:
            return pointers.filter(state__startswith=f"{_EXHAUSTED}:")
        return pointers.filter(state=self.value())


class StuckFilter(SimpleListFilter):
    """What an operator looks for first."""

    title = _("stuck")
    parameter_name = "stuck"

    def lookups(self, request: HttpRequest, model_admin: Admin) -> Choices:
        ages = [(name, _("in one state for %(age)s") % {"age": label}) for name, (label, _age) in AGES.items()]
        return [*ages, ("lost", _("in a state that is gone"))]

    def queryset(self, request: HttpRequest, pointers: Any) -> Any:
        if self.value() in AGES:
            return pointers.stuck(AGES[self.value() or ""][1])
        if self.value() == "lost":
            return pointers.filter(pk__in=standing.lost().values("pk"))
        return pointers

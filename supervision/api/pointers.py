"""Pipelines: where the subjects of one's runs stand, how they came there, and moving one by hand."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from supervision.api import problems
from supervision.api.described import CURSOR, IF_MATCH, answers, page_of, route
from supervision.api.fields import Act, Text
from supervision.api.gate import gated, tag
from supervision.api.paging import Cursor
from supervision.api.shown import masked, secrets_of
from supervision.api.view import ApiView, given, given_query
from supervision.conf import settings
from supervision.engines import repoint
from supervision.engines.pipelines.models import Pointer, PointerQuerySet, Visit
from supervision.kernel import ownership, sight


class PointerSerializer(serializers.Serializer[Any]):
    id = serializers.IntegerField(source="pk")
    pipeline = serializers.CharField()
    subject = serializers.CharField()
    state = serializers.CharField()
    since = serializers.DateTimeField()
    generation = serializers.IntegerField(help_text="Grows with each move to another state.")
    run = serializers.UUIDField(source="run_id", help_text="The task of the current run, or of the last one.")
    params = serializers.JSONField(help_text="What the transitions of this run have handed on.")
    visit_count = serializers.IntegerField()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return masked(super().to_representation(instance), ("subject", "params"), secrets_of(instance.run))


class VisitSerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField(source="sequence_num")
    run = serializers.UUIDField(source="run_id")
    state = serializers.CharField()
    visit = serializers.IntegerField(source="number", help_text="Of the visits of this state in this run.")
    outcome = serializers.CharField()
    next_state = serializers.CharField()
    yielded = serializers.BooleanField()
    errors = serializers.CharField()  # type: ignore[assignment]
    entered_at = serializers.DateTimeField()
    left_at = serializers.DateTimeField()
    actor = serializers.CharField(source="actor_ref", help_text="Who moved the pointer; empty where the code did.")
    note = serializers.CharField()

    def to_representation(self, instance: Any) -> dict[str, Any]:
        return masked(super().to_representation(instance), ("errors", "note", "outcome"), secrets_of(instance.run))


class RepointAct(Act):
    state = Text(max_length=150, help_text="Any state of the table, or a terminal one.")


class RepointedSerializer(serializers.Serializer[Any]):
    outcome = serializers.CharField()
    pointer = PointerSerializer()


_WIDE = ("run__arguments", "run__locked_decisions", "run__result")
_FILTERS = ("pipeline", "state", "subject")


class PointersView(ApiView):
    @route(
        "pointers_list", parameters=[*(OpenApiParameter(name, str) for name in _FILTERS), *CURSOR],
        responses=answers(page_of("PointerPage", PointerSerializer), 400),
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Where the subjects of your runs stand; the newest pointers first."""
        query = given_query(request, *_FILTERS, "cursor", "page_size")
        exact = {name: query[name].replace("\x00", "\N{REPLACEMENT CHARACTER}") for name in _FILTERS if name in query}
        cursor = Cursor()
        page = cursor.of(self, _readable(request.user).filter(**exact))
        return cursor.get_paginated_response(PointerSerializer(page, many=True).data)


class PointerView(ApiView):
    @route("pointers_retrieve", responses=answers(PointerSerializer, 400, 404))
    def get(self, request: Request, pk: str) -> Response:
        """Where one subject stands."""
        pointer = _pointer_or_404(request.user, pk)
        given_query(request)
        return Response(PointerSerializer(pointer).data, headers={"ETag": tag(pointer.generation)})


class VisitsView(ApiView):
    @route(
        "pointers_visits", parameters=[*CURSOR],
        responses=answers(page_of("VisitPage", VisitSerializer), 400, 404),
    )  # fmt: skip
    def get(self, request: Request, pk: str) -> Response:
        """How the subject came there, newest first: the visits of runs that are yours."""
        pointer = _pointer_or_404(request.user, pk)
        given_query(request, "cursor", "page_size")
        visits = Visit.objects.using(settings.DATABASE).filter(pointer_id=pointer.pk)
        cursor = Cursor()
        rows = visits.filter(run__in=sight.readable(request.user)).select_related("run").defer(*_WIDE)
        page = cursor.of(self, rows, ordering="-sequence_num")
        return cursor.get_paginated_response(VisitSerializer(page, many=True).data)


class RepointView(ApiView):
    @route(
        "pointers_repoint", request=RepointAct, parameters=[IF_MATCH],
        responses=answers(RepointedSerializer, 400, 404, 409, 412, 415, 428),
    )  # fmt: skip
    def post(self, request: Request, pk: str) -> Response:
        """Puts the subject into another state; a run that waits goes on from there."""
        pointer = _pointer_or_404(request.user, pk)
        if pointer.run is None or not sight.may(request.user, "repoint_pointer", pointer.run):
            raise PermissionDenied
        data = given(request, RepointAct)

        def move(expected: int) -> Pointer:
            return repoint(
                pointer.pipeline, pointer.subject, data["state"], by=request.user, note=data.get("note", ""),
                expected_generation=expected,
            )  # fmt: skip

        def current() -> dict[str, Any]:
            return dict(PointerSerializer(_pointer_or_404(request.user, pk)).data)

        moved = gated(request, data, move, current)
        shown = current()
        return Response({"outcome": f"at {moved.state}", "pointer": shown}, headers={"ETag": tag(shown["generation"])})


def _readable(user: Any) -> PointerQuerySet:
    """Those whose run exists for the person; staff need the permission to view pointers as well."""
    pointers = Pointer.objects.using(settings.DATABASE).select_related("run").defer(*_WIDE)
    if sight.is_overseer(user) and not user.has_perm("supervision.view_pointer"):
        return pointers.filter(run__in=ownership.tasks_of(user))
    return pointers.filter(run__in=sight.readable(user))


def _pointer_or_404(user: Any, raw_id: str) -> Pointer:
    is_number = raw_id.isascii() and raw_id.isdecimal() and len(raw_id) < 19
    pointer = _readable(user).filter(pk=int(raw_id) if is_number else -1).first()
    if pointer is None:
        raise problems.not_found()
    return pointer

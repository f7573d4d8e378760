"""Event machines: where a subject stands, and the events that brought it there. For reading: events are sent by code.

Whose a subject is says ``SUPERVISION["SUBJECTS"]``, a function ``(user, machine) -> subjects``: rows of the machine's
model as a QuerySet, or texts; None for a machine of which nothing is the user's. Without it only staff see any.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from django.db.models import CharField, QuerySet
from django.db.models.functions import Cast
from django.utils.module_loading import import_string
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from supervision.api import problems
from supervision.api.described import CURSOR, answers, page_of, route
from supervision.api.paging import Cursor
from supervision.api.view import ApiView, given_query
from supervision.conf import settings
from supervision.engines.machines.models import MachineEvent, Standing
from supervision.kernel import storable


class StandingSerializer(serializers.Serializer[Any]):
    machine = serializers.CharField()
    subject = serializers.CharField()
    state = serializers.CharField()
    since = serializers.DateTimeField()
    generation = serializers.IntegerField(help_text="The number of the newest event.")


class MachineEventSerializer(serializers.Serializer[Any]):
    number = serializers.IntegerField(source="sequence_num")
    event = serializers.CharField(help_text="Empty: the state was found changed by other means.")
    from_state = serializers.CharField(source="source")
    to_state = serializers.CharField(source="target")
    is_timed = serializers.BooleanField(help_text="Time sent it.")
    actor = serializers.CharField(source="actor_ref")
    note = serializers.CharField()
    at = serializers.DateTimeField(source="created_at")


class StandingView(ApiView):
    @route("machines_retrieve", responses=answers(StandingSerializer, 400, 404))
    def get(self, request: Request, machine: str, subject: str) -> Response:
        """Where one subject of a machine stands, from its first event on."""
        standing = _standing_or_404(request.user, machine, subject)
        given_query(request)
        return Response(StandingSerializer(standing).data)


class MachineEventsView(ApiView):
    @route(
        "machines_events", parameters=[*CURSOR],
        responses=answers(page_of("MachineEventPage", MachineEventSerializer), 400, 404),
    )  # fmt: skip
    def get(self, request: Request, machine: str, subject: str) -> Response:
        """The events of one subject, newest first."""
        standing = _standing_or_404(request.user, machine, subject)
        given_query(request, "cursor", "page_size")
        events = MachineEvent.objects.using(settings.DATABASE).filter(standing=standing)
        cursor = Cursor()
        page = cursor.of(self, events, ordering="-sequence_num")
        return cursor.get_paginated_response(MachineEventSerializer(page, many=True).data)


def _standing_or_404(user: Any, machine: str, subject: str) -> Standing:
    """Asked alike for what isn't there and for what isn't theirs."""
    machine, subject = storable.text(machine, 200), storable.text(subject, 400)
    standing = Standing.objects.using(settings.DATABASE).filter(machine=machine, subject=subject).first()
    is_theirs = _is_theirs(user, machine, subject)
    is_overseer = user.is_staff and user.has_perm("supervision.view_standing")
    if standing is None or not (is_theirs or is_overseer):
        raise problems.not_found()
    return standing


def _is_theirs(user: Any, machine: str, subject: str) -> bool:
    subjects = _subjects_of(settings.SUBJECTS)
    theirs = subjects(user, machine) if subjects is not None else None
    if isinstance(theirs, QuerySet):  # as text, for a key that can't be one must cost what a miss does
        return bool(theirs.annotate(_key=Cast("pk", CharField())).filter(_key=subject).exists())
    return subject in {str(each) for each in theirs or ()}


@lru_cache(maxsize=8)
def _subjects_of(path: str) -> Callable[[Any, str], Any] | None:
    return import_string(path) if path else None

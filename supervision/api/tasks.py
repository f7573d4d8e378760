"""Tasks: the list, one by itself (and waiting for it to change), a new one."""

from __future__ import annotations

from typing import Any

from django.db.models import Exists, OuterRef
from django.urls import reverse
from django.utils.translation import gettext as _
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from supervision.api import filters, problems, waiting
from supervision.api.described import CURSOR, answers, page_of, route
from supervision.api.fields import Strict, Text
from supervision.api.gate import tag
from supervision.api.paging import Cursor
from supervision.api.shown import TaskDetailSerializer, TaskSerializer, where_secret
from supervision.api.values import arguments_for
from supervision.api.view import ApiView, given, given_query, whole
from supervision.conf import settings
from supervision.engines import registry, start, verbs
from supervision.engines.registry import Body
from supervision.errors import UnknownBody
from supervision.kernel import ownership, sight, watching
from supervision.kernel.actors import owner_ref
from supervision.kernel.models import Question, Task, TaskQuerySet


class NewTask(Strict):
    body = Text(max_length=200, help_text="One that is declared public.")
    arguments = serializers.DictField(child=serializers.JSONField(allow_null=True), required=False)
    subject = Text(max_length=200, required=False, allow_blank=True, help_text="What it is about, for lists.")
    owner = Text(max_length=200, required=False, help_text="Yourself, or one of your organisations. Default: yourself.")
    start_at = serializers.DateTimeField(required=False)
    expires_at = serializers.DateTimeField(required=False)
    idempotency_key = Text(
        max_length=200, required=False, help_text="The same key again returns the task that it made first."
    )
    note = Text(max_length=2000, required=False, allow_blank=True)


class TasksView(ApiView):
    @route(
        "tasks_list", parameters=[*filters.PARAMETERS, *CURSOR],
        responses=answers(page_of("TaskPage", TaskSerializer), 400),
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Your tasks, newest first; for staff with the permission, all."""
        tasks, ordering = filters.filtered(sight.readable(request.user), request.query_params)
        cursor = Cursor()
        page = cursor.of(self, listed(tasks), ordering=ordering)
        return cursor.get_paginated_response(TaskSerializer(page, many=True).data)

    @route(
        "tasks_create", request=NewTask,
        responses={200: TaskDetailSerializer, **answers(TaskDetailSerializer, 400, 409, 415, status=201)},
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """Starts a task. 200 instead of 201: the idempotency key has made it before."""
        data = given(request, NewTask)
        body = _public(data["body"])
        owner = _owner(request.user, data.get("owner"))
        key = data.get("idempotency_key", "")
        is_known = bool(key) and Task.objects.using(settings.DATABASE).filter(
            owner_ref=owner_ref(owner), body=body.name, idempotency_key=key
        ).exists()  # fmt: skip
        options = {name: data[name] for name in ("subject", "start_at", "expires_at", "note") if name in data}
        arguments = arguments_for(body, data.get("arguments", {}), request.user)
        task = start(body.name, arguments, owner=owner, by=request.user, idempotency_key=key, **options)
        response = shown(request.user, task.pk, status=200 if is_known else 201)
        response["Location"] = request.build_absolute_uri(reverse("supervision_api:task", args=[task.pk]))
        return response


class TaskView(ApiView):
    @route(
        "tasks_retrieve",
        parameters=[
            OpenApiParameter("wait", {"type": "integer", "minimum": 0}, description="Seconds to wait for a change."),
            OpenApiParameter("after_generation", {"type": "integer", "minimum": 0}, description="The last you saw."),
        ],
        responses=answers(TaskDetailSerializer, 400, 404),
    )
    def get(self, request: Request, pk: str) -> Response:
        """One task. With ``?wait=20&after_generation=7``: as soon as its generation is above 7, or after 20 s."""
        task = self.task_or_404(pk)
        query = given_query(request, "wait", "after_generation")
        if "wait" in query:
            seconds = whole(query["wait"], "wait", least=0, most=int(settings.API_LONGEST_WAIT))
            after = whole(query.get("after_generation", ""), "after_generation", least=0, most=2**62)
            if seconds and task.generation <= after:
                with waiting.slot():
                    watching.until_changed(task.pk, after, seconds)
        return shown(request.user, task.pk)


def shown(user: Any, pk: Any, *, status: int = 200) -> Response:
    """The task as it now is, with its generation as the ETag."""
    task = sight.find_task(user, pk)
    if task is None:
        raise problems.not_found()
    return Response(detail(user, task), status=status, headers={"ETag": tag(task.generation)})


def current(user: Any, pk: Any) -> dict[str, Any]:
    """The representation of the task as it now is."""
    data: dict[str, Any] = shown(user, pk).data
    return data


def detail(user: Any, task: Task) -> dict[str, Any]:
    pending = Question.objects.using(settings.DATABASE).filter(task_id=task.pk).pending().count()
    task.needs_answer = pending > 0  # type: ignore[attr-defined]
    data = dict(TaskDetailSerializer(task, context={"pending": pending}).data)
    if not sight.is_overseer(user):
        data["decisions"] = None
    data["can"] = [name for name in data["can"] if sight.may(user, verbs.VERBS[name].codename, task)]
    return data


def listed(tasks: TaskQuerySet) -> TaskQuerySet:
    """With all that ``TaskSerializer`` shows, in one query; wide columns are read where they hold secrets only."""
    asked = Question.objects.using(settings.DATABASE).filter(task=OuterRef("pk")).pending()
    rows = tasks.with_clock().select_related("heartbeat").defer("arguments", "locked_decisions", "result")
    return rows.annotate(needs_answer=Exists(asked), secret_arguments=where_secret())


def _public(name: str) -> Body:
    """The body, if people may start it here; else UnknownBody, which names those that they may."""
    public = {body.name: body for body in registry.bodies() if body.public}
    if name not in public:
        raise UnknownBody(name, sorted(public))
    return public[name]


def _owner(user: Any, key: str | None) -> Any:
    if key is None:
        return user
    for owner in ownership.owners(user):
        if owner_ref(owner) == key:
            return owner
    raise problems.invalid(owner=_("It is neither you nor an organisation of yours."))

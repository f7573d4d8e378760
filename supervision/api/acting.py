"""Pause, resume, cancel, expire, retry: gated by the generation, and answered by what is true afterwards."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from rest_framework.request import Request
from rest_framework.response import Response

from supervision import wording
from supervision.api.described import IF_MATCH, DoneSerializer, answers, route
from supervision.api.fields import Act, Flag, Text
from supervision.api.gate import gated, tag
from supervision.api.tasks import current
from supervision.api.view import ApiView, given
from supervision.engines import verbs
from supervision.kernel import sight


class RetryAct(Act):
    from_step = Text(required=False, max_length=400, help_text="Keep only what was recorded before that step.")
    from_scratch = Flag(required=False, help_text="Keep nothing.")


class VerbView(ApiView):
    verb = ""
    kind: type[Act] = Act

    def act(self, request: Request, pk: str) -> Response:
        task = self.task_or_404(pk)
        verb = verbs.VERBS[self.verb]
        if not sight.may(request.user, verb.codename, task):
            raise PermissionDenied
        data = given(request, self.kind)
        options: dict[str, Any] = {name: data[name] for name in ("note", "from_step", "from_scratch") if name in data}
        if self.verb == "retry":
            options["only_new"] = True

        def run(expected: int) -> Any:
            return verb.run(task.pk, by=request.user, expected_generation=expected, **options)

        changed = gated(request, data, run, lambda: current(request.user, task.pk))
        shown = current(request.user, changed.pk)
        said = {"outcome": wording.outcome(self.verb, changed), "task": shown}
        return Response(said, headers={"ETag": tag(shown["generation"])})


def _view(name: str, summary: str, kind: type[Act] = Act) -> Any:
    """The view of one verb."""

    @route(
        f"tasks_{name}", summary=summary, description=summary, request=kind, parameters=[IF_MATCH],
        responses=answers(DoneSerializer, 400, 404, 409, 412, 415, 428),
    )  # fmt: skip
    def post(self: VerbView, request: Request, pk: str) -> Response:
        return self.act(request, pk)

    made: Any = type(f"{name.capitalize()}View", (VerbView,), {"verb": name, "kind": kind, "post": post})
    return made.as_view()


VIEWS = {
    "pause": _view("pause", "Asks a running task to pause after its current step; holds an idle one."),
    "resume": _view("resume", "Lifts a pause, or says go on to a task that waits for a person’s word."),
    "cancel": _view("cancel", "Asks for the end; a task that ever ran cleans up first."),
    "expire": _view("expire", "Ends the task as if its time had run out."),
    "retry": _view("retry", "Tries an ended task again, as a new one.", RetryAct),
}

"""Where the outside world sends signals: an address for each wait. See ``Task.signal_url``."""

from __future__ import annotations

import json
import logging
from typing import Any

from django.contrib.auth.decorators import login_not_required
from django.core.exceptions import SuspiciousOperation
from django.db.models import Q
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, QueryDict, UnreadablePostError
from django.views.decorators.csrf import csrf_exempt

from supervision.conf import settings
from supervision.errors import Busy, Refused, SupervisionError
from supervision.kernel import links, signals_in
from supervision.kernel.links import SignalLink
from supervision.kernel.models import Signal, Task

logger = logging.getLogger(__name__)

_BY = "webhook"
_FORM = "application/x-www-form-urlencoded"


class Unreadable(Exception):
    """A body that is too long, or nothing that can be understood."""


@login_not_required
@csrf_exempt
def receive(request: HttpRequest) -> HttpResponse:
    """Answers every POST alike, whatever is true of the address, the body and the task: who sends learns nothing.

    Only where the database can't take it just now the answer is another, 503, so that the sender comes again.
    """
    if request.method != "POST":
        return HttpResponseNotAllowed(["POST"])
    link = links.read_signal(request.GET.get(links.PARAMETER, ""))
    if link is not None:
        try:
            _deliver(link, _payload(request))
        except Busy:
            return HttpResponse(status=503, headers={"Retry-After": "5", "Cache-Control": "no-store"})
        except (SupervisionError, Unreadable) as refusal:
            logger.info("signal %s for task %s not taken: %s", link.name, link.task_id, type(refusal).__name__)
    return HttpResponse("Received.\n", "text/plain; charset=utf-8", 202, headers={"Cache-Control": "no-store"})


def _deliver(link: SignalLink, payload: Any) -> None:
    """To the task, or to the retry that goes on in its place: that one has kept the step that handed the address out,
    and hands out no other."""
    send = {"name": link.name, "payload": payload, "key": f"url:{link.key}", "by": _BY}
    try:
        signals_in.send(link.task_id, **send)
    except Refused as refusal:
        first = refusal.task.root_id or refusal.task.pk
        line = Task.objects.using(settings.DATABASE).filter(Q(root_id=first) | Q(pk=first))
        heir = line.live().filter(ending="").order_by("-pk").values_list("pk", flat=True).first()
        if heir is None:
            raise
        # what one of the line has heard, the next has kept
        if not Signal.objects.using(settings.DATABASE).filter(task__in=line, name=link.name, key=send["key"]).exists():
            signals_in.send(heir, **send)


def _payload(request: HttpRequest) -> Any:
    """JSON, or a form's fields; None for an empty body. No more is read than a signal may hold."""
    limit = settings.MAX_PAYLOAD_BYTES
    try:
        raw = request.read(limit + 1)
    except UnreadablePostError as error:
        raise Unreadable from error
    if len(raw) > limit:
        raise Unreadable
    if not raw.strip():
        return None
    try:
        if request.content_type == _FORM:
            fields = QueryDict(raw, encoding="utf-8")
            return {name: values[0] if len(values) == 1 else values for name, values in fields.lists()}
        return json.loads(raw)
    except (ValueError, RecursionError, SuspiciousOperation) as error:
        raise Unreadable from error

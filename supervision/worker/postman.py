"""The postman: tells people of questions and dead letters, through the channels that ``NOTIFY`` names.

``mail`` is Django's. A project adds its own in an app's ``supervised.py``::

    @channel("chat")
    def post(notice: Notice, person: User, text: Text) -> None: ...
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.contrib.auth import get_user_model
from django.core.mail import send_mail
from django.db import connections, models
from django.template.loader import render_to_string
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _

from supervision import wording
from supervision.conf import settings
from supervision.errors import LinkImpossible
from supervision.kernel import entitlement, masking, notices, ownership
from supervision.kernel.actors import owner_ref
from supervision.kernel.models import Question, Task
from supervision.kernel.notices import Notice
from supervision.worker.stop import stopping
from supervision.worker.trouble import Trouble

logger = logging.getLogger(__name__)

_BATCH = 50


@dataclass(frozen=True)
class Text:
    """What is said: one line, and the whole of it. Secrets are masked."""

    subject: str
    body: str


Channel = Callable[[Notice, Any, Text], None]
_channels: dict[str, Channel] = {}


def channel(name: str) -> Callable[[Channel], Channel]:
    """Registers a way to reach people. After a crash it may be called again for one person; raising: not reached."""

    def register(function: Channel) -> Channel:
        _channels[name] = function
        return function

    return register


def channels() -> list[str]:
    """The names that ``NOTIFY`` may hold."""
    return sorted(_channels)


@channel("mail")
def mail(notice: Notice, person: Any, text: Text) -> None:
    """Through Django's mail, to whoever has an address."""
    address = getattr(person, person.get_email_field_name(), "")
    if address:
        send_mail(text.subject, text.body, None, [address])


def deliver_due() -> int:
    """Delivers what is due; the number of notices handled. Several processes at once share the work."""
    handled = 0
    # one at a time: a slow mail server must not outlast the claims of those that wait behind
    while handled < _BATCH and (claimed := notices.claim(1)):
        handled += 1
        try:
            _deliver(claimed[0])
        except Exception as error:
            logger.warning("notice %s of task %s: %s", claimed[0].kind, claimed[0].task_id, type(error).__name__)
            notices.failed(claimed[0], error)
    return handled


def _deliver(notice: Notice) -> None:
    question = notice.question
    if question is not None and question.status != Question.Status.PENDING:
        notices.settle(notice)  # answered meanwhile: nobody needs to be told
        return
    for person in people(notice):
        text = _text(notice, question, person)
        for name in settings.NOTIFY:
            to = f"{name} {owner_ref(person)}"
            if to not in notice.delivered_to:
                _channels[name](notice, person, text)
                notices.delivered(notice, to)
    notices.settle(notice)


def people(notice: Notice) -> list[Any]:
    """Who is told: those who may answer the question; of a dead letter those who may retry it, and its owner."""
    users = get_user_model()._default_manager.filter(is_active=True).order_by("pk")
    question, task = notice.question, notice.task
    if question is None:
        asked = _permitted(users, "supervision.retry_task")
        return [*asked, *([task.owner] if task.owner and task.owner not in asked else [])]
    return [person for person in _named(users, question, task) if entitlement.is_entitled(question, task, person)]


def _named(users: models.QuerySet[Any], question: Question, task: Task) -> list[Any]:
    """Those whom the author had in mind. A superuser may answer everything, and is not told of everything."""
    kind, _colon, key = question.answerable_by.partition(":")
    match kind:
        case "owner":
            return [task.owner] if task.owner else []
        case "user":
            return list(users.filter(pk=key))
        case "group":
            return list(users.filter(groups__pk=key))
        case _:
            return _permitted(users, entitlement.PERMISSION)


def _permitted(users: models.QuerySet[Any], permission: str) -> list[Any]:
    """By a permission of their own or of a group; superusers only where there is nobody else."""
    codename = permission.partition(".")[2]
    mine = models.Q(user_permissions__codename=codename) | models.Q(groups__permissions__codename=codename)
    found = list(users.filter(mine).distinct())
    return found or list(users.filter(is_superuser=True))


def _text(notice: Notice, question: Question | None, person: Any) -> Text:
    task = notice.task
    prompt = masking.mask_values(question.prompt, task.secrets) if question else ""
    about = {
        "notice": notice,
        "task": task,
        "prompt": prompt,
        "headline": " ".join(prompt.split()),
        "expires_at": question.expires_at if question else None,
        "reason": masking.mask_values(wording.reason(task.watchdog_stop_reason), task.secrets),
        "failure": masking.mask_values(task.failure, task.secrets),
        "link": _answer_link(question, person) or _link(task, question, person),
    }
    lines = render_to_string(f"supervision/mail/{notice.kind}.txt", about).strip()
    subject, _newline, body = lines.partition("\n")
    return Text(" ".join(subject.split())[:200], body.strip() + "\n")


def _answer_link(question: Question | None, person: Any) -> str:
    """By which this person answers without signing in, where the project wants that."""
    if question is None or not (settings.ANSWER_LINKS and settings.BASE_URL):
        return ""
    try:
        return question.answer_link(person)
    except LinkImpossible:
        return ""


def _link(task: Task, question: Question | None, person: Any) -> str:
    """To the task's page, the control room's for staff, the owner's own; for others to the question alone."""
    places = [("admin:supervision_task_change", task.pk)]
    if ownership.is_theirs(person, task):
        places.append(("supervision_pages:task", task.pk))
    elif question is not None:
        places.append(("supervision_pages:asked", question.pk))
    if not person.is_staff:
        places.reverse()
    for name, pk in places if settings.BASE_URL else ():
        with suppress(NoReverseMatch):
            return settings.BASE_URL.rstrip("/") + reverse(name, args=[pk])
    return ""


class Postman(threading.Thread):
    """Delivers as long as its process runs; a slow mail server keeps nothing else waiting. Start it after the fork."""

    def __init__(self) -> None:
        super().__init__(name="supervision-postman", daemon=True)
        self._rest = threading.Event()
        self._trouble = Trouble(logger, _("delivering notices"))

    def finish(self, seconds: float) -> None:
        """Ends after the notices at hand; waits for that at most so long."""
        self._rest.set()
        self.join(seconds)

    def run(self) -> None:
        while not (stopping() or self._rest.is_set()):
            handled = 0
            try:
                handled = deliver_due()
            except Exception as error:
                self._trouble.met(error)
                connections.close_all()
            else:
                self._trouble.over()
            if not handled:
                self._rest.wait(settings.TICK_SECONDS)
        connections.close_all()

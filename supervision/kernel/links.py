"""Signed links: by which a person answers one question without signing in, or the outside world ends one wait.

A link is a capability: who has it may do that one thing, so it is never logged. It stands in the query of an address,
which Django's own log records leave out. It holds while ``SECRET_KEY``, or one of ``SECRET_KEY_FALLBACKS``, does.

There is no table of used links: a question takes one answer (or one vote a person), and a task one signal of a name and
key, each decided under the task's lock. A table would say that a second time, and could disagree.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import UUID

from django.core import signing
from django.urls import NoReverseMatch, reverse

from supervision.conf import settings
from supervision.errors import LinkImpossible
from supervision.kernel import sql, storable

if TYPE_CHECKING:
    from supervision.kernel.models import Question

ANSWER, SIGNAL = "supervision_pages:answer", "supervision_pages:signal"
PARAMETER = "t"
_LONGEST = 8000
"""Characters of a token: more than the longest name and key make."""


@dataclass(frozen=True)
class AnswerLink:
    """Whose link, to which question, until when by the database's clock."""

    question_id: UUID
    person: str
    until: datetime


@dataclass(frozen=True)
class SignalLink:
    """Which signal of which task; ``key`` tells several waits for one name apart."""

    task_id: UUID
    name: str
    key: str


def answer_url(question: Question, user: Any, expires_after: timedelta | None = None) -> str:
    """See ``Question.answer_link``. One query, for the database's clock."""
    lifetime = settings.ANSWER_LINK_EXPIRES_AFTER if expires_after is None else expires_after
    if lifetime <= timedelta(0):
        raise ValueError(f"an answer link must last longer than nothing, not {lifetime}")
    now: datetime = sql.run("SELECT supervision_now_v1()", {})[0][0]
    return _url(ANSWER, [question.pk.hex, str(user.pk), int((now + lifetime).timestamp())])


def signal_url(task_id: UUID, name: str, key: str = "") -> str:
    """See ``Task.signal_url``. No query."""
    storable.name(name, place="signal name")
    if key:
        storable.name(key, place="signal key", longest=180)
    return _url(SIGNAL, [task_id.hex, name, key])


def read_answer(token: str) -> AnswerLink | None:
    """What the token says; None for one that wasn't made here, whatever it is."""
    said = _read(ANSWER, token)
    if said is None:
        return None
    question_id, person, until = said
    return AnswerLink(UUID(question_id), person, datetime.fromtimestamp(until, UTC))


def read_signal(token: str) -> SignalLink | None:
    """What the token says; None for one that wasn't made here, whatever it is."""
    said = _read(SIGNAL, token)
    return None if said is None else SignalLink(UUID(said[0]), said[1], said[2])


def why_impossible() -> str:
    """What the project lacks for links; empty: nothing."""
    if not settings.BASE_URL:
        return "SUPERVISION['BASE_URL'] is empty"
    try:
        reverse(ANSWER)
    except NoReverseMatch:
        return "the project's urls don't have include('supervision.pages.urls')"
    return ""


def _url(name: str, content: list[Any]) -> str:
    if why := why_impossible():
        raise LinkImpossible(why)
    token = _signer(name).sign_object(content)
    return f"{settings.BASE_URL.rstrip('/')}{reverse(name)}?{PARAMETER}={quote(token)}"


def _read(name: str, token: str) -> list[Any] | None:
    if len(token) > _LONGEST:
        return None
    try:
        content: list[Any] = _signer(name).unsign_object(token)
    except signing.BadSignature:
        return None
    return content


def _signer(name: str) -> signing.Signer:
    """A salt for each kind, so that one kind's link is never taken for another's. The dot needs no escape in a URL."""
    return signing.Signer(salt=f"supervision.link:{name}", sep=".")

"""The typed ``SUPERVISION`` setting: every name, its unit and its default stand here and nowhere else.

A value is read when it is used, so ``override_settings(SUPERVISION={...})`` works in tests.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.conf import settings as django_settings


class Settings:
    """Each attribute may be overridden by the key of the same name in Django's ``SUPERVISION`` dictionary."""

    DATABASE: str = "default"
    """The database alias that holds the kernel's tables. Atomic steps write there."""

    LEASE_SECONDS: float = 15.0
    """A worker that has not beaten for this long is given up. Generous: C code that holds the GIL starves beats."""
    BEAT_SECONDS: float = 3.0
    """How often a worker beats; at most a third of the lease time."""
    PROGRESS_SECONDS: float = 0.5
    """Progress that a body reports is written at most this often."""
    OFFER_SECONDS: float = 2.0
    """How long a due task that was handed to a cluster is not offered again. Nobody took it: offered again."""
    VERSION_GRACE_SECONDS: float = 60.0
    """How long a due task of an older, incompatible version is left to workers that still have that code, before it is
    parked ``version_changed`` for an operator. Such a worker may take it even then."""
    TICK_SECONDS: float = 1.0
    """How often each cluster reaps and expires."""
    TICK_BATCH: int = 500
    """How many tasks one tick handles of each kind."""
    MAX_RECOVERIES: int = 5
    """A task whose worker was lost more often than this since its last checkpoint is a dead letter: it is poison."""
    LOCK_TIMEOUT_SECONDS: float = 5.0
    """How long a verb of a person waits for a busy row before it reports ``Busy``."""
    STOP_GRACE_SECONDS: float = 30.0
    """How long a stopping cluster waits for bodies to reach their next checkpoint."""
    RECONNECT_SECONDS: float = 60.0
    """How long a worker that lost its database tries to park its task before it leaves the task to the reaper."""

    SCHEDULE_GRACE_SECONDS: float = 60.0
    """A scheduled run that starts less late than this was not missed: what a deploy takes."""
    SCHEDULE_CATCH_UP: int = 100
    """With ``missed="all"`` a schedule catches up at most so many of its latest times at once."""

    HEALTH_LATE_SECONDS: float = 30.0
    """From when on the health check finds a cluster, a tick, a due task or an expiry late."""
    HEALTH_BACKLOG_SECONDS: float = 900.0
    """From when on it finds a backlog: due tasks while all workers are busy."""
    HEALTH_DEAD_LETTERS: int = 0
    """How many new dead letters an hour it lets pass."""

    QUESTION_EXPIRES_AFTER: timedelta | None = timedelta(days=7)
    """A question nobody answers expires, and its task with it. None: never."""

    NOTIFY: tuple[str, ...] = ()
    """The channels through which people are told of questions and dead letters: ``("mail",)``. Empty: nobody is."""
    REMIND_AFTER: timedelta | None = timedelta(days=1)
    """Those who may answer are reminded after so long. None: never."""
    WARN_BEFORE: timedelta | None = timedelta(days=1)
    """Those who may answer are warned so long before a question expires. None: never."""
    BASE_URL: str = ""
    """Where the site is, for links: ``https://example.org``. Empty: none in notices, and no signed ones."""
    ANSWER_LINK_EXPIRES_AFTER: timedelta = timedelta(days=7)
    """How long a link by which a person answers one question is good for; the question may expire before."""
    ANSWER_LINKS: bool = False
    """Whether notices of questions carry such a link, for the person whom they are sent to. It works without signing
    in: whoever reads that mail can answer."""

    RETENTION: Mapping[str, str | timedelta | None] = {}
    """How long ``supervision_prune`` keeps ended tasks of a body, or of all others (``"*"``), after their end:
    ``{"reports.build": "30d", "billing.charge": None, "*": "1y"}``. None: for ever."""

    MAX_ARGUMENTS_BYTES: int = 256 * 1024
    MAX_DECISIONS_BYTES: int = 48 * 1024
    """The task row is rewritten at each checkpoint: keep it small."""
    MAX_RESULT_BYTES: int = 1024 * 1024
    MAX_PAYLOAD_BYTES: int = 256 * 1024
    """Of one log entry, question, answer or signal."""
    MAX_UPLOAD_BYTES: int = 100 * 1024 * 1024
    """Of one file that a person uploads: as an argument, or as an answer."""
    LOG_PAGE_SIZE: int = 50

    VISIBLE_TASKS: str = ""
    """Dotted path of a function ``(user, tasks) -> tasks`` that narrows what each member of the staff sees."""
    OWNERS: str = ""
    """Dotted path of a function ``(user) -> rows``: the organisations whose tasks are the user's as well."""
    SUBJECTS: str = ""
    """Dotted path of a function ``(user, machine) -> subjects``: what of a machine a user may read in the API."""

    API_READS: str | None = "1200/min"
    """How often one person may read through the API. None: as often as they like."""
    API_WRITES: str | None = "120/min"
    """How often one person may change something through the API."""
    API_WAITS: int = 4
    """How many requests of one web process may wait for a change (``?wait=``) at the same time: each holds a thread and
    a connection. Below the process's number of threads; 0 where a process has but one."""
    API_LONGEST_WAIT: float = 25.0
    """Seconds; below the patience of the web server and of what is in front of it."""
    API_MAX_BODY_BYTES: int = 1024 * 1024
    """Of one request to the API."""

    def __getattribute__(self, name: str) -> Any:
        if name.isupper():
            overrides: dict[str, Any] = getattr(django_settings, "SUPERVISION", {})
            if name in overrides:
                return overrides[name]
        return object.__getattribute__(self, name)


settings = Settings()


def unknown_names() -> list[str]:
    """The keys of ``SUPERVISION`` that mean nothing, most likely misspelt."""
    overrides: dict[str, Any] = getattr(django_settings, "SUPERVISION", {})
    return sorted(name for name in overrides if name not in Settings.__annotations__)

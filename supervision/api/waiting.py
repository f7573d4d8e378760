"""How many may wait for a change at once in this process: waiting must not use up the threads that answer."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from django.utils.translation import gettext as _

from supervision.api.problems import Problem
from supervision.conf import settings

_lock = threading.Lock()
_waiting = 0


@contextmanager
def slot() -> Iterator[None]:
    """A place to wait in. A 429 when all ``API_WAITS`` are taken."""
    global _waiting
    with _lock:
        if _waiting >= settings.API_WAITS:
            raise Problem(
                429, "too_many_wait", _("Too many wait for a change already. Ask again in a while, or without wait=."),
                headers={"Retry-After": "2"},
            )  # fmt: skip
        _waiting += 1
    try:
        yield
    finally:
        with _lock:
            _waiting -= 1

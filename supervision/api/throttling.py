"""How often one person may call: counted in Django's cache, in one atomic step, so that a volley doesn't slip through.

Needs a cache that all web processes share, and that counts atomically (Redis, Memcached), to hold across processes.
"""

from __future__ import annotations

import time
from typing import Any

from django.core.cache import cache
from rest_framework.request import Request
from rest_framework.throttling import SimpleRateThrottle

from supervision.conf import settings


class PersonThrottle(SimpleRateThrottle):
    """Reads by ``API_READS``, everything else by ``API_WRITES``; in windows that begin on the minute, or the hour."""

    def __init__(self) -> None:
        """The rate is known when the request is."""

    def allow_request(self, request: Request, view: Any) -> bool:
        kind = "reads" if request.method in ("GET", "HEAD") else "writes"
        rate = settings.API_READS if kind == "reads" else settings.API_WRITES
        if rate is None:
            return True
        allowed, self._seconds = self.parse_rate(rate)
        if allowed is None or self._seconds is None:
            return True
        key = f"supervision:{kind}:{request.user.pk}:{int(time.time() // self._seconds)}"
        cache.add(key, 0, self._seconds)
        try:
            return cache.incr(key) <= allowed
        except ValueError:  # the cache threw it out in between
            return True

    def wait(self) -> float | None:
        seconds: int = self._seconds or 1
        return seconds - time.time() % seconds

"""A loop's trouble, said once and not once per turn."""

import logging
import time

from django.db import Error as DatabaseError
from django.utils.translation import gettext as _


class Trouble:
    """What a loop that must not end does with its exceptions: the first is logged, repetitions once a minute."""

    REPEAT_SECONDS = 60.0

    def __init__(self, logger: logging.Logger, doing: str) -> None:
        self._logger, self._doing = logger, doing
        self._said_at: float | None = None
        self.count = 0
        """How many times in a row."""

    def met(self, error: Exception) -> None:
        """Note an exception. Those that don't come from the database are logged with their trace."""
        self.count += 1
        now = time.monotonic()
        if self._said_at is not None and now - self._said_at < self.REPEAT_SECONDS:
            return
        self._said_at = now
        is_expected = isinstance(error, DatabaseError)
        self._logger.log(
            logging.WARNING if is_expected else logging.ERROR,
            _("Trouble %(doing)s (%(count)s in a row); trying again: %(error)s"),
            {"doing": self._doing, "count": self.count, "error": _one_line(error)},
            exc_info=None if is_expected else error,
        )

    def over(self) -> None:
        """Note that it went well."""
        if self.count:
            self._logger.warning(_("No more trouble %(doing)s."), {"doing": self._doing})
        self._said_at, self.count = None, 0


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())

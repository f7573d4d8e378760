"""The one clock: the database's. Never ``datetime.now()`` or ``timezone.now()`` for a deadline, lease, beat or expiry.

Both functions add ``supervision.clock_shift`` (a session setting, empty in production) so that tests can travel.
``now()`` of PostgreSQL is banned: in a caller's long transaction it stands still and accepts what has expired.
"""

from datetime import datetime
from uuid import UUID

from django.db.models import DateTimeField, Func

from supervision.kernel import sql


def now() -> datetime:
    """The time of this very statement, for what is judged in Python. After a lock, ask again."""
    moment: datetime = sql.run("SELECT supervision_now_v1()", {})[0][0]
    return moment


class Now(Func):
    """``statement_timestamp()``: STABLE, so an index can be searched with it. For sweeps, due-queries, and for guards
    that are read again in a statement issued after the lock."""

    function = "supervision_now_v1"
    arity = 0
    output_field = DateTimeField()


class Clock(Func):
    """``clock_timestamp()``: moves within a statement. A beat must not carry a time from before a lock wait."""

    function = "supervision_clock_v1"
    arity = 0
    output_field = DateTimeField()


def first_id(moment: datetime) -> UUID:
    """The least id that a row created at that moment can have: an id begins with its time."""
    return UUID(int=max(0, int(moment.timestamp() * 1000)) << 80)

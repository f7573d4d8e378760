"""Ordinary django-q2 messages, from its own table: what its ORM broker does, by the database's clock and in order.

A message is locked for ``retry`` seconds when it is handed out and deleted when it is acknowledged; without that it is
handed out again.
"""

from collections.abc import Sequence

from django.db import DEFAULT_DB_ALIAS, connections
from django.db.models.functions import Now
from django_q.conf import Conf
from django_q.models import OrmQ

# The rows are chosen in an array so that it happens once: in a join, LIMIT and SKIP LOCKED may be run again per row.
_CLAIM = """
UPDATE django_q_ormq
   SET lock = statement_timestamp() + make_interval(secs => %(retry)s)
 WHERE id = ANY (ARRAY(
    SELECT id FROM django_q_ormq
     WHERE key = ANY (%(keys)s) AND lock <= statement_timestamp()
     ORDER BY lock, id
     LIMIT %(limit)s
       FOR UPDATE SKIP LOCKED))
RETURNING id, payload
"""


def alias() -> str:
    """The database of django-q2's table."""
    return Conf.ORM or DEFAULT_DB_ALIAS


def claim(limit: int, keys: Sequence[str]) -> list[tuple[int, str]]:
    """Hand out up to ``limit`` messages of the queues named by ``keys``, the longest waiting first."""
    with connections[alias()].cursor() as cursor:
        cursor.execute(_CLAIM, {"limit": limit, "keys": list(keys), "retry": float(Conf.RETRY)})
        return sorted(cursor.fetchall())


def store(key: str, payload: str) -> int:
    """Append a message, in the caller's transaction: a rollback takes it back. Returns its id."""
    row = OrmQ.objects.using(alias()).create(key=key, payload=payload, lock=Now())
    return int(row.pk)


def delete(pk: int) -> None:
    OrmQ.objects.using(alias()).filter(pk=pk).delete()


def free(pk: int) -> None:
    """Hand the message out again at once."""
    OrmQ.objects.using(alias()).filter(pk=pk).update(lock=Now())


def count_waiting(key: str) -> int:
    return int(OrmQ.objects.using(alias()).filter(key=key, lock__lte=Now()).count())


def count_handed_out(key: str) -> int:
    return int(OrmQ.objects.using(alias()).filter(key=key, lock__gt=Now()).count())


def purge(key: str) -> None:
    OrmQ.objects.using(alias()).filter(key=key).delete()

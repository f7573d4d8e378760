"""Bodies whose effects an independent witness records: rows of a plain table, over a connection of their own."""

import os
import time
from multiprocessing.util import Finalize
from uuid import uuid4

import psycopg
from django.db import connection

from supervision.engines import Context
from supervision.engines.bodies import body

_connection: psycopg.Connection | None = None


def witness(task: str, step: int, seconds: float) -> str:
    """The effect of a step: seen by the witness, whatever the supervisor then records of it. Returns its own mark."""
    mark = uuid4().hex
    while not _seen(task, step, mark):
        time.sleep(0.05)  # the server is away; an effect of the outside world has no transaction to lose
    time.sleep(seconds)
    return mark


def _seen(task: str, step: int, mark: str) -> bool:
    global _connection
    try:
        if _connection is None or _connection.closed:
            # or it would be deleted while still open, at the worker's end
            Finalize(None, _close, exitpriority=1)
            wanted = ("dbname", "user", "password", "host", "port")
            parameters = connection.get_connection_params().items()
            _connection = psycopg.connect(
                **{key: value for key, value in parameters if key in wanted}, autocommit=True, prepare_threshold=None
            )
        _connection.execute("INSERT INTO chaos_witness (task, step, mark, pid) VALUES (%s, %s, %s, %s)",
                            [task, step, mark, os.getpid()])  # fmt: skip
    except psycopg.OperationalError:
        _connection = None
        return False
    return True


def _close() -> None:
    if _connection is not None:
        _connection.close()


@body("chaos.steps")
def steps(task: Context, *, steps: int = 5, seconds: float = 0.02) -> list[str]:
    """So many steps, each witnessed; the marks that were recorded."""
    return [task.step("step", witness, str(task.id), at, seconds, key=at) for at in range(steps)]

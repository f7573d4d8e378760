"""The floor: what a plain psycopg loop needs for the same durable write, with prepared statements."""

import json
from typing import Any

import psycopg
from django.db import connection
from psycopg import sql

_LOCK = (
    "SELECT lease, log_length, pause_requested_at, ending, expires_at FROM supervision_task WHERE id = %s FOR UPDATE"
)
_UPDATE = "UPDATE supervision_task SET log_length = %s, recoveries = 0, locked_decisions = %s::jsonb WHERE id = %s"
_INSERT = """
INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
VALUES (%s, %s, %s, %s, %s::jsonb, %s, '')
"""


class Floor:
    """``BEGIN; SELECT ... FOR UPDATE; UPDATE; INSERT; COMMIT`` on the same tables, on a connection of its own."""

    def __init__(self, task_id: Any, event: str, *, payload: str = "{}") -> None:
        self.task_id, self.event, self.payload, self.done = task_id, event, payload, 0
        parameters = {
            key: value for key, value in connection.get_connection_params().items()
            if key in ("dbname", "user", "password", "host", "port")
        }  # fmt: skip
        self.connection = psycopg.connect(**parameters, autocommit=True, prepare_threshold=0)

    def __call__(self, count: int) -> None:
        cursor = self.connection.cursor()
        for _ in range(count):
            self.done += 1
            cursor.execute(sql.SQL("BEGIN"))
            cursor.execute(_LOCK, [self.task_id])
            row = cursor.fetchone()
            assert row is not None
            cursor.execute(_UPDATE, [row[1] + 1, json.dumps({"row": self.done}), self.task_id])
            cursor.execute(_INSERT, [self.task_id, row[1] + 1, self.event, self.event, self.payload, row[0]])
            cursor.execute(sql.SQL("COMMIT"))

    def close(self) -> None:
        self.connection.close()

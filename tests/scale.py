"""A control room full of work, made by the database itself: for the tests of plans, and for the benchmark."""

from typing import Any

from django.db import connection

from supervision.kernel import creation

BODIES = ("country.codes", "mail.letters", "order.fulfil", "report.nightly", "admin.greet")

# Ids as the kernel makes them, one every few seconds back in time, so that the newest is the newest. What isn't named
# here is as in a task that the kernel made.
_TASKS = """
INSERT INTO supervision_task
SELECT task.*
  FROM supervision_task AS template
 CROSS JOIN (
    SELECT n, supervision_now_v1() - n * interval '7 seconds' AS at,
           CASE WHEN n %% 100 < 2 OR n %% 1000 = 3 THEN 'parked' WHEN n %% 1000 = 11 THEN 'pending'
                WHEN n %% 5000 = 17 THEN 'running' WHEN n %% 50 = 7 THEN 'failed' WHEN n %% 400 = 9 THEN 'expired'
                WHEN n %% 300 = 8 THEN 'cancelled' ELSE 'completed' END AS state,
           CASE WHEN n %% 100 = 0 OR n %% 1000 = 3 THEN 'sleeping' WHEN n %% 100 = 1 THEN 'awaiting_user_answer:words'
                WHEN n %% 1000 = 11 OR n %% 5000 = 17 THEN ''
                WHEN n %% 1000 = 7 THEN 'retries_exhausted:charge' WHEN n %% 50 = 7 THEN 'failed:ValueError'
                WHEN n %% 400 = 9 THEN 'expired:sleeping' WHEN n %% 300 = 8 THEN 'cancelled:alice' ELSE '' END AS reason
      FROM generate_series(1, %(tasks)s) AS n
  ) AS made
 CROSS JOIN LATERAL jsonb_populate_record(template, jsonb_build_object(
    'id', (lpad(to_hex(((extract(epoch FROM at) * 1000)::bigint)), 12, '0') || '7' || substr(md5(n::text), 1, 3) || '8'
           || substr(md5(n::text), 4, 15))::uuid,
    'body', (%(bodies)s::text[])[1 + n %% 5],
    'queue', CASE WHEN n %% 5000 = 0 THEN 'slow' WHEN n %% 7 = 0 THEN 'mail' ELSE 'default' END,
    'owner_id', %(owner)s::int, 'subject', 'order ' || n, 'current_state', state, 'watchdog_stop_reason', reason,
    'lease', CASE state WHEN 'pending' THEN 0 ELSE 1 END, 'log_length', %(entries)s::int,
    'failure', CASE state WHEN 'failed' THEN 'Something went wrong.' ELSE '' END,
    'wake_at', CASE WHEN state = 'pending' THEN at WHEN reason = 'sleeping' THEN at + interval '90 days' END,
    'expires_at', CASE WHEN n %% 11 = 0 THEN at + interval '30 days' END,
    'pause_requested_at', CASE WHEN state = 'parked' AND n %% 1000 = 3 THEN at END,
    'idempotency_key', CASE WHEN n %% 3 = 0 THEN 'key-' || n ELSE '' END,
    'created_at', at, 'started_at', CASE WHEN state <> 'pending' THEN at END, 'state_changed_at', at,
    'finished_at', CASE WHEN state IN ('completed', 'failed', 'expired', 'cancelled') THEN at + interval '1 minute' END
 )) AS task
 WHERE template.id = %(template)s
"""
_ENTRIES = """
INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref, created_at)
SELECT id, number, CASE number WHEN 1 THEN 'task_created' WHEN 2 THEN 'task_taken' ELSE 'task_checkpointed' END, '',
       '{"note": "something of usual size, as a body would write it"}', 1, 'worker', created_at
  FROM supervision_task CROSS JOIN generate_series(1, %(entries)s) AS number
 WHERE id <> %(template)s
"""
_QUESTIONS = """
INSERT INTO supervision_question (task_id, key, prompt, form, status, asked_at, expires_at, answer, answered_at,
                                  answered_by_ref, answered_via, answerable_by, not_by, approvals)
SELECT id, 'words', 'How shall we greet Ada?', '{"kind": "text"}',
       CASE WHEN waits THEN 'pending' ELSE 'answered' END, created_at, created_at + interval '900 days',
       CASE WHEN waits THEN NULL ELSE '"Hello"'::jsonb END, CASE WHEN waits THEN NULL ELSE created_at END,
       CASE WHEN waits THEN '' ELSE 'alice' END, '', '', '', 1
  FROM (SELECT id, created_at, watchdog_stop_reason LIKE 'awaiting%%' AS waits FROM supervision_task) AS task
"""
_BEATS = """
INSERT INTO supervision_heartbeat (task_id, lease, worker, host, pid, started_at, beat_at, progress_done,
                                   progress_total, progress_text)
SELECT id, lease, 'host:' || (lease %% 7), 'host', 1, created_at, supervision_clock_v1(), 3, 10, 'rows'
  FROM supervision_task WHERE lease > 0
"""


_LONG_LOG = """
WITH entry AS (
    INSERT INTO supervision_logentry (task_id, sequence_num, event, name, payload, lease, actor_ref)
    SELECT id, number, 'task_checkpointed', '', '{"note": "something of usual size, as a body would write it"}', 1, ''
      FROM supervision_task CROSS JOIN generate_series(log_length + 1, %(entries)s) AS number
     WHERE id = %(task)s
)
UPDATE supervision_task SET log_length = %(entries)s WHERE id = %(task)s
"""


def long_log(task: Any, entries: int) -> None:
    """Lengthens one task's log to so many entries; analyzed."""
    with connection.cursor() as cursor:
        cursor.execute(_LONG_LOG, {"task": task, "entries": entries})
        cursor.execute("ANALYZE supervision_task, supervision_logentry")


def fill(tasks: int, entries: int, owner: int | None = None) -> None:
    """So many tasks in every state with ``entries`` log entries each, their questions and beats; analyzed."""
    template = creation.create("admin.greet", {"name": "Ada"}).pk
    parameters: dict[str, Any] = {"template": template, "tasks": tasks, "entries": entries, "owner": owner}
    parameters["bodies"] = list(BODIES)
    with connection.cursor() as cursor:
        for statement in (_TASKS, _ENTRIES, _QUESTIONS, _BEATS):
            cursor.execute(statement, parameters)
        cursor.execute("ANALYZE supervision_task, supervision_logentry, supervision_question, supervision_heartbeat")

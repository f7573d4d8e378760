"""The statements that run all the time, among many sleepers: they read what they hand out, and not the sleepers."""

from __future__ import annotations

import copy
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.db.models import Model
from django.test.utils import CaptureQueriesContext
from psycopg.sql import SQL, Literal

from supervision.kernel import due, lease
from supervision.kernel.models import Heartbeat, Question, Task
from supervision.worker.tick import tick
from tests.integration import rows

pytestmark = pytest.mark.django_db
SLEEPERS, RUNNING = 20_000, 50
FEW = 200
"""More rows than this a statement has no business to read."""


@pytest.fixture
def sleepers() -> None:
    """Tasks that wait for a moment, or for an answer, in every lane; some that run; and three that are due."""
    template = rows.waiting()
    _multiply(
        Task,
        {
            "id": "supervision_id_v1()",
            "queue": "CASE WHEN n % 10 = 0 THEN 'slow' ELSE 'default' END",
            "priority": "n % 10",
            "current_state": f"CASE WHEN n <= {RUNNING} THEN 'running' ELSE 'parked' END",
            "watchdog_stop_reason": f"CASE WHEN n <= {RUNNING} THEN '' WHEN n % 4 = 0 THEN 'awaiting_user_answer:q' "
            "ELSE 'sleeping' END",
            "wake_at": f"CASE WHEN n > {RUNNING} AND n % 4 > 0 THEN now() + n * interval '1 minute' END",
            "expires_at": "now() + n * interval '1 hour'",
        },
        SLEEPERS,
    )
    running = "(SELECT id FROM supervision_task WHERE current_state = 'running' ORDER BY id LIMIT 1 OFFSET n - 1)"
    _multiply(Heartbeat, {"task_id": running}, RUNNING)
    waiting = Task.objects.filter(watchdog_stop_reason__startswith="awaiting").exclude(pk=template.pk)
    asked = Question.objects.get(task_id=template.pk)
    questions = [copy.copy(asked) for _ in range(waiting.count())]
    for question, task_id in zip(questions, waiting.values_list("pk", flat=True), strict=True):
        question.pk, question.task_id = uuid.uuid4(), task_id
    Question.objects.bulk_create(questions)
    with connection.cursor() as cursor:
        for table in ("task", "heartbeat", "question"):
            cursor.execute(f"ANALYZE supervision_{table}")
    for _ in range(3):
        rows.due()


def _multiply(model: type[Model], different: Mapping[str, str], times: int) -> None:
    """So many copies of the table's only row, but for the ``different`` columns, SQL of the copy's number ``n``."""
    table = model._meta.db_table
    columns = [str(field.column) for field in model._meta.concrete_fields]
    values = ", ".join(different.get(column, f"template.{column}") for column in columns)
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {table} ({', '.join(columns)}) "
            f"SELECT {values} FROM {table} AS template CROSS JOIN generate_series(1, {times}) AS n"
        )


def _nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for inner in plan.get("Plans", ()):
        yield from _nodes(inner)


def _assert_reads_little(plan: Mapping[str, Any], *, tables: set[str]) -> None:
    """By index, and only about as many rows as it is to find."""
    seen = set()
    for node in _nodes(plan):
        table = node.get("Relation Name", "")
        if table not in tables:
            continue
        seen.add(table)
        assert node["Node Type"] != "Seq Scan", json.dumps(node, indent=1)
        read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        assert read <= FEW, json.dumps(node, indent=1)
    assert seen == tables


def _explain_prepared(query: str, parameters: Mapping[str, Any], mode: str) -> Mapping[str, Any]:
    """The plan as a prepared statement gets it: for these values (custom), or for any (generic)."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", query)))
    numbered = re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", query).replace("%%", "%")
    connection.ensure_connection()
    raw = connection.connection
    raw.execute(f"SET LOCAL plan_cache_mode = force_{mode}_plan")
    raw.execute(f"PREPARE hot AS {numbered}")
    values = SQL(", ").join(Literal(parameters[name]) for name in names)
    row = raw.execute(SQL("EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE hot({})").format(values)).fetchone()
    raw.execute("DEALLOCATE hot")
    plan: Mapping[str, Any] = row[0][0]["Plan"]
    return plan


@pytest.mark.parametrize("mode", ["custom", "generic"])
@pytest.mark.parametrize("queues", [None, ["default"]], ids=["any lane", "one lane"])
def test_offering_reads_what_is_due_and_not_the_sleepers(sleepers: None, mode: str, queues: list[str] | None) -> None:
    parameters = {"limit": 10, "queues": queues, "bodies": [rows.BODY], "versions": [1],
                  "offer": timedelta(seconds=2), "grace": timedelta(seconds=60), "oldest_first": False,
                  "lot": ""}  # fmt: skip
    plan = _explain_prepared(due._OFFER, parameters, mode)
    _assert_reads_little(plan, tables={"supervision_task"})
    assert "supervision_task_due" in {node.get("Index Name") for node in _nodes(plan)}
    assert Task.objects.filter(offered_until__isnull=False).count() == 3


@pytest.mark.parametrize("mode", ["custom", "generic"])
def test_looking_for_the_next_moment_reads_one_sleeper_a_lane_and_priority(sleepers: None, mode: str) -> None:
    plan = _explain_prepared(due._NEXT, {"queues": None}, mode)
    _assert_reads_little(plan, tables={"supervision_task"})
    assert {node["Index Name"] for node in _nodes(plan) if "Index Name" in node} == {"supervision_task_due"}


def test_a_tick_reads_what_is_overdue_and_not_the_sleepers(sleepers: None) -> None:
    with CaptureQueriesContext(connection) as captured:
        swept = tick()
    assert (swept.reaped, swept.expired) == (0, 0)
    looks = [query["sql"] for query in captured.captured_queries if query["sql"].startswith("SELECT")]
    assert len(looks) == 5  # orphans, processes of this host that are gone, overdue tasks, overdue questions, timers
    used = set()
    for look in looks:
        with connection.cursor() as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {look}")
            ((said,),) = cursor.fetchall()
        plan = (json.loads(said) if isinstance(said, str) else said)[0]["Plan"]
        for node in _nodes(plan):
            if node.get("Relation Name") in ("supervision_task", "supervision_question"):
                assert node["Node Type"] != "Seq Scan", look
                read = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
                assert read <= FEW, look
            used.add(node.get("Index Name"))
    assert {"supervision_task_by_state", "supervision_task_expiry", "supervision_question_pending"} <= used


def test_a_checkpoint_is_one_statement() -> None:
    running = rows.running()
    with CaptureQueriesContext(connection) as captured:
        lease.checkpoint(running.pk, running.lease, name="row", payload='{"a": 1}', decisions='{"row": 1}')
    assert len(captured) == 1
    assert rows.fresh(running.pk).locked_decisions == {"row": 1}
    assert rows.events(running.pk)[-1] == "task_checkpointed"


def test_a_beat_is_one_statement() -> None:
    running = rows.running()
    with CaptureQueriesContext(connection) as captured:
        assert lease.beat(running.pk, running.lease, done=1, total=2, text="half")
    assert len(captured) == 1


@pytest.mark.parametrize("table", ["supervision_task", "supervision_heartbeat"])
def test_what_a_running_task_writes_all_the_time_is_hot(table: str) -> None:
    """Heap-only updates write no index. Counted within the transaction, where every PostgreSQL counts alike."""
    running = rows.running()
    before = _updates(table)
    for row in range(3):
        lease.checkpoint(running.pk, running.lease, name="row", decisions=f'{{"row": {row}}}')
        lease.beat(running.pk, running.lease, done=row)
    updated, hot = (after - then for after, then in zip(_updates(table), before, strict=True))
    assert (updated, hot) == (3, 3)


def _updates(table: str) -> tuple[int, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relname = %s", [table])
        row = cursor.fetchone()
    return row[0], row[1]


def test_no_index_names_what_a_checkpoint_or_a_beat_writes() -> None:
    written = {"log_length", "lease", "recoveries", "locked_decisions", "compensations_outstanding", "beat_at",
               "progress_done", "progress_total", "progress_text"}  # fmt: skip
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT i.relname, a.attname FROM pg_index x
              JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid
              JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = ANY(x.indkey)
             WHERE t.relname IN ('supervision_task', 'supervision_heartbeat')
            """
        )
        named = {(index, column) for index, column in cursor.fetchall() if column in written}
    assert named == set()


def test_the_hot_rows_have_room_on_their_page() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT relname, reloptions FROM pg_class WHERE relname IN ('supervision_task', "
                       "'supervision_heartbeat')")  # fmt: skip
        options = {name: " ".join(given or []) for name, given in cursor.fetchall()}
    assert all("fillfactor" in given for given in options.values()), options

"""A log of a million entries, and a customer among a hundred thousand tasks: by index, and no more than is shown."""

from __future__ import annotations

import pytest
from django.core.cache import cache
from django.db import connection
from django.test.utils import CaptureQueriesContext

from supervision.kernel.models import LogEntry
from tests.integration import rows
from tests.integration.admin_work import person
from tests.integration.api_work import Caller, customer
from tests.integration.test_admin_scale import _READ, faults
from tests.scale import fill, long_log

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

MILLION = 1_000_000


def wasteful(caller: Caller, path: str) -> list[str]:
    """What the queries of a request read from end to end, or in vain."""
    with CaptureQueriesContext(connection) as captured:
        assert caller.get(path).status_code == 200, path
    reads = [each["sql"] for each in captured.captured_queries if _READ.match(each["sql"])]
    assert reads
    return [f"{path}: {fault}" for sql in reads for fault in faults(sql)]


def test_a_page_of_a_million_entries_and_its_exact_counts_are_read_by_index() -> None:
    cache.clear()
    ann, other = customer("ann"), customer("other")
    fill(5_000, 1, other.pk)
    task = rows.due(owner=ann)
    long_log(task, MILLION)
    caller = Caller(ann)
    page = caller.get(f"tasks/{task}/log/").json()
    assert LogEntry.objects.filter(task_id=task).count() == page["total_count"] == MILLION
    assert (page["returned_count"], page["withheld_count"], page["truncated"]) == (50, MILLION - 50, True)
    assert [each["number"] for each in page["entries"]] == list(range(MILLION - 49, MILLION + 1))
    for query in ("", "?before=500000", "?before=51", "?size=200"):
        assert wasteful(caller, f"tasks/{task}/log/{query}") == []
    with connection.cursor() as cursor, CaptureQueriesContext(connection) as captured:
        caller.get(f"tasks/{task}/log/")
        (sql,) = (each["sql"] for each in captured.captured_queries if "supervision_logentry" in each["sql"])
        cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}")
        plan = cursor.fetchone()[0][0]["Plan"]
        assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] < 100


def test_a_customers_lists_are_found_by_index_among_everybodys() -> None:
    cache.clear()
    ann, other = customer("ann"), customer("other")
    fill(100_000, 1, other.pk)
    for _each in range(60):
        rows.waiting(owner=ann)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE supervision_task, supervision_question")
        cursor.execute("SET LOCAL random_page_cost = 1.1")  # as anybody with an SSD has it; the default is for disks
    paths = ("tasks/", "tasks/?state=parked", "tasks/?needs_answer=true", "tasks/?dead_letter=true",
             "tasks/?reason=awaiting", "tasks/?subject=order", "tasks/?ordering=state_changed_at", "questions/",
             "questions/?status=pending", "pointers/")  # fmt: skip
    staff = ("tasks/", "tasks/?dead_letter=true", "tasks/?needs_answer=true", "tasks/?state=running",
             "tasks/?reason=retries_exhausted", "tasks/?reason=sleep", "tasks/?reason=cancelled:alice",
             "tasks/?subject=nothing", "tasks/?body=nothing", "questions/?status=pending",
             "questions/")  # fmt: skip
    viewer = Caller(person("viewer", "view_task"))
    for caller, few in ((Caller(ann), paths), (Caller(other), ("tasks/", "tasks/?dead_letter=true")), (viewer, staff)):
        whole = [fault for path in few for fault in wasteful(caller, path)]
        assert whole == [], "\n\n".join(whole)

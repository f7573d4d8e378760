"""100,000 tasks, 1,000,000 entries: every page of the control room by index scans and a constant number of queries."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from supervision.kernel.models import Question, Task
from tests.integration.admin_work import bodies
from tests.scale import fill

pytestmark = [pytest.mark.django_db, pytest.mark.slow]

LIST = "/admin/supervision/task/"
LISTS = (
    "", "?p=50", "?attention=answer", "?attention=dead", "?attention=waiting", "?attention=overdue", "?attention=held",
    "?attention=operator", "?state=completed", "?state=failed", "?state=running", "?state=pending", "?state=cancelled",
    "?reason=retries_exhausted", "?reason=sleeping", "?reason=unknown_body", "?body=mail.letters", "?body=nothing",
    "?queue=slow", "?queue=default", "?q=order 77", "?q=order 99999", "?q=key-300", "?q=boss", "?q=nothing-at-all",
    "?created=2026", "?state=failed&body=mail.letters", "?state=parked&reason=sleeping&queue=slow",
)  # fmt: skip
_BIG = re.compile(r"Seq Scan on (supervision_(?:task|logentry|question|heartbeat))")
_READ = re.compile(r"^\s*(SELECT|WITH)\b", re.IGNORECASE)


def read_whole(sql: str) -> list[str]:
    """The large tables that the plan of this query reads from end to end."""
    with connection.cursor() as cursor:
        cursor.execute("EXPLAIN " + sql)
        plan = "\n".join(row[0] for row in cursor.fetchall())
    return [f"{table}\n{sql[:1500]}\n{plan}" for table in _BIG.findall(plan)]


def test_every_page_reads_indexes_and_asks_as_often_as_on_an_empty_database() -> None:
    boss = User.objects.create(username="boss", is_staff=True, is_superuser=True)
    client = Client()
    client.force_login(boss)

    def queries(address: str) -> list[Any]:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(address).status_code == 200, address
        return captured.captured_queries

    with bodies():
        counts = {query: len(queries(LIST + query)) for query in LISTS}
        fill(100_000, 10, boss.pk)
        with connection.cursor() as cursor:
            cursor.execute("SET LOCAL random_page_cost = 1.1")  # as anybody with an SSD has it; the default is for disks
        assert Task.objects.count() == 100_001
        asking = Question.objects.filter(status="pending").latest("pk")
        pages = {LIST + query: counts[query] for query in LISTS} | {
            reverse("admin:supervision_task_change", args=[asking.task_id]): None,
            reverse("admin:supervision_task_live", args=[asking.task_id]): None,
            reverse("admin:supervision_question_change", args=[asking.pk]): None,
            "/admin/supervision/question/": None,
            "/admin/supervision/question/?status=answered": None,
            "/admin/supervision/": None,
        }
        whole: list[str] = []
        for address, before in pages.items():
            captured = queries(address)
            if before is not None and "p=50" not in address:
                # an empty list leaves out what is only asked when there are rows
                assert len(captured) - before in (0, 1), (address, before, len(captured))
            for query in captured:
                if _READ.match(query["sql"]):
                    whole += [f"{address}: {each}" for each in read_whole(query["sql"])]
        assert whole == [], "\n\n".join(whole)

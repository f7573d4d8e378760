"""100,000 tasks, 1,000,000 entries: every page of the control room, and of an owner who has all of them, by index scans
and a constant number of queries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from uuid import UUID

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
OWN_LISTS = (
    "", "?needs=answer", "?needs=resume", "?needs=look", "?state=completed", "?state=failed", "?state=running",
    "?state=pending", "?body=mail.letters", "?subject=order 77", "?subject=nothing", "?since=2026-01-01",
    f"?before={UUID(int=1 << 90)}", "?whose=all&state=cancelled", "?state=failed&needs=answer",
)  # fmt: skip
_READ = re.compile(r"^\s*(SELECT|WITH)\b", re.IGNORECASE)
_MOST = 25_000
"""Rows that one query may look at: twice what a list counts to, of the 100,000 that there are."""


def faults(sql: str) -> list[str]:
    """What this query's plan, run, reads from end to end, or looks at in vain."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql}")
        (plans,) = cursor.fetchone()
    found = []
    for node in _nodes(plans[0]["Plan"]):
        table = node.get("Relation Name", "")
        looked_at = (node["Actual Rows"] + node.get("Rows Removed by Filter", 0)) * node["Actual Loops"]
        if table.startswith("supervision_") and (looked_at > _MOST or _is_whole(node)):
            found.append(f"{node['Node Type']} of {table}, {looked_at:.0f} rows\n{sql[:1500]}")
    return found


def _is_whole(node: dict[str, Any]) -> bool:
    large = ("supervision_task", "supervision_logentry", "supervision_question", "supervision_heartbeat")
    return bool(node["Node Type"] == "Seq Scan" and node["Relation Name"] in large)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


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
            cursor.execute(
                "SET LOCAL random_page_cost = 1.1"
            )  # as anybody with an SSD has it; the default is for disks
        assert Task.objects.count() == 100_001
        asking = Question.objects.filter(status="pending").latest("pk")
        pages = {LIST + query: counts[query] for query in LISTS} | {
            reverse("admin:supervision_task_change", args=[asking.task_id]): None,
            reverse("admin:supervision_task_live", args=[asking.task_id]): None,
            reverse("admin:supervision_question_change", args=[asking.pk]): None,
            "/admin/supervision/question/": None,
            "/admin/supervision/question/?status=answered": None,
            "/admin/supervision/": None,
            reverse("supervision_pages:task", args=[asking.task_id]): None,
            **{f"/work/{query}": None for query in OWN_LISTS},
        }
        whole: list[str] = []
        for address, before in pages.items():
            captured = queries(address)
            if before is not None and "p=50" not in address:
                # an empty list leaves out what is only asked when there are rows
                assert len(captured) - before in (0, 1), (address, before, len(captured))
            for query in captured:
                if _READ.match(query["sql"]):
                    whole += [f"{address}: {each}" for each in faults(query["sql"])]
        assert whole == [], "\n\n".join(whole)

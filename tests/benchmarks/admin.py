"""The control room's pages with 100,000 tasks and 1,000,000 entries: how long the server takes for each."""

import statistics
import time
from collections.abc import Iterator

from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from supervision.kernel.models import Question
from tests.benchmarks.run import Figure
from tests.scale import fill

TURNS = 40
TASKS, ENTRIES = 100_000, 10


def measure() -> Iterator[Figure]:
    """p50 and p95 of each page, first page and last one that a person can turn to alike."""
    boss = User.objects.create(username="bench", is_staff=True, is_superuser=True)
    fill(TASKS, ENTRIES, boss.pk)
    client = Client(SERVER_NAME="localhost")
    client.force_login(boss)
    for name, address in _pages().items():
        client.get(address)
        times = []
        for _turn in range(TURNS):
            started = time.perf_counter()
            response = client.get(address)
            times.append((time.perf_counter() - started) * 1000)
            assert response.status_code == 200, (address, response.status_code)
        yield Figure("admin", f"{name}_p50", round(statistics.median(times), 1), "ms")
        yield Figure("admin", f"{name}_p95", round(statistics.quantiles(times, n=20)[-1], 1), "ms")


def _pages() -> dict[str, str]:
    tasks = "/admin/supervision/task/"
    asking = Question.objects.filter(status="pending").latest("pk")
    return {
        "list": tasks,
        "list_page_200": f"{tasks}?p=200",
        "needs_an_answer": f"{tasks}?attention=answer",
        "dead_letters": f"{tasks}?attention=dead",
        "failed_of_a_body": f"{tasks}?state=failed&body=mail.letters",
        "search": f"{tasks}?q=order 777",
        "task": reverse("admin:supervision_task_change", args=[asking.task_id]),
        "task_live": reverse("admin:supervision_task_live", args=[asking.task_id]),
        "inbox": "/admin/supervision/question/",
        "question": reverse("admin:supervision_question_change", args=[asking.pk]),
        "dashboard": "/admin/supervision/",
    }

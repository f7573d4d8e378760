"""The control room's pages: what stands on them, for whom, by how many queries."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from supervision.engines import start
from supervision.kernel import holds, lifecycle
from supervision.kernel.models import Task
from supervision.testing import answer, run_until_idle
from tests.integration.admin_work import EVIL, bodies, fresh, pending, person

pytestmark = pytest.mark.django_db

LIST = "/admin/supervision/task/"
INBOX = "/admin/supervision/question/"


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    with bodies():
        yield


@pytest.fixture
def boss() -> User:
    return User.objects.create(username="boss", is_staff=True, is_superuser=True)


@pytest.fixture
def client(boss: User) -> Client:
    client = Client()
    client.force_login(boss)
    return client


def page_of(task: Task) -> str:
    return reverse("admin:supervision_task_change", args=[task.pk])


def text_of(response: Any) -> str:
    assert response.status_code == 200, response.status_code
    return str(response.content.decode())


def test_the_list_says_state_reason_and_age_in_words(client: Client, boss: User) -> None:
    start("admin.greet", {"name": "Ada"}, owner=boss, subject="order 7")
    run_until_idle()
    html = text_of(client.get(LIST))
    assert "needs an answer" in html
    assert "waits for an answer to “words”" in html
    assert 'title="awaiting_user_answer:words"' in html
    assert "order 7" in html
    assert "boss" in html
    assert "Greet somebody" in html


@pytest.mark.parametrize(
    "query",
    [
        "attention=answer", "attention=dead", "attention=waiting", "attention=overdue", "attention=held",
        "attention=operator", "state=parked", "state=nonsense", "reason=awaiting_user_answer", "body=admin.greet",
        "queue=default", "created=2026", "created=2026-11", "created=2026-11-29", "created=nonsense",
        "created=9999-12-31", "q=order", "q=0199", "q=boss", "q=%00", "p=9999",
    ],
)  # fmt: skip
def test_every_filter_and_search_answers(client: Client, query: str) -> None:
    start("admin.greet", {"name": "Ada"}, subject="order 7")
    run_until_idle()
    assert client.get(f"{LIST}?{query}").status_code in (200, 302)


def test_filters_find_what_they_name(client: Client, boss: User) -> None:
    asking = start("admin.greet", {"name": "Ada"}, owner=boss, subject="Order 7", idempotency_key="key-7")
    failing = start("admin.fail", {}, subject="Invoice 9")
    run_until_idle()
    held = start("admin.greet", {"name": "Eve"})
    lifecycle.pause(held.pk, by="alice")
    due = start("admin.greet", {"name": "Due"})

    def shown(query: str) -> set[Any]:
        return set(client.get(f"{LIST}?{query}").context["cl"].result_list.values_list("pk", flat=True))

    assert shown("attention=answer") == {asking.pk}
    assert shown("attention=held") == {held.pk}
    assert shown("attention=waiting") == {due.pk}
    assert shown("state=failed") == {failing.pk}
    assert shown("reason=failed") == {failing.pk}
    assert shown("body=admin.fail") == {failing.pk}
    assert shown("q=order") == {asking.pk}
    assert shown("q=key-7") == {asking.pk}
    assert shown("q=boss") == {asking.pk}
    assert shown(f"q={asking.pk}") == {asking.pk}
    assert asking.pk in shown(f"q={str(asking.pk)[:8]}")
    assert shown(f"created={asking.created_at:%Y-%m-%d}") == {asking.pk, failing.pk, held.pk, due.pk}
    assert shown("created=2019") == set()


def test_the_list_takes_the_same_number_of_queries_for_one_task_and_for_forty(client: Client, boss: User) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            assert client.get(LIST).status_code == 200
        return len(captured)

    start("admin.greet", {"name": "Ada"}, owner=boss, subject_object=boss)
    run_until_idle()
    queries()  # content types are cached by the process
    one = queries()
    for number in range(39):
        start("admin.greet", {"name": f"N{number}"}, owner=person(f"p{number}"), subject_object=boss)
    run_until_idle()
    assert queries() == one


def test_the_page_takes_a_bounded_number_of_queries(client: Client, boss: User) -> None:
    task = start("admin.greet", {"name": "Ada"}, owner=boss)
    run_until_idle()
    client.get(page_of(task))
    with CaptureQueriesContext(connection) as captured:
        html = text_of(client.get(page_of(task)))
    assert len(captured) <= 22, [query["sql"][:120] for query in captured.captured_queries]
    assert "How shall we greet Ada?" in html
    assert "Goes on as soon as its question is answered." in html
    assert "3 of 3 entries, 0 not shown" in html


def test_a_long_log_says_what_it_withholds_and_leads_to_the_older_pages(client: Client) -> None:
    from supervision.engines import Context, registry
    from supervision.engines.bodies import body

    @body("admin.long")
    def long(task: Context) -> None:
        for number in range(120):
            task.checkpoint(at=number)

    task = start("admin.long")
    run_until_idle()
    registry.unregister("admin.long")
    html = text_of(client.get(page_of(task)))
    assert "50 of 123 entries, 73 not shown" in html
    assert f"{page_of(task)}?before=74#log" in html
    assert "50 of 123 entries" in text_of(client.get(f"{page_of(task)}?before=74"))


def test_what_is_evil_is_inert_everywhere(client: Client) -> None:
    task = start("admin.greet", {"name": EVIL}, subject=EVIL)
    run_until_idle()
    lifecycle.pause(task.pk, by="alice", note=EVIL)
    failed = start("admin.fail", {"why": EVIL * 100})
    run_until_idle()
    holds.hold("body", "admin.greet", by="alice", note=EVIL)
    question = pending(task)
    for address in (
        LIST, INBOX, page_of(task), page_of(failed), f"{page_of(task)[:-7]}live/", "/admin/supervision/hold/",
        reverse("admin:supervision_question_change", args=[question.pk]), "/admin/supervision/", f"{LIST}?q={EVIL}",
    ):  # fmt: skip
        html = text_of(client.get(address))
        assert "<script>alert" not in html, address
        assert 'href="javascript' not in html, address


def test_a_megabyte_is_capped_on_the_page_and_whole_as_a_download(client: Client) -> None:
    from supervision.engines import Context, registry
    from supervision.engines.bodies import body

    @body("admin.big")
    def big(task: Context) -> dict[str, str]:
        return {"text": "x" * 1_000_000}

    task = start("admin.big")
    run_until_idle()
    registry.unregister("admin.big")
    html = text_of(client.get(page_of(task)))
    assert len(html) < 100_000
    whole = client.get(reverse("admin:supervision_task_whole", args=[task.pk, "result"]))
    assert whole.content.decode().count("x") >= 1_000_000
    assert whole["Content-Type"].startswith("text/plain")
    assert whole["X-Content-Type-Options"] == "nosniff"


def test_a_secret_is_on_no_page(client: Client) -> None:
    secret = "s3cr3t-canary-value"
    task = start("admin.greet", {"name": f"Ada {secret}", "token": secret})
    run_until_idle()
    answer(task, {"words": "Hello"})
    run_until_idle()
    assert fresh(task).current_state == "completed"
    question = task.questions.get()
    whole = "admin:supervision_task_whole"
    for address in (
        LIST, f"{INBOX}?status=answered", page_of(task), f"{page_of(task)[:-7]}live/",
        reverse("admin:supervision_question_change", args=[question.pk]),
        reverse("admin:supervision_question_whole", args=[question.pk]),
        *(reverse(whole, args=[task.pk, what]) for what in ("result", "arguments", "decisions", "failure", "entry-1")),
        *(reverse(whole, args=[task.pk, f"entry-{number}"]) for number in range(1, fresh(task).log_length + 1)),
    ):  # fmt: skip
        response = client.get(address)
        assert response.status_code == 200, address
        assert secret not in response.content.decode(), address


def test_the_live_fragment_answers_not_modified_until_something_changes(client: Client) -> None:
    task = start("admin.greet", {"name": "Ada"})
    run_until_idle()
    live = reverse("admin:supervision_task_live", args=[task.pk])
    tag = client.get(live)["ETag"]
    assert client.get(live, headers={"if-none-match": tag}).status_code == 304
    answer(task, {"words": "Hello"})
    assert client.get(live, headers={"if-none-match": tag}).status_code == 200


def test_the_dashboard_counts_and_says_what_waits(client: Client) -> None:
    start("admin.greet", {"name": "Ada"})
    start("admin.fail", {})
    run_until_idle()
    holds.hold("queue", "slow", by="alice", note="incident 7")
    html = text_of(client.get("/admin/supervision/"))
    assert "questions wait for you" in html
    assert "incident 7" in html
    assert '<svg class="sv-chart"' in html
    assert "style=" not in html.split("sv-dashboard")[1].split("</main>")[0].split("module")[0]

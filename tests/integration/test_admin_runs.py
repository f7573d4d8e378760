"""A run's page: its graph with each node's state, times and links, for who may see them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.core.management import call_command
from django.test import Client
from django.urls import reverse

from supervision.engines import Context, Dag, Failure, registry
from supervision.kernel.models import Task
from supervision.kernel.nodes import Node
from supervision.testing import run_until_idle

pytestmark = pytest.mark.django_db

EVIL = '<script>alert("x")</script>'


@pytest.fixture
def task() -> Iterator[Task]:
    """One node of each state, and one that asks."""
    before = set(registry.known_versions())
    dag = Dag("admin.report", label="Report")

    @dag.node()
    def read(task: Context) -> list[int]:
        return [1, 2]

    @dag.node(after=[read], map_over=read)
    def each(task: Context, *, read: int) -> int:
        return read

    @dag.node(after=[read], required=False)
    def fails(task: Context) -> None:
        raise Failure(EVIL)

    @dag.node(after=[fails])
    def skipped(task: Context) -> None: ...

    @dag.node(after=[read])
    def asks(task: Context) -> Any:
        return task.ask("go", "Go?")

    @dag.node(after=[asks])
    def waits(task: Context) -> None: ...

    task = dag.start()
    run_until_idle()
    yield task
    for name in set(registry.known_versions()) - before:
        registry.unregister(name)


def page_of(task: Task) -> str:
    return reverse("admin:supervision_task_change", args=[task.pk])


def picture_of(task: Task) -> str:
    return reverse("admin:supervision_task_picture", args=[task.pk])


def test_each_node_is_shown_with_its_state_in_words_and_a_link(task: Task, admin_client: Client) -> None:
    html = admin_client.get(page_of(task)).content.decode()
    [nodes] = re.findall(r'<ul class="sv-nodes">(.*?)</ul>', html, re.DOTALL)
    lines = [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", line)).strip() for line in nodes.split("<li>")[1:]]
    said = {re.sub(r" (since )?(now|\d+ s ago).*", "", line) for line in lines}
    assert said >= {
        "succeeded read", "needs an answer asks waits for an answer to “go”", "pending waits", "skipped skipped",
        "succeeded each", "succeeded each[000000]",
        "failed fails &lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;",
    }  # fmt: skip
    assert "4 of 6 done" in html
    assert EVIL not in html
    child = Task.objects.get(pk=Node.objects.get(run=task, name="asks").task_id)  # type: ignore[misc]
    assert f'href="{page_of(child)}"' in html
    assert f'href="{page_of(task)}"' in admin_client.get(page_of(child)).content.decode(), "and back"


def test_the_picture_says_the_same_and_is_inert(task: Task, admin_client: Client) -> None:
    response = admin_client.get(picture_of(task))
    svg = response.content.decode()
    for words in ("✓ succeeded", "✗ failed", "» skipped", "▶ running", "· pending", "2 of 2 items"):
        assert words in svg
    assert response["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert admin_client.get(page_of(task)).content.decode().count(picture_of(task)) == 1
    assert admin_client.get(picture_of(Task.objects.filter(parent=task)[0])).status_code == 404


def test_who_may_not_see_the_run_gets_no_picture(task: Task, client: Client, settings: Any) -> None:
    user = User.objects.create(username="staff", is_staff=True)
    client.force_login(user)
    assert client.get(picture_of(task)).status_code == 403
    user.user_permissions.add(Permission.objects.get(codename="view_task", content_type__app_label="supervision"))
    assert client.get(picture_of(task)).status_code == 200
    settings.SUPERVISION = {**settings.SUPERVISION, "VISIBLE_TASKS": "tests.integration.test_admin_runs.nothing"}
    assert client.get(picture_of(task)).status_code == 404


def nothing(user: Any, tasks: Any) -> Any:
    return tasks.none()


def test_many_nodes_are_listed_bounded_and_not_drawn(admin_client: Client) -> None:
    dag = Dag("admin.many")

    def work(task: Context) -> None:
        raise Failure("the last one")

    for at in range(250):
        dag.node(f"n{at}", when=None if at == 249 else lambda outputs: False)(work)
    try:
        task = dag.start()
        run_until_idle()
        html = admin_client.get(page_of(task)).content.decode()
    finally:
        registry.unregister("admin.many")
        registry.unregister("admin.many/node")
    [nodes] = re.findall(r'<ul class="sv-nodes">(.*?)</ul>', html, re.DOTALL)
    assert nodes.count("<li>") == 200
    assert "n249" in nodes.split("<li>")[1], "what failed comes first"
    assert "and 50 more" in html
    assert "/picture/" not in html
    assert admin_client.get(picture_of(task)).status_code == 404


def test_a_dag_is_drawn_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("supervision_diagram", "nightly_report", format="mermaid")
    drawn = capsys.readouterr().out
    for words in ("flowchart TD", "for each of countries", "on a condition", "inline", "not required"):
        assert words in drawn

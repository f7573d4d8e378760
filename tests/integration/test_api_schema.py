"""The schema tells the truth: fuzzed by Schemathesis, and a Python client made from it drives a task."""

from __future__ import annotations

import base64
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.wsgi import get_wsgi_application
from django.test import Client, override_settings
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from supervision.api.openapi import described
from supervision.engines import start
from supervision.engines.pipelines.models import Pointer
from supervision.kernel.models import Question, Task
from supervision.testing import run_until_idle
from tests.integration.api_work import Caller, bodies, customer, flow

FREE = {"API_READS": None, "API_WRITES": None, "API_LONGEST_WAIT": 0}
QUICK = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture(autouse=True)
def _bodies() -> Iterator[None]:
    cache.clear()
    with bodies():
        yield


@pytest.fixture
def server(db: None) -> Iterator[Any]:
    """The WSGI application as a server would call it, on the test's own connection: as Django's test client does, it
    keeps Django from closing that one after each request."""
    from django.core import signals
    from django.db import close_old_connections

    signals.request_started.disconnect(close_old_connections)
    signals.request_finished.disconnect(close_old_connections)
    yield get_wsgi_application()
    signals.request_started.connect(close_old_connections)
    signals.request_finished.connect(close_old_connections)


def signed_in_user() -> User:
    user = customer("ann")
    user.set_password("pw")
    user.save()
    return user


@pytest.mark.django_db
def test_the_schema_is_for_the_signed_in_and_names_every_route(capsys: pytest.CaptureFixture[str]) -> None:
    caller = Caller(customer("ann"))
    schema = caller.get("schema/").json()
    assert schema == json.loads(json.dumps(described("/api/")))
    assert schema["servers"] == [{"url": "/api/"}]
    assert len(schema["paths"]) == 19
    assert "warning" not in capsys.readouterr().err.lower()
    assert Caller().get("schema/").status_code == 403
    page = caller.get("docs/")
    assert page.status_code == 200
    assert b"http" not in page.content.replace(b"http-equiv", b"")
    assert Caller().get("docs/").status_code == 302


@pytest.mark.slow
@override_settings(SUPERVISION=FREE, PASSWORD_HASHERS=QUICK)
def test_fuzzed_within_and_outside_of_its_schema_it_answers_as_it_says(server: Any) -> None:
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    user = signed_in_user()
    task = start("api.greet", {"name": "Ada"}, owner=user)
    flow("customer 7", user)
    run_until_idle()
    real = {"tasks": str(task.pk), "questions": str(Question.objects.filter(task=task).get().pk),
            "pointers": str(Pointer.objects.get().pk)}  # fmt: skip
    headers = {"Authorization": "Basic " + base64.b64encode(b"ann:pw").decode()}
    schema = schemathesis.openapi.from_wsgi("/api/schema/", server, headers=headers)
    checks = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
    answered: dict[int, int] = {}

    for result in schema.get_all_operations():
        operation: Any = result.ok()  # type: ignore[union-attr]
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @settings(
                max_examples=12, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )  # fmt: skip
            @given(case=operation.as_strategy(generation_mode=mode), is_real=st.booleans())
            def ask(case: Any, is_real: bool) -> None:
                if is_real and "id" in (case.path_parameters or {}):
                    case.path_parameters["id"] = real[case.path.strip("/").partition("/")[0]]
                response = case.call(headers=headers)
                answered[response.status_code] = answered.get(response.status_code, 0) + 1
                case.validate_response(response, checks=checks)

            ask()
    assert sum(answered.values()) > 300
    assert {200, 400, 404} <= set(answered)


@pytest.mark.slow
@override_settings(PASSWORD_HASHERS=QUICK)
def test_a_client_made_from_the_schema_drives_a_task(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_in_user()
    (tmp_path / "schema.json").write_text(json.dumps(described("/api/")))
    (tmp_path / "config.yaml").write_text("post_hooks: []\n")
    made = subprocess.run(
        [Path(sys.executable).with_name("openapi-python-client"), "generate", "--path", "schema.json", "--meta", "none",
         "--output-path", "made_client", "--config", "config.yaml", "--fail-on-warning"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    monkeypatch.syspath_prepend(tmp_path)
    client_module: Any = importlib.import_module("made_client")
    models: Any = importlib.import_module("made_client.models")
    served = {"auth": ("ann", "pw"), "transport": httpx.WSGITransport(app=server)}
    client = client_module.Client(base_url="http://localhost/api", httpx_args=served)

    def call(group: str, operation: str, *args: Any, **kwargs: Any) -> Any:
        return importlib.import_module(f"made_client.api.{group}.{operation}").sync(*args, client=client, **kwargs)

    arguments = models.NewTaskRequestArguments.from_dict({"name": "Ada"})
    task = call("tasks", "tasks_create", body=models.NewTaskRequest(body="api.greet", arguments=arguments))
    assert task.state == "pending"
    run_until_idle()
    task = call("tasks", "tasks_retrieve", task.id, wait=5, after_generation=task.generation)
    assert task.needs_answer
    paused = call("tasks", "tasks_pause", task.id, body=models.ActRequest(expected_generation=task.generation))
    assert paused.outcome == "paused"
    stale = call("tasks", "tasks_pause", task.id, body=models.ActRequest(expected_generation=task.generation))
    assert (stale.status, stale.current["generation"]) == (409, paused.task.generation)
    generation = paused.task.generation
    call("tasks", "tasks_resume", task.id, body=models.ActRequest(), if_match=f'"{generation}"')
    (question,) = call("tasks", "tasks_questions", task.id).results
    assert call("questions", "questions_answer", question.id, body=models.NewAnswerRequest(answer="Bye")).status == 400
    call("questions", "questions_answer", question.id, body=models.NewAnswerRequest(answer="Hello"))
    run_until_idle()
    done = call("tasks", "tasks_retrieve", task.id)
    assert (done.state, done.result) == ("completed", {"greeting": "Hello, Ada"})
    log = call("tasks", "tasks_log", task.id, size=3)
    assert (log.returned_count, log.total_count) == (3, Task.objects.get().log_length)
    assert [each.id for each in call("tasks", "tasks_list", body="api.greet").results] == [task.id]
    assert call("tasks", "tasks_retrieve", "not-mine").status == 404


@pytest.mark.django_db
def test_a_host_with_other_defaults_of_rest_framework_gets_the_same_api(settings: Any) -> None:
    settings.REST_FRAMEWORK = {
        "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.AllowAny"],
        "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.BrowsableAPIRenderer"],
        "DEFAULT_SCHEMA_CLASS": "rest_framework.schemas.openapi.AutoSchema",
    }
    assert Client().get("/api/tasks/").status_code == 403
    assert len(described("/x/")["paths"]) == 19

"""OpenTelemetry and Prometheus, with their own SDKs; and that nothing is done without them."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import call_command
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from supervision.engines import Context, start, tracing
from supervision.engines.bodies import body
from supervision.kernel import creation, ends, lease
from supervision.kernel.models import LogEntry
from supervision.testing import answer, run_until_idle
from supervision.worker import metrics, telemetry

pytestmark = pytest.mark.django_db


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    yield exporter
    tracing.step = None
    provider.shutdown()


@body("telemetry.asks")
def asks(task: Context, *, secret: str = "") -> Any:
    task.step("before", str, secret)
    task.ask("go", "Go on?")
    return task.step("after", _fail, secret)


def _fail(secret: str) -> None:
    raise ValueError(f"it failed with {secret}")


def test_drives_and_steps_are_spans_and_the_wait_between_two_drives_is_a_link(exporter: InMemorySpanExporter) -> None:
    task = start("telemetry.asks", {"secret": "hunter2-canary"})
    run_until_idle()
    answer(task, {"go": "yes"})
    run_until_idle()
    before, first, after, second = exporter.get_finished_spans()
    assert [span.name for span in (before, first)] == ["step before", "drive telemetry.asks"]
    assert [span.name for span in (after, second)] == ["step after", "drive telemetry.asks"]
    assert _parent(before) == _place(first)
    assert _parent(after) == _place(second)
    assert (after.status.is_ok, after.status.description) == (False, "ValueError")
    assert first.attributes is not None
    assert first.attributes["supervision.task"] == str(task.pk)
    assert (list(first.links), len(second.links)) == ([], 1)
    [link] = second.links
    assert link.context.span_id == _place(first)
    assert link.attributes is not None
    assert link.attributes["supervision.waited_for"] == "awaiting_user_answer:go"
    assert "hunter2-canary" not in "".join(span.to_json() for span in exporter.get_finished_spans())
    taken = LogEntry.objects.filter(task=task, event="task_taken").order_by("sequence_num").first()
    assert taken is not None
    assert f"{_place(first):016x}" in taken.payload["trace"]


def test_take_that_wins_nothing_is_no_span(exporter: InMemorySpanExporter) -> None:
    from supervision.worker.drive import drive_one

    task = creation.create("telemetry.asks")
    assert not drive_one(task.pk, 7, stopping=lambda: False, thread=False)
    assert exporter.get_finished_spans() == ()


@pytest.mark.parametrize("how", ["no package", "no provider"])
def test_without_telemetry_nothing_is_recorded(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if how == "no package":
        monkeypatch.setattr(telemetry, "trace", None)
    assert telemetry.begin() is None
    task = start("telemetry.asks")
    run_until_idle()
    assert tracing.step is None
    assert LogEntry.objects.get(task=task, event="task_taken").payload == {}


def _place(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def _parent(span: ReadableSpan) -> int:
    assert span.parent is not None
    return int(span.parent.span_id)


# --- Prometheus -------------------------------------------------------------------------------------------------------


def _samples(text: str) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_metrics_are_what_the_rows_say(capsys: pytest.CaptureFixture[str]) -> None:
    creation.create("work", queue="slow")
    taken = lease.take(creation.create("work").pk, 0)
    other = lease.take(creation.create("work").pk, 0)
    assert taken is not None
    assert other is not None
    ends.complete(other.task_id, other.lease)
    start("telemetry.asks")
    run_until_idle()
    call_command("supervision_health", "--prometheus")
    samples = _samples(capsys.readouterr().out)
    assert samples["supervision_tasks", "pending"] == 1
    assert samples["supervision_tasks", "running"] == 1
    assert samples["supervision_tasks", "parked"] == 1
    assert samples["supervision_tasks_due", "slow"] == 1
    assert samples["supervision_due_seconds", "slow"] >= 0
    assert samples["supervision_tasks_ended", "work", "completed"] == 1
    assert samples["supervision_questions_pending",] == 1
    assert samples["supervision_clusters",] == 0
    assert samples["supervision_health",] == 2


def test_registering_the_collector_asks_no_database(django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        CollectorRegistry().register(metrics.SupervisionCollector())

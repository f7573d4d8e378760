"""OpenTelemetry spans of drives and steps (extra ``otel``). Without the package, or a provider, nothing is done.

A task outlives any trace, so each drive is one of its own, linked to the drive before it; the link says what the task
waited for in between. Each drive's place is in its ``task_taken`` entry, where people find it too. Arguments and
results are in no span: they may be secret.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from supervision.engines import tracing
from supervision.kernel import log
from supervision.kernel.lease import Taken

if TYPE_CHECKING:
    from opentelemetry.trace import Span

trace: Any
try:
    from opentelemetry import trace
except ImportError:
    trace = None

_NAME = "supervision"


class Drive:
    """The span of one drive; begun before the take, so that its entry can name it."""

    def __init__(self, span: Span) -> None:
        self._span = span
        place = span.get_span_context()
        self.note: Mapping[str, Any] = {
            "trace": f"00-{place.trace_id:032x}-{place.span_id:016x}-{int(place.trace_flags):02x}"
        }
        """For the log: a W3C ``traceparent``."""

    @contextmanager
    def of(self, taken: Taken) -> Iterator[None]:
        """The task was taken: its steps are spans within this one until the end."""
        self._span.update_name(f"drive {taken.body}")
        self._span.set_attributes(
            {
                "supervision.task": str(taken.task_id), "supervision.body": taken.body,
                "supervision.version": taken.body_version, "supervision.lease": taken.lease,
                "supervision.recoveries": taken.recoveries,
            }
        )  # fmt: skip
        before, waited_for = log.last_drive(taken.task_id, before=taken.log_length)
        link = _place(before)
        if link is not None:
            self._span.add_link(link, {"supervision.waited_for": waited_for})
        with trace.use_span(self._span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            yield


def begin() -> Drive | None:
    """A drive to be measured, if anybody listens. One that takes nothing is never ended, hence never exported."""
    if trace is None:
        return None
    span = trace.get_tracer(_NAME).start_span("drive", kind=trace.SpanKind.CONSUMER)
    if not span.is_recording():
        return None
    tracing.step = _step
    return Drive(span)


@contextmanager
def _step(name: str) -> Iterator[None]:
    """A span that tells of an error by its type alone: its text may hold what is secret."""
    quiet = {"record_exception": False, "set_status_on_exception": False}
    with trace.get_tracer(_NAME).start_as_current_span(f"step {name}", **quiet) as span:
        try:
            yield
        except Exception as error:
            span.set_status(trace.Status(trace.StatusCode.ERROR, type(error).__name__))
            raise


def _place(traceparent: str) -> Any:
    """The context that a ``traceparent`` names, or None."""
    parts = traceparent.split("-")
    if len(parts) != 4:
        return None
    _version, trace_id, span_id, flags = parts
    return trace.SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=trace.TraceFlags(int(flags, 16))
    )

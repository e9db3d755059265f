"""OpenTelemetry spans, exported by OTLP over HTTP. The only user of its libraries, which are optional.

A request is a span. A render starts its own trace, because many requests share it, with a link to the
request that started it; its phases are child spans. Spans are created from records at the end, so
a response costs only the generation of ids. A thread of the library exports them.

``OTEL_EXPORTER_OTLP_HEADERS``, ``OTEL_SERVICE_NAME`` and ``OTEL_RESOURCE_ATTRIBUTES`` work as
documented by OpenTelemetry.
"""

import random
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, TraceFlags
from opentelemetry.trace.span import TraceState
from opentelemetry.trace.status import Status, StatusCode

from prerender import __version__
from prerender.http.trace_context import TraceContext, new_trace
from prerender.telemetry.records import RenderOutcome, RenderRecord, RequestRecord
from prerender.telemetry.redaction import Redaction

_SERVICE = "prerender"
# A hanging collector must not delay the shutdown for long.
_TIMEOUT_SECONDS = 5.0

Attributes = Mapping[str, str | int | float | bool]


class Tracing:
    """Exports spans to ``endpoint``. ``sample``: the share of requests that start a trace."""

    def __init__(self, endpoint: str, sample: float, redaction: Redaction) -> None:
        self._sample = sample
        self._redaction = redaction
        self._resource = Resource.create(
            Resource({"service.name": _SERVICE, "service.version": __version__}).attributes
        )
        self._scope = InstrumentationScope("prerender", __version__)
        self._processor = BatchSpanProcessor(
            OTLPSpanExporter(endpoint=endpoint, timeout=_TIMEOUT_SECONDS)
        )

    def begin(self, parent: TraceContext | None) -> TraceContext:
        """Start the span of a request, in its trace or in a new one."""
        if parent is not None:
            return parent.child()
        return new_trace(sampled=random.random() < self._sample)  # noqa: S311

    def request(self, record: RequestRecord) -> None:
        """Export the span of a request."""
        trace = record.trace
        if trace is None or not trace.sampled:
            return
        path, _, query = record.target.partition("?")
        attributes: dict[str, str | int | float | bool] = {
            "http.request.method": record.method,
            "http.response.status_code": record.status,
            "url.path": path,
            "client.address": record.remote,
            "user_agent.original": record.user_agent,
            "prerender.proxy.decision": record.kind,
            "prerender.reason": record.reason.value,
            "prerender.source": record.source,
        }
        optional = {
            "url.query": self._redaction(f"?{query}")[1:],
            "error.type": record.error or "",
            "prerender.cache": record.cache or "",
            "prerender.crawler": record.crawler or "",
            "prerender.detail": record.detail,
        }
        attributes |= {name: value for name, value in optional.items() if value}
        failed = record.status >= 500
        self._send(record.method, trace, record.time, record.seconds, attributes, failed=failed)

    def render(self, record: RenderRecord) -> None:
        """Export the spans of a render and its phases."""
        trace = record.trace
        if trace is None or not trace.sampled or not trace.own:
            return
        attributes: dict[str, str | int | float | bool] = {
            "url.full": self._redaction(record.target.url),
            "prerender.outcome": record.outcome.value,
        }
        if record.error:
            attributes["error.type"] = record.error
        if record.facts is not None:
            attributes["prerender.settled"] = record.facts.settled
            attributes["prerender.virtual_seconds"] = record.facts.virtual_seconds
        failed = record.outcome is RenderOutcome.FAILED
        self._send("render", trace, record.time, record.seconds, attributes, failed=failed)
        if (timings := record.timings) is None:
            return
        began = record.time
        # The phases are consecutive.
        for phase, seconds in timings.phases().items():
            self._send(phase, trace.child(), began, seconds, {})
            began += seconds

    def close(self) -> None:
        """Export pending spans. Blocking."""
        self._processor.shutdown()  # type: ignore[no-untyped-call]

    def _send(
        self,
        name: str,
        trace: TraceContext,
        began: float,
        seconds: float,
        attributes: Attributes,
        *,
        failed: bool = False,
    ) -> None:
        kind = SpanKind.SERVER if "http.request.method" in attributes else SpanKind.INTERNAL
        # Only the sender of the request's traceparent is remote.
        remote = kind is SpanKind.SERVER
        self._processor.on_end(
            ReadableSpan(
                name,
                context=_context(trace, trace.span_id),
                parent=_context(trace, trace.parent_id, remote=remote) if trace.parent_id else None,
                resource=self._resource,
                attributes=attributes,
                links=[Link(_context(trace.cause, trace.cause.span_id))] if trace.cause else (),
                kind=kind,
                status=Status(StatusCode.ERROR if failed else StatusCode.UNSET),
                start_time=int(began * 1e9),
                end_time=int((began + seconds) * 1e9),
                instrumentation_scope=self._scope,
            )
        )


def _context(trace: TraceContext, span_id: str, *, remote: bool = False) -> SpanContext:
    return SpanContext(
        int(trace.trace_id, 16),
        int(span_id, 16),
        is_remote=remote,
        trace_flags=TraceFlags(TraceFlags.SAMPLED if trace.sampled else TraceFlags.DEFAULT),
        trace_state=TraceState.from_header([trace.state]) if trace.state else None,
    )

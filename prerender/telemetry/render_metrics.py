"""Metrics of renders."""

from prometheus_client import CollectorRegistry, Counter, Histogram

from prerender.errors import ErrorCode, RenderError
from prerender.snapshots.snapshot import Phase
from prerender.telemetry.records import RenderOutcome, RenderRecord

_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0)
_PHASE_SECONDS = (
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0
)  # fmt: skip
_BYTES = (1e3, 5e3, 1e4, 5e4, 1e5, 5e5, 1e6, 5e6, 2e7)
_NONE = "none"
_RENDER_ERRORS: list[type[RenderError]] = RenderError.__subclasses__()
_KNOWN = {
    **dict.fromkeys(set(RenderOutcome) - {RenderOutcome.CANCELLED}, (_NONE,)),
    RenderOutcome.NOT_A_PAGE: (ErrorCode.NOT_RENDERABLE,),
    RenderOutcome.BLANK: (ErrorCode.EMPTY_PAGE,),
    RenderOutcome.FAILED: (
        _NONE,
        ErrorCode.ORIGIN_ERROR,
        ErrorCode.ORIGIN_TIMEOUT,
        *(kind.code for kind in _RENDER_ERRORS),
    ),
}


class RenderMetrics:
    """Subscribes to the records of renders."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._renders = Counter(
            "prerender_renders",
            "Finished renders, including renewals of stale snapshots.",
            ("outcome", "error"),
            registry=registry,
        )
        # Series start at 0, so that the first count is an increase.
        for outcome, errors in _KNOWN.items():
            for error in errors:
                self._renders.labels(outcome, error)
        self._seconds = Histogram(
            "prerender_render_duration_seconds",
            "Duration of a render, including the time in the queue.",
            ("outcome",),
            buckets=_SECONDS,
            registry=registry,
        )
        phases = Histogram(
            "prerender_render_phase_seconds",
            f"Duration of each phase of a render: {', '.join(phase.text for phase in Phase)}.",
            ("phase",),
            buckets=_PHASE_SECONDS,
            registry=registry,
        )
        self._phases = {phase: phases.labels(phase) for phase in Phase}
        self._settled = Counter(
            "prerender_settled_pages",
            "Settled pages by reason.",
            ("reason",),
            registry=registry,
        )
        self._bytes = Histogram(
            "prerender_snapshot_bytes",
            "Size of new snapshots before compression.",
            buckets=_BYTES,
            registry=registry,
        )

    def __call__(self, record: RenderRecord) -> None:
        """Count a render."""
        self._renders.labels(record.outcome, record.error or _NONE).inc()
        self._seconds.labels(record.outcome).observe(record.seconds)
        if record.timings is not None:
            for phase, seconds in record.timings.phases().items():
                self._phases[phase].observe(seconds)
        if record.facts is not None and record.facts.settled:
            self._settled.labels(record.facts.settled).inc()
            self._bytes.observe(record.bytes)

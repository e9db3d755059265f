"""Metrics of requests, at the cost of one dictionary lookup per request.

Counters of the Prometheus library take a lock and several calls for each of the several numbers of a
request. Here they are plain integers, which become the library's metrics on scrape.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from http import HTTPStatus
from itertools import accumulate

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from prerender.errors import ErrorCode
from prerender.snapshots.snapshot import CacheResult
from prerender.telemetry.records import CLIENT_LEFT, RequestRecord
from prerender.telemetry.scraped_metrics import Distribution, counter, histogram

BUCKETS_SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 60.0
)  # fmt: skip
_CODES = frozenset({*HTTPStatus, CLIENT_LEFT})
_SWITCHED = 101
# Errors of the origin.
_OF_THE_ORIGIN = (ErrorCode.ORIGIN_ERROR, ErrorCode.ORIGIN_TIMEOUT, ErrorCode.LOOP_DETECTED)


class _Tally:
    """The totals of requests with the same labels."""

    __slots__ = ("buckets", "sent_bytes")

    def __init__(self) -> None:
        self.buckets = _Buckets()
        self.sent_bytes = 0


class _Buckets:
    """A histogram of durations."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_SECONDS) + 1)
        self.seconds = 0.0

    def add(self, other: "_Buckets") -> None:
        """Add another histogram."""
        self.counts = [mine + its for mine, its in zip(self.counts, other.counts, strict=True)]
        self.seconds += other.seconds

    @property
    def distribution(self) -> Distribution:
        """The cumulative form of Prometheus."""
        bounds = (*map(str, BUCKETS_SECONDS), "+Inf")
        totals = map(float, accumulate(self.counts))
        return tuple(zip(bounds, totals, strict=True)), self.seconds


class RequestMetrics(Collector):
    """Subscribes to the records of requests, and exposes their totals."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str, str, str | None, str | None, int], _Tally] = {}
        self._origin = _Buckets()
        self._origin_errors = Counter(dict.fromkeys(_OF_THE_ORIGIN, 0))

    def __call__(self, record: RequestRecord) -> None:
        """Count a request."""
        seconds = record.seconds
        key = (
            record.kind,
            record.reason,
            record.source,
            record.cache,
            record.crawler,
            record.status,
        )
        tally = self._tallies.get(key)
        if tally is None:
            tally = self._tallies[key] = _Tally()
        tally.sent_bytes += record.sent_bytes
        tally.buckets.counts[bisect_left(BUCKETS_SECONDS, seconds)] += 1
        tally.buckets.seconds += seconds
        if record.origin_seconds is not None:
            self._origin.counts[bisect_left(BUCKETS_SECONDS, record.origin_seconds)] += 1
            self._origin.seconds += record.origin_seconds
        if record.error in _OF_THE_ORIGIN:
            self._origin_errors[record.error] += 1

    def totals(self) -> dict[str, float]:
        """Total requests by cache result of snapshots, otherwise by decision.

        "hits": snapshots without a render; "errors": 5xx responses; "seconds": total response time of
        snapshots.
        """
        sums: defaultdict[str, float] = defaultdict(float)
        for (kind, _, source, cache, _, status), tally in self._tallies.items():
            count = sum(tally.buckets.counts)
            # A request for a snapshot whose target is not a page counts as forwarded.
            sums[cache or ("forward" if kind == "render" else kind)] += count
            if cache and CacheResult(cache).is_hit:
                sums["hits"] += count
            if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                sums["errors"] += count
            if source == "snapshot":
                sums["seconds"] += tally.buckets.seconds
        return sums

    def collect(self) -> Iterable[Metric]:
        """The current metrics."""
        requests: Counter[tuple[str, ...]] = Counter()
        snapshots: Counter[tuple[str, ...]] = Counter()
        sent: Counter[str] = Counter()
        durations: dict[tuple[str, ...], _Buckets] = defaultdict(_Buckets)
        for (kind, reason, source, cache, crawler, status), tally in self._tallies.items():
            count = sum(tally.buckets.counts)
            requests[kind, reason, crawler or "none", _code(status), source] += count
            sent[source] += tally.sent_bytes
            if cache:
                snapshots[cache, crawler or "none"] += count
            if status != _SWITCHED:  # WebSockets stay open for any time
                durations[source, cache or "none"].add(tally.buckets)
        text = "Requests on the public listener."
        labels = ("decision", "reason", "crawler", "code", "source")
        yield counter("prerender_requests", text, requests, *labels)
        text = "Requests for snapshots by cache result."
        yield counter("prerender_snapshot_requests", text, snapshots, "result", "crawler")
        text = "Bytes of responses, heads and bodies, by source."
        yield counter("prerender_response_bytes", text, sent, "source")
        text = "Errors of the origin."
        yield counter("prerender_origin_errors", text, self._origin_errors, "error")
        yield histogram(
            "prerender_request_duration_seconds",
            "Time from the request head to the last byte of the response.",
            {labels: buckets.distribution for labels, buckets in durations.items()},
            "source",
            "result",
        )
        yield histogram(
            "prerender_origin_response_seconds",
            "Time from the head of a forwarded request to the origin's response head.",
            {(): self._origin.distribution},
        )


def _code(status: int) -> str:
    """A status as a label; unregistered ones as their class, to bound the number of series."""
    return str(status) if status in _CODES else f"{status // 100}xx"

"""The cost of telemetry per request: this proxy's, and that of common libraries.

    .venv/bin/python benchmarks/telemetry.py [--rounds 5]

Everything is measured in turns in this process. Compare ratios: absolute figures depend on the machine
and its load.
"""

import argparse
import io
import logging
import statistics
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram

from prerender.config.settings import SECRET_PARAMETERS
from prerender.extensions.dashboard.crawlers import CrawlerStatistics
from prerender.extensions.dashboard.recent_activity import Recent
from prerender.http.message_head import parse_request
from prerender.proxy.decider import Considered
from prerender.proxy.decision import Reason, Render
from prerender.proxy.outcome import Outcome, record_of
from prerender.snapshots.snapshot import CacheResult, Snapshot, SnapshotResult
from prerender.snapshots.target import Target
from prerender.telemetry.access_log import LineFormatter
from prerender.telemetry.crawler_requests import CrawlerRequests
from prerender.telemetry.records import Channel, RequestRecord
from prerender.telemetry.redaction import Redaction
from prerender.telemetry.request_metrics import RequestMetrics
from prerender.urls.ajax_crawling import PrettyURL

CALLS = 20_000
USER_AGENT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
TARGET = "/products?_escaped_fragment_=/7"


DECISION = Render(PrettyURL("/products", "/7"))
PAGE = Target("/products", "https://www.example.com/products#!/7", "/products#!/7", "0" * 32)
RESULT = SnapshotResult(Snapshot(200, (), b"", '"a"', 0), CacheResult.HIT)
REQUEST = parse_request(f"GET {TARGET} HTTP/1.1\r\nHost: www.example.com".encode())
SENT = cast("Any", SimpleNamespace(status=200, sent_bytes=20_000))


def make_record() -> RequestRecord:
    """Create the record of a cache hit, as for each request."""
    considered = Considered(REQUEST, DECISION, USER_AGENT, "search", "203.0.113.7")
    return record_of(Outcome(considered, PAGE, RESULT), SENT, None, time.perf_counter())


def sides() -> dict[str, Callable[[], object]]:
    """The compared functions by name."""
    record = make_record()
    metrics = RequestMetrics()
    requests: Channel[RequestRecord] = Channel()
    waiting = CrawlerRequests(requests)
    Recent(waiting)
    CrawlerStatistics(waiting)
    registry = CollectorRegistry()
    count = Counter("a", "a", ("decision", "reason"), registry=registry)
    bound = count.labels("render", "ugly_url")
    seconds = Histogram("b", "b", registry=registry)
    redaction = Redaction(SECRET_PARAMETERS)
    console, as_json = LineFormatter("console", redaction), LineFormatter("json", redaction)
    handler = logging.StreamHandler(io.StringIO())
    logger = logging.Logger("benchmark")
    logger.addHandler(handler)
    log = structlog.wrap_logger(
        logger,
        processors=[
            structlog.stdlib.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.JSONRenderer(),
        ],
    )

    def by_the_library() -> None:
        bound.inc()
        seconds.observe(0.0001)

    def by_labels() -> None:
        count.labels("render", "ugly_url").inc()
        seconds.observe(0.0001)

    def by_structlog() -> None:
        log.info(
            "request",
            method="GET",
            target=TARGET,
            status=200,
            ms=0.1,
            bytes=20_000,
            decision="render",
            reason=Reason.UGLY_URL,
            source="snapshot",
            cache="hit",
            remote="203.0.113.7",
            user_agent=USER_AGENT,
            crawler="search",
        )

    return {
        "the record": make_record,
        "metrics, ours": lambda: metrics(record),
        "the dashboard's lists": lambda: requests(record),
        "one counter and histogram of prometheus_client": by_the_library,
        "the same by labels()": by_labels,
        "access line, console": lambda: console(record),
        "access line, JSON": lambda: as_json(record),
        "access line, structlog": by_structlog,
    }


def main(rounds: int) -> None:
    """Measure all sides in turns, and print medians with ratios to the record."""
    measured: dict[str, list[float]] = {}
    compared = sides()
    for _ in range(rounds):
        for name, work in compared.items():
            began = time.process_time()
            for _ in range(CALLS):
                work()
            measured.setdefault(name, []).append((time.process_time() - began) / CALLS * 1e6)
    yardstick = statistics.median(measured["the record"])
    print(f"{'':48}{'CPU':>10}{'ratio':>8}")
    for name, values in measured.items():
        cost = statistics.median(values)
        print(f"{name:48}{cost:7.2f} us{cost / yardstick:8.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    main(parser.parse_args().rounds)

"""What came of a request, and its record. Pure."""

import time
from typing import NamedTuple

from prerender.errors import BadMessage, code_of
from prerender.http.trace_context import TraceContext
from prerender.proxy.client_stream import ClientStream
from prerender.proxy.decider import Considered
from prerender.snapshots.snapshot import CacheResult, SnapshotResult
from prerender.snapshots.target import Target
from prerender.telemetry.records import CLIENT_LEFT, LONGEST_TARGET, RequestRecord, Source


class Outcome(NamedTuple):
    """What came of a request.

    ``target`` and ``result``: of a request for a snapshot. ``detail``: why there was nothing to
    render. ``origin_seconds``: until the origin's response head, if there was one. ``error``: what
    ended it.
    """

    considered: Considered
    target: Target | None = None
    result: SnapshotResult | None = None
    detail: str = ""
    origin_seconds: float | None = None
    error: BaseException | None = None


def record_of(
    outcome: Outcome, sent: ClientStream, trace: TraceContext | None, began: float
) -> RequestRecord:
    """The record of a request that ends now. ``began``: its start, of time.perf_counter()."""
    seconds = time.perf_counter() - began
    considered, target, result, detail, origin_seconds, error = outcome
    request, decision, user_agent, crawler, remote, agent, agent_unverified = considered
    if target is not None and target.is_long:
        target = target.shortened()
    source: Source = "proxy" if origin_seconds is None else "origin"
    cache: CacheResult | None = None
    timings = facts = None
    if result is not None:
        source, cache, detail = "snapshot", result.how, result.detail
        facts, timings = result.snapshot.facts, result.timings
    elif error is not None and target is not None:
        cache = CacheResult.ERROR
    return RequestRecord(
        time.time() - seconds,
        seconds,
        request.method,
        request.target[:LONGEST_TARGET],
        remote,
        user_agent,
        crawler,
        decision.kind,
        decision.reason,
        source,
        cache,
        detail,
        sent.status or (error.status if isinstance(error, BadMessage) else CLIENT_LEFT),
        sent.sent_bytes,
        code_of(error),
        target,
        origin_seconds,
        timings,
        facts,
        trace,
        agent,
        agent_unverified,
        "accept-language" in request.headers.names,
    )

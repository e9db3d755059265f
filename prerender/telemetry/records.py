"""One record of each answered request and of each render, handed to whoever has subscribed.

Records are tuples: they are made for every request, and nothing else that is immutable costs as little
to make. Listeners are called one after another on the event loop, when the answer is on its way
already; they must be quick, and must not wait. ``tests/telemetry/test_records.py`` shows what they get.
"""

import time
from collections.abc import Callable
from typing import Generic, Literal, NamedTuple, Protocol, TypeVar

import structlog

from prerender.config.types import CrawlerClass
from prerender.http.head import BadMessage
from prerender.http.trace_context import TraceContext, id_of
from prerender.snapshots.snapshot import (
    Facts,
    RenderVerdict,
    Snapshot,
    SnapshotResult,
    Target,
    Timings,
)
from prerender.telemetry.notices import Notices

# For a client that left before anything was sent to it, as nginx counts it.
CLIENT_LEFT = 499

Source = Literal["snapshot", "origin", "proxy"]
CacheWord = Literal["", "hit", "stale", "miss", "coalesced", "kept", "error"]
# A verdict (rendering/verdict.py), or what came instead of a snapshot.
RenderOutcome = Literal[RenderVerdict, "redirect", "not a page", "cancelled"]
Kind = Literal["render", "forward", "refuse"]
R = TypeVar("R")
log = structlog.get_logger(__name__)


class RequestRecord(NamedTuple):
    """A request on the public listener, after its result.

    ``time``: its arrival in Unix seconds; ``seconds``: from then until the last byte was handed to the
    kernel, or to our buffer for it; ``sent_bytes``: of the answer's head and body.
    ``remote``: the address of the client, as trusted proxies name it. ``status``: of the answer; 499 if
    the client left before there was one.
    ``kind`` and ``reason``: what was decided and why, each of a small set of words.
    ``source``: who answered: a snapshot, the origin, or the proxy itself (errors, refusals).
    ``cache``: how the snapshot was come by, "" where none was shown; "error" where there should have
    been one. ``detail``: more about that in a few words; ``error``: the name of the error's class.
    ``snapshot_target``: of requests for snapshots; its ``key`` is that of the store.
    ``origin_seconds``: until the head of the origin's answer was there, of forwarded requests.
    ``timings`` and ``facts``: of the render that this answer waited for, and of the snapshot shown.
    ``trace``: the trace that the request belongs to, None if it belongs to none.
    """

    time: float
    seconds: float
    method: str
    target: str
    remote: str
    user_agent: str
    crawler: CrawlerClass | None
    kind: Kind
    reason: str
    source: Source
    cache: CacheWord
    detail: str
    status: int
    sent_bytes: int
    error: str
    snapshot_target: Target | None
    origin_seconds: float | None
    timings: Timings | None
    facts: Facts | None
    trace: TraceContext | None

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits, or ""."""
        return id_of(self.trace)


class Decided(Protocol):
    """What was decided about a request, and why."""

    @property
    def kind(self) -> Kind:
        """What is done with it."""

    @property
    def reason(self) -> str:
        """Why, in one of a small set of phrases."""


class Answered(Protocol):
    """A request whose response has been sent, or that was given up."""

    @property
    def method(self) -> str:
        """Its method."""

    @property
    def target(self) -> str:
        """Its request target."""

    @property
    def status(self) -> int:
        """The status of its response; 0 if there is none."""

    @property
    def sent_bytes(self) -> int:
        """The size of the response's head and body, as far as they were sent."""

    @property
    def origin_seconds(self) -> float | None:
        """The time until the origin's response head; None unless the request was forwarded."""


class RequestContext:
    """What is noted of a request while it is answered; its record in the end."""

    __slots__ = (
        "began", "crawler", "decision", "detail", "error", "remote", "result", "target", "trace",
        "user_agent",
    )  # fmt: skip

    def __init__(
        self,
        began: float,
        remote: str,
        user_agent: str,
        crawler: CrawlerClass | None,
        *,
        trace: TraceContext | None,
        decision: Decided,
    ) -> None:
        self.began = began
        self.remote = remote
        self.user_agent = user_agent
        self.crawler = crawler
        self.trace = trace
        self.decision = decision
        self.target: Target | None = None
        self.result: SnapshotResult | None = None
        self.detail = ""
        self.error: BaseException | None = None

    def record(self, request: Answered) -> RequestRecord:
        """The record of a request that has been answered, or given up, just now."""
        seconds = time.perf_counter() - self.began
        trace = self.trace
        decision, result, error = self.decision, self.result, self.error
        cache: CacheWord = ""
        source: Source = "proxy" if request.origin_seconds is None else "origin"
        timings = facts = None
        if result is not None:
            source, cache, self.detail = "snapshot", result.how, result.detail
            facts = result.snapshot.facts
            if cache != "hit":
                timings = result.timings
            elif result.detail:
                cache = "stale"
        elif error is not None and self.target is not None:
            cache = "error"
        # In half the time that it takes by the names of the fields.
        return tuple.__new__(
            RequestRecord,
            (
                time.time() - seconds,
                seconds,
                request.method,
                request.target,
                self.remote,
                self.user_agent,
                self.crawler,
                decision.kind,
                decision.reason,
                source,
                cache,
                self.detail,
                request.status or (error.status if isinstance(error, BadMessage) else CLIENT_LEFT),
                request.sent_bytes,
                "" if error is None else type(error).__name__,
                self.target,
                request.origin_seconds,
                timings,
                facts,
                trace,
            ),
        )


class RenderRecord(NamedTuple):
    """A render, after its end, whether somebody waits for it or a stale snapshot is renewed.

    ``time``: its beginning in Unix seconds; ``seconds``: until its end. ``outcome``: "not a page": the
    origin's answer is no HTML page; "cancelled": all who wanted it have left before it had a page.
    ``error`` and ``reason``: the name of the error's class and its text. ``timings`` and ``facts`` are
    None where there is no ``snapshot``, whose ``status`` and ``bytes`` are told.
    """

    time: float
    seconds: float
    target: Target
    outcome: RenderOutcome
    error: str
    reason: str
    status: int
    bytes: int
    timings: Timings | None
    facts: Facts | None
    trace: TraceContext | None
    snapshot: Snapshot | None


class Channel(Generic[R]):
    """Hands records to all who have subscribed."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[R], None], ...] = ()

    def subscribe(self, listener: Callable[[R], None]) -> Callable[[], None]:
        """Have ``listener`` called with each record from now on; the result ends that."""
        self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            self._listeners = tuple(known for known in self._listeners if known is not listener)

        return unsubscribe

    def __call__(self, record: R) -> None:
        """Hand a record to all. Never raises: who looks on must not disturb what is looked at."""
        for listener in self._listeners:
            try:
                listener(record)
            except Exception:
                log.exception("record_listener_failed", listener=repr(listener))


class Telemetry:
    """Where the records of one proxy come out, and its notices."""

    def __init__(self) -> None:
        self.requests: Channel[RequestRecord] = Channel()
        self.renders: Channel[RenderRecord] = Channel()
        self.notices = Notices()

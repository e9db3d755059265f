"""One record per request and per render, passed to subscribers.

Listeners are called in turn on the event loop, after the response was sent; they must be quick, must
not block, and must not modify the record, which others keep.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Literal, NamedTuple, TypeVar

import structlog

from prerender.config.crawler_classes import CrawlerClass
from prerender.errors import ErrorCode
from prerender.http.trace_context import TraceContext, id_of
from prerender.snapshots.snapshot import (
    CacheResult,
    Facts,
    Timings,
)
from prerender.snapshots.target import Target
from prerender.words import Word

# The client disconnected before the response, as in nginx.
CLIENT_LEFT = 499

Source = Literal["snapshot", "origin", "proxy"]
DecisionKind = Literal["render", "forward", "refuse"]
R = TypeVar("R")
log = structlog.get_logger(__name__)


class RenderOutcome(Word):
    """The result of a render: a verdict (rendering/verdict.py), or why there is no snapshot."""

    COMPLETE = "complete", "a complete page"
    MOVED = "moved", "a page that moved to another URL"
    REDIRECT = "redirect", "a redirect"
    CUT_OFF = "cut_off", "a page that was still busy at [render] timeout"
    INCOMPLETE = "incomplete", "the site's own data is missing from the page"
    BLANK = "blank", "the page shows nothing"
    FAILED = "failed", "the page was not rendered"
    NOT_A_PAGE = "not_a_page", "the origin's response is not an HTML page"
    CANCELLED = "cancelled", "all clients disconnected before there was a page"

    @property
    def is_unusable(self) -> bool:
        """Whether there is no snapshot that can be stored."""
        return self in (RenderOutcome.INCOMPLETE, RenderOutcome.BLANK, RenderOutcome.FAILED)


# Not a named tuple and not frozen: listeners read 30 attributes of a record, and CPython 3.11 reads
# slots several times as fast as the fields of a tuple, and sets them so only if they are not frozen.
@dataclass(slots=True)
class RequestRecord:
    """A finished request on the public listener.

    ``time``: its arrival in Unix seconds; ``seconds``: until the last byte was handed to the kernel or
    its buffer; ``sent_bytes``: of the response head and body.
    ``remote``: the client's address, according to trusted proxies. ``status``: of the response; 499 if
    the client disconnected before.
    ``kind`` and ``reason``: the decision, each of a small set of words.
    ``source``: a snapshot, the origin, or the proxy itself (errors, refusals).
    ``cache``: the cache result; None unless a snapshot was requested. ``detail``: more about
    that; ``error``: the code of the error, if there was one.
    ``snapshot_target``: of requests for snapshots.
    ``origin_seconds``: of forwarded requests, until the origin's response head.
    ``timings`` and ``facts``: of the render that the request waited for, and of the served snapshot.
    ``trace``: the trace of the request, or None. ``agent``: the agent that signed the request, or '';
    ``agent_unverified``: why a signature does not count. ``accept_language``: whether there is one.
    """

    time: float
    seconds: float
    method: str
    target: str
    remote: str
    user_agent: str
    crawler: CrawlerClass | None
    kind: DecisionKind
    reason: Word
    source: Source
    cache: CacheResult | None
    detail: str
    status: int
    sent_bytes: int
    error: ErrorCode | None
    snapshot_target: Target | None
    origin_seconds: float | None
    timings: Timings | None
    facts: Facts | None
    trace: TraceContext | None
    agent: str = ""
    agent_unverified: str = ""
    accept_language: bool = True

    @property
    def trace_id(self) -> str:
        """32 hexadecimal digits, or ""."""
        return id_of(self.trace)


# Records are kept in lists that are bounded by number, and clients choose these texts.
LONGEST_TARGET = 2048
LONGEST_USER_AGENT = 1024


class RenderRecord(NamedTuple):
    """A finished render, for a waiting client or in the background.

    ``time``: its start in Unix seconds; ``seconds``: its duration. ``error`` and ``reason``: the
    code and reason of the error, if it failed. ``timings`` and ``facts`` are None without a snapshot.
    ``status`` and ``bytes``: of the snapshot; the status of the origin's response if that is no page.
    """

    time: float
    seconds: float
    target: Target
    outcome: RenderOutcome
    error: ErrorCode | None
    reason: str
    status: int
    bytes: int
    timings: Timings | None
    facts: Facts | None
    trace: TraceContext | None


class Channel(Generic[R]):
    """Passes records to subscribers."""

    def __init__(self) -> None:
        self._listeners: tuple[Callable[[R], None], ...] = ()

    def subscribe(self, listener: Callable[[R], None]) -> Callable[[], None]:
        """Call ``listener`` with each record from now on. Returns a function that ends it."""
        self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            self._listeners = tuple(known for known in self._listeners if known is not listener)

        return unsubscribe

    def __call__(self, record: R) -> None:
        """Pass a record to all listeners. Never raises: their errors are logged."""
        for listener in self._listeners:
            try:
                listener(record)
            except Exception:
                log.exception("record_listener_failed", listener=repr(listener))

"""What one page asks the gateway for while it renders one target, and how much it may ask for."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

from multidict import CIMultiDict
from yarl import URL

from prerender.gateway.destination import MEDIA, PROGRAMS
from prerender.gateway.needed import DATA, without_query
from prerender.http.trace_context import TraceContext
from prerender.snapshots.snapshot import Verdict

HTML_TYPES = ("text/html", "application/xhtml+xml")
# A missing page may be the application's own, drawn by its scripts; other errors are not pages.
PAGE_STATUSES = (200, 404, 410)


@dataclass(frozen=True, slots=True)
class Document:
    """The target's document as the origin sent it, decoded from its content coding.

    ``headers`` are the end-to-end fields without length and coding.
    """

    status: int
    headers: CIMultiDict[str]
    body: bytes


@dataclass(frozen=True, slots=True)
class VisitLimits:
    """What one render may ask for: requests, bytes of all answers' bodies and of one of them, as they
    are sent. What goes beyond is refused. ``request_timeout``: seconds until an answer is complete."""

    max_requests: int = 1000
    max_bytes: int = 100 * 1024**2
    max_response_bytes: int = 32 * 1024**2
    request_timeout: float = 15.0


@dataclass(slots=True)
class Traffic:
    """What pages have asked for: requests that are over, and their answers' bytes, by verdict."""

    requests: Counter[Verdict] = field(default_factory=Counter)
    received_bytes: Counter[Verdict] = field(default_factory=Counter)

    def count(self, exchange: "Exchange") -> None:
        """Add a request that is over."""
        self.requests[exchange.verdict] += 1
        self.received_bytes[exchange.verdict] += exchange.received_bytes


class LimitReached(OSError):
    """A render has asked for more than it may. The text names the setting."""


@dataclass(slots=True)
class Exchange:
    """One request of the page. Times are ``time.monotonic()`` seconds.

    ``needed``: the page's content depends on it (needed.py). ``cached``: answered from what earlier
    renders fetched. ``reason``: why it was blocked. ``limited``: a limit of ours cut it short.
    ``fault``: why the page cannot use a response that looks successful.
    """

    method: str
    url: str
    destination: str
    started: float
    last_byte: float
    status: int = 0
    received_bytes: int = 0
    needed: bool = False
    endless: bool = False
    blocked: bool = False
    cached: bool = False
    reason: str = ""
    limited: bool = False
    fault: str = ""
    finished: bool = False
    ended: float = 0.0
    deadline: asyncio.Timeout | None = None

    def expect_no_end(self) -> None:
        """It is a socket or a stream: nobody waits for its end, and its deadline does not count."""
        self.endless = True
        if self.deadline is not None:
            self.deadline.reschedule(None)

    @property
    def verdict(self) -> Verdict:
        """What became of it."""
        if self.blocked:
            return "blocked"
        if self.endless:
            return "stream"
        if not self.finished:
            return "unanswered"
        if not self.status:
            return "aborted"
        if self.status >= 400:
            return "failed"
        return "cached" if self.cached else "allowed"

    @property
    def awaited(self) -> bool:
        """Whether the page's content waits for this request, however slow the response is.

        Only until the response begins: a stream may have no end.
        """
        return self.needed and not self.finished and not self.endless and not self.status

    @property
    def is_program(self) -> bool:
        """Whether it is for code that the page runs."""
        return self.destination in PROGRAMS


@dataclass(slots=True)
class Visit:
    """The gateway's side of one render: the document to hand over, and every request seen.

    ``trace``: what the site's own requests belong to; ``traffic``: where requests are counted.
    Requests that come when there were far too many already are not kept. ``document_url``: as the
    browser writes it, once the document has been handed over. ``polled``: how often data was fetched,
    by URL without query.
    """

    public: URL
    document: Document | None
    limits: VisitLimits = VisitLimits()
    accept_language: str = ""
    trace: TraceContext | None = None
    traffic: Traffic = field(default_factory=Traffic)
    exchanges: list[Exchange] = field(default_factory=list)
    requests: int = 0
    received_bytes: int = 0
    document_url: str = ""
    polled: Counter[str] = field(default_factory=Counter)
    # What the browser keeps of the visit and nobody can clear, or ''.
    remembered: str = ""
    _connections: set[asyncio.Transport] = field(default_factory=set)

    def comes_by(self, connection: asyncio.Transport) -> None:
        """Requests of the visit come by this connection, and it ends with the visit."""
        self._connections.add(connection)

    def end(self) -> None:
        """Cut what is under way: it can neither send nor set anything any more."""
        for connection in self._connections:
            connection.abort()
        self._connections.clear()

    def take_document(self, url: str) -> Document | None:
        """The document, once: a reload or a frame of the same URL is a request of its own."""
        document, self.document = self.document, None
        if document is not None:
            self.document_url = url
        return document

    @contextmanager
    def exchange(self, method: str, url: str, destination: str) -> Iterator[Exchange]:
        """Keep the record of one request, from its arrival to the last byte of its answer."""
        now = time.monotonic()
        record = Exchange(method, url, destination, now, now)
        self.requests += 1
        if not self.flooded:
            self.exchanges.append(record)
        try:
            yield record
        finally:
            record.finished = True
            record.ended = time.monotonic()
            self.traffic.count(record)
            if method == "GET" and destination in DATA:
                self.polled[without_query(url)] += 1

    @property
    def flooded(self) -> bool:
        """Whether not even one more has to be told of: the first one beyond says it all."""
        return self.requests > self.limits.max_requests + 1

    def check_requests(self) -> None:
        """Raises LimitReached when this request is one too many."""
        if self.requests > self.limits.max_requests:
            raise LimitReached(f"more than max_requests = {self.limits.max_requests}")

    def expect(self, size: int) -> None:
        """Raises LimitReached when a body of ``size`` bytes would be too much."""
        self._check_bytes(self.received_bytes + size, size)

    def received(self, exchange: Exchange, size: int) -> None:
        """Count bytes of an answer's body as they pass. Raises LimitReached."""
        exchange.received_bytes += size
        exchange.last_byte = time.monotonic()
        self.received_bytes += size
        try:
            self._check_bytes(self.received_bytes, exchange.received_bytes)
        except LimitReached as error:
            exchange.blocked = exchange.limited = True
            exchange.reason = str(error)
            raise

    def _check_bytes(self, total: int, of_one: int) -> None:
        if of_one > self.limits.max_response_bytes:
            raise LimitReached(f"more than max_response_bytes = {self.limits.max_response_bytes}")
        if total > self.limits.max_bytes:
            raise LimitReached(f"more than max_bytes = {self.limits.max_bytes}")

    def lost_document(self, url: str) -> bool:
        """Whether the last document of a URL did not come whole. Its fragment does not matter."""
        documents = [
            record
            for record in self.exchanges
            if record.destination == "document" and record.url == url.partition("#")[0]
        ]
        return bool(documents) and documents[-1].status >= HTTPStatus.INTERNAL_SERVER_ERROR

    @property
    def answered(self) -> int:
        """How many requests are over."""
        return sum(record.finished for record in self.exchanges)

    @property
    def has_unfinished(self) -> bool:
        """Whether requests are under way, hanging or not."""
        return any(True for _ in self._unfinished())

    def _unfinished(self) -> Iterator[Exchange]:
        return (record for record in self.exchanges if not record.finished)

    def loads_programs(self, *, parsed: bool) -> bool:
        """Whether a request is under way that the page's content waits for, however slow it is.

        Those are the site's own programs, and all programs and styles while the document is not
        ``parsed``: what comes after them is not in the page yet.
        """
        if not parsed:
            return any(
                record.is_program or record.destination == "style" for record in self._unfinished()
            )
        own = f"{self.public.origin()}/"
        return any(
            record.is_program and record.url.startswith(own) for record in self._unfinished()
        )

    def awaits_slow_data(self, after_seconds: float) -> bool:
        """Whether the page's content has been waiting for a response for longer than this."""
        oldest = time.monotonic() - after_seconds
        return any(record.awaited and record.started < oldest for record in self._unfinished())

    def only_hanging(self, patience_seconds: float) -> bool:
        """Whether there are unfinished requests, none of which is worth waiting for."""
        return self.has_unfinished and not self.waiting_for(patience_seconds)

    def waiting_for(self, patience_seconds: float) -> bool:
        """Whether an unfinished request is worth waiting for.

        What the content depends on is, however slow. Of others, an event stream never ends, and a
        request that has been silent for longer than the patience may not either: those do not count.
        Programs and styles are never polls, and no content comes from media.
        """
        oldest = time.monotonic() - patience_seconds
        return any(
            not record.endless
            and record.destination not in MEDIA
            and (
                record.last_byte > oldest
                or record.awaited
                or record.is_program
                or record.destination == "style"
            )
            for record in self._unfinished()
        )

"""A visit: the requests of one page during one render, and their limits."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus

from multidict import CIMultiDict
from yarl import URL

from prerender.config.settings import Network
from prerender.gateway.listener import Connection
from prerender.gateway.needed_requests import DATA, Hanging, without_query
from prerender.gateway.received import Received
from prerender.gateway.resource_kind import MEDIA, PROGRAMS, Fault
from prerender.http.trace_context import TraceContext
from prerender.snapshots.snapshot import Verdict
from prerender.snapshots.variants import ORDINARY, Variant

# A page with hundreds of frames keeps the browser's main thread busy, which all pages share. The first
# frames get their documents at once; each further one waits its turn.
_PROMPT_FRAMES = 20
_FRAME_SECONDS = 0.05
_HEAD_BYTES = 65536
# WebSocket messages of a visit, for each request that it may make.
_MESSAGES = 10
HTML_TYPES = ("text/html", "application/xhtml+xml")
# An application may render its own page for a missing file, for which object stores also say 403
# (gateway/document.py). Other errors are not pages.
PAGE_STATUSES = (200, 403, 404, 410)


@dataclass(frozen=True, slots=True)
class Document:
    """The target's document from the origin, with its content coding decoded.

    ``headers``: end-to-end headers without length and coding.
    """

    status: int
    headers: CIMultiDict[str]
    body: bytes

    @property
    def has_policy(self) -> bool:
        """Whether it has a Content Security Policy, by which the browser may refuse its scripts."""
        name = b"content-security-policy"
        return name.decode() in self.headers or name in self.body[:_HEAD_BYTES].lower()


@dataclass(slots=True)
class Traffic:
    """Finished requests of pages and bytes of their responses, by verdict."""

    requests: Counter[Verdict] = field(default_factory=Counter)
    received_bytes: Counter[Verdict] = field(default_factory=Counter)

    def count(self, exchange: "Exchange") -> None:
        """Count a finished request."""
        self.requests[exchange.verdict] += 1
        self.received_bytes[exchange.verdict] += exchange.received_bytes


class LimitReached(OSError):
    """A render exceeded a limit. The message names the setting."""


@dataclass(slots=True)
class Exchange:
    """A request of the page and its response. Times are ``time.monotonic()`` seconds.

    ``needed``: the page's content depends on it (needed_requests.py). ``cached``: it comes from the
    asset cache.
    ``reason``: why it was blocked. ``limited``: ended by a limit; ``refused``: by the address policy.
    ``judged``: the content may depend on it, although it is not waited for. ``foreign``: it is for a
    third party. ``hangs``: it has hung on other pages. ``has_end``: its response is no stream.
    ``fault``: why the page cannot use a response that looks successful; ``detail``: the same in the
    words of this response. ``sent``: the end-to-end headers of the request; ``sent_body``: of a POST
    whose body is noted; ``received``: the complete response of a server or the asset cache.
    ``stubbed``: blocked by a setting, whatever the network says.
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
    refused: bool = False
    judged: bool = False
    foreign: bool = False
    hangs: bool = False
    fault: Fault | None = None
    detail: str = ""
    has_end: bool = False
    finished: bool = False
    ended: float = 0.0
    deadline: asyncio.Timeout | None = None
    sent: CIMultiDict[str] | None = None
    sent_body: str | None = None
    stubbed: bool = False
    received: Received | None = None

    def expect_no_end(self) -> None:
        """Mark it as a WebSocket or stream: it has no timeout and is not waited for."""
        self.endless = True
        if self.deadline is not None:
            self.deadline.reschedule(None)

    @property
    def verdict(self) -> Verdict:
        """The verdict of the request."""
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
        """Whether the page's content waits for this request, however slow the response is."""
        return self.lacks_response and not self.hangs

    @property
    def lacks_response(self) -> bool:
        """Whether it is needed, and its response has not begun, or has not arrived although it has an
        end. The end of the visit also ends one that nobody waits for."""
        is_open = self.hangs or not self.finished
        has_response = self.status and (self.finished or not self.has_end)
        return self.needed and is_open and not self.endless and not has_response

    @property
    def is_program(self) -> bool:
        """Whether it is for a script."""
        return self.destination in PROGRAMS


@dataclass(slots=True)
class Visit:
    """The gateway's part of a render: the document to serve, and the record of every request.

    ``limits``: [network]. ``trace``: the trace of the site's own requests; ``traffic``: the totals of
    all visits. Far beyond the limit, requests are not recorded. ``document_url``: in the browser's
    spelling, after the document has been served. ``polled``: how often data was fetched, by URL
    without query.
    """

    public: URL
    document: Document | None
    limits: Network = field(default_factory=Network)
    variant: Variant = ORDINARY
    trace: TraceContext | None = None
    traffic: Traffic = field(default_factory=Traffic)
    hanging: Hanging = field(default_factory=Hanging)
    exchanges: list[Exchange] = field(default_factory=list)
    requests: int = 0
    received_bytes: int = 0
    messages: int = 0
    document_url: str = ""
    has_policy: bool = False
    polled: Counter[str] = field(default_factory=Counter)
    # State of the visit in the browser that cannot be cleared, or ''.
    remembered: str = ""
    # Whether requests cannot be attributed with certainty, and what happens then.
    needs_own_context: bool = False
    when_in_doubt: Callable[[], object] = bool
    _unfinished: dict[int, Exchange] = field(default_factory=dict)
    _connections: set[Connection] = field(default_factory=set)
    _frames: int = 0
    _frame_turn: float = 0.0

    def need_own_context(self) -> None:
        """Note that requests may be this page's or an older one's: it must be the first one of its
        browser context."""
        self.needs_own_context = True
        self.when_in_doubt()

    def track(self, connection: Connection) -> None:
        """Remember a connection that served this visit."""
        self._connections.add(connection)

    def end(self) -> None:
        """Abort the connections by which the page could still send or set something.

        The browser uses the others again: new ones took a tenth of a render's CPU time.
        """
        for connection in self._connections:
            if not connection.reusable and connection.transport is not None:
                connection.transport.abort()
        self._connections.clear()

    def take_document(self, url: str) -> Document | None:
        """The document, once: a reload or a frame with the same URL is a new request."""
        document, self.document = self.document, None
        if document is not None:
            self.document_url = url
            self.has_policy = document.has_policy
        return document

    async def frame_turn(self) -> None:
        """Wait until the document of another frame may be sent."""
        self._frames += 1
        if self._frames > _PROMPT_FRAMES:
            now = time.monotonic()
            self._frame_turn = max(self._frame_turn, now) + _FRAME_SECONDS
            await asyncio.sleep(self._frame_turn - now)

    @contextmanager
    def exchange(self, method: str, url: str, destination: str) -> Iterator[Exchange]:
        """Record a request, from its arrival to the last byte of its response."""
        now = time.monotonic()
        record = Exchange(method, url, destination, now, now)
        self.requests += 1
        number = self.requests
        if not self.flooded:
            self.exchanges.append(record)
            self._unfinished[number] = record
        complete = False
        try:
            yield record
            complete = True
        finally:
            record.finished = True
            # It references the task, and so the response with all its headers.
            record.deadline = None
            if record.needed:
                seconds = time.monotonic() - record.started
                answered = bool(record.status) and (complete or not record.has_end)
                self.hanging.ended(url, self.document_url, seconds, answered=answered)
            self._unfinished.pop(number, None)
            record.ended = time.monotonic()
            self.traffic.count(record)
            if method == "GET" and destination in DATA:
                self.polled[without_query(url)] += 1

    @property
    def flooded(self) -> bool:
        """Whether the excess of the limit has been recorded already."""
        return self.requests > self.limits.max_requests + 1

    def check_requests(self) -> None:
        """Raises LimitReached if this request exceeds the limit."""
        if self.requests > self.limits.max_requests:
            raise LimitReached(f"more than max_requests = {self.limits.max_requests}")

    def expect(self, size: int) -> None:
        """Raises LimitReached if a body of ``size`` bytes would exceed a limit."""
        self._check_bytes(self.received_bytes + size, size)

    def received(self, exchange: Exchange, size: int) -> None:
        """Count bytes of a response body. Raises LimitReached."""
        exchange.received_bytes += size
        exchange.last_byte = time.monotonic()
        self.received_bytes += size
        try:
            self._check_bytes(self.received_bytes, exchange.received_bytes)
        except LimitReached as error:
            exchange.blocked = exchange.limited = True
            exchange.reason = str(error)
            raise

    def message(self, exchange: Exchange, size: int) -> None:
        """Count a WebSocket message, in either direction. Raises LimitReached."""
        self.messages += 1
        if self.messages > (most := _MESSAGES * self.limits.max_requests):
            exchange.blocked = exchange.limited = True
            exchange.reason = f"more than {_MESSAGES} messages for each of max_requests"
            raise LimitReached(f"more than {most} WebSocket messages")
        self.received(exchange, size)

    def _check_bytes(self, total: int, of_one: int) -> None:
        if of_one > self.limits.max_response_bytes:
            raise LimitReached(f"more than max_response_bytes = {self.limits.max_response_bytes}")
        if total > self.limits.max_bytes:
            raise LimitReached(f"more than max_bytes = {self.limits.max_bytes}")

    def lost_document(self, url: str) -> bool:
        """Whether the last document of a URL (without fragment) is incomplete."""
        documents = [
            record
            for record in self.exchanges
            if record.destination == "document" and record.url == url.partition("#")[0]
        ]
        return bool(documents) and documents[-1].status >= HTTPStatus.INTERNAL_SERVER_ERROR

    @property
    def answered(self) -> int:
        """The number of finished requests."""
        return len(self.exchanges) - len(self._unfinished)

    @property
    def has_unfinished(self) -> bool:
        """Whether requests are in progress, hanging or not."""
        return bool(self._unfinished)

    @property
    def answered_urls(self) -> list[str]:
        """The URLs of the finished requests, without that for the page's document."""
        return [record.url for record in self.exchanges[1:] if record.finished]

    @property
    def only_known_to_hang(self) -> bool:
        """Whether all requests in progress have hung on other pages."""
        return all(record.hangs for record in self._unfinished.values())

    @property
    def has_ending(self) -> bool:
        """Whether any request in progress is no stream, so that its connection becomes free."""
        return any(not record.endless for record in self._unfinished.values())

    @property
    def fetches(self) -> int:
        """The number of requests by script whose response has not begun."""
        return sum(
            record.destination in DATA and not record.status for record in self._unfinished.values()
        )

    def loads_programs(self, *, parsed: bool) -> bool:
        """Whether scripts that the content depends on are loading, however slow.

        These are the site's own scripts, and all scripts and styles while the document is not
        ``parsed``: they block the rest of the document.
        """
        if not parsed:
            return any(
                record.is_program or record.destination == "style"
                for record in self._unfinished.values()
            )
        own = f"{self.public.origin()}/"
        return any(
            record.is_program and record.url.startswith(own) for record in self._unfinished.values()
        )

    @property
    def awaited_seconds(self) -> float:
        """How long needed data has been loading; 0 if none is."""
        now = time.monotonic()
        return max(
            (now - record.started for record in self._unfinished.values() if record.awaited),
            default=0,
        )

    def waiting_for(self, patience_seconds: float) -> bool:
        """Whether a request in progress is worth waiting for.

        Needed requests are, however slow. Others are not if they are event streams, or without data for
        longer than the patience. Scripts and styles are never polls, and media have no content.
        """
        oldest = time.monotonic() - patience_seconds
        return any(
            not record.endless
            and not record.hangs
            and record.destination not in MEDIA
            and (
                record.last_byte > oldest
                or record.awaited
                or record.is_program
                or record.destination == "style"
            )
            for record in self._unfinished.values()
        )

"""A client connection on aiohttp's server, with a second parser, timeouts and raw responses.

aiohttp accepts, parses, queues and keeps alive. Added here, through public APIs only: timeouts for
heads, bodies and writes; refusals that arrive (RFC 9112 section 9.6); half-closed clients; and leaving
HTTP for WebSockets. tests/proxy/test_aiohttp_contracts.py tests every behaviour relied on.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, Protocol, cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, HttpProcessingError, LineTooLong

from prerender.config.settings import ServerSettings
from prerender.errors import BadMessage, BadRequest, CutShort
from prerender.http.body import Chunked
from prerender.http.client_address import NOBODY, peer_of
from prerender.http.connection import Connection, Sweeper, reset
from prerender.http.fields import Fields
from prerender.http.message_head import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    MAX_TARGET_BYTES,
    Request,
    check_request,
    escaped,
    parse_request,
)
from prerender.http.portions import Portions, Turns
from prerender.proxy.client_stream import ClientStream
from prerender.proxy.responses import error_response

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

_HEAD_END = b"\r\n\r\n"
# How long a half-closed client gets for its response. It may also have disconnected.
_HALF_CLOSED_SECONDS = 1.0
# How long to discard the input of a refused client, so that it can read the response.
_LINGER_SECONDS = 1.0
# How long a shutdown waits for the first request of a new connection.
_FIRST_SECONDS = 0.5
# Above this, reading from the origin pauses: there may be many slow clients.
_UNSENT_BYTES = 16384
# Buffer for an unread request body.
_READ_AHEAD_BYTES = 65536
# Limit for pipelined requests. aiohttp limits their number (32), not their bytes.
_AHEAD_BYTES = 262144
# Requests with these trailers are refused. aiohttp takes some of them for framing.
_AMBIGUOUS_TRAILERS = frozenset(
    {"authorization", "content-length", "content-type", "host", "transfer-encoding", "trailer"}
)

log = structlog.get_logger(__name__)


RequestHandler = Callable[[Request, ClientStream], Awaitable[None]]


class Front(Protocol):
    """State shared by all connections of a server."""

    limits: ServerSettings
    refused: Counter[int]

    @property
    def handler(self) -> RequestHandler:
        """The request handler."""

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""


class Written(web.StreamResponse):
    """A response that was written to the transport already: aiohttp writes nothing."""

    @property
    def keep_alive(self) -> bool:
        """Whether the connection may have another request."""
        return True

    async def prepare(self, request: web.BaseRequest) -> None:
        """Write no head."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Write no end."""


class _Last(Written):
    """The last response of a connection. ``linger`` waits until the client has read it."""

    def __init__(self, linger: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._linger = linger

    @property
    def keep_alive(self) -> bool:
        return False

    async def write_eof(self, data: bytes = b"") -> None:
        await self._linger()


# aiohttp does not modify it, so one instance is enough.
_WRITTEN = Written()


class ClientConnection(web.RequestHandler):
    """aiohttp's protocol for one client. Its own names differ from aiohttp's."""

    def __init__(self, server: web.Server, front: Front, sweeper: Sweeper) -> None:
        self.limits = front.limits
        super().__init__(
            server,
            loop=sweeper.loop,
            access_log=None,  # type: ignore[arg-type]  # as web.Server itself passes it
            # Longer than our own timeouts: this one would cut off a head that is arriving.
            keepalive_timeout=self.limits.idle_timeout + self.limits.header_timeout,
            lingering_time=0,
            auto_decompress=False,
            read_bufsize=_READ_AHEAD_BYTES,
            max_line_size=MAX_TARGET_BYTES,
            max_field_size=MAX_TARGET_BYTES,
            max_headers=MAX_FIELDS,
        )
        self.peer = NOBODY
        self.busy = False
        self._on_drain: Callable[[], None] | None = None
        self._front = front
        self._sweeper = sweeper
        self._wire: asyncio.Transport | None = None
        self._writer: AbstractStreamWriter | None = None
        self._answered = 0
        self._current: ClientStream | None = None
        self._due = sweeper.loop.time() + self.limits.header_timeout
        # Received bytes from the current request on, without processed parts of its body, and what is
        # left of its body: a length, or chunks.
        self._raw = bytearray()
        self._is_escaped = False
        self._left_bytes = 0
        self._chunks: Chunked | None = None
        self._reading_held = False
        self._deaf = False
        self._input_ended: asyncio.Future[None] = sweeper.loop.create_future()
        self._refusing: asyncio.Task[None] | None = None
        self._unsent_bytes = -1
        self._unsent_due = inf

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast("asyncio.Transport", transport)
        self._wire.set_write_buffer_limits(high=_UNSENT_BYTES)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.peer = peer_of(str(name[0]), self.limits.trusted_proxies)
        self._sweeper.connections.add(self)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        # aiohttp also calls this with b"", to parse data that it has held back.
        if self._deaf:
            return
        if data and not self.busy:
            self._receive_head(data)
        elif data:
            self._receive_body(data)
            self._parse(data)
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:  # IndexError of yarl for the target http://a[::1]@/
            log.debug("request_not_parsed", error=repr(error))
            self._refuse(BadMessage("the request target is malformed"))

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Let a half-closed client have the response in progress."""
        if not self._input_ended.done():
            self._input_ended.set_result(None)
        if not self.busy:
            return None
        if self._current is not None:
            self._current.fail_body(BadMessage("the body is incomplete"))
        self._sweeper.loop.call_later(_HALF_CLOSED_SECONDS, self.abort)
        return True

    def connection_lost(self, error: BaseException | None) -> None:
        self._sweeper.connections.discard(self)
        self._wire = None
        if not self._input_ended.done():
            self._input_ended.set_result(None)
        if self._refusing is not None:
            self._refusing.cancel()
        super().connection_lost(error)
        self._current = self._writer = None  # breaks reference cycles

    # Called by aiohttp.

    async def respond(self, message: web.BaseRequest) -> web.StreamResponse:
        """Handle a request. aiohttp passes the next one afterwards."""
        if self._refusing is not None:  # it was complete only after the timeout of its head
            return _Last(self._linger)
        self.busy, self._due, self._writer = True, inf, message.writer
        try:
            end = self._raw.find(_HEAD_END)
            request = check_request(
                message.method,
                message.raw_path,
                message.version,
                message.raw_headers,
                end,
                peer=self.peer,
            )
            if self._is_escaped:
                request = self._as_received(request, end)
            if "upgrade" in request.headers.names and not _is_websocket(request.headers):
                # aiohttp 3.14 drops the rest of the packet after such a request, and parses the next
                # packet as a new request (docs/aiohttp.md).
                request = replace(request, keep_alive=False)
            stream = self._current = ClientStream(request, self, message.content)
            self._answered += 1
            if end < 0 or not self._raw.startswith(request.line):
                raise BadMessage("the request line is not METHOD TARGET VERSION")
            del self._raw[: end + len(_HEAD_END)]
            if request.body_bytes != 0:
                self._begin_body(request)
            await self._front.handler(request, stream)
        except BadMessage as error:
            return self._refused(error)
        except CutShort as error:
            log.debug("client_lost", remote=self.peer.remote, reason=repr(error))
            self.abort()
            return _Last(self._linger)
        if not stream.keep_alive:
            return _Last(self._linger)
        self._await_request()
        return _WRITTEN

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The response to a request that aiohttp could not parse, or that met a bug of ours."""
        if exc is not None and not isinstance(exc, HttpProcessingError):
            log.error("internal_error", remote=self.peer.remote, exc_info=exc)
            return self._refused(BadMessage("internal error", 500))
        return self._refused(self._fault(exc))

    # Called by the rest of the project.

    @property
    def body_timeout(self) -> float:
        """Seconds to wait for the next piece of a request body."""
        return self.limits.body_timeout

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._front.draining

    def write(self, data: bytes) -> None:
        """Queue bytes of a response. Call ``drain`` before the next ones."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has read most of what was written.

        Raises CutShort if it read nothing until the timeout, or has disconnected.
        """
        while self.writing_paused and self.transport is not None:
            assert self._writer is not None
            unsent = self.transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(self.limits.write_timeout):
                    await self._writer.drain()
            except TimeoutError as error:
                if self.transport is None or self.transport.get_write_buffer_size() >= unsent:
                    raise CutShort("the client read nothing in time") from error
            except ConnectionError as error:
                raise CutShort(str(error)) from error
        if self.transport is None:
            raise CutShort("the client has disconnected")

    def abort(self) -> None:
        """Close at once with a TCP reset."""
        if self._wire is not None:
            reset(self._wire)

    def sweep(self, now: float) -> None:
        """Disconnect a client that exceeds the timeout of a head or of reading a response."""
        if now >= self._due:
            self._due = inf
            self._overdue()
        if self._wire is not None and self._wire.is_closing():
            unsent = self._wire.get_write_buffer_size()
            if unsent != self._unsent_bytes:
                self._unsent_bytes, self._unsent_due = unsent, now + self.limits.write_timeout
            elif now >= self._unsent_due:
                self.abort()

    def drain_now(self) -> None:
        """Finish the current request and close."""
        if self._on_drain is not None:
            self._on_drain()
        elif not self._answered:
            # It was just opened, so a request is probably on its way.
            self._sweeper.loop.call_later(_FIRST_SECONDS, self._close_if_idle)
        else:
            self._close_if_idle()

    def take_over(self, on_drain: Callable[[], None]) -> Connection:
        """Leave HTTP: hand the transport to another protocol, with the data after the request.

        ``on_drain`` is called when the server shuts down.
        """
        self._on_drain = on_drain
        assert self._wire is not None
        self._wire.pause_reading()
        early = _EarlyBytes()
        self.set_parser(early)  # type: ignore[arg-type]  # it needs no more of a WebSocketReader
        connection = _TakenOver(self._sweeper, self)
        connection.connection_made(self._wire)
        connection.buffer += early.data
        if self.writing_paused:
            connection.pause_writing()
        self._sweeper.connections.discard(self)
        self._wire.set_protocol(connection)
        self._wire.resume_reading()
        return connection

    # Input, before aiohttp gets it.

    def _receive_head(self, data: bytes) -> None:
        if not self._raw:
            if data[0] in b"\r\n":  # RFC 9112 section 2.2; empty lines extend no timeout
                data = data.lstrip(b"\r\n")
                if not data:
                    return
            self._due = self._sweeper.loop.time() + self.limits.header_timeout
        received = len(self._raw)
        self._raw += data
        end = self._raw.find(_HEAD_END, max(0, received - len(_HEAD_END) + 1))
        if (len(self._raw) if end < 0 else end) > MAX_HEAD_BYTES:
            self._refuse(BadMessage("the request head is too long", 431))
            return
        self.busy = end >= 0
        # Alone: aiohttp drops valid requests before a malformed one in the same packet.
        length = end + len(_HEAD_END) - received if self.busy else len(data)
        head, rest = data[:length], data[length:]
        self._parse(head if head.isascii() else self._escaped(head, received))
        if rest and not self._deaf:
            self._parse(rest)

    def _escaped(self, head: bytes, received: int) -> bytes:
        """A part of a head without octets in its request line that aiohttp refuses."""
        end = self._raw.find(b"\r\n")
        length = (len(self._raw) if end < 0 else end) - received
        if length <= 0 or head[:length].isascii():
            return head
        self._is_escaped = True
        return escaped(head[:length]) + head[length:]

    def _as_received(self, request: Request, end: int) -> Request:
        """The head with its target as the client sent it. Raises BadMessage."""
        self._is_escaped = False
        received = parse_request(bytes(self._raw[: max(0, end)]), self.peer)
        if (received.method, received.target) != (request.method, request.target):
            raise BadMessage("the request target is ambiguous")
        return received

    def _receive_body(self, data: bytes) -> None:
        if not self._raw and len(data) <= self._left_bytes:
            self._left_bytes -= len(data)
            return
        self._raw += data
        if self._current is not None:
            try:
                self._skip_body()
            except BadMessage as error:
                self._deaf = True
                self._current.fail_body(error)
        if len(self._raw) > _AHEAD_BYTES and self.transport is not None:
            self._reading_held = True
            self.transport.pause_reading()

    def _begin_body(self, request: Request) -> None:
        self._left_bytes = request.body_bytes or 0
        self._chunks = Chunked() if request.body_bytes is None else None
        if self._raw:
            self._skip_body()

    def _skip_body(self) -> None:
        """Parse the body in parallel to aiohttp, which does not report malformed chunks.

        Raises BadMessage.
        """
        if self._chunks is None:
            skipped = min(self._left_bytes, len(self._raw))
            self._left_bytes -= skipped
            del self._raw[:skipped]
            return
        before = -1
        while not self._chunks.done and len(self._raw) != before:
            before = len(self._raw)
            self._chunks.decode(self._raw)
        if not self._chunks.trailers.names.keys().isdisjoint(_AMBIGUOUS_TRAILERS):
            raise BadMessage("a trailer is not allowed in trailers")

    # Ends of requests and connections.

    def _await_request(self) -> None:
        """Prepare for the next request, part of which may be here already."""
        self._current = None
        if self._left_bytes or (self._chunks is not None and not self._chunks.done):
            self.abort()  # aiohttp parsed a different body
        self._chunks = None
        self.busy = False
        seconds = self.limits.idle_timeout
        if self._raw:
            self._raw = self._raw.lstrip(b"\r\n")
            self.busy = _HEAD_END in self._raw
            seconds = self.limits.header_timeout if self._raw else seconds
        self._due = self._sweeper.loop.time() + seconds
        if self._reading_held and len(self._raw) <= _AHEAD_BYTES and self.transport is not None:
            self._reading_held = False
            self.transport.resume_reading()
        if self._front.draining and not self._raw:
            self.force_close()

    def _refused(self, error: BadMessage) -> Written:
        """Respond to a bad request and end the connection."""
        log.debug("bad_request", remote=self.peer.remote, reason=str(error))
        self._deaf = True
        self._due = inf
        if self._refusing is not None:
            return _Last(self._linger)
        self._front.refused[error.status] += 1
        if self._current is not None and self._current.started:
            self.abort()
            return _Last(self._linger)
        response = error_response(BadRequest(error.status, str(error)))
        self.write(response.head + b"Connection: close\r\n\r\n" + (response.body or b""))
        return _Last(self._linger)

    def _refuse(self, error: BadMessage) -> None:
        """Refuse an incomplete head."""
        refusal = self._refused(error)

        async def close() -> None:
            await refusal.write_eof()
            self.force_close()

        self._refusing = self._sweeper.loop.create_task(close(), name=f"refusal {self.peer.remote}")

    async def _linger(self) -> None:
        """Let the client read the response: closing with unread input would discard it."""
        self._deaf = True
        if self.transport is None or self.transport.is_closing() or self._input_ended.done():
            return
        self.transport.write_eof()
        self.transport.resume_reading()
        await asyncio.wait([self._input_ended], timeout=_LINGER_SECONDS)

    def _overdue(self) -> None:
        if self._raw:
            self._refuse(BadMessage("the request took too long", 408))
        else:
            self.force_close()

    def _close_if_idle(self) -> None:
        if not self.busy and not self._raw:
            self.force_close()

    def _fault(self, error: BaseException | None) -> BadMessage:
        """Find out what is wrong with a request that aiohttp rejected."""
        head, end, _ = bytes(self._raw).partition(_HEAD_END)
        try:
            if not end and isinstance(error, LineTooLong):
                return _too_long(head)
            parse_request(head)
        except BadMessage as fault:
            return fault
        if isinstance(error, BadHttpMethod):
            return BadMessage("the method is not supported", 501)
        return BadMessage("the request is malformed")


class _EarlyBytes:
    """Collects data that aiohttp has received after the upgrade request."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take data. Returns that this is not the end, and nothing is left."""
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """The end of the data."""


class FairConnection(Portions, ClientConnection):
    """A connection to a client that may send many tiny chunks."""

    turns = Turns()


class _TakenOver(Connection):
    """A client connection after HTTP. aiohttp still gets ``connection_lost``."""

    def __init__(self, sweeper: Sweeper, http: ClientConnection) -> None:
        super().__init__(sweeper)
        self._http = http

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._http.connection_lost(error)


def _is_websocket(fields: Fields) -> bool:
    return fields.get("upgrade").lower() == "websocket"


def _too_long(head: bytes) -> BadMessage:
    if b"\r\n" in head:
        return BadMessage("a header is too long", 431)
    return BadMessage("the request target is too long", 414)

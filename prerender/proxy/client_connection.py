"""One client's connection, served by aiohttp: its requests are checked once more, answered in turn, and
a client that is too slow is cut.

aiohttp accepts, parses, queues and keeps alive. What is added here, by its public names only: deadlines
for heads, bodies and writing; refusals that arrive (RFC 9112 section 9.6); half-closed clients; and the
way out of HTTP for WebSockets. tests/test_aiohttp_contracts.py has a test for each thing relied on.
"""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Protocol, cast

import structlog
from aiohttp import web
from aiohttp.http_exceptions import BadHttpMethod, LineTooLong

from prerender.errors import BadRequest
from prerender.http.body import Chunked, CutShort
from prerender.http.connection import Connection, Sweeper, reset
from prerender.http.head import (
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    MAX_TARGET_BYTES,
    BadMessage,
    Fields,
    RequestHead,
    check_request,
    parse_request,
)
from prerender.proxy.request import Request
from prerender.proxy.responses import error_response, head_of

if TYPE_CHECKING:
    from aiohttp.abc import AbstractStreamWriter

    from prerender.urls.hosts import Network

_HEAD_END = b"\r\n\r\n"
# A client that half-closes may still want its answer; one that has left gives up its place so soon.
_HALF_CLOSED_SECONDS = 1.0
# How long what a refused client still sends is thrown away, so that it can read why.
_LINGER_SECONDS = 1.0
# How long a shutdown waits for the first request of a connection.
_FIRST_SECONDS = 0.5
# Above that nothing more is taken from the origin for a client: many may read slowly at once.
_UNSENT_BYTES = 16384
# Of a body that nobody has read yet.
_READ_AHEAD_BYTES = 65536
# Of requests behind the one that is being answered. aiohttp counts them, up to 32, not their octets.
_AHEAD_BYTES = 262144

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long clients may take, in seconds, and whose word about their own clients counts."""

    head: float
    body: float
    write: float
    idle: float
    trusted: tuple["Network", ...] = ()


class Front(Protocol):
    """What all connections of a server have in common."""

    limits: Limits
    refused: Counter[int]

    @property
    def handler(self) -> Callable[[Request], Awaitable[None]]:
        """What answers requests."""

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""


class Written(web.StreamResponse):
    """A response that is on the transport already: aiohttp writes nothing of it."""

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


# aiohttp notes nothing on it, so one is enough.
_WRITTEN = Written()


class ClientConnection(web.RequestHandler):
    """aiohttp's protocol for one client. None of its own names is one of aiohttp's."""

    def __init__(self, server: web.Server, front: Front, sweeper: Sweeper) -> None:
        self.limits = front.limits
        super().__init__(
            server,
            loop=sweeper.loop,
            access_log=None,  # type: ignore[arg-type]  # as web.Server itself passes it
            # Only should our own deadlines fail: this one would cut a head that is on its way.
            keepalive_timeout=self.limits.idle + self.limits.head,
            lingering_time=0,
            auto_decompress=False,
            read_bufsize=_READ_AHEAD_BYTES,
            max_line_size=MAX_TARGET_BYTES,
            max_field_size=MAX_TARGET_BYTES,
            max_headers=MAX_FIELDS,
        )
        self.remote = ""
        self.trusted = False
        self.busy = False
        self.on_drain: Callable[[], None] | None = None
        self._front = front
        self._sweeper = sweeper
        self._wire: asyncio.Transport | None = None
        self._writer: AbstractStreamWriter | None = None
        self._answered = 0
        self._current: Request | None = None
        self._due = sweeper.loop.time() + self.limits.head
        # What has come, from the request on that is being received or answered, without those parts of
        # its body that are done with; what of its body is still to come, of known length or in chunks.
        self._raw = bytearray()
        self._left_bytes = 0
        self._chunks: Chunked | None = None
        self._reading_held = False
        self._deaf = False
        self._input_ended: asyncio.Future[None] = sweeper.loop.create_future()
        self._refusing: asyncio.Task[None] | None = None
        self._unsent_bytes = -1
        self._unsent_due = inf

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._wire = cast("asyncio.Transport", transport)
        self._wire.set_write_buffer_limits(high=_UNSENT_BYTES)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.remote, self.trusted = peer(str(name[0]), self.limits.trusted)
        self._sweeper.connections.add(self)
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        # aiohttp calls it with b"", too, to have parsed what it has held back.
        if self._deaf:
            return
        if data and not self.busy:
            self._receive_head(data)
        elif data:
            self._receive_body(data)
            super().data_received(data)
        else:
            super().data_received(data)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Let a client that sends nothing more have the answer that is on its way."""
        if not self._input_ended.done():
            self._input_ended.set_result(None)
        if not self.busy:
            return None
        if self._current is not None:
            self._current.fail_body(BadMessage("the body is cut short"))
        self._loop.call_later(_HALF_CLOSED_SECONDS, self.abort)
        return True

    def connection_lost(self, error: BaseException | None) -> None:
        self._sweeper.connections.discard(self)
        self._wire = None
        if not self._input_ended.done():
            self._input_ended.set_result(None)
        if self._refusing is not None:
            self._refusing.cancel()
        super().connection_lost(error)
        self._current = self._writer = None  # in no circle: what they hold is freed at once

    # What aiohttp calls.

    async def respond(self, message: web.BaseRequest) -> web.StreamResponse:
        """Answer one request; the next one is taken when this is done."""
        self.busy, self._due, self._writer = True, inf, message.writer
        try:
            method, path = message.method, message.raw_path
            end = self._raw.find(_HEAD_END)
            head = check_request(method, path, message.version, message.raw_headers, end)
            request = self._current = Request(head, self, message.content)
            self._answered += 1
            if "upgrade" in head.fields.names and not _is_websocket(head.fields):
                # aiohttp 3.14 drops what comes in the same packet behind such a request, and takes what
                # comes in the next one for a new request (docs/aiohttp.md).
                request.keep_alive = False
            if end < 0 or not self._raw.startswith(f"{method} {path} HTTP/1.".encode()):
                raise BadMessage("the request line is not METHOD TARGET VERSION")
            del self._raw[: end + len(_HEAD_END)]
            self._begin_body(head)
            await self._front.handler(request)
        except BadMessage as error:
            return self._refused(error)
        except CutShort as error:
            log.debug("client_lost", remote=self.remote, reason=repr(error))
            self.abort()
            return _Last(self._linger)
        if not request.keep_alive:
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
        """What to answer to something that aiohttp could not parse."""
        return self._refused(self._fault(exc))

    # What the rest of the project calls.

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._front.draining

    def write(self, data: bytes) -> None:
        """Queue bytes of an answer. ``drain`` before there are more."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait until the client has taken most of what was written.

        Raises CutShort when it took nothing for as long as it may, or has left.
        """
        while self.writing_paused and self.transport is not None:
            assert self._writer is not None
            unsent = self.transport.get_write_buffer_size()
            try:
                async with asyncio.timeout(self.limits.write):
                    await self._writer.drain()
            except TimeoutError as error:
                if self.transport is None or self.transport.get_write_buffer_size() >= unsent:
                    raise CutShort("nothing was taken in time") from error
            except ConnectionError as error:
                raise CutShort(str(error)) from error
        if self.transport is None:
            raise CutShort("the client has left")

    def abort(self) -> None:
        """Close at once, by a TCP reset."""
        if self._wire is not None:
            reset(self._wire)

    def sweep(self, now: float) -> None:
        """Cut a client that is late with a head, or takes nothing of what is left to be sent."""
        if now >= self._due:
            self._due = inf
            self._overdue()
        if self._wire is not None and self._wire.is_closing():
            unsent = self._wire.get_write_buffer_size()
            if unsent != self._unsent_bytes:
                self._unsent_bytes, self._unsent_due = unsent, now + self.limits.write
            elif now >= self._unsent_due:
                self.abort()

    def drain_now(self) -> None:
        """Answer what is being answered, and nothing more."""
        if self.on_drain is not None:
            self.on_drain()
        elif not self._answered:
            # It has just been opened for a request, which is on its way.
            self._loop.call_later(_FIRST_SECONDS, self._close_if_idle)
        else:
            self._close_if_idle()

    def take_over(self) -> Connection:
        """Leave HTTP: the transport gets another protocol, and with it what came behind the request."""
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

    # What comes in, before aiohttp has it.

    def _receive_head(self, data: bytes) -> None:
        if not self._raw:
            if data[0] in b"\r\n":  # RFC 9112 section 2.2; empty lines put off no deadline
                data = data.lstrip(b"\r\n")
                if not data:
                    return
            self._due = self._loop.time() + self.limits.head
        received = len(self._raw)
        self._raw += data
        end = self._raw.find(_HEAD_END, max(0, received - len(_HEAD_END) + 1))
        if (len(self._raw) if end < 0 else end) > MAX_HEAD_BYTES:
            self._refuse(BadMessage("the head is too long", 431))
            return
        self.busy = end >= 0
        # By itself: of one packet, aiohttp forgets the requests before a bad one.
        head = data[: end + len(_HEAD_END) - received] if self.busy else data
        super().data_received(head)
        if len(head) < len(data) and not self._deaf:
            super().data_received(data[len(head) :])

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

    def _begin_body(self, head: RequestHead) -> None:
        self._left_bytes = head.body_bytes or 0
        self._chunks = Chunked() if head.body_bytes is None else None
        if self._raw:
            self._skip_body()

    def _skip_body(self) -> None:
        """Read the body of the request as aiohttp does, which tells nobody of bad chunks.

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

    # The ends of requests and connections.

    def _await_request(self) -> None:
        """The answer is on its way, and there may be another request, or a part of it here already."""
        self._current = None
        if self._left_bytes or (self._chunks is not None and not self._chunks.done):
            self.abort()  # aiohttp has read another body than we
        if self._raw:
            self._raw = self._raw.lstrip(b"\r\n")
        self.busy = bool(self._raw) and _HEAD_END in self._raw
        self._due = self._loop.time() + (self.limits.head if self._raw else self.limits.idle)
        if self._reading_held and len(self._raw) <= _AHEAD_BYTES and self.transport is not None:
            self._reading_held = False
            self.transport.resume_reading()

    def _refused(self, error: BadMessage) -> Written:
        """The end of a connection on which something came that is not taken."""
        log.debug("bad_request", remote=self.remote, reason=str(error))
        self._deaf = True
        self._front.refused[error.status] += 1
        if self._current is not None and self._current.started:
            self.abort()
            return _Last(self._linger)
        response = error_response(BadRequest(error.status, str(error)))
        self.write(head_of(response) + b"Connection: close\r\n\r\n" + (response.body or b""))
        return _Last(self._linger)

    def _refuse(self, error: BadMessage) -> None:
        """Refuse a head that has not been received to its end."""
        refusal = self._refused(error)

        async def close() -> None:
            await refusal.write_eof()
            self.force_close()

        self._refusing = self._loop.create_task(close(), name=f"refusal {self.remote}")

    async def _linger(self) -> None:
        """Let the client read the answer: a close with unread input would destroy it on its way."""
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
        """What is wrong with a request that aiohttp did not take."""
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
    """Takes what aiohttp has received behind the request that leads out of HTTP."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take some bytes; that is not the end, and nothing is left of them."""
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """There will be no more of them."""


class _TakenOver(Connection):
    """What was a client's connection, out of HTTP. aiohttp still hears when it is gone."""

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
        return BadMessage("a header field is too long", 431)
    return BadMessage("the request target is too long", 414)


def peer(address: str, trusted: tuple["Network", ...]) -> tuple[str, bool]:
    """A client's address in its usual form, and whether it is in one of the networks."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return str(ip), any(ip in network for network in trusted)

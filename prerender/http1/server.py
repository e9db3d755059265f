"""The clients' side: reads requests, hands them to the handler one by one, and cuts who is too slow."""

import asyncio
import ipaddress
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from prerender.errors import BadRequest
from prerender.http1.body import Chunked, CutShort, Sized
from prerender.http1.connection import Connection, Sweeper
from prerender.http1.head import BadMessage, Fields, RequestHead, parse_request
from prerender.responses import WholeResponse, error_response, head_of

if TYPE_CHECKING:
    from prerender.config.types import Network

# A client that half-closes may still want its answer; one that has left gives up its place so soon.
_HALF_CLOSED_SECONDS = 1.0
# How long what a refused client still sends is thrown away, so that it can read why.
_LINGER_SECONDS = 1.0
_LAST_SECONDS = 2.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long clients may take, in seconds, and whose word about their own clients counts."""

    head: float
    body: float
    write: float
    idle: float
    trusted: tuple["Network", ...] = ()


class Request:
    """A client's request, and the way to answer it.

    ``remote`` is the client's address, ``trusted`` tells whether it is a proxy in front of us.
    """

    __slots__ = (
        "body",
        "connection",
        "headers",
        "host",
        "keep_alive",
        "method",
        "minor",
        "started",
        "target",
    )

    def __init__(self, head: RequestHead, connection: "ClientConnection") -> None:
        self.connection = connection
        self.method = head.method
        self.target = head.target
        self.minor = head.minor
        self.headers: Fields = head.fields
        self.host = head.host
        self.keep_alive = head.keep_alive
        self.body = Chunked() if head.body_bytes is None else Sized(head.body_bytes)
        self.started = False

    @property
    def remote(self) -> str:
        """The address of the client, or of the proxy in front of us."""
        return self.connection.remote

    @property
    def trusted(self) -> bool:
        """Whether what it says about its own client counts."""
        return self.connection.trusted

    async def receive(self) -> bytes:
        """The next piece of the body, b"" at its end. Raises BadMessage."""
        try:
            return await self.connection.receive_body(self.body, self.connection.limits.body)
        except TimeoutError as error:
            raise BadMessage("the body took too long", 408) from error
        except CutShort as error:
            raise BadMessage(str(error)) from error

    async def begin(self, head: bytes, first: bytes) -> None:
        """Write the head of the answer, which says nothing about the connection yet, and some body.

        Raises CutShort, as ``write`` does.
        """
        self.started = True
        await self.write(b"".join((head, self._connection_line(), b"\r\n", first)))

    async def write(self, data: bytes) -> None:
        """Write some of the answer's body. Raises CutShort when the client takes no more."""
        self.connection.write(data)
        if self.connection.congested:
            try:
                await self.connection.drain(self.connection.limits.write)
            except OSError as error:
                raise CutShort(str(error)) from error

    async def answer(self, response: WholeResponse) -> None:
        """Answer with something that is all there. Raises BadMessage, CutShort."""
        while self.connection.buffer and not self.body.done:
            self.body.decode(self.connection.buffer)  # a body that nobody wants
        body = response.body if self.method != "HEAD" else None
        await self.begin(head_of(response), body or b"")

    def _connection_line(self) -> bytes:
        # What is left of a request that was not read to its end must not be taken for the next one.
        if self.connection.draining or not self.body.done:
            self.keep_alive = False
        if not self.keep_alive:
            return b"Connection: close\r\n"
        return b"Connection: keep-alive\r\n" if self.minor == 0 else b""


Handler = Callable[[Request], Awaitable[None]]


class ClientConnection(Connection):
    """One client's connection: a task that reads a request, has it answered, and reads the next."""

    def __init__(self, server: "Server") -> None:
        super().__init__(server.sweeper)
        self._server = server
        self.limits = server.limits
        self.remote = ""
        self.trusted = False
        self.busy = False
        self.on_drain: Callable[[], None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._request: Request | None = None

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._server.draining

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.connections.add(self)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.remote, self.trusted = _peer(str(peer[0]), self.limits.trusted)
        self._task = self._loop.create_task(self._serve(), name=f"client {self.remote}")

    def eof_received(self) -> bool | None:
        super().eof_received()
        if self.busy or self.buffer:
            self._loop.call_later(_HALF_CLOSED_SECONDS, self.cancel)
            return True
        return None

    def connection_lost(self, error: Exception | None) -> None:
        super().connection_lost(error)
        self._server.forget(self)
        self.cancel()

    def cancel(self) -> None:
        """Give up the request that is being answered."""
        if self._task is not None:
            self._task.cancel()

    def drain_now(self) -> None:
        """Answer what is being answered, and nothing more."""
        if self.on_drain is not None:
            self.on_drain()
        elif not self.busy and not self.buffer:
            self.close(_LAST_SECONDS)

    async def finished(self) -> None:
        """Wait for the end of the task."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _serve(self) -> None:
        try:
            while await self._next():
                pass
            self.close(self.limits.write)
        except BadMessage as error:
            log.debug("bad request", remote=self.remote, reason=str(error))
            await self._refuse(error)
        except CutShort as error:
            log.debug("client lost", remote=self.remote, reason=repr(error))
            self.abort()
        except BaseException:
            self.abort()
            raise

    async def _next(self) -> bool:
        """Answer one request; whether there may be another one."""
        head = await self._head()
        if head is None:
            return False
        self.busy = True
        request = self._request = Request(parse_request(head), self)
        await self._server.handler(request)
        self.busy = False
        if not request.body.done:
            await self._linger()
        return request.keep_alive

    async def _head(self) -> bytes | None:
        """The head of the next request, None if there is none."""
        while True:
            while self.buffer.startswith(b"\r\n"):  # RFC 9112 section 2.2
                del self.buffer[:2]
            if len(self.buffer) > 1:
                break
            if self.draining and not self.buffer:
                return None
            # The first request is due at once, the next ones need never come.
            wait = self.limits.head if self._request is None else self.limits.idle
            try:
                if not await self.receive(self._loop.time() + wait):
                    return None
            except TimeoutError:
                return None
        try:
            return await self.receive_head(self._loop.time() + self.limits.head)
        except TimeoutError as error:
            raise BadMessage("the request took too long", 408) from error

    async def _refuse(self, error: BadMessage) -> None:
        if self._request is not None and self.busy and self._request.started:
            self.abort()
            return
        response = error_response(BadRequest(error.status, str(error)))
        self.write(head_of(response) + b"Connection: close\r\n\r\n" + (response.body or b""))
        await self._linger()
        self.close(_LAST_SECONDS)

    async def _linger(self) -> None:
        """Let the client read the answer: a close with unread input would destroy it on its way."""
        if self.transport.can_write_eof():
            self.transport.write_eof()
        deadline = self._loop.time() + _LINGER_SECONDS
        try:
            while await self.receive(deadline):
                self.buffer.clear()
        except TimeoutError:
            pass


class Server:
    """Listens, and keeps all client connections."""

    def __init__(self, handler: Handler, limits: Limits, sweeper: Sweeper) -> None:
        self.handler = handler
        self.limits = limits
        self.sweeper = sweeper
        self.connections: set[ClientConnection] = set()
        self.draining = False
        self.port = 0
        self._listening: asyncio.Server | None = None
        self._one_less = asyncio.Event()

    async def listen(self, host: str, port: int, backlog: int) -> None:
        """Start. Raises OSError when the port cannot be had."""
        self._listening = await self.sweeper.loop.create_server(
            lambda: ClientConnection(self), host, port, backlog=backlog
        )
        self.port = self._listening.sockets[0].getsockname()[1]

    async def close(self, grace_seconds: float) -> None:
        """Refuse new connections, let running requests finish, then end what is left."""
        self.draining = True
        if self._listening is not None:
            self._listening.close()
        for connection in tuple(self.connections):
            connection.drain_now()
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                while self.connections:
                    self._one_less.clear()
                    await self._one_less.wait()
        remaining = tuple(self.connections)
        for connection in remaining:
            connection.cancel()
            connection.abort()
        for connection in remaining:
            await connection.finished()

    def forget(self, connection: ClientConnection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        self._one_less.set()


def _peer(address: str, trusted: tuple["Network", ...]) -> tuple[str, bool]:
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return str(ip), any(ip in network for network in trusted)

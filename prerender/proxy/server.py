"""The clients' side: reads requests, hands them to the handler one by one, and cuts who is too slow."""

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

import structlog

from prerender.errors import BadRequest
from prerender.http.body import CutShort
from prerender.http.connection import Connection, Sweeper
from prerender.http.head import MAX_HEAD_BYTES, BadMessage, parse_request
from prerender.proxy.request import Request
from prerender.proxy.responses import error_response, head_of
from prerender.urls.hosts import Network

# A client that half-closes may still want its answer; one that has left gives up its place so soon.
_HALF_CLOSED_SECONDS = 1.0
# How long what a refused client still sends is thrown away, so that it can read why.
_LINGER_SECONDS = 1.0
# How long a shutdown waits for the first request of a connection.
_FIRST_SECONDS = 0.5
_LAST_SECONDS = 2.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long clients may take, in seconds, and whose word about their own clients counts."""

    head: float
    body: float
    write: float
    idle: float
    trusted: tuple[Network, ...] = ()


# What is still to be done for a request, or None when it has been answered already.
Rest = Callable[[], Awaitable[None]] | None
Handler = Callable[[Request], Rest]

_HEAD_END = b"\r\n\r\n"


class ClientConnection(Connection):
    """One client's connection: a task that reads a request, has it answered, and reads the next.

    A request that comes in one piece while the task waits for it is read at once, and answered if that
    takes no waiting: to wake the task for it would cost as much as all the rest.
    """

    def __init__(self, server: "Server") -> None:
        super().__init__(server.sweeper)
        self._server = server
        self.limits = server.limits
        self.remote = ""
        self.trusted = False
        self.busy = False
        self.on_drain: Callable[[], None] | None = None
        self.task: asyncio.Task[None] | None = None
        self._request: Request | None = None
        # Whether the task waits for a request; one that was read without it, and what is left to do.
        self._waiting = False
        self._handed_over: tuple[Request, Rest] | None = None

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._server.draining

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._server.connections.add(self)
        name = transport.get_extra_info("peername")
        if isinstance(name, tuple):
            self.remote, self.trusted = peer(str(name[0]), self.limits.trusted)
        self.task = self._loop.create_task(self._serve(), name=f"client {self.remote}")

    def data_received(self, data: bytes) -> None:
        if self._waiting and not self.buffer and _is_head(data):
            try:
                request = self._request = Request(parse_request(data[:-4]), self)
            except BadMessage:
                pass  # the task will find out, and say so
            else:
                rest = self._server.handler(request)
                if rest is None and request.keep_alive and not self.congested:
                    self.wait_until(self._loop.time() + self.limits.idle)
                else:
                    self._waiting, self.busy = False, True
                    self._handed_over = request, rest
                    self.wake_reader()
                return
        super().data_received(data)

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
        if self.task is not None:
            self.task.cancel()

    def drain_now(self) -> None:
        """Answer what is being answered, and nothing more."""
        if self.on_drain is not None:
            self.on_drain()
        elif self._request is None:
            # It has just been opened for a request, which is on its way.
            self._loop.call_later(_FIRST_SECONDS, self._close_if_idle)
        else:
            self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self.busy and not self.buffer:
            self.close(_LAST_SECONDS)

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
        if not await self._arrival():
            return False
        if self._handed_over is None:
            request = self._request = Request(parse_request(await self._head()), self)
            self.busy = True
            rest = self._server.handler(request)
        else:
            request, rest = self._handed_over
            self._handed_over = None
        await (request.drain() if rest is None else rest())
        self.busy = False
        if not request.keep_alive and (self.buffer or not request.body.done):
            await self._linger()
        return request.keep_alive

    async def _arrival(self) -> bool:
        """Wait for the next request, or its first bytes; False if there will be none."""
        while self._handed_over is None:
            while self.buffer.startswith(b"\r\n"):  # RFC 9112 section 2.2
                del self.buffer[:2]
            if len(self.buffer) > 1:
                break
            if self.draining and not self.buffer and self._request is not None:
                return False
            # The first request is due at once, the next ones need never come.
            wait = self.limits.head if self._request is None else self.limits.idle
            self._waiting = True
            try:
                received = await self.receive(self._loop.time() + wait)
            except TimeoutError:
                received = False
            finally:
                self._waiting = False
            if not received and self._handed_over is None:
                return False
        return True

    async def _head(self) -> bytes:
        """The head of the request that has begun."""
        try:
            head = await self.receive_head(self._loop.time() + self.limits.head)
        except TimeoutError as error:
            raise BadMessage("the request took too long", 408) from error
        assert head is not None
        return head

    async def _refuse(self, error: BadMessage) -> None:
        self._server.refused[error.status] += 1
        if self.busy and self._request is not None and self._request.started:
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
    """Listens, and keeps all client connections. ``refused``: bad requests by their status."""

    def __init__(self, handler: Handler, limits: Limits, sweeper: Sweeper) -> None:
        self.handler = handler
        self.limits = limits
        self.sweeper = sweeper
        self.connections: set[ClientConnection] = set()
        self.refused: Counter[int] = Counter()
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
        tasks = [connection.task for connection in remaining if connection.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=_LAST_SECONDS)

    def forget(self, connection: ClientConnection) -> None:
        """A connection is gone."""
        self.connections.discard(connection)
        self._one_less.set()


def _is_head(data: bytes) -> bool:
    """Whether it is the head of a request, all of it and nothing else."""
    return (
        data.find(_HEAD_END) == len(data) - len(_HEAD_END)
        and not data.startswith(b"\r\n")
        and len(data) <= MAX_HEAD_BYTES
    )


def peer(address: str, trusted: tuple[Network, ...]) -> tuple[str, bool]:
    """A client's address in its usual form, and whether it is in one of the networks."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return str(ip), any(ip in network for network in trusted)

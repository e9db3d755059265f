"""The public listener: aiohttp's server with the connections of client_connection.py."""

import asyncio
import ctypes
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast

from aiohttp import web

from prerender.config.settings import ServerSettings
from prerender.http.connection import Sweeper
from prerender.http.raw_request import raw_request
from prerender.proxy.client_connection import FairConnection, RequestHandler
from prerender.proxy.listening import Listening

_LAST_SECONDS = 2.0
# To send the responses to requests that were given up.
_GIVEN_UP_SECONDS = 1.0
# After this many clients, memory is released once half of them have disconnected.
_CROWD = 100
_QUIET_SECONDS = 2.0


class Server(web.Server):
    """Listens, and tracks all client connections. ``refused``: bad requests by status.

    ``handler`` handles a request. It raises BadMessage for malformed requests, and
    CutShort if the connection must be aborted.
    """

    def __init__(self, handler: RequestHandler, limits: ServerSettings, sweeper: Sweeper) -> None:
        super().__init__(
            _respond, request_factory=raw_request, handler_cancellation=True, loop=sweeper.loop
        )
        self.handler = handler
        self.limits = limits
        self.refused: Counter[int] = Counter()
        self.draining = False
        self.port = 0
        self.clients: set[FairConnection] = set()
        self._sweeper = sweeper
        self._most = 0
        self._listening = Listening(self, sweeper.loop)
        self._one_less = asyncio.Event()

    def __call__(self) -> FairConnection:
        """aiohttp's protocol for a new connection."""
        return FairConnection(self, self, self._sweeper)

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        self.clients.add(cast("FairConnection", handler))
        if len(self.clients) > max(self._most, _CROWD):
            self._most = len(self.clients)

    def connection_lost(
        self, handler: web.RequestHandler, exc: BaseException | None = None
    ) -> None:
        super().connection_lost(handler, exc)
        self.clients.discard(cast("FairConnection", handler))
        self._one_less.set()
        if len(self.clients) < self._most // 2:
            self._most = 0
            self._sweeper.loop.call_later(_QUIET_SECONDS, give_back)

    async def listen(self, host: str, port: int, backlog: int) -> None:
        """Start listening. Raises OSError."""
        self.port = await self._listening.open(host, port, backlog)

    async def close(
        self, grace_seconds: float, give_up: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Refuse new connections, let running requests finish, then abort the rest.

        ``give_up``: called after the grace period, to respond with an error to what still can be.
        aiohttp's own shutdown would stop reading uploads in progress.
        """
        self.draining = True
        self._listening.close()
        for client in tuple(self.clients):
            client.drain_now()
        await self._finished(grace_seconds)
        if self.clients and give_up is not None:
            await give_up()
            await self._finished(_GIVEN_UP_SECONDS)
        for client in tuple(self.clients):
            client.abort()
        await self.shutdown(_LAST_SECONDS)

    async def _finished(self, seconds: float) -> None:
        """Wait until there are no clients."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.clients:
                    self._one_less.clear()
                    await self._one_less.wait()


def give_back() -> None:
    """Return free memory to the system, which glibc would keep (malloc_trim(3))."""
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def _respond(request: web.BaseRequest) -> Awaitable[web.StreamResponse]:
    return cast("FairConnection", request.protocol).respond(request)

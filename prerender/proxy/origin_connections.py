"""The connection pool of the origin."""

import asyncio
import socket
import ssl
from collections import deque
from contextlib import suppress
from math import inf

import aiohappyeyeballs
from yarl import URL

from prerender.errors import OriginError, OriginTimeout
from prerender.gateway.connection_errors import reason_of
from prerender.http.connection import Connection, Sweeper

# Shorter than the keep-alive timeout of Node (5 s), which is the shortest of common servers.
_IDLE_SECONDS = 4.0
_MOST_IDLE = 256
# RFC 8305 section 5: delay before the next address is tried.
_NEXT_ADDRESS_SECONDS = 0.25


class OriginConnection(Connection):
    """A connection to the origin. Data received while it is idle makes it unusable."""

    def __init__(self, sweeper: Sweeper) -> None:
        super().__init__(sweeper)
        self.idle_until = inf

    @property
    def usable(self) -> bool:
        """Whether it can be reused, as far as known."""
        return not self.ended and not self.buffer and not self.transport.is_closing()

    def sweep(self, now: float) -> None:
        """Also close it after the idle time."""
        super().sweep(now)
        if now > self.idle_until:
            self.close(0)


class OriginConnections:
    """Opens connections to the origin at ``url``, and keeps idle ones for reuse."""

    def __init__(self, url: URL, connect_timeout: float, sweeper: Sweeper) -> None:
        # In ASCII: Python's own encoding (IDNA 2003) is that of another domain for some names.
        assert url.raw_host is not None
        self._host = url.raw_host
        self._port = url.port
        self._tls = ssl.create_default_context() if url.scheme == "https" else None
        self._connect_timeout = connect_timeout
        self._sweeper = sweeper
        self._loop = sweeper.loop
        self._idle: deque[OriginConnection] = deque()

    def reusable(self) -> OriginConnection | None:
        """The most recently used idle connection that is usable."""
        while self._idle:
            connection = self._idle.pop()
            connection.idle_until = inf
            if connection.usable:
                return connection
            connection.close(0)
        return None

    def keep(self, connection: OriginConnection) -> None:
        """Keep a connection for reuse after its exchange."""
        if not connection.usable:
            connection.close(0)
            return
        connection.idle_until = self._loop.time() + _IDLE_SECONDS
        if len(self._idle) >= _MOST_IDLE or (self._idle and not self._idle[0].usable):
            self._idle.popleft().close(0)
        self._idle.append(connection)

    async def connect(self) -> OriginConnection:
        """A new connection. Raises OriginTimeout and OriginError."""
        try:
            async with asyncio.timeout(self._connect_timeout):
                return await self._connect()
        except TimeoutError as error:
            raise OriginTimeout(
                f"no connection within [origin] connect_timeout ({self._connect_timeout:g} s)",
                about=f"{self._host}:{self._port}",
            ) from error
        except (OSError, UnicodeError) as error:
            raise OriginError(
                f"no connection to {self._host}:{self._port}: {reason_of(error)}"
            ) from error

    async def _connect(self) -> OriginConnection:
        # Resolved each time: reuse makes that rare, and changed addresses are noticed.
        addresses = await self._loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        connected = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=_NEXT_ADDRESS_SECONDS, interleave=1, loop=self._loop
        )
        try:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _, connection = await self._loop.create_connection(
                lambda: OriginConnection(self._sweeper),
                sock=connected,
                ssl=self._tls,
                server_hostname=self._host if self._tls else None,
            )
        except BaseException:
            with suppress(OSError):
                connected.close()
            raise
        return connection

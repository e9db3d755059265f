"""The listening sockets. Accepting pauses while file descriptors are scarce.

asyncio's server cannot pause. Without descriptors, libuv accepts connections only to close them,
including those of the admin listener, and logs nothing.
"""

import asyncio
import os
import resource
import socket
from collections.abc import Callable
from functools import partial

import structlog

# Descriptors reserved for connections to the origin, the admin listener, the browser and files; at
# most a quarter of all.
_RESERVED = 1024
_ACCEPTED_AT_ONCE = 64
_PAUSE_SECONDS = 0.5
# Minimum time between two log lines.
_SAY_SECONDS = 60.0

log = structlog.get_logger(__name__)


class Listening:
    """Accepts connections for ``factory`` while descriptors are available.

    While paused, new connections wait in the kernel's queue.
    """

    def __init__(
        self, factory: Callable[[], asyncio.BaseProtocol], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._factory = factory
        self._loop = loop
        self._limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = self._limit - min(_RESERVED, self._limit // 4)
        self._sockets: list[socket.socket] = []
        self._connecting: set[asyncio.Task[object]] = set()
        self._paused: asyncio.TimerHandle | None = None
        self._logged_at = -_SAY_SECONDS

    async def open(self, host: str, port: int, backlog: int) -> int:
        """Listen, and return the port. Raises OSError."""
        addresses = await self._loop.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        for family, _, _, _, address in dict.fromkeys(addresses):
            one = socket.create_server(
                (str(address[0]), int(address[1])), family=family, backlog=backlog
            )
            one.setblocking(False)
            self._sockets.append(one)
        self._resume()
        name: tuple[str, int] = self._sockets[0].getsockname()
        return name[1]

    def close(self) -> None:
        """Refuse new connections."""
        self._stop()
        if self._paused is not None:
            self._paused.cancel()
        for one in self._sockets:
            one.close()
        self._sockets.clear()

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(str(error))
                return
            accepted.setblocking(False)
            connecting: asyncio.Task[object] = self._loop.create_task(
                self._loop.connect_accepted_socket(self._factory, accepted), name="connecting"
            )
            self._connecting.add(connecting)
            connecting.add_done_callback(self._connected)
            if accepted.fileno() >= self._most:
                self._pause(f"{accepted.fileno()} of {self._limit} in use")
                return

    def _connected(self, connecting: asyncio.Task[object]) -> None:
        self._connecting.discard(connecting)
        if not connecting.cancelled() and (error := connecting.exception()):
            log.debug("client_lost", reason=repr(error))

    def _pause(self, reason: str) -> None:
        self._stop()
        now = self._loop.time()
        if now >= self._logged_at + _SAY_SECONDS:
            self._logged_at = now
            log.warning("file_descriptors_exhausted", reason=reason)
        self._paused = self._loop.call_later(_PAUSE_SECONDS, self._resume_if_spare)

    def _resume_if_spare(self) -> None:
        if self._lowest_free() < self._most:
            self._resume()
        else:
            self._paused = self._loop.call_later(_PAUSE_SECONDS, self._resume_if_spare)

    def _resume(self) -> None:
        for one in self._sockets:
            self._loop.add_reader(one, partial(self._accept, one))

    def _stop(self) -> None:
        for one in self._sockets:
            self._loop.remove_reader(one)

    def _lowest_free(self) -> int:
        """The next free descriptor."""
        try:
            free = os.dup(self._sockets[0].fileno())
        except OSError:
            return self._limit
        os.close(free)
        return free

"""The proxy of one browser context: all that the context sends arrives at its own port on loopback.

So every request is known to be the context's, whoever sent it: a page, a worker of any kind, or the
browser itself. Within the context, the number in the user agent tells pages that follow one another
apart (gateway.py).

Chromium sends requests for http:// URLs in absolute form, and everything else, WebSockets included,
through tunnels (RFC 9110 section 9.3.6). A tunnel leads to the gateway, whatever its host.
"""

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import structlog
from aiohttp.web import BaseRequest, StreamResponse

from prerender.background import cancel_all
from prerender.gateway.document import Document
from prerender.gateway.listener import http_server
from prerender.gateway.peer_user import Peers
from prerender.gateway.visit import Visit
from prerender.snapshots.variants import ORDINARY, Variant

HOST = "127.0.0.1"
# Chromium opens connections in advance, and uses them when it needs them.
IDLE_SECONDS = 300
_CONNECT = b"CONNECT "
_CONNECTED = b"HTTP/1.1 200 OK\r\n\r\n"
_MAX_HEAD_BYTES = 65536
# The first byte of a TLS handshake (RFC 8446 section 5.1).
_TLS = b"\x16"
_PAUSE_SECONDS = 0.1
_SHUTDOWN_SECONDS = 0.5

# Responds to a request that arrived at the proxy.
GatewayHandler = Callable[["ContextProxy", BaseRequest], Awaitable[StreamResponse]]

log = structlog.get_logger(__name__)


class ContextProxy:
    """Open it with ``Gateway.open_proxy()``. ``port``: on loopback. ``visits``: how many have begun."""

    def __init__(
        self,
        handle: GatewayHandler,
        tls: ssl.SSLContext,
        peers: Peers,
        new_visit: Callable[[Document | None, Variant], Visit],
    ) -> None:
        self._server = http_server(partial(handle, self), IDLE_SECONDS)
        self._tls = tls
        self._peers = peers
        self._new_visit = new_visit
        self._listener = socket.create_server((HOST, 0))
        self._listener.setblocking(False)
        self.port: int = self._listener.getsockname()[1]
        self.visits = 0
        self._visit: Visit | None = None
        self._number = 0
        self._tasks = {asyncio.create_task(self._accept(), name=f"proxy at port {self.port}")}

    @property
    def url(self) -> str:
        """The value of ``proxyServer`` of Target.createBrowserContext."""
        return f"http://{HOST}:{self.port}"

    async def close(self) -> None:
        """Close the port and all connections."""
        await cancel_all(self._tasks)
        self._listener.close()
        await self._server.shutdown(_SHUTDOWN_SECONDS)

    @contextmanager
    def visit(
        self, number: int, document: Document | None, variant: Variant = ORDINARY
    ) -> Iterator[Visit]:
        """Serve the page with this number. Its first navigation gets ``document``, if there is one.

        Requests that belong to no visit are refused.
        """
        assert self._visit is None, "a context has one page at a time"
        self.visits += 1
        self._number = number
        self._visit = visit = self._new_visit(document, variant)
        try:
            yield visit
        finally:
            self._visit = None
            visit.end()

    def visit_of(self, number: int | None) -> Visit | None:
        """The visit that a request belongs to, by its page's number; None if it belongs to none.

        Shared and service workers and the browser itself send no number. Neither do the last requests
        of a tab that is closed, so without a number a request belongs to the first page of its context
        or to nobody. Then the page is rendered again, as the first one of another context.
        """
        visit = self._visit
        if visit is None or number == self._number:
            return visit
        if number is None:
            if self.visits == 1:
                visit.remembered = "a worker, or the browser itself, sent requests"
                return visit
            visit.need_own_context()
        return None

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(self._listener)
            except OSError as error:  # no descriptors are left, for example
                log.warning("gateway_accept_failed", error=str(error))
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            task = asyncio.create_task(self._begin(client), name="connection of a browser context")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _begin(self, client: socket.socket) -> None:
        """Open the tunnel, if one is asked for, and let the HTTP server serve the connection."""
        served = False
        try:
            if self._peers.whose(client.getpeername(), client.getsockname()) != "ours":
                log.warning("foreign_process_refused")
                return
            async with asyncio.timeout(IDLE_SECONDS):
                tls = await _greet(client)
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._server, client, ssl=self._tls if tls else None
                )
            served = True
        except (OSError, TimeoutError, EOFError) as error:
            log.debug("gateway_connection_failed", error=repr(error))
        finally:
            if not served:
                client.close()


async def _greet(client: socket.socket) -> bool:
    """Establish the tunnel that the client may ask for. Returns whether TLS follows.

    Nothing beyond the request for a tunnel is read: the client waits for its response.
    """
    if await _peek(client, len(_CONNECT)) != _CONNECT:
        return False
    loop = asyncio.get_running_loop()
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = await loop.sock_recv(client, _MAX_HEAD_BYTES)
        head += part
        if not part or len(head) > _MAX_HEAD_BYTES:
            raise EOFError("no complete request for a tunnel")
    await loop.sock_sendall(client, _CONNECTED)
    return await _peek(client, len(_TLS)) == _TLS


async def _peek(client: socket.socket, size: int) -> bytes:
    """Wait for data, and return up to ``size`` bytes of it without consuming them."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def readable() -> None:
        loop.remove_reader(client)
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(client, readable)
    try:
        await ready
    finally:
        with suppress(OSError, ValueError):
            loop.remove_reader(client)
    return client.recv(size, socket.MSG_PEEK)

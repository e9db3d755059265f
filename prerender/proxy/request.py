"""A client's request, and the means to respond to it."""

import asyncio
from typing import TYPE_CHECKING

from aiohttp import EMPTY_PAYLOAD, StreamReader

from prerender.errors import BadMessage
from prerender.http.message_head import RequestHead
from prerender.proxy.responses import WholeResponse

if TYPE_CHECKING:
    from prerender.proxy.client_connection import ClientConnection

# Larger bodies are not copied to be sent together with their head: clients share large responses.
_JOINED_BYTES = 65536


class Request:
    """A client's request, and the means to respond to it.

    ``octets``: its target as received; ``target``: the same in ASCII. ``remote``: the peer's address;
    ``trusted``: whether it is one of [server] trusted_proxies.
    ``chunked``: the framing of the body; ``body_read``: it was read completely, or there is none.
    ``status`` (0: none yet), ``sent_bytes`` and ``origin_seconds`` (until the origin's response head)
    describe the response, for the records. ``traceparent`` replaces the client's, if not empty.
    """

    __slots__ = (
        "_content",
        "body_read",
        "chunked",
        "connection",
        "headers",
        "host",
        "keep_alive",
        "method",
        "minor",
        "octets",
        "origin_seconds",
        "sent_bytes",
        "started",
        "status",
        "target",
        "traceparent",
    )

    def __init__(
        self,
        head: RequestHead,
        connection: "ClientConnection",
        content: StreamReader = EMPTY_PAYLOAD,
    ) -> None:
        self.connection = connection
        self.method = head.method
        self.octets = head.octets
        self.target = head.target
        self.minor = head.minor
        self.headers = head.fields
        self.host = head.host
        self.keep_alive = head.keep_alive
        self.chunked = head.body_bytes is None
        self.body_read = head.body_bytes == 0
        self.started = False
        self.status = 0
        self.sent_bytes = 0
        self.origin_seconds: float | None = None
        self.traceparent = b""
        self._content = content

    @property
    def remote(self) -> str:
        """The address of the client, or of the proxy in front."""
        return self.connection.remote

    @property
    def trusted(self) -> bool:
        """Whether its forwarding headers are trusted."""
        return self.connection.trusted

    def retarget(self, target: str) -> None:
        """Request another target."""
        self.octets, self.target = target.encode(), target

    async def receive(self) -> bytes:
        """The next piece of the body; b"" at its end. Raises BadMessage."""
        try:
            async with asyncio.timeout(self.connection.limits.body):
                piece = await self._content.readany()
        except TimeoutError as error:
            raise BadMessage("the body took too long", 408) from error
        self.body_read = not piece
        return piece

    @property
    def received(self) -> bool:
        """Whether the body has arrived completely, read or not."""
        return self._content.is_eof()

    def fail_body(self, error: Exception) -> None:
        """Make reads of the rest of the body raise ``error``."""
        if not self.received:
            self._content.set_exception(error)

    def begin(self, head: bytes, first: bytes) -> None:
        """Write the response head (without Connection) and the beginning of the body."""
        self.started = True
        if len(first) <= _JOINED_BYTES:
            self.write(b"".join((head, self._connection_line(), b"\r\n", first)))
        else:
            self.write(b"".join((head, self._connection_line(), b"\r\n")))
            self.write(first)

    def write(self, data: bytes) -> None:
        """Write a part of the body. Call ``drain`` before the next one."""
        self.sent_bytes += len(data)
        self.connection.write(data)

    @property
    def congested(self) -> bool:
        """Whether the client reads more slowly than is written."""
        return self.connection.writing_paused

    async def drain(self) -> None:
        """Wait until the client has read most of it. Raises CutShort if it stops reading."""
        if self.connection.writing_paused:
            await self.connection.drain()

    def send(self, response: WholeResponse) -> None:
        """Write a complete response. Call ``drain`` afterwards."""
        self.status = response.status
        body = response.body if self.method != "HEAD" else None
        self.begin(response.head, body or b"")

    async def answer(self, response: WholeResponse) -> None:
        """Send a complete response. Raises CutShort."""
        self.send(response)
        await self.drain()

    def _connection_line(self) -> bytes:
        # The rest of an incomplete request must not be parsed as the next request.
        if self.connection.draining or not (self.body_read or self.received):
            self.keep_alive = False
        if not self.keep_alive:
            return b"Connection: close\r\n"
        return b"Connection: keep-alive\r\n" if self.minor == 0 else b""

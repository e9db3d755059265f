"""One request of a client, and the way to answer it."""

import asyncio
from typing import TYPE_CHECKING

from aiohttp import EMPTY_PAYLOAD, StreamReader

from prerender.http.head import BadMessage, Fields, RequestHead
from prerender.proxy.responses import WholeResponse, head_of

if TYPE_CHECKING:
    from prerender.proxy.client_connection import ClientConnection

# More than that is not copied to be sent at once with its head: large responses are shared by clients.
_JOINED_BYTES = 65536


class Request:
    """A client's request, and the way to answer it.

    ``remote`` is the client's address, ``trusted`` tells whether it is a proxy in front of us.
    ``chunked`` tells how the body came; ``body_read`` that it was read to its end or is none.
    Of its answer are known, for the records: the status (0: none yet), the bytes that were sent, and
    after how many seconds the head of the origin's answer was there.
    ``traceparent`` is what the origin gets instead of the client's, if it is not empty.
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
        self.target = head.target
        self.minor = head.minor
        self.headers: Fields = head.fields
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
        """The address of the client, or of the proxy in front of us."""
        return self.connection.remote

    @property
    def trusted(self) -> bool:
        """Whether what it says about its own client counts."""
        return self.connection.trusted

    async def receive(self) -> bytes:
        """The next piece of the body, b"" at its end. Raises BadMessage."""
        try:
            async with asyncio.timeout(self.connection.limits.body):
                piece = await self._content.readany()
        except TimeoutError as error:
            raise BadMessage("the body took too long", 408) from error
        self.body_read = not piece
        return piece

    @property
    def received(self) -> bool:
        """Whether all of its body has come, read or not."""
        return self._content.is_eof()

    def fail_body(self, error: Exception) -> None:
        """The rest of the body will not come; who reads it gets ``error``."""
        if not self.received:
            self._content.set_exception(error)

    def begin(self, head: bytes, first: bytes) -> None:
        """Write the head of the answer, which says nothing about the connection yet, and some body."""
        self.started = True
        if len(first) <= _JOINED_BYTES:
            self.write(b"".join((head, self._connection_line(), b"\r\n", first)))
        else:
            self.write(b"".join((head, self._connection_line(), b"\r\n")))
            self.write(first)

    def write(self, data: bytes) -> None:
        """Write some of the answer's body. ``drain`` before there is more."""
        self.sent_bytes += len(data)
        self.connection.write(data)

    @property
    def congested(self) -> bool:
        """Whether the client takes less than is written."""
        return self.connection.writing_paused

    async def drain(self) -> None:
        """Wait until the client has taken most of it. Raises CutShort when it takes no more."""
        if self.connection.writing_paused:
            await self.connection.drain()

    async def answer(self, response: WholeResponse) -> None:
        """Answer with something that is all there. Raises CutShort."""
        self.status = response.status
        body = response.body if self.method != "HEAD" else None
        self.begin(head_of(response), body or b"")
        if self.congested:
            await self.drain()

    def _connection_line(self) -> bytes:
        # What is left of a request that was not received to its end must not be taken for the next one.
        if self.connection.draining or not self.received:
            self.keep_alive = False
        if not self.keep_alive:
            return b"Connection: close\r\n"
        return b"Connection: keep-alive\r\n" if self.minor == 0 else b""

"""The client's side of a request: its body as it arrives, and the response as it is written."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from aiohttp import EMPTY_PAYLOAD, StreamReader

from prerender.errors import BadMessage
from prerender.http.connection import Connection
from prerender.http.message_head import Request
from prerender.proxy.responses import WholeResponse

# Larger bodies are not copied to be sent together with their head: clients share large responses.
_JOINED_BYTES = 65536


class Wire(Protocol):
    """The connection to a client."""

    @property
    def body_timeout(self) -> float:
        """Seconds to wait for the next piece of a request body."""

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""

    @property
    def writing_paused(self) -> bool:
        """Whether the client reads more slowly than is written."""

    def write(self, data: bytes) -> None:
        """Queue bytes."""

    async def drain(self) -> None:
        """Wait until most is sent. Raises CutShort."""

    def take_over(self, on_drain: Callable[[], None]) -> Connection:
        """Leave HTTP. ``on_drain`` is called when the server shuts down."""


class ClientStream:
    """The client's side of a request.

    ``body_read``: the body was read completely, or there is none. Of the response: ``started``; its
    ``status`` (0: none yet) and ``sent_bytes``; ``keep_alive``: another request may follow.
    """

    __slots__ = (
        "_content",
        "_request",
        "_wire",
        "body_read",
        "keep_alive",
        "sent_bytes",
        "started",
        "status",
    )

    def __init__(self, request: Request, wire: Wire, content: StreamReader = EMPTY_PAYLOAD) -> None:
        self._request = request
        self._wire = wire
        self._content = content
        self.body_read = request.body_bytes == 0
        self.keep_alive = request.keep_alive
        self.started = False
        self.status = 0
        self.sent_bytes = 0

    async def receive(self) -> bytes:
        """The next piece of the body; b"" at its end. Raises BadMessage."""
        try:
            async with asyncio.timeout(self._wire.body_timeout):
                piece = await self._content.readany()
        except TimeoutError as error:
            raise BadMessage("the body took too long", 408) from error
        self.body_read = not piece
        return piece

    def fail_body(self, error: Exception) -> None:
        """Make reads of the rest of the body raise ``error``."""
        if not self._content.is_eof():
            self._content.set_exception(error)

    def begin(self, status: int, head: bytes, first: bytes, *, last: bool = False) -> None:
        """Write the response head (without Connection) and the beginning of the body.

        ``last``: the end of the connection is the end of the body.
        """
        self.started = True
        self.status = status
        line = self._connection_line(last=last)
        if len(first) <= _JOINED_BYTES:
            self.write(b"".join((head, line, b"\r\n", first)))
        else:
            self.write(b"".join((head, line, b"\r\n")))
            self.write(first)

    def inform(self, head: bytes) -> None:
        """Write an interim response (RFC 9110 section 15.2), unless the client would not expect it."""
        if self._request.minor == 1:
            self._wire.write(head + b"\r\n")

    def switch(self, status: int, head: bytes, on_drain: Callable[[], None]) -> Connection:
        """Write the response head and leave HTTP. ``on_drain``: see ``Wire``."""
        self.started = True
        self.status = status
        self.keep_alive = False
        self._wire.write(head + b"\r\n")
        return self._wire.take_over(on_drain)

    def write(self, data: bytes) -> None:
        """Write a part of the body. Call ``drain`` before the next one."""
        self.sent_bytes += len(data)
        self._wire.write(data)

    @property
    def draining(self) -> bool:
        """Whether the server is shutting down."""
        return self._wire.draining

    @property
    def congested(self) -> bool:
        """Whether the client reads more slowly than is written."""
        return self._wire.writing_paused

    async def drain(self) -> None:
        """Wait until the client has read most of it. Raises CutShort if it stops reading."""
        if self._wire.writing_paused:
            await self._wire.drain()

    def send(self, response: WholeResponse) -> None:
        """Write a complete response. Call ``drain`` afterwards."""
        body = response.body if self._request.method != "HEAD" else None
        self.begin(response.status, response.head, body or b"")

    async def respond(self, response: WholeResponse) -> None:
        """Send a complete response. Raises CutShort."""
        self.send(response)
        await self.drain()

    def _connection_line(self, *, last: bool) -> bytes:
        # The rest of an incomplete request must not be parsed as the next request.
        if last or self._wire.draining or not (self.body_read or self._content.is_eof()):
            self.keep_alive = False
        if not self.keep_alive:
            return b"Connection: close\r\n"
        return b"Connection: keep-alive\r\n" if self._request.minor == 0 else b""

"""One request of a client, and the way to answer it."""

from typing import TYPE_CHECKING

from prerender.http.body import Chunked, CutShort, Sized
from prerender.http.head import BadMessage, Fields, RequestHead
from prerender.proxy.responses import WholeResponse, head_of

if TYPE_CHECKING:
    from prerender.proxy.server import ClientConnection

# More than that is not copied to be sent at once with its head: large answers are shared by clients.
_JOINED_BYTES = 65536


class Request:
    """A client's request, and the way to answer it.

    ``remote`` is the client's address, ``trusted`` tells whether it is a proxy in front of us.
    Of its answer are known, for the records: the status (0: none yet), the bytes that were sent, and
    after how many seconds the head of the origin's answer was there.
    ``traceparent`` is what the origin gets instead of the client's, if it is not empty.
    """

    __slots__ = (
        "body",
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
        self.status = 0
        self.sent_bytes = 0
        self.origin_seconds: float | None = None
        self.traceparent = b""

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
        self._begin(head, first)
        await self.drain()

    async def write(self, data: bytes) -> None:
        """Write some of the answer's body. Raises CutShort when the client takes no more."""
        self._write(data)
        await self.drain()

    async def drain(self) -> None:
        """Wait until the client has taken most of what was written. Raises CutShort."""
        if self.connection.congested:
            try:
                await self.connection.drain(self.connection.limits.write)
            except OSError as error:
                raise CutShort(str(error)) from error

    async def answer(self, response: WholeResponse) -> None:
        """Answer with something that is all there. Raises BadMessage, CutShort."""
        self.answer_at_once(response)
        await self.drain()

    def answer_at_once(self, response: WholeResponse) -> None:
        """As ``answer``; ``drain`` is left to be called. Raises BadMessage."""
        while self.connection.buffer and not self.body.done:
            self.body.decode(self.connection.buffer)  # a body that nobody wants
        self.status = response.status
        body = response.body if self.method != "HEAD" else None
        self._begin(head_of(response), body or b"")

    def _begin(self, head: bytes, first: bytes) -> None:
        self.started = True
        head = b"".join((head, self._connection_line(), b"\r\n"))
        if len(first) > _JOINED_BYTES:
            self._write(head)
            self._write(first)
        else:
            self._write(head + first)

    def _write(self, data: bytes) -> None:
        self.sent_bytes += len(data)
        self.connection.write(data)

    def _connection_line(self) -> bytes:
        # What is left of a request that was not read to its end must not be taken for the next one.
        if self.connection.draining or not self.body.done:
            self.keep_alive = False
        if not self.keep_alive:
            return b"Connection: close\r\n"
        return b"Connection: keep-alive\r\n" if self.minor == 0 else b""

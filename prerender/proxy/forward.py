"""Forwards a request to the origin and streams the response back, byte for byte.

Only hop-by-hop headers, framing and forwarding headers change. Interim responses pass (RFC 9110
section 15.2).
"""

import asyncio
import time
from collections.abc import Callable
from math import inf

import structlog

from prerender.crawlers.triggers import may_be_page
from prerender.errors import (
    BadMessage,
    CutShort,
    LoopDetected,
    OriginError,
    OriginTimeout,
)
from prerender.http.body import Chunked, Decoder, Sized, UntilClose, chunk, last_chunk
from prerender.http.fields import is_html, members
from prerender.http.forwarding_headers import Forwarding
from prerender.http.hop_by_hop import trailer_lines
from prerender.http.message_head import Request, ResponseHead, parse_response
from prerender.http.trace_context import TraceContext
from prerender.proxy.client_stream import ClientStream
from prerender.proxy.origin_connections import OriginConnection, OriginConnections
from prerender.proxy.responses import date_line
from prerender.proxy.vary import vary_line
from prerender.proxy.websocket_tunnel import is_upgrade, tunnel

# RFC 9110 section 9.2.2, and the registry's other methods that read.
_IDEMPOTENT = frozenset(
    {"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PROPFIND", "REPORT", "SEARCH", "QUERY"}
)
_UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"

MoreLines = Callable[[Request, ResponseHead], bytes]

log = structlog.get_logger(__name__)


class _Stale(Exception):
    """A reused connection was closed before the request arrived."""


class _UploadFailed(Exception):
    """The request body could not be read completely."""

    def __init__(self, reason: BadMessage) -> None:
        super().__init__(reason)
        self.reason = reason


class Forwarder:
    """Sends requests to the origin through ``connections``. ``timeout``: seconds to the response head,
    and between reads of a body.

    ``more_of_pages`` may be set: more header lines of a response.
    """

    def __init__(
        self,
        connections: OriginConnections,
        forwarding: Forwarding,
        timeout: float,
    ) -> None:
        self.connections = connections
        self._forwarding = forwarding
        self.timeout = timeout
        self.more_of_pages: MoreLines | None = None

    async def send(
        self, request: Request, client: ClientStream, trace: TraceContext | None = None
    ) -> "OriginResponse":
        """Send a request with its body, and wait for the response, which must be relayed or closed.

        ``trace``: replaces the client's, if it is the proxy's own. Interim responses are passed on.
        Raises OriginError and OriginTimeout, BadMessage for a malformed request body, and CutShort if
        the client's connection must be aborted.
        """
        upgrade = is_upgrade(request)
        if self._forwarding.is_loop(request.headers):
            raise LoopDetected(
                "the request came back to this proxy: [origin] url leads to the proxy, "
                "perhaps through nginx",
                about=request.target,
            )
        if "expect" in request.headers.names:
            _check_expectation(request)
        head = self._request_head(request, trace, upgrade=upgrade)
        # The origin may be closing an idle connection just now. So only requests that may be repeated
        # reuse one (RFC 9110 section 9.2.2); others could be lost or processed twice.
        if request.method in _IDEMPOTENT and client.body_read and not upgrade:
            reused = self.connections.reusable()
            if reused is not None:
                try:
                    return await self._exchange(request, client, head, reused, reused=True)
                except _Stale:
                    log.debug("idle_connection_closed", target=request.target)
        connection = await self.connections.connect()
        return await self._exchange(request, client, head, connection, upgrade=upgrade)

    def _request_head(
        self, request: Request, trace: TraceContext | None, *, upgrade: bool
    ) -> bytes:
        is_traced = trace is not None and trace.own
        lines = self._forwarding.request_lines(
            request.headers,
            host=request.host,
            remote=request.remote,
            trusted=request.trusted,
            minor=request.minor,
            traced=is_traced,
        )
        own = b"traceparent: %b\r\n" % str(trace).encode() if is_traced else b""
        if request.body_bytes is None:
            own += b"Transfer-Encoding: chunked\r\n"
        if upgrade:
            own += _UPGRADE
        return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (
            request.method.encode(),
            request.octets,
            lines,
            own,
        )

    async def _exchange(
        self,
        request: Request,
        client: ClientStream,
        head: bytes,
        connection: OriginConnection,
        *,
        upgrade: bool = False,
        reused: bool = False,
    ) -> "OriginResponse":
        upload = None
        began = time.perf_counter()
        connection.write(head)
        if not client.body_read:
            # Concurrently: the response may come before the end of the body.
            upload = asyncio.create_task(
                self._upload(client, connection, chunked=request.body_bytes is None), name="upload"
            )
        try:
            response = await self._response_head(
                request, client, connection, upgrade=upgrade, reused=reused
            )
        except BaseException as error:
            if upload is not None:
                await _end(upload)
            connection.abort()
            if isinstance(error, _UploadFailed):
                raise error.reason from None
            raise
        origin_response = OriginResponse(self, request, response, connection, upload)
        origin_response.seconds = time.perf_counter() - began
        return origin_response

    def page_lines(self, request: Request, head: ResponseHead, vary: tuple[str, ...]) -> bytes:
        """More header lines of a page."""
        lines = b""
        if vary:
            # The origin's lines pass as they are; this last one has all names (vary.py).
            names = [name.strip(" \t") for name in head.fields.get("vary").split(",")]
            lines = vary_line((*filter(None, names), *vary))
        return lines if self.more_of_pages is None else lines + self.more_of_pages(request, head)

    async def _upload(
        self, client: ClientStream, connection: OriginConnection, *, chunked: bool
    ) -> None:
        try:
            while piece := await client.receive():
                connection.write(chunk(piece) if chunked else piece)
                if connection.congested:
                    await connection.drain(self.timeout)
            if chunked:
                connection.write(last_chunk())
            connection.expect_by(asyncio.get_running_loop().time() + self.timeout)
        except BadMessage as error:
            connection.fail_reader(_UploadFailed(error))
        except TimeoutError as error:
            connection.fail_reader(error)
        except ConnectionError:
            pass  # a response that the origin sent before can still be read

    async def _response_head(
        self,
        request: Request,
        client: ClientStream,
        connection: OriginConnection,
        *,
        upgrade: bool,
        reused: bool,
    ) -> ResponseHead:
        """The head of the final response. Interim responses are passed on, and extend no timeout."""
        deadline = inf
        while True:
            if client.body_read:
                deadline = min(deadline, asyncio.get_running_loop().time() + self.timeout)
            try:
                raw = await connection.receive_head(deadline)
                if raw is None:
                    if reused:
                        raise _Stale
                    raise OriginError("closed without a response", about=request.target)
                head = parse_response(raw, request.method)
            except TimeoutError as error:
                raise OriginTimeout(
                    f"no response headers within [origin] timeout ({self.timeout:g} s)",
                    about=request.target,
                ) from error
            except (BadMessage, CutShort) as error:
                raise OriginError(str(error), about=request.target) from error
            if head.status >= 200 or (head.status == 101 and upgrade):
                return head
            if head.status == 101:
                raise OriginError("unexpected 101 Switching Protocols", about=request.target)
            reused = False
            client.inform(head.forwarded)
            if client.congested:
                await _keep_pace(client, connection)


class OriginResponse:
    """A response of the origin, before its body. ``seconds``: until its head."""

    __slots__ = ("_connection", "_forwarder", "_head", "_request", "_upload", "seconds")

    def __init__(
        self,
        forwarder: Forwarder,
        request: Request,
        head: ResponseHead,
        connection: OriginConnection,
        upload: asyncio.Task[None] | None,
    ) -> None:
        self.seconds = 0.0
        self._forwarder = forwarder
        self._request = request
        self._head = head
        self._connection = connection
        self._upload = upload

    @property
    def is_page(self) -> bool:
        """Whether it is an HTML page (2xx)."""
        head = self._head
        return 200 <= head.status < 300 and is_html(head.fields.get("content-type"))

    async def close(self) -> None:
        """Give it up."""
        if self._upload is not None:
            await _end(self._upload)
        self._connection.abort()

    async def relay(self, client: ClientStream, vary: tuple[str, ...] = ()) -> None:
        """Stream it to the client. ``vary``: what a page varies by, besides what the origin names.

        Raises OriginError before anything has been sent, BadMessage for a malformed request body, and
        CutShort if the client's connection must be aborted.
        """
        head, connection = self._head, self._connection
        is_complete = False
        try:
            if head.status == 101:
                await tunnel(client, connection, 101, head.forwarded + _UPGRADE)
            else:
                await self._stream(client, vary)
            is_complete = True
        except _UploadFailed as error:
            raise error.reason from None
        finally:
            if self._upload is not None:
                await _end(self._upload)
            if not is_complete:
                connection.abort()
            elif head.keep_alive and head.status != 101 and client.body_read:
                self._forwarder.connections.keep(connection)
            else:
                connection.close(0)

    async def _stream(self, client: ClientStream, vary: tuple[str, ...]) -> None:
        head, connection = self._head, self._connection
        body: Decoder
        own = b""
        is_chunked = is_last = False
        if head.body_bytes is not None:
            body = Sized(head.body_bytes)
        else:
            body = Chunked() if head.chunked else UntilClose()
            is_chunked = self._request.minor == 1
            is_last = not is_chunked
            if is_chunked:
                own = b"Transfer-Encoding: chunked\r\n"
        if "date" not in head.fields.names:
            own += date_line()  # RFC 9110 section 6.6.1
        # A 304 varies as its 200 (RFC 9110 section 15.4.5), whose type it does not have. Redirects of
        # pages may have any.
        is_like_page = head.status // 100 == 3 and may_be_page(self._request.target)
        if is_like_page or is_html(head.fields.get("content-type")):
            own += self._forwarder.page_lines(self._request, head, vary)
        # Send body bytes that came with the head together with it.
        try:
            first = body.decode(connection.buffer)
        except BadMessage as error:
            raise OriginError(str(error), about=self._request.target) from error
        client.begin(
            head.status,
            head.forwarded + own,
            chunk(first) if first and is_chunked else first,
            last=is_last,
        )
        del first  # large, and a slow client may take long
        if client.congested:
            await _keep_pace(client, connection)
        while not body.done and (piece := await self._piece(body)):
            client.write(chunk(piece) if is_chunked else piece)
            if client.congested:
                await _keep_pace(client, connection)
        if is_chunked:
            client.write(last_chunk(_trailers(self._request, head, body)))
        if client.congested:
            await client.drain()

    async def _piece(self, body: Decoder) -> bytes:
        try:
            return await self._connection.receive_body(body, self._forwarder.timeout)
        except (BadMessage, CutShort, TimeoutError) as error:
            reason = str(error) or f"nothing received for {self._forwarder.timeout:g} s"
            log.warning("transfer_aborted", target=self._request.target, reason=reason)
            # Anything else would make the body look complete, or put a second response into it.
            raise CutShort("the origin died in the middle of its response") from error


async def _end(upload: asyncio.Task[None]) -> None:
    upload.cancel()
    await asyncio.wait([upload])


async def _keep_pace(client: ClientStream, connection: OriginConnection) -> None:
    """Read from the origin only as fast as the client reads: there may be many slow clients."""
    connection.hold()
    await client.drain()


def _check_expectation(request: Request) -> None:
    if request.headers.get("expect").lower() != "100-continue":
        # RFC 9110 section 10.1.1
        raise BadMessage("the Expect header has an unknown value", 417)


def _trailers(request: Request, head: ResponseHead, body: Decoder) -> list[bytes]:
    """The trailers, if the client accepts them (RFC 9110 section 6.5.1)."""
    if isinstance(body, Chunked) and "trailers" in members(request.headers.get("te")):
        return trailer_lines(head.fields, body.trailers)
    return []

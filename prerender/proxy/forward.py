"""Forwards a request to the origin and streams the response back, byte for byte.

Only hop-by-hop headers, framing and forwarding headers change. Interim responses pass (RFC 9110
section 15.2).
"""

import asyncio
import time
from math import inf

import structlog

from prerender.errors import (
    BadMessage,
    CutShort,
    LoopDetected,
    OriginError,
    OriginTimeout,
    PrerenderError,
)
from prerender.gateway.visit import HTML_TYPES
from prerender.http.body import Chunked, Decoder, Sized, UntilClose, chunk, last_chunk
from prerender.http.fields import Fields, members
from prerender.http.forwarding_headers import Forwarding
from prerender.http.message_head import ResponseHead, parse_response
from prerender.proxy.origin_connections import OriginConnection, OriginConnections
from prerender.proxy.request import Request
from prerender.proxy.responses import date_line
from prerender.proxy.websocket_tunnel import is_upgrade, tunnel

# RFC 9110 section 9.2.2, and the registry's other methods that read.
_IDEMPOTENT = frozenset(
    {"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PROPFIND", "REPORT", "SEARCH", "QUERY"}
)
_UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"

log = structlog.get_logger(__name__)


class _Stale(Exception):
    """A reused connection was closed before the request arrived."""


class _UploadFailed(Exception):
    """The request body could not be read completely."""

    def __init__(self, reason: BadMessage) -> None:
        super().__init__(reason)
        self.reason = reason


class Forwarder:
    """Forwards to the origin. ``timeout``: seconds to the response head, and between reads of a body.

    ``pages_vary``: the Vary line of pages that crawlers get as snapshots, for caches in front.
    """

    def __init__(
        self,
        connections: OriginConnections,
        forwarding: Forwarding,
        timeout: float,
        *,
        pages_vary: bytes = b"",
    ) -> None:
        self._connections = connections
        self._forwarding = forwarding
        self._timeout = timeout
        self._pages_vary = pages_vary

    async def forward(
        self,
        request: Request,
        target: str | None = None,
        *,
        page_error: PrerenderError | None = None,
    ) -> None:
        """Forward ``request``, with its own request target or another one.

        ``page_error`` is raised instead of sending an HTML page (2xx). Raises OriginError and
        OriginTimeout before anything of a response has been sent, BadMessage for a malformed request
        body, and CutShort if the client's connection must be aborted.
        """
        upgrade = is_upgrade(request)
        if self._forwarding.is_loop(request.headers):
            raise LoopDetected("came back to this proxy", about=request.target)
        if "expect" in request.headers.names:
            _check_expectation(request)
        octets = target.encode() if target else request.octets
        head = self._request_head(request, octets, upgrade=upgrade)
        # The origin may be closing an idle connection just now. So only requests that may be repeated
        # reuse one (RFC 9110 section 9.2.2); others could be lost or processed twice.
        if request.method in _IDEMPOTENT and request.body_read and not upgrade:
            kept = self._connections.kept()
            if kept is not None:
                try:
                    await self._exchange(
                        request, head, kept, upgrade=False, kept=True, page_error=page_error
                    )
                    return
                except _Stale:
                    log.debug("idle_connection_closed", target=request.target)
        connection = await self._connections.connect()
        await self._exchange(
            request, head, connection, upgrade=upgrade, kept=False, page_error=page_error
        )

    def _request_head(self, request: Request, target: bytes, *, upgrade: bool) -> bytes:
        lines = self._forwarding.request_lines(
            request.headers,
            host=request.host,
            remote=request.remote,
            trusted=request.trusted,
            minor=request.minor,
            traced=bool(request.traceparent),
        )
        own = b""
        if request.traceparent:
            own = b"traceparent: %b\r\n" % request.traceparent
        if request.chunked:
            own += b"Transfer-Encoding: chunked\r\n"
        if upgrade:
            own += _UPGRADE
        return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (
            request.method.encode(),
            target,
            lines,
            own,
        )

    async def _exchange(
        self,
        request: Request,
        head: bytes,
        connection: OriginConnection,
        *,
        upgrade: bool,
        kept: bool,
        page_error: PrerenderError | None,
    ) -> None:
        complete = False
        upload = None
        asked = time.perf_counter()
        connection.write(head)
        if not request.body_read:
            # Concurrently: the response may come before the end of the body.
            upload = asyncio.create_task(self._upload(request, connection), name="upload")
        try:
            answer = await self._answer_head(request, connection, upgrade=upgrade, kept=kept)
            if page_error is not None and _is_page(answer):
                raise page_error
            request.status = answer.status
            request.origin_seconds = time.perf_counter() - asked
            if answer.status == 101:
                await self._switch(request, connection, answer)
            else:
                await self._answer(request, connection, answer)
            complete = True
        except _UploadFailed as error:
            raise error.reason from None
        finally:
            if upload is not None:
                upload.cancel()
                await asyncio.wait([upload])
            if not complete:
                connection.abort()
            elif answer.keep_alive and answer.status != 101 and request.body_read:
                self._connections.keep(connection)
            else:
                connection.close(0)

    async def _upload(self, request: Request, connection: OriginConnection) -> None:
        chunked = request.chunked
        try:
            while piece := await request.receive():
                connection.write(chunk(piece) if chunked else piece)
                if connection.congested:
                    await connection.drain(self._timeout)
            if chunked:
                connection.write(last_chunk())
            connection.expect_by(asyncio.get_running_loop().time() + self._timeout)
        except BadMessage as error:
            connection.fail_reader(_UploadFailed(error))
        except TimeoutError as error:
            connection.fail_reader(error)
        except ConnectionError:
            pass  # a response that the origin sent before can still be read

    async def _answer_head(
        self, request: Request, connection: OriginConnection, *, upgrade: bool, kept: bool
    ) -> ResponseHead:
        """The head of the final response. Interim responses are passed on."""
        while True:
            now = asyncio.get_running_loop().time()
            try:
                raw = await connection.receive_head(
                    now + self._timeout if request.body_read else inf
                )
                if raw is None:
                    if kept:
                        raise _Stale
                    raise OriginError("closed without a response", about=request.target)
                answer = parse_response(raw, request.method)
            except TimeoutError as error:
                raise OriginTimeout("no response in time", about=request.target) from error
            except (BadMessage, CutShort) as error:
                raise OriginError(str(error), about=request.target) from error
            if answer.status >= 200 or (answer.status == 101 and upgrade):
                return answer
            if answer.status == 101:
                raise OriginError("unexpected 101 Switching Protocols", about=request.target)
            kept = False
            if request.minor == 1:
                request.connection.write(answer.forwarded + b"\r\n")

    async def _answer(
        self, request: Request, connection: OriginConnection, answer: ResponseHead
    ) -> None:
        body: Decoder
        own = b""
        chunked = False
        if answer.body_bytes is not None:
            body = Sized(answer.body_bytes)
        else:
            body = Chunked() if answer.chunked else UntilClose()
            chunked = request.minor == 1
            if chunked:
                own = b"Transfer-Encoding: chunked\r\n"
            else:
                request.keep_alive = False
        if "date" not in answer.fields.names:
            own += date_line()  # RFC 9110 section 6.6.1
        if self._pages_vary and answer.fields.get("content-type").startswith("text/html"):
            own += self._pages_vary
        # Send body bytes that came with the head together with it.
        try:
            first = body.decode(connection.buffer)
        except BadMessage as error:
            raise OriginError(str(error), about=request.target) from error
        request.begin(answer.forwarded + own, chunk(first) if first and chunked else first)
        del first  # large, and a slow client may take long
        if request.congested:
            await _keep_pace(request, connection)
        while not body.done and (piece := await self._piece(request, connection, body)):
            request.write(chunk(piece) if chunked else piece)
            if request.congested:
                await _keep_pace(request, connection)
        if chunked:
            request.write(last_chunk(_trailers(request, body)))
        if request.congested:
            await request.drain()

    async def _piece(self, request: Request, connection: OriginConnection, body: Decoder) -> bytes:
        try:
            return await connection.receive_body(body, self._timeout)
        except (BadMessage, CutShort, TimeoutError) as error:
            reason = str(error) or f"nothing received for {self._timeout:g} s"
            log.warning("transfer_aborted", target=request.target, reason=reason)
            # Anything else would make the body look complete, or put a second response into it.
            raise CutShort("the origin died in the middle of its response") from error

    async def _switch(
        self, request: Request, connection: OriginConnection, answer: ResponseHead
    ) -> None:
        request.started = True
        request.keep_alive = False
        request.connection.write(answer.forwarded + _UPGRADE + b"\r\n")
        await tunnel(request, connection)


def _is_page(answer: ResponseHead) -> bool:
    media_type = answer.fields.get("content-type", "").partition(";")[0].strip().lower()
    return 200 <= answer.status < 300 and media_type in HTML_TYPES


async def _keep_pace(request: Request, connection: OriginConnection) -> None:
    """Read from the origin only as fast as the client reads: there may be many slow clients."""
    connection.hold()
    await request.drain()


def _check_expectation(request: Request) -> None:
    if request.headers.get("expect").lower() != "100-continue":
        # RFC 9110 section 10.1.1
        raise BadMessage("the Expect header has an unknown value", 417)


def _trailers(request: Request, body: Decoder) -> Fields | None:
    """The trailers, if the client accepts them (RFC 9110 section 6.5.1)."""
    if isinstance(body, Chunked) and "trailers" in members(request.headers.get("te")):
        return body.trailers
    return None

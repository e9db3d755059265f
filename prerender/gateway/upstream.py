"""The HTTP client of the gateway, with aiohttp: requests and responses are streamed unchanged.

The gateway sends the browser's requests with it, also to third parties, and the renderer fetches
documents with it. Requests of clients are forwarded by proxy/forward.py.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Any, cast

import structlog
from aiohttp import (
    ClientError,
    ClientRequest,
    ClientResponse,
    ClientSession,
    ClientTimeout,
    DummyCookieJar,
    StreamReader,
    TraceConfig,
    TraceRequestRedirectParams,
)
from aiohttp.abc import AbstractResolver
from aiohttp.client_exceptions import ServerTimeoutError, WSServerHandshakeError
from aiohttp.web import BaseRequest, StreamResponse
from multidict import CIMultiDict
from yarl import URL

from prerender.errors import OriginError, OriginTimeout
from prerender.gateway import page_websocket
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.connection_errors import reason_of
from prerender.gateway.connector import CheckedConnector
from prerender.gateway.listener import MAX_HEADERS
from prerender.gateway.plain_response import PlainStream

_CHUNK_BYTES = 65536
# Limit of a header line of a response. Chromium accepts heads of 256 KiB.
_MAX_LINE_BYTES = 65536
_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

# Of a request.
RequestBody = StreamReader | AsyncIterator[bytes] | bytes | None

log = structlog.get_logger(__name__)


class _Target:
    """A URL for the connection, with a request target that is sent unchanged.

    yarl would drop the ``?`` of an empty query.
    """

    def __init__(self, url: URL, raw: str) -> None:
        self._url = url
        self.raw_path_qs = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._url, name)


class _RawTargetRequest(ClientRequest):
    """Sends the request target from the URL's fragment, which HTTP itself never sends."""

    async def send(self, conn: Any) -> ClientResponse:
        if raw := self.original_url.raw_fragment:
            self.url = cast("URL", _Target(self.url, raw))
        return await super().send(conn)


class Upstream:
    """The origin at ``base``, with a pool of connections to it.

    ``headers``: names and values that every request gets. They are added here, behind everything that
    sees requests of pages, and redirects are not followed, so no other server and no page gets them.
    """

    def __init__(
        self, session: ClientSession, base: URL, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        self._session = session
        self._headers = tuple(headers)
        self._base = str(base).rstrip("/")
        self.base = base

    @asynccontextmanager
    async def request(
        self,
        method: str,
        target: str,
        headers: CIMultiDict[str],
        body: RequestBody = None,
    ) -> AsyncIterator[ClientResponse]:
        """Send a request. Raises OriginError or OriginTimeout until the response head has arrived.

        ``target`` is sent unchanged. On exit, the connection is released, or closed if the response
        was not read completely.
        """
        url = URL(f"{self._base}/#{target}", encoded=True)
        async with send(self._session, method, url, self._complete(headers), body) as response:
            yield response

    def _complete(self, headers: CIMultiDict[str]) -> CIMultiDict[str]:
        if not self._headers:
            return headers
        headers = headers.copy()
        for name, value in self._headers:
            # As in a browser that knows a password, what a script sets is sent instead.
            if name.lower() != "authorization" or name not in headers:
                headers[name] = value
        return headers

    async def relay_websocket(
        self,
        request: BaseRequest,
        target: str,
        headers: CIMultiDict[str],
        on_message: page_websocket.OnMessage,
    ) -> StreamResponse:
        """Relay a client's WebSocket to the origin. Raises OriginError."""
        url = URL(f"{self._base}/#{target}", encoded=True)
        headers = self._complete(headers)
        return await page_websocket.relay(request, self._session, url, headers, on_message)


def open_session(
    policy: AddressPolicy,
    connect_timeout: float,
    timeout: float,
    resolver: AbstractResolver | None = None,
) -> ClientSession:
    """A client session that enforces ``policy``, without redirects, cookies, proxies and decoding.
    Timeouts are in seconds."""
    no_redirects = TraceConfig()
    no_redirects.on_request_redirect.append(_refuse_redirect)
    return ClientSession(
        connector=CheckedConnector(policy, resolver),
        trace_configs=[no_redirects],
        cookie_jar=DummyCookieJar(),
        timeout=ClientTimeout(total=None, sock_connect=connect_timeout, sock_read=timeout),
        auto_decompress=False,
        trust_env=False,
        request_class=_RawTargetRequest,
        skip_auto_headers=_AUTOMATIC,
        read_bufsize=_CHUNK_BYTES,
        max_line_size=_MAX_LINE_BYTES,
        max_field_size=_MAX_LINE_BYTES,
        max_headers=MAX_HEADERS,
    )


async def _refuse_redirect(
    _session: ClientSession, _context: object, redirect: TraceRequestRedirectParams
) -> None:
    """Fail a redirected WebSocket handshake as browsers do (WHATWG Fetch, redirect mode "error").
    aiohttp would follow it, and has no option against that."""
    response = redirect.response
    response.close()
    raise WSServerHandshakeError(
        response.request_info, (), status=response.status, message="redirected"
    )


@asynccontextmanager
async def send(
    session: ClientSession,
    method: str,
    url: URL,
    headers: CIMultiDict[str],
    body: RequestBody = None,
) -> AsyncIterator[ClientResponse]:
    """Send a request without following redirects. Errors before the response head are translated."""
    try:
        response = await session.request(
            method, url, headers=headers, data=body, allow_redirects=False
        )
    except (ServerTimeoutError, TimeoutError) as error:
        raise OriginTimeout(reason_of(error), about=f"{method} {url.raw_host}") from error
    except (ClientError, OSError, ValueError) as error:
        raise OriginError(reason_of(error), about=f"{method} {url.raw_host}") from error
    try:
        if response.status < HTTPStatus.OK:
            # An unexpected 101: what follows would not be HTTP.
            raise OriginError(f"status {response.status}", about=f"{method} {url.raw_host}")
        yield response
    finally:
        # After a complete response the connection is back in the pool, and this does nothing.
        response.close()


async def relay(
    request: BaseRequest,
    response: ClientResponse,
    headers: CIMultiDict[str],
    on_chunk: Callable[[bytes], None] | None = None,
) -> StreamResponse:
    """Stream a response to the browser.

    If the server dies in the middle, the browser's connection is aborted: otherwise the
    body would look complete, or contain a second status line.
    """
    reply = PlainStream(status=response.status, reason=response.reason, headers=headers)
    await reply.prepare(request)
    try:
        async for chunk in response.content.iter_any():
            if on_chunk is not None:
                on_chunk(chunk)
            await reply.write(chunk)
    except (ClientError, OSError, TimeoutError) as error:
        log.warning("gateway_transfer_aborted", error=reason_of(error), host=response.url.raw_host)
        if request.transport is not None:
            request.transport.abort()
        return reply
    except asyncio.CancelledError:
        if request.transport is not None:
            request.transport.abort()
        raise
    await reply.write_eof()
    return reply

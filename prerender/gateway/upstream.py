"""To the origin for the browser: one request, streamed both ways, with nothing added and nothing kept.

The gateway serves the browser's requests with it, third parties' too, and the renderer fetches
documents with it. aiohttp's client exceptions are translated here and nowhere else. What clients ask
does not come here (proxy/forward.py).
"""

import asyncio
from collections.abc import AsyncIterator, Callable
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
from prerender.gateway import websocket
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.connector import CheckedConnector
from prerender.gateway.failures import reason_of
from prerender.gateway.listener import MAX_HEADERS

_CHUNK_BYTES = 65536
# Of one header line of an answer. Chromium takes 256 KiB for the whole head.
_MAX_LINE_BYTES = 65536
_AUTOMATIC = ("User-Agent", "Accept", "Accept-Encoding", "Content-Type")

log = structlog.get_logger(__name__)


class _PlainStream(StreamResponse):
    """A streamed response without the Content-Type and Server that aiohttp would add
    (RFC 9110 section 7.7)."""

    async def _prepare_headers(self) -> None:
        invented = [name for name in ("Content-Type", "Server") if name not in self.headers]
        await super()._prepare_headers()
        for name in invented:
            self.headers.popall(name, None)


class _Target:
    """A URL for the connection, with a request target that is sent as it stands.

    yarl would drop an empty query's ``?``; the origin has to see the client's bytes.
    """

    def __init__(self, url: URL, raw: str) -> None:
        self._url = url
        self.raw_path_qs = raw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._url, name)


class _RawTargetRequest(ClientRequest):
    """Sends the request target that rides in the URL's fragment, which HTTP itself never sends."""

    async def send(self, conn: Any) -> ClientResponse:
        if raw := self.original_url.raw_fragment:
            self.url = cast("URL", _Target(self.url, raw))
        return await super().send(conn)


class Upstream:
    """The origin at ``base``, with a pool of connections to it."""

    def __init__(self, session: ClientSession, base: URL) -> None:
        self._session = session
        self._base = str(base).rstrip("/")
        self.base = base

    @asynccontextmanager
    async def request(
        self,
        method: str,
        target: str,
        headers: CIMultiDict[str],
        body: StreamReader | None = None,
    ) -> AsyncIterator[ClientResponse]:
        """Ask the origin. Raises OriginError or OriginTimeout until the response's head is there.

        ``target`` is sent byte for byte. The response is released, or its connection closed when it
        was not read to its end.
        """
        url = URL(f"{self._base}/#{target}", encoded=True)
        async with send(self._session, method, url, headers, body) as response:
            yield response

    async def relay_websocket(
        self,
        request: BaseRequest,
        target: str,
        headers: CIMultiDict[str],
        on_message: websocket.OnMessage | None = None,
    ) -> StreamResponse:
        """Connect a client's WebSocket with the origin's. Raises OriginError."""
        url = URL(f"{self._base}/#{target}", encoded=True)
        return await websocket.relay(request, self._session, url, headers, on_message)


def open_session(
    policy: AddressPolicy,
    connect_timeout: float,
    timeout: float,
    resolver: AbstractResolver | None = None,
) -> ClientSession:
    """A client that reaches what ``policy`` allows, follows no redirect, and adds nothing of its own:
    no cookies, no proxies, no decoding. Timeouts are in seconds."""
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
    """Fail a WebSocket's handshake as browsers do (WHATWG Fetch, redirect mode "error"): the library
    would follow, and has no option for it."""
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
    body: StreamReader | None = None,
) -> AsyncIterator[ClientResponse]:
    """One request without redirects; errors before the response's head are translated."""
    try:
        response = await session.request(
            method, url, headers=headers, data=body, allow_redirects=False
        )
    except (ServerTimeoutError, TimeoutError) as error:
        raise OriginTimeout(f"{method} {url.host}: {reason_of(error)}") from error
    except (ClientError, OSError, ValueError) as error:
        raise OriginError(f"{method} {url.host}: {reason_of(error)}") from error
    try:
        if response.status < HTTPStatus.OK:
            # A 101 that nobody asked for: what follows would not be HTTP any more.
            raise OriginError(f"{method} {url.host}: status {response.status}")
        yield response
    finally:
        # At its end the connection has gone back to the pool already, and this does nothing.
        response.close()


async def relay(
    request: BaseRequest,
    response: ClientResponse,
    headers: CIMultiDict[str],
    on_chunk: Callable[[int], None] | None = None,
) -> StreamResponse:
    """Stream an origin's response to a client.

    An origin that dies in the middle aborts the client's connection: anything else would end the
    body as if it were whole, or write a second status line into it.
    """
    answer = _PlainStream(status=response.status, reason=response.reason, headers=headers)
    await answer.prepare(request)
    try:
        async for chunk in response.content.iter_any():
            await answer.write(chunk)
            if on_chunk is not None:
                on_chunk(len(chunk))
    except (ClientError, OSError, TimeoutError) as error:
        log.warning("gateway_transfer_aborted", error=reason_of(error), host=response.url.host)
        if request.transport is not None:
            request.transport.abort()
        return answer
    except asyncio.CancelledError:
        if request.transport is not None:
            request.transport.abort()
        raise
    await answer.write_eof()
    return answer

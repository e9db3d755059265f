"""Sends requests of pages: to the origin for the site's own host, otherwise to third parties.

Addresses are checked when sockets are opened (connector.py).
"""

import re
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from aiohttp import ClientResponse, ClientSession, StreamReader
from aiohttp.web import BaseRequest, StreamResponse
from multidict import CIMultiDict
from yarl import URL

from prerender.gateway import page_websocket
from prerender.gateway.address_policy import WEB_PORTS, AddressPolicy, Forbidden
from prerender.gateway.exchange import Exchange
from prerender.gateway.upstream import RequestBody, Upstream, send
from prerender.gateway.visit import Visit
from prerender.http import caching, forwarding_headers
from prerender.urls.hosts import normalized

_MOST_NOTED_BYTES = 16 * 1024
_DEFAULT_PORTS = {"http": 80, "https": 443}
# RFC 9110 section 7.2: no user, no path, no zone.
_HOST_FIELD = re.compile(r"(\[[0-9a-f:.]+\]|[^][:@/?#%\\\s]+)(?::([0-9]{1,5}))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Ask:
    """An outgoing request of a page. ``headers``: end-to-end headers.

    ``own``: it is for the site itself; otherwise for the third party at ``host`` and ``port``.
    """

    request: BaseRequest
    url: str
    host: str
    port: int
    own: bool
    headers: CIMultiDict[str]
    visit: Visit
    exchange: Exchange


class Egress:
    """``public``: the site's public URL; ``upstream``: its origin.

    ``marked``: mark requests to the site as a renderer's.
    """

    def __init__(
        self,
        public: URL,
        upstream: Upstream,
        third_parties: ClientSession,
        addresses: AddressPolicy,
        *,
        marked: bool = True,
    ) -> None:
        self._public = public
        self._address = forwarding_headers.mark if marked else forwarding_headers.direct
        self._upstream = upstream
        self._third_parties = third_parties
        self._addresses = addresses
        # Whether the body of a POST request to a URL of the site is noted; set by an extension.
        self.keeps_body: Callable[[str], bool] = lambda _: False

    def is_own(self, host: str, port: int) -> bool:
        """Whether a host is the site's, with http or https: from outside, http:// URLs of the site
        redirect to https:// anyway."""
        ports = (*WEB_PORTS, self._public.port)
        return normalized(host) == normalized(self._public.raw_host or "") and port in ports

    @asynccontextmanager
    async def ask(self, ask: Ask, headers: CIMultiDict[str]) -> AsyncIterator[ClientResponse]:
        """Send a request with these headers. Raises Forbidden and OriginError."""
        body: RequestBody = ask.request.content if ask.request.body_exists else None
        exchange = ask.exchange
        if exchange.method == "POST" and not exchange.foreign and self.keeps_body(ask.url):
            body = await _noted(body, exchange)
        async with self._send(ask, headers.copy(), body) as response:
            if caching.asks_for_password(response.status, response.headers):
                ask.visit.remembered = "the browser may know a password"
            yield response

    def _send(
        self, ask: Ask, headers: CIMultiDict[str], body: RequestBody
    ) -> AbstractAsyncContextManager[ClientResponse]:
        request = ask.request
        target = forwarding_headers.origin_form(request.raw_path)
        if ask.own:
            self._address(headers, self._public)
            forwarding_headers.add_trace(headers, ask.visit.trace)
            return self._upstream.request(request.method, target, headers, body)
        url = self._checked(ask, target)
        return send(self._third_parties, request.method, url, headers, body)

    @asynccontextmanager
    async def repeat(
        self, method: str, url: str, headers: CIMultiDict[str], body: bytes | None = None
    ) -> AsyncIterator[tuple[ClientResponse, bool]]:
        """Send a request of an earlier render again, without a page. Yields the response, and whether
        it is the site's own. Raises Forbidden and OriginError."""
        origin, target = split_url(url)
        scheme, _, host_field = origin.partition("://")
        host, port = _host_and_port(host_field, scheme)
        headers = headers.copy()
        if own := self.is_own(host, port):
            self._address(headers, self._public)
            sending = self._upstream.request(method, target, headers, body)
        else:
            self._addresses.check(host, port)
            sent_to = URL(f"{origin}/#{target}", encoded=True)
            sending = send(self._third_parties, method, sent_to, headers, body)
        async with sending as response:
            yield response, own

    async def relay_websocket(self, ask: Ask) -> StreamResponse:
        """Connect a page's WebSocket. Raises Forbidden and OriginError."""
        target = forwarding_headers.origin_form(ask.request.raw_path)
        headers = ask.headers.copy()
        received = partial(ask.visit.usage.message, ask.exchange)
        if ask.own:
            self._address(headers, self._public)
            forwarding_headers.add_trace(headers, ask.visit.trace)
            return await self._upstream.relay_websocket(ask.request, target, headers, received)
        url = self._checked(ask, target)
        return await page_websocket.relay(ask.request, self._third_parties, url, headers, received)

    def publish(self, headers: CIMultiDict[str], *, own: bool) -> None:
        """Replace the origin's internal host in headers that contain URLs, if it is its response."""
        if own:
            forwarding_headers.publish_all(headers, self._upstream.base, self._public)

    def _checked(self, ask: Ask, target: str) -> URL:
        self._addresses.check(ask.host, ask.port)
        return URL(f"{ask.request.scheme}://{authority(ask.request)}/#{target}", encoded=True)


def authority(request: BaseRequest) -> str:
    """The host and port that a request is for. For a target in absolute form, aiohttp's ``host`` has no
    port."""
    return request.headers.get("Host", "")


def host_and_port(request: BaseRequest) -> tuple[str, int]:
    """The host and port of a request. Raises Forbidden if its Host header is invalid."""
    return _host_and_port(authority(request), request.scheme)


def _host_and_port(host_field: str, scheme: str) -> tuple[str, int]:
    match = _HOST_FIELD.fullmatch(host_field)
    port = int((match and match[2]) or _DEFAULT_PORTS[scheme])
    if not match or not 0 < port < 65536:
        raise Forbidden(f"{host_field!r} is not a host")
    return match[1].strip("[]"), port


async def _noted(body: RequestBody, exchange: Exchange) -> RequestBody:
    """Note the body of a request if it is a short text. Returns what to send."""
    if not isinstance(body, StreamReader):
        exchange.sent_body = ""
        return body
    read = b""
    while len(read) <= _MOST_NOTED_BYTES and (part := await body.readany()):
        read += part
    if len(read) > _MOST_NOTED_BYTES:
        return _continued(read, body)
    with suppress(UnicodeDecodeError):
        exchange.sent_body = read.decode()
    return read


async def _continued(read: bytes, body: StreamReader) -> AsyncIterator[bytes]:
    yield read
    async for part in body.iter_any():
        yield part


def split_url(url: str) -> tuple[str, str]:
    """The origin and the request target of a URL of a page's request."""
    scheme, _, rest = url.partition("://")
    host_field, slash, target = rest.partition("/")
    return f"{scheme}://{host_field}", slash + target

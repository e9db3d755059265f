"""The browser's only way to any network: two listeners on loopback, plain and TLS.

Chromium resolves every host name to one of them (``Gateway.resolver_rules``). The site's own host is
answered by the origin, third parties only if they are public (guard.py). The page lives at its
public URL all the while, so nothing internal can get into a snapshot.

A request tells which page it is from by a number in the User-Agent, in a place where browsers
always have a zero; it is taken out before the request goes on.
"""

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import structlog
from aiohttp import ClientResponse, ClientSession
from aiohttp.web import BaseRequest, Response, ServerRunner, StreamResponse, TCPSite
from multidict import CIMultiDict
from yarl import URL

from prerender import headers as fields
from prerender import websocket
from prerender.errors import OriginError
from prerender.listener import http_server
from prerender.rendering import guard
from prerender.rendering.certificate import Certificate
from prerender.rendering.visit import Document, Exchange, Visit
from prerender.upstream import Upstream, relay, send

_HOST = "127.0.0.1"
_IDLE_SECONDS = 300
_SHUTDOWN_SECONDS = 0.5
# "Chrome/156.0.0.N": reduced user agents have 0 for N, ours has the number of the page.
_PAGE_NUMBER = re.compile(r"(Chrome/\d+\.0\.0\.)(\d+)")

log = structlog.get_logger(__name__)


def number_user_agent(user_agent: str, number: int) -> str:
    """A reduced Chrome user agent that carries the number of a page (from 1)."""
    return _PAGE_NUMBER.sub(rf"\g<1>{number}", user_agent)


class Gateway:
    """Answers the requests of all pages of a browser. Make it with ``async with Gateway.open(...)``.

    ``public`` is the site's public URL, ``upstream`` leads to its origin.
    """

    def __init__(self, public: URL, upstream: Upstream, third_parties: ClientSession) -> None:
        self._public = public
        self._authority = fields.authority(public)
        self._upstream = upstream
        self._third_parties = third_parties
        self._visits: dict[int, Visit] = {}
        self.certificate = Certificate()
        self.plain_port = 0
        self.tls_port = 0

    @classmethod
    @asynccontextmanager
    async def open(
        cls, public: URL, upstream: Upstream, third_parties: ClientSession
    ) -> AsyncIterator["Gateway"]:
        """A gateway that listens."""
        gateway = cls(public, upstream, third_parties)
        runner = ServerRunner(
            http_server(gateway._handle, _IDLE_SECONDS), shutdown_timeout=_SHUTDOWN_SECONDS
        )
        await runner.setup()
        try:
            tls = gateway.certificate.server_context()
            await TCPSite(runner, _HOST, 0).start()
            await TCPSite(runner, _HOST, 0, ssl_context=tls).start()
            gateway.plain_port, gateway.tls_port = (address[1] for address in runner.addresses)
            yield gateway
        finally:
            await runner.cleanup()

    @property
    def resolver_rules(self) -> str:
        """The value of Chromium's ``--host-resolver-rules`` that leads everything here."""
        own = self.tls_port if self._public.scheme == "https" else self.plain_port
        rules = {
            f"*:{self._public.port}": own,
            "*:443": self.tls_port,
            "*:80": self.plain_port,
        }
        mapped = [f"MAP {pattern} {_HOST}:{port}" for pattern, port in rules.items()]
        return ", ".join([*mapped, "MAP * ~NOTFOUND"])

    @contextmanager
    def visit(self, page_number: int, document: Document) -> Iterator[Visit]:
        """Serve a page while it renders: its first navigation gets ``document``."""
        visit = self._visits[page_number] = Visit(self._public, document)
        try:
            yield visit
        finally:
            del self._visits[page_number]

    async def _handle(self, request: BaseRequest) -> StreamResponse:
        visit, user_agent = self._whose(request)
        url = f"{request.scheme}://{request.host}{fields.origin_form(request.raw_path)}"
        destination = request.headers.get("Sec-Fetch-Dest", "")
        with visit.exchange(request.method, url, destination) as exchange:
            if _is_navigation(request) and (document := visit.take_document()):
                exchange.status = document.status
                return _handed_over(document)
            headers = fields.end_to_end(request.headers)
            headers["User-Agent"] = user_agent
            try:
                if request.scheme == self._public.scheme and request.host == self._authority:
                    return await self._from_origin(request, headers, exchange)
                return await self._from_third_party(request, headers, exchange)
            except guard.Forbidden as error:
                return _refused(exchange, str(error))
            except OriginError as error:
                if isinstance(_root_cause(error), guard.Forbidden):
                    return _refused(exchange, str(_root_cause(error)))
                exchange.status = error.status
                return Response(status=error.status)

    def _whose(self, request: BaseRequest) -> tuple[Visit, str]:
        """The visit that a request belongs to, and its User-Agent without the number.

        Requests of shared workers carry no number, and those of a page that has just been taken
        away come too late: they get a visit of their own that nobody looks at.
        """
        user_agent = request.headers.get("User-Agent", "")
        match = _PAGE_NUMBER.search(user_agent)
        visit = self._visits.get(int(match[2])) if match else None
        return visit or Visit(self._public, None), number_user_agent(user_agent, 0)

    async def _from_origin(
        self, request: BaseRequest, headers: CIMultiDict[str], exchange: Exchange
    ) -> StreamResponse:
        fields.mark(headers, self._public)
        target = fields.origin_form(request.raw_path)
        if websocket.is_upgrade(request):
            exchange.endless = True
            return await self._upstream.relay_websocket(request, target, headers)
        body = request.content if request.body_exists else None
        async with self._upstream.request(request.method, target, headers, body) as response:
            return await _streamed(request, response, exchange, self._public, self._upstream.base)

    async def _from_third_party(
        self, request: BaseRequest, headers: CIMultiDict[str], exchange: Exchange
    ) -> StreamResponse:
        target = fields.origin_form(request.raw_path)
        try:
            url = URL(f"{request.scheme}://{request.host}/#{target}", encoded=True)
            host = url.host or ""
        except ValueError as error:
            raise guard.Forbidden(f"{request.host!r} is not a host: {error}") from error
        guard.check(host)
        if websocket.is_upgrade(request):
            exchange.endless = True
            return await websocket.relay(request, self._third_parties, url, headers)
        body = request.content if request.body_exists else None
        async with send(self._third_parties, request.method, url, headers, body) as response:
            return await _streamed(request, response, exchange)


def _is_navigation(request: BaseRequest) -> bool:
    """Whether a whole page is asked for. Sec-Fetch-Dest is sent to secure sites only."""
    destination = request.headers.get("Sec-Fetch-Dest")
    if destination is not None:
        return destination == "document"
    return request.method == "GET" and "text/html" in request.headers.get("Accept", "")


def _handed_over(document: Document) -> Response:
    headers = document.headers.copy()
    # Every navigation has to come here, where the next document waits.
    headers["Cache-Control"] = "no-store"
    return Response(status=document.status, headers=headers, body=document.body)


def _refused(exchange: Exchange, reason: str) -> Response:
    exchange.blocked = True
    exchange.status = 403
    log.info("request of a page refused", url=exchange.url, reason=reason)
    return Response(status=403)


async def _streamed(
    request: BaseRequest,
    response: ClientResponse,
    exchange: Exchange,
    public: URL | None = None,
    origin: URL | None = None,
) -> StreamResponse:
    headers = fields.end_to_end(response.headers)
    if public is not None and origin is not None and "Location" in headers:
        headers["Location"] = fields.publish(headers["Location"], origin, public)
    exchange.status = response.status
    exchange.endless = response.content_type == "text/event-stream"
    return await relay(request, response, headers, exchange.received)


def _root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return error

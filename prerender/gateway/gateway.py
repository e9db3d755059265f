"""The browser's only network: a proxy for each browser context (context_proxy.py).

Every request belongs to one visit, or is refused. It is blocked (blocklist.py), served from the cache
(assets.py), or sent by egress.py: for the site's own host to the origin, to third parties only as
address_policy.py allows. The page has its public URL all the time, so nothing internal can get into a
snapshot.

A number in the User-Agent, where browsers always have a zero, identifies the page of a request. It is
removed before the request is sent.
"""

import asyncio
import itertools
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus

import structlog
from aiohttp import ClientSession
from aiohttp.web import BaseRequest, StreamResponse
from multidict import CIMultiDict
from yarl import URL

from prerender.config.settings import NetworkSettings
from prerender.config.types import DEFAULT_LANGUAGE
from prerender.errors import OriginError
from prerender.gateway import page_websocket
from prerender.gateway.address_policy import AddressPolicy, Forbidden, Unlisted
from prerender.gateway.assets import Assets
from prerender.gateway.blocklist import Blocklist
from prerender.gateway.certificate import Certificate
from prerender.gateway.context_proxy import HOST, ContextProxy
from prerender.gateway.document import REDIRECTS, Document
from prerender.gateway.egress import Ask, Egress, authority, host_and_port
from prerender.gateway.exchange import Exchange, Traffic
from prerender.gateway.listener import GatewayConnection
from prerender.gateway.navigation import Navigation
from prerender.gateway.needed_requests import DATA, DataHosts, Hanging, Needed, is_beacon
from prerender.gateway.page_usage import LimitReached
from prerender.gateway.peer_user import Peers
from prerender.gateway.plain_response import Plain
from prerender.gateway.resource_kind import FRAMES, ResponseFault, destination, replaces_page
from prerender.gateway.stubs import stub
from prerender.gateway.upstream import Upstream
from prerender.gateway.visit import Visit
from prerender.http import caching, forwarding_headers
from prerender.http.hop_by_hop import end_to_end
from prerender.http.trace_context import CURRENT
from prerender.snapshots.variants import ORDINARY, Variant

# "Chrome/156.0.0.N": reduced user agents have 0 for N, ours has the number of the page.
_PAGE_NUMBER = re.compile(r"(Chrome/\d+\.0\.0\.)(\d{1,9})")
# Shared workers call the browser by its full name, other requests by the one with the number.
_OWN_NAME = re.compile(r"(?:Headless)?Chrome/(\d+)\.[\d.]+")

_IDENTIFYING = ("User-Agent", "Sec-CH-UA", "Sec-CH-UA-Mobile", "Sec-CH-UA-Platform")
_OF_REDIRECTS = ("Location", "Set-Cookie", "Referrer-Policy")
# Responses to beacons are smaller than data.
_LEAST_DATA_BYTES = 100
# Of the gateways of this process.
_numbers = itertools.count(1)

log = structlog.get_logger(__name__)


def number_user_agent(user_agent: str, number: int) -> str:
    """A reduced Chrome user agent that carries the number of a page (from 1)."""
    return _PAGE_NUMBER.sub(rf"\g<1>{number}", user_agent)


def without_number(text: str, number: int) -> str:
    """Remove the page's number from a text. Workers can read it, unlike pages (user_agent.js), and it
    would change the ETag of equal content."""
    return re.sub(rf"(Chrome/\d+\.0\.0\.){number}(?!\d)", r"\g<1>0", text)


@dataclass(frozen=True, slots=True)
class NetworkRules:
    """The rules for requests of pages. ``network``: blocked hosts and types, and limits.
    ``marked``: mark requests to the site as a renderer's. ``optional``: patterns of the site's requests
    that a snapshot does not need. ``language``: of pages that have none of their own."""

    addresses: AddressPolicy = field(default_factory=AddressPolicy)
    network: NetworkSettings = field(default_factory=lambda: NetworkSettings(cache_bytes=0))
    marked: bool = True
    optional: tuple[str, ...] = ()
    language: str = DEFAULT_LANGUAGE


class Gateway:
    """Serves the requests of all pages of a browser. Use it with ``async with Gateway.open(...)``.

    ``name``: the same for no other gateway of the machine.
    ``public``: the site's public URL; ``upstream``: its origin. ``third_parties``: a session that
    enforces ``rules.addresses`` (connector.py).
    """

    def __init__(
        self, public: URL, upstream: Upstream, third_parties: ClientSession, rules: NetworkRules
    ) -> None:
        self._public = public
        self._rules = rules
        self._blocklist = Blocklist(rules.network)
        self.egress = Egress(public, upstream, third_parties, rules.addresses, marked=rules.marked)
        self.assets = Assets(self.egress, rules.network.cache_bytes)
        self.limits = rules.network
        self._needed = Needed(public, rules.addresses.allow, rules.optional)
        self.traffic = Traffic()
        self.hanging = Hanging()
        self.navigation = Navigation(self._rules.language)
        self.data_hosts = DataHosts()
        self.name = f"{os.getpid()}.{next(_numbers)}"
        self._peers = Peers()
        self._proxies: set[ContextProxy] = set()
        self.certificate = Certificate()
        self._tls = self.certificate.server_context()

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        public: URL,
        upstream: Upstream,
        third_parties: ClientSession,
        rules: NetworkRules | None = None,
    ) -> AsyncIterator["Gateway"]:
        """Start the gateway."""
        gateway = cls(public, upstream, third_parties, rules or NetworkRules())
        try:
            yield gateway
        finally:
            for proxy in list(gateway._proxies):
                await gateway.close_proxy(proxy)
            gateway._peers.close()

    # Chromium resolves nothing itself: names are for the proxies.
    resolver_rules = f"MAP * ~NOTFOUND, EXCLUDE {HOST}"

    @property
    def language(self) -> str:
        """The language of pages that have none of their own."""
        return self._rules.language

    @property
    def browser_languages(self) -> str:
        """What the browser accepts by itself: languages without weights."""
        return ",".join(Variant(language=self.language).languages)

    def open_proxy(self) -> ContextProxy:
        """A proxy for a new browser context."""
        proxy = ContextProxy(self._handle, self._tls, self._peers, self._new_visit)
        self._proxies.add(proxy)
        return proxy

    async def close_proxy(self, proxy: ContextProxy) -> None:
        """Close the proxy of a context that is gone."""
        self._proxies.discard(proxy)
        await proxy.close()

    def _new_visit(self, document: Document | None, variant: Variant) -> Visit:
        return Visit(
            self._public,
            document,
            self._rules.network,
            variant=variant,
            trace=CURRENT.get(),
            traffic=self.traffic,
            hanging=self.hanging,
            # Of a document that comes from the site later, this is unknown.
            has_policy=document is None,
        )

    async def _handle(self, proxy: ContextProxy, request: BaseRequest) -> StreamResponse:
        user_agent = request.headers.get("User-Agent", "")
        number = _PAGE_NUMBER.search(user_agent)
        visit = proxy.visit_of(int(number[2]) if number else None)
        if visit is None:
            return _of_nobody(request)
        assert isinstance(request.protocol, GatewayConnection)
        visit.track(request.protocol)
        user_agent = _OWN_NAME.sub(r"Chrome/\1.0.0.0", user_agent)
        target = forwarding_headers.origin_form(request.raw_path)
        url = f"{request.scheme}://{authority(request)}{target}"
        wanted = destination(request.method, request.headers, target)
        with visit.requests.exchange(request.method, url, wanted) as exchange:
            if wanted == "document" and (document := visit.take_document(url)):
                exchange.status = document.status
                exchange.received_bytes = len(document.body)
                if visit.variant == ORDINARY:
                    self.navigation.learn(end_to_end(request.headers), user_agent)
                return _hand_over(document)
            if wanted == "serviceworker":
                visit.requests.service_workers.add(url)
            exchange.of_worker = request.headers.get("Referer") in visit.requests.service_workers
            try:
                # Without the response to its preflight, a request is not sent (WHATWG Fetch).
                following = request.headers.get("Access-Control-Request-Method", request.method)
                exchange.needed = self._needed(
                    following, url, wanted, request.headers, visit.requests.polled
                )
                exchange.foreign = not self._needed.is_of_the_site(url)
                exchange.judged = self._needed.judged(
                    following, url, wanted, request.headers
                ) or self._third_party_data(following, request, exchange)
                exchange.hangs = exchange.needed and exchange.resource in self.hanging
                visit.usage.check_requests()
                # Requests that the content depends on may take as long as the render.
                seconds = None if exchange.needed else self._rules.network.request_timeout
                async with asyncio.timeout(seconds) as exchange.deadline:
                    if wanted in FRAMES:
                        await visit.frame_turn()
                    return await self._respond(request, url, user_agent, visit, exchange)
            except (Forbidden, LimitReached) as error:
                return self._refused(request, visit, exchange, error)
            except TimeoutError:
                # An error of the server, not a block.
                exchange.status = HTTPStatus.GATEWAY_TIMEOUT
                exchange.fault = ResponseFault.TIMEOUT
                return Plain(status=exchange.status)
            except OriginError as error:
                if isinstance(cause := _root_cause(error), Forbidden):
                    return self._refused(request, visit, exchange, cause)
                exchange.status = error.status
                exchange.fault = ResponseFault.DISCONNECTED
                return Plain(status=error.status)
            finally:
                self._learn(request, exchange)

    def _third_party_data(self, method: str, request: BaseRequest, exchange: Exchange) -> bool:
        """Whether a request is for data of a third party that has given data to pages before."""
        return (
            exchange.destination in DATA
            and exchange.foreign
            and not is_beacon(method, request.headers)
            and authority(request) in self.data_hosts
        )

    def _learn(self, request: BaseRequest, exchange: Exchange) -> None:
        host = authority(request)
        gave = exchange.status == HTTPStatus.OK and exchange.received_bytes > _LEAST_DATA_BYTES
        if gave and exchange.foreign and exchange.destination in DATA and not exchange.blocked:
            self.data_hosts.gave(host)

    def _refused(
        self,
        request: BaseRequest,
        visit: Visit,
        exchange: Exchange,
        error: Forbidden | LimitReached,
    ) -> Plain:
        exchange.blocked = True
        exchange.limited = isinstance(error, LimitReached)
        exchange.reason = str(error)
        exchange.status = HTTPStatus.FORBIDDEN
        # Visitors reach all hosts of the site, at any port.
        exchange.refused = exchange.needed and not exchange.limited
        if exchange.refused and not isinstance(error, Unlisted):
            where = URL(exchange.url, encoded=True).authority
            exchange.reason += f": add {where} to [network] allow if pages need it"
        if not visit.usage.is_flooded:
            # A limit that is too low for the site makes snapshots incomplete.
            fields = {"url": exchange.url, "reason": exchange.reason}
            if exchange.limited or exchange.refused:
                log.warning("page_request_refused", **fields)
            else:
                log.info("page_request_refused", **fields)
        return _refusal()

    async def _respond(
        self, request: BaseRequest, url: str, user_agent: str, visit: Visit, exchange: Exchange
    ) -> StreamResponse:
        host, port = host_and_port(request)
        own = self.egress.is_own(host, port)
        reason = self._blocklist.unwanted_type(exchange.destination)
        if not own:
            reason = reason or self._blocklist.unwanted_host(host, port)
        if reason:
            return _left_out(request, exchange, reason)
        headers = end_to_end(request.headers)
        forwarding_headers.remove_forwarding(headers)
        headers["User-Agent"] = user_agent
        # Chromium applies what is emulated to frames, but not to all workers.
        ordinary = self.navigation.headers(visit.variant)
        if headers.get("Accept-Language", self.browser_languages) == self.browser_languages:
            headers["Accept-Language"] = ordinary["Accept-Language"]
        own_name = "HeadlessChrome" in request.headers.get("User-Agent", "")
        if own_name and self.navigation.is_known:
            for name in _IDENTIFYING:
                if name in ordinary:
                    headers[name] = ordinary[name]
        ask = Ask(request, url, host, port, own, headers, visit, exchange)
        if _may_navigate(request, exchange) and visit.is_elsewhere(url):
            if url != visit.requests.navigation.request_url:
                await visit.catch_up()
            # Without Sec-Fetch-Dest, it may be for a frame or by a script.
            if "Sec-Fetch-Dest" in request.headers or url == visit.requests.navigation.request_url:
                return await self._leave(ask)
        if page_websocket.is_upgrade(request):
            exchange.expect_no_end()
            relayed = await self.egress.relay_websocket(ask)
            exchange.status = relayed.status
            return relayed
        return await self.assets.respond(ask)

    async def _leave(self, ask: Ask) -> Plain:
        """Respond to the navigation of a page to another one. That one is not rendered here, so the
        browser gets as much of the response as tells it where to go, or that it stays. The page's
        virtual time stands still meanwhile."""
        navigation = ask.visit.requests.navigation
        with suppress(TimeoutError):
            async with (
                asyncio.timeout_at(navigation.deadline),
                self.egress.ask(ask, ask.headers) as response,
            ):
                ask.exchange.status = status = response.status
                is_redirect = status in REDIRECTS and "Location" in response.headers
                if is_redirect and navigation.may_be_redirected:
                    given = end_to_end(response.headers)
                    self.egress.publish(given, own=ask.own)
                    navigation.redirect(ask.url, given["Location"], status)
                    passed = [(k, v) for k, v in given.items() if k.title() in _OF_REDIRECTS]
                    return Plain(status=status, headers=CIMultiDict(passed))
                if not is_redirect and not replaces_page(status, response.headers):
                    # The browser reports it only when the page has loaded all images and frames.
                    navigation.end()
                    return Plain(status=HTTPStatus.NO_CONTENT)
        return Plain(body=b"", content_type="text/html")


def _may_navigate(request: BaseRequest, exchange: Exchange) -> bool:
    """Whether the browser may have requested a document, to show it in place of the page."""
    # To sites without encryption, it says so by Accept only. A form is posted like that.
    posts = not exchange.destination and request.method == "POST"
    return exchange.destination == "document" or (
        posts and request.headers.get("Accept", "").startswith("text/html")
    )


def _hand_over(document: Document) -> Plain:
    headers = document.headers.copy()
    caching.forbid_memory(headers)
    return Plain(status=document.status, headers=headers, body=document.body)


def _of_nobody(request: BaseRequest) -> Plain:
    """Refuse a request that belongs to no visit: a beacon or a keepalive fetch of an old page."""
    log.debug("late_request_refused", host=authority(request), target=request.raw_path)
    refusal = _refusal()
    refusal.force_close()
    return refusal


def _refusal() -> Plain:
    return Plain(status=HTTPStatus.FORBIDDEN, headers={"Cache-Control": "no-store"})


def _left_out(request: BaseRequest, exchange: Exchange, reason: str) -> Plain:
    exchange.blocked = exchange.stubbed = True
    exchange.reason = reason
    log.debug("request_blocked", url=exchange.url, reason=reason)
    relayed = (
        _refusal() if page_websocket.is_upgrade(request) else stub(request, exchange.destination)
    )
    exchange.status = relayed.status
    return relayed


def _root_cause(error: BaseException) -> BaseException:
    while error.__cause__ is not None or error.__context__ is not None:
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    return error

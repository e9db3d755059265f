"""The asset cache: scripts, styles, images and fonts that renders share.

A shared cache in memory (RFC 9111), bounded in bytes. http/caching.py decides what may be stored.
Concurrent requests for the same asset are coalesced.
"""

import asyncio
import re
import time
from dataclasses import replace
from http import HTTPStatus

from aiohttp import ClientError, ClientResponse
from aiohttp.web import StreamResponse
from cachetools import LRUCache

from prerender.errors import OriginError
from prerender.gateway.connection_errors import reason_of
from prerender.gateway.egress import Ask, Egress
from prerender.gateway.page_usage import LimitReached
from prerender.gateway.plain_response import Plain
from prerender.gateway.received import Digest, ReceivedResponse, digest_of
from prerender.gateway.resource_kind import ResponseFault
from prerender.gateway.upstream import relay
from prerender.http import caching, conditional
from prerender.http.caching import StoredResponse, Terms
from prerender.http.conditional import ConditionalResult, parse_http_date
from prerender.http.fields import is_html
from prerender.http.forwarding_headers import AnyHeaders
from prerender.http.hop_by_hop import end_to_end

_MOST_VARIANTS = 8
# The maximum share of one response: a video must not evict all scripts.
_LARGEST_PART = 8
# Approximate size of an entry without its body.
_OVERHEAD_BYTES = 2000
# Concurrent requests for these wait for the first. Not for data: it may be slow and differ.
_WAITED_FOR = frozenset(
    {"script", "style", "image", "font", "manifest", "worker", "sharedworker", "serviceworker"}
)
# Parsed only when complete (RFC 8259, RFC 6839), so not JSON text sequences and the like.
_JSON = re.compile(r"application/(?:[\w.-]+\+)?json|text/json")
_UNSAFE = frozenset({"POST", "PUT", "DELETE", "PATCH"})


class AssetStore:
    """Stored responses by URL. Above ``max_bytes`` the least recently used are evicted.

    ``clearings``: how often it was cleared.
    """

    def __init__(self, max_bytes: int) -> None:
        self.clearings = 0
        self._max_bytes = max_bytes
        self._variants: LRUCache[str, list[StoredResponse]] = LRUCache(max_bytes, getsizeof=_size)

    def __repr__(self) -> str:
        return (
            f"<AssetStore {len(self._variants)} URLs, {self.size_bytes} of {self._max_bytes} bytes>"
        )

    @property
    def size_bytes(self) -> int:
        """The size of all stored responses."""
        return int(self._variants.currsize)

    def __contains__(self, url: str) -> bool:
        return url in self._variants

    def has_room_for(self, size: int) -> bool:
        """Whether a body of this size may be stored."""
        return size + _OVERHEAD_BYTES <= self._max_bytes // _LARGEST_PART

    def find(self, url: str, request: caching.Headers) -> StoredResponse | None:
        """The stored response for a request, fresh or not."""
        for stored in self._variants.get(url, ()):
            if stored.fits(request):
                return stored
        return None

    def put(self, url: str, stored: StoredResponse) -> None:
        """Store a response, replacing one with the same selecting headers."""
        if not self.has_room_for(len(stored.body)):
            return
        known = self._variants.pop(url, [])
        others = [it for it in known if it.selecting != stored.selecting]
        self._variants[url] = [stored, *others][:_MOST_VARIANTS]

    def clear(self) -> None:
        """Delete all stored responses."""
        self._variants.clear()
        self.clearings += 1

    def forget(self, url: str) -> None:
        """Delete the stored responses of a URL."""
        self._variants.pop(url, None)


def _size(variants: list[StoredResponse]) -> int:
    return sum(
        len(stored.body)
        + _OVERHEAD_BYTES
        + sum(len(name) + len(value) for name, value in stored.headers.items())
        + sum(len(name) + len(value) for name, value in stored.selecting)
        for stored in variants
    )


class Assets:
    """Serves requests of pages from the cache or through ``egress``.

    ``max_bytes``: the size of the cache; 0 disables it.
    """

    def __init__(self, egress: Egress, max_bytes: int) -> None:
        self._egress = egress
        self.store = AssetStore(max_bytes)
        # Running fetches by URL, the page's origin, and how often the store had been cleared before.
        self._under_way: dict[tuple[str, str, int], asyncio.Future[StoredResponse | None]] = {}

    async def respond(self, ask: Ask) -> StreamResponse:
        """Serve a request. Raises Forbidden, OriginError and LimitReached."""
        ask.exchange.sent = ask.headers
        if not caching.may_be_shared(ask.request.method, ask.headers):
            return await self._pass(ask)
        fresh_wanted = caching.demands_validation(ask.headers)
        stored = self.store.find(ask.url, ask.headers)
        if stored and not fresh_wanted and stored.is_fresh(time.monotonic()):
            ask.exchange.cached = True
            return _give(ask, stored)
        if fresh_wanted or ask.exchange.destination not in _WAITED_FOR:
            return await self._fetch(ask, stored, None)
        key = (ask.url, ask.headers.get("Origin", ""), self.store.clearings)
        if (first := self._under_way.get(key)) is not None:
            stored = await asyncio.shield(first)
            if stored and stored.fits(ask.headers):
                ask.exchange.cached = True
                return _give(ask, stored)
            return await self._fetch(ask, None, None)
        self._under_way[key] = first = asyncio.get_running_loop().create_future()
        try:
            return await self._fetch(ask, stored, first)
        finally:
            del self._under_way[key]
            if not first.done():
                first.set_result(None)

    async def _pass(self, ask: Ask) -> StreamResponse:
        """Send a request whose response is not shared."""
        async with self._egress.ask(ask, ask.headers) as response:
            if ask.request.method in _UNSAFE and response.status < 400:
                self.store.forget(ask.url)  # RFC 9111 section 4.4
            return await self._stream(ask, response)

    async def _fetch(
        self,
        ask: Ask,
        stored: StoredResponse | None,
        shared: asyncio.Future[StoredResponse | None] | None,
    ) -> StreamResponse:
        """Fetch or validate a response and store it.

        ``shared``: resolved with the response to share, or None, as soon as that is known.
        """
        headers, clearings = ask.headers, self.store.clearings
        if stored and (conditions := stored.conditions()):
            # The browser's own conditional headers are evaluated here.
            headers = headers.copy()
            for name in ("If-None-Match", "If-Modified-Since"):
                headers.popall(name, None)
            headers.update(conditions)
        async with self._egress.ask(ask, headers) as response:
            if stored and response.status == 304:
                current = self._renewed(ask, stored, response, clearings)
                if shared and caching.is_personal(response.headers):
                    shared.set_result(None)
                    shared = None
            else:
                on = caching.terms(response.status, response.headers, time.time())
                if on is None or not self.store.has_room_for(response.content_length or 0):
                    if shared:
                        shared.set_result(None)
                    return await self._stream(ask, response)
                current = await self._read(ask, response, on, clearings)
        if shared:
            shared.set_result(current)
        return _give(ask, current)

    def _renewed(
        self, ask: Ask, stored: StoredResponse, response: ClientResponse, clearings: int
    ) -> StoredResponse:
        """The stored response after a 304."""
        headers = end_to_end(response.headers)
        self._egress.publish(headers, own=ask.own)
        renewed = caching.refreshed(stored, headers, time.time(), time.monotonic())
        if caching.is_personal(response.headers):
            self.store.forget(ask.url)
        else:
            self._put(ask.url, renewed, clearings)
        return renewed

    async def _read(
        self, ask: Ask, response: ClientResponse, on: Terms, clearings: int
    ) -> StoredResponse:
        """Read the whole response and store it."""
        ask.visit.usage.expect(response.content_length or 0)
        arrived = time.monotonic()
        parts = []
        try:
            async for part in response.content.iter_any():
                ask.visit.usage.received(ask.exchange, len(part))
                parts.append(part)
        except LimitReached:
            raise
        except (ClientError, OSError, TimeoutError) as error:
            raise OriginError(reason_of(error), about=ask.url) from error
        headers = end_to_end(response.headers)
        self._egress.publish(headers, own=ask.own)
        body = b"".join(parts)
        new = caching.stored(ask.headers, headers, body, on, arrived)
        new = replace(new, digest=digest_of(body))
        self._put(ask.url, new, clearings)
        return new

    def _put(self, url: str, stored: StoredResponse, clearings: int) -> None:
        """Store a response, unless the store was cleared after it was requested."""
        if clearings == self.store.clearings:
            self.store.put(url, stored)

    async def _stream(self, ask: Ask, response: ClientResponse) -> StreamResponse:
        if ask.exchange.awaited and (retry_after := response.headers.get("Retry-After")):
            await ask.visit.hold(retry_after)
        headers = end_to_end(response.headers)
        self._egress.publish(headers, own=ask.own)
        received = headers.copy()
        caching.forbid_memory(headers)
        exchange = ask.exchange
        digest = Digest()

        def note(part: bytes) -> None:
            digest.update(part)
            ask.visit.usage.received(exchange, len(part))

        exchange.status = response.status
        _note_fault(ask, response.headers)
        if response.content_type == "text/event-stream":
            exchange.expect_no_end()
        exchange.has_end = response.content_length is not None or bool(
            _JSON.fullmatch(response.content_type)
        )
        ask.visit.usage.expect(response.content_length or 0)
        relayed = await relay(ask.request, response, headers, note)
        if response.content.exception() is not None:
            exchange.status = HTTPStatus.BAD_GATEWAY
            exchange.fault, exchange.detail = ResponseFault.DISCONNECTED, ""
        elif response.content.at_eof():
            exchange.received = ReceivedResponse(response.status, received, str(digest))
        return relayed


def _note_fault(ask: Ask, headers: AnyHeaders) -> None:
    """Note why the page cannot use a response that looks successful."""
    exchange = ask.exchange
    exchange.detail = _unreadable(ask, headers)
    exchange.fault = ResponseFault.UNREADABLE if exchange.detail else _html_module(ask, headers)


def _unreadable(ask: Ask, headers: AnyHeaders) -> str:
    """Why the page may not read a response to a request for another origin (CORS), or ''.

    The check of WHATWG Fetch, section 4.10, without credentials: there are none. Navigations by POST
    have an Origin, too.
    """
    is_cors = ask.request.headers.get("Sec-Fetch-Mode", "cors") == "cors"
    origin = ask.request.headers.get("Origin") if is_cors else None
    allowed = headers.get("Access-Control-Allow-Origin")
    if ask.own or origin is None or allowed in ("*", origin):
        return ""
    return f"Access-Control-Allow-Origin is {allowed or 'missing'}"


def _html_module(ask: Ask, headers: AnyHeaders) -> ResponseFault | None:
    """The fault of a module that is an HTML page. Classic scripts are not in mode "cors"."""
    is_module = ask.exchange.is_program and ask.headers.get("Sec-Fetch-Mode") == "cors"
    is_page = is_module and is_html(headers.get("Content-Type", ""))
    return ResponseFault.HTML_MODULE if is_page else None


def _give(ask: Ask, stored: StoredResponse) -> Plain:
    """A stored response, or a 304 if the browser has it."""
    headers = stored.headers.copy()
    _note_fault(ask, headers)
    ask.exchange.received = ReceivedResponse(HTTPStatus.OK, stored.headers, stored.digest)
    headers.popall("Content-Length", None)
    if stored.lifetime > 0:
        headers["Age"] = str(int(stored.age(time.monotonic())))
    caching.forbid_memory(headers)
    if _is_held_already(ask, stored):
        ask.exchange.status = 304
        return Plain(status=304, headers=headers)
    if not ask.exchange.received_bytes:
        ask.visit.usage.expect(len(stored.body))
        ask.visit.usage.received(ask.exchange, len(stored.body))
    ask.exchange.status = 200
    return Plain(headers=headers, body=stored.body)


def _is_held_already(ask: Ask, stored: StoredResponse) -> bool:
    now = time.time()
    changed = parse_http_date(stored.headers.get("Last-Modified", ""), now=now)
    outcome = conditional.evaluate(
        "GET",
        ask.request.headers,
        etag=stored.headers.get("ETag", ""),
        # Without Last-Modified it counts as changed now.
        last_modified=int(now) if changed is None else changed,
        now=now,
    )
    return outcome is ConditionalResult.NOT_MODIFIED

"""A visit: what the gateway serves to one page during one render."""

import asyncio
import time
from typing import TYPE_CHECKING

from yarl import URL

from prerender.config.settings import NetworkSettings
from prerender.gateway.document import Document
from prerender.gateway.exchange import Traffic
from prerender.gateway.listener import GatewayConnection
from prerender.gateway.needed_requests import Hanging
from prerender.gateway.page_requests import PageRequests
from prerender.gateway.page_usage import PageUsage
from prerender.http.retry_after import seconds_of
from prerender.http.trace_context import TraceContext
from prerender.snapshots.variants import ORDINARY, Variant
from prerender.urls.cache_busters import is_same_page

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

# A page with hundreds of frames keeps the browser's main thread busy, which all pages share. The first
# frames get their documents at once; each further one waits its turn.
_PROMPT_FRAMES = 20
_FRAME_SECONDS = 0.05
# How long responses with Retry-After are held back: each one, and from the first to the last.
_LONGEST_HOLD_SECONDS = 3.0
_LAST_HOLD_SECONDS = 6.0


class Visit:
    """The gateway's part of a render of a page at ``public``.

    It has the document to serve, the ``requests`` of the page, and its ``usage`` of the network.

    ``limits``: [network]. ``trace``: the trace of the site's own requests; ``traffic``: the totals of
    all visits; ``hanging``: requests that have hung on other pages.
    ``remembered``: state of the visit in the browser that cannot be cleared, or ''.
    ``needs_own_context``: requests cannot be attributed with certainty; ``when_in_doubt`` is called
    then. ``catch_up`` is awaited before a request that may be a navigation: the browser has reported
    that, but on another connection.
    """

    def __init__(
        self,
        public: URL,
        document: Document | None,
        limits: NetworkSettings | None = None,
        *,
        variant: Variant = ORDINARY,
        trace: TraceContext | None = None,
        traffic: Traffic | None = None,
        hanging: Hanging | None = None,
        has_policy: bool = False,
    ) -> None:
        self.public = public
        self.document = document
        self.has_policy = has_policy
        self.variant = variant
        self.trace = trace
        self.usage = PageUsage(limits or NetworkSettings())
        self.requests = PageRequests(
            str(public.origin()), self.usage, traffic or Traffic(), hanging or Hanging()
        )
        self.remembered = ""
        self.needs_own_context = False
        self.when_in_doubt = _pass
        self.catch_up: Callable[[], Awaitable[None]] = _up_to_date
        self._connections: set[GatewayConnection] = set()
        self._frames = 0
        self._frame_turn = 0.0
        self._holds_until = 0.0

    def need_own_context(self) -> None:
        """Note that requests may be this page's or an older one's: it must be the first one of its
        browser context."""
        self.needs_own_context = True
        self.when_in_doubt()

    def track(self, connection: GatewayConnection) -> None:
        """Remember a connection that served this visit."""
        self._connections.add(connection)

    def end(self) -> None:
        """Abort the connections by which the page could still send or set something.

        The browser uses the others again: new ones took a tenth of a render's CPU time.
        """
        self.requests.cut_off()
        for connection in self._connections:
            if not connection.reusable and connection.transport is not None:
                connection.transport.abort()
        self._connections.clear()

    def take_document(self, url: str) -> Document | None:
        """The document, once: a reload or a frame with the same URL is a new request."""
        document, self.document = self.document, None
        if document is not None:
            self.requests.document_url = url
            self.has_policy = document.has_policy
        return document

    def is_elsewhere(self, url: str) -> bool:
        """Whether a navigation to a URL leaves the page's document."""
        document_url = self.requests.document_url
        return bool(document_url) and not is_same_page(document_url, url, time.time())

    async def frame_turn(self) -> None:
        """Wait until the document of another frame may be sent."""
        self._frames += 1
        if self._frames > _PROMPT_FRAMES:
            now = time.monotonic()
            self._frame_turn = max(self._frame_turn, now) + _FRAME_SECONDS
            await asyncio.sleep(self._frame_turn - now)

    async def hold(self, retry_after: str) -> None:
        """Hold back a response until its Retry-After is over.

        The page's clock, which would be there at once, waits for the response meanwhile.
        """
        seconds = seconds_of(retry_after) or 0.0
        if seconds > _LONGEST_HOLD_SECONDS:
            return
        now = time.monotonic()
        self._holds_until = self._holds_until or now + _LAST_HOLD_SECONDS
        if now + seconds <= self._holds_until:
            await asyncio.sleep(seconds)


def _pass() -> None:
    """Do nothing."""


async def _up_to_date() -> None:
    """Do nothing."""

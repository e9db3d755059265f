"""What a visitor sees: opens the pretty URL of a page on the live site in a browser."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from multidict import CIMultiDict
from yarl import URL

from prerender.browser.page_results import Departed, SerializeOptions
from prerender.browser.pool import Pool
from prerender.config.settings import RenderSettings
from prerender.content.accessibility import Announcement
from prerender.content.page_views import Seen, announcements, listen, read
from prerender.errors import BrowserGone, RenderError
from prerender.gateway.address_policy import VisitorPolicy
from prerender.gateway.blocklist import Blocklist
from prerender.gateway.document import Document
from prerender.gateway.exchange import Exchange
from prerender.rendering.verdict import faults_of, missing_responses, third_party_failures
from prerender.tools.crawler import Fetched

T = TypeVar("T")
_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class VisitorView:
    """``status`` of the document; ``seen`` is None if the page navigated to ``url``.

    ``announced``: what a screen reader announces. ``errors``: of its scripts and of the browser;
    ``failures``: requests of the site that failed, with the reason. ``withheld``: requests that the
    proxy would refuse to a page, with the reason.
    """

    url: str
    status: int
    seen: Seen | None
    announced: tuple[Announcement, ...] = ()
    errors: tuple[str, ...] = ()
    failures: tuple[str, ...] = ()
    withheld: tuple[str, ...] = ()


class Unsettled(RenderError):
    """A page does not settle within the time limit. ``missing``: the responses that it waits for."""

    def __init__(self, text: str, missing: tuple[str, ...]) -> None:
        super().__init__(text)
        self.missing = missing


class VisitorBrowser:
    """Opens pages of the site with the browser of ``pool``, which reaches what ``addresses`` allows.

    ``blocklist``: what the proxy blocks.
    """

    def __init__(
        self, pool: Pool, limits: RenderSettings, addresses: VisitorPolicy, blocklist: Blocklist
    ) -> None:
        self._pool = pool
        self._limits = limits
        self._addresses = addresses
        self._blocklist = blocklist

    async def view(self, url: str, remove: Sequence[str] = ()) -> VisitorView:
        """Open a URL and read it when it has settled. Raises RenderError.

        ``remove``: selectors of elements that its snapshot lacks.
        """
        return await _twice(lambda: self._view(url, remove))

    async def listen(self, url: str, response: Fetched) -> tuple[Announcement, ...]:
        """What a screen reader announces in a response for the page at ``url``. Raises RenderError."""
        return await _twice(lambda: self._listen(url, response))

    async def _view(self, url: str, remove: Sequence[str]) -> VisitorView:
        limits = self._limits
        async with (
            self._pool.place() as place,
            self._pool.page(place, limits.timeout, first=True) as page,
        ):
            with page.visit(None) as visit:
                rendered = await page.render(
                    url,
                    visit,
                    limits,
                    timeout=limits.timeout,
                    options=SerializeOptions(),
                )
                documents = [
                    one for one in visit.requests.exchanges if one.destination == "document"
                ]
                status = documents[-1].status if documents else 0
                if isinstance(rendered, Departed):
                    return VisitorView(rendered.url, status, None)
                if rendered.partial:
                    raise Unsettled(
                        f"{url}: does not settle within {limits.timeout:g} seconds",
                        tuple(missing_responses(visit.requests.exchanges, partial=True)),
                    )
                seen = await read(page, remove)
                exchanges = visit.requests.exchanges
                failures = [f"{one.url}: {one.text}" for one in faults_of(exchanges, time.time())]
                others = third_party_failures(exchanges)
                failures += [f"{url}: data of a third party failed" for url in others]
                return VisitorView(
                    seen.url,
                    status,
                    seen,
                    await announcements(page),
                    rendered.errors,
                    tuple(failures),
                    tuple(self._withheld(visit.requests.exchanges)),
                )

    def _withheld(self, exchanges: Iterable[Exchange]) -> Iterator[str]:
        for exchange in exchanges:
            url = URL(exchange.url, encoded=True)
            host, port = url.raw_host or "", url.port or 0
            remedy = f"add {url.authority} to [network] allow if crawlers need it"
            if reason := self._blocklist.unwanted_type(exchange.destination):
                yield f"{exchange.url}: {reason}"
            elif exchange.foreign and (reason := self._blocklist.unwanted_host(host, port)):
                yield f"{exchange.url}: {reason}; {remedy}"
            elif (host, port) in self._addresses.refused_to_pages:
                yield f"{exchange.url}: not a public address at port 80 or 443; {remedy}"

    async def _listen(self, url: str, response: Fetched) -> tuple[Announcement, ...]:
        limits = self._limits
        headers = CIMultiDict({"Content-Type": response.headers.get("Content-Type", "text/html")})
        document = Document(200, headers, response.body)
        async with self._pool.place() as place, self._pool.page(place, limits.timeout) as page:
            with page.visit(document) as visit:
                return await listen(
                    page,
                    url,
                    visit,
                    limits,
                    timeout=limits.timeout,
                )


async def _twice(do: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call once if the browser dies."""
    try:
        return await do()
    except BrowserGone:
        await asyncio.sleep(_PAUSE_SECONDS)
        return await do()

"""Reads sitemaps from the origin, as crawlers get them from the site."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress

from aiohttp import ClientError
from multidict import CIMultiDict
from protego import Protego
from yarl import URL

from prerender.crawlers import robots
from prerender.errors import FetchFailed, OriginError, SitemapError
from prerender.gateway.connection_errors import reason_of
from prerender.gateway.upstream import Upstream
from prerender.http import forwarding_headers
from prerender.sitemaps.parsing import Listed
from prerender.sitemaps.reading import Chunks, read
from prerender.urls.addresses import ascii_host, parts_of

_LONGEST_SHOWN = 200


class OriginSitemaps:
    """The sitemaps of the site at ``public``, whose origin is ``upstream``."""

    def __init__(self, upstream: Upstream, public: URL) -> None:
        self._upstream = upstream
        self._public = public
        self._site = str(public.origin())

    async def named(self) -> list[str]:
        """The sitemaps of the site that robots.txt names; without any, /sitemap.xml."""
        try:
            rules = await self.robots()
        except FetchFailed:
            rules = Protego.parse("")
        return self.named_by(rules)

    async def robots(self) -> Protego:
        """The rules of robots.txt; all is allowed without one. Raises FetchFailed."""
        try:
            return Protego.parse(await robots.fetch(self._upstream, self._public))
        except (OriginError, ClientError, OSError) as error:
            raise FetchFailed(f"{robots.PATH}: {reason_of(error)}") from error

    def named_by(self, rules: Protego) -> list[str]:
        """The sitemaps of the site that robots.txt names; without any, /sitemap.xml."""
        of_site = [url for url in rules.sitemaps if self._has(url)]
        return of_site or [f"{self._site}/sitemap.xml"]

    def _has(self, url: str) -> bool:
        with suppress(ValueError):
            return ascii_host(url).startswith(f"{self._site}/")
        return False

    async def read(
        self, sitemaps: list[str], failed: Callable[[SitemapError], None] | None = None
    ) -> AsyncGenerator[Listed]:
        """The entries of sitemaps, as ``sitemaps.read``. Raises SitemapError."""
        async with aclosing(read(sitemaps, self._opened, failed)) as entries:
            async for entry in entries:
                yield entry

    @asynccontextmanager
    async def _opened(self, url: str) -> AsyncIterator[Chunks]:
        """The body of a file of the site. Raises FetchFailed, SitemapError."""
        if not self._has(url):
            raise SitemapError(f"{url}: it is not of {self._site}")
        headers: CIMultiDict[str] = CIMultiDict({"Accept-Encoding": "identity"})
        forwarding_headers.mark(headers, self._public)
        try:
            target, _ = parts_of(url)
        except ValueError as error:
            raise SitemapError(f"{url[:_LONGEST_SHOWN]!r}: {error}") from error
        try:
            async with self._upstream.request("GET", target, headers) as response:
                if response.status != 200:
                    raise SitemapError(f"{url}: status {response.status}")
                yield response.content.iter_any()
        except (OriginError, ClientError, OSError) as error:
            raise FetchFailed(f"{url}: {reason_of(error)}") from error

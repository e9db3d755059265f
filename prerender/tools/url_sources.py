"""Sources of pages for commands: sitemaps, files, standard input, or pages whose links are followed."""

import argparse
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Container
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager
from typing import NamedTuple

from yarl import URL

from prerender.cli import common, terminal
from prerender.cli.terminal import Progress
from prerender.config import Settings
from prerender.errors import FetchFailed, SitemapError
from prerender.http.fields import is_html
from prerender.sitemaps import reading
from prerender.sitemaps.parsing import Listed, is_sitemap
from prerender.tools.crawler import CrawlerClient, Streamed
from prerender.urls.addresses import page_of, site_of, url_of

# Of a response, to tell a sitemap from a page.
_HEAD_BYTES = 4096
# File names of sitemaps and lists.
_OF_LISTS = (".xml", ".gz", ".txt")
_MOST_SHOWN = 20
_LONGEST_SHOWN = 500

OpenURL = Callable[[str], AbstractAsyncContextManager[Streamed]]


class Listing(NamedTuple):
    """The site of the first page of some sources, its settings, and the URLs of its pages in them.

    ``unread``: the number of sitemaps that could not be read to their end.
    """

    site: str
    settings: Settings
    urls: list[str]
    unread: int
    progress: Progress


async def read_listing(options: argparse.Namespace, stack: AsyncExitStack) -> Listing:
    """Read the sources of a command that renders their pages itself. Raises SitemapError.

    Pages of other sites are skipped.
    The progress is shown, and the crawler is open, until ``stack`` is closed.
    """
    progress = stack.enter_context(terminal.progress("page"))
    own = common.site_headers(options.config)
    crawler = await stack.enter_async_context(CrawlerClient.open(site_headers=own))
    sources = Sources(crawler.stream, progress)
    pages = [page async for page in sources.readable(options.sources)]
    site = str(URL(pages[0].url, encoded=True).origin())
    settings = common.settings_for_site(site, options.config)
    common.quiet_logs(settings.log)
    urls = []
    for url in dict.fromkeys(page.url for page in pages):
        if site_of(url) == site_of(site):
            urls.append(url)
        else:
            progress.line(f"skipped: {url}: not on {site}")
    progress.add_to_total(len(urls))
    return Listing(site, settings, urls, sources.unread, progress)


class Sources:
    """Reads sources and reports skipped URLs. ``open_url`` opens a URL, as ``CrawlerClient.stream``."""

    def __init__(self, open_url: OpenURL, progress: Progress) -> None:
        self._open_url = open_url
        self._progress = progress
        self._sites: set[tuple[str, str]] = set()
        self.skipped = 0
        self.unread = 0

    async def readable(
        self, sources: list[str], *, same_hosts: bool = False
    ) -> AsyncGenerator[Listed]:
        """The ``pages`` of what can be read. Raises SitemapError if there are none at all.

        Sitemaps that cannot be read to their end are reported, and counted in ``unread``.
        """
        failures: list[SitemapError] = []

        def report() -> None:
            for error in failures:
                self._progress.line(f"not read: {error}")
            self.unread += len(failures)
            failures.clear()

        has_pages = False
        async with aclosing(self.pages(sources, failures.append, same_hosts=same_hosts)) as pages:
            async for page in pages:
                has_pages = True
                report()
                yield page
        if has_pages:
            report()
        elif failures:
            raise failures[0]
        else:
            raise SitemapError(f"{', '.join(sources)}: no pages listed")

    async def pages(
        self,
        sources: list[str],
        failed: Callable[[SitemapError], None] | None = None,
        *,
        same_hosts: bool = False,
    ) -> AsyncGenerator[Listed]:
        """All pages as pretty URLs, as they are read. Raises SitemapError.

        A URL that is not a sitemap is a page. ``failed``: as for ``reading.read``. ``same_hosts``:
        skip pages of other hosts than those of sources that are URLs.
        """
        hosts = {host for source in sources if (host := _host(source))} if same_hosts else set()
        async with aclosing(self._entries(sources, failed)) as entries:
            async for entry in entries:
                if page := self._page(entry.url, hosts):
                    yield Listed(page, entry.lastmod)

    def _page(self, url: str, hosts: Container[str | None]) -> str | None:
        """The pretty URL of a listed page, if it is on one of the hosts (or there are none)."""
        try:
            page = page_of(url)
        except ValueError as error:
            self._skip(f"{url}: {error}")
            return None
        if hosts and URL(page, encoded=True).host not in hosts:
            self._skip(f"{page}: not on the host of the sitemap; give --via for this page")
            return None
        self._sites.add(site_of(page))
        return page

    async def listed(self, sources: list[str], failed: Callable[[SitemapError], None]) -> list[str]:
        """The URLs of all pages as listed. ``failed``: as for ``reading.read``."""
        return [entry.url async for entry in self._entries(sources, failed)]

    def own_page(self, url: str) -> str | None:
        """The pretty URL of a linked page, if it is on one of the sites."""
        if site_of(url) not in self._sites:
            return None
        try:
            return page_of(url)
        except ValueError:
            return None

    async def is_page(self, url: str) -> bool:
        """Whether a URL is that of a page, not of a sitemap.

        Raises SitemapError, also if it is named like a sitemap: applications respond to any URL with
        their page.
        """
        if "#!" in url:
            return True
        try:
            async with self._open_url(url) as response:
                if not is_html(response.headers.get("Content-Type", "")):
                    return False
                head = b""
                async for part in response.body:
                    head += part
                    if len(head) >= _HEAD_BYTES:
                        break
        except FetchFailed as error:
            raise SitemapError(str(error)) from error
        if is_sitemap(head):
            return False
        if URL(url).suffix in _OF_LISTS:
            problem = (
                "an HTML page, not a sitemap"
                if response.status == 200
                else f"status {response.status}"
            )
            raise SitemapError(f"{url}: {problem}")
        return True

    async def _entries(
        self, sources: list[str], failed: Callable[[SitemapError], None] | None = None
    ) -> AsyncGenerator[Listed]:
        for source in sources:
            try:
                if source.startswith(("http://", "https://")) and await self.is_page(source):
                    yield Listed(source)
                    continue
            except SitemapError as error:
                if failed is None:
                    raise
                failed(error)
                continue
            async with aclosing(reading.read([source], self._opened, failed)) as entries:
                async for entry in entries:
                    yield entry

    @asynccontextmanager
    async def _opened(self, url: str) -> AsyncIterator[reading.Chunks]:
        try:
            async with self._open_url(url) as response:
                if response.status != 200:
                    raise SitemapError(f"{url}: status {response.status}")
                yield response.body
        except FetchFailed as error:
            raise SitemapError(str(error)) from error

    def _skip(self, reason: str) -> None:
        self.skipped += 1
        if self.skipped <= _MOST_SHOWN:
            self._progress.line(f"skipped: {reason[:_LONGEST_SHOWN]}")
        if self.skipped == _MOST_SHOWN:
            self._progress.line("more skipped URLs are not shown")


def _host(source: str) -> str | None:
    """The host of a source that is a URL."""
    try:
        return url_of(source, encoded=False).host if "://" in source else None
    except ValueError:
        return None  # it cannot be read either

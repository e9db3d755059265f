"""Sources of pages for commands: sitemaps, files, standard input, or pages whose links are followed."""

import argparse
from contextlib import AsyncExitStack
from typing import NamedTuple

from yarl import URL

from prerender.cli import options as common
from prerender.cli import terminal
from prerender.cli.terminal import Progress
from prerender.config import Settings
from prerender.errors import FetchFailed, SitemapError
from prerender.tools import sitemaps
from prerender.tools.crawler import Crawler
from prerender.tools.sitemaps import Listed
from prerender.urls.addresses import page_of, site_of


class Listing(NamedTuple):
    """The site of the first page of some sources, its settings, and all pages of the sources."""

    site: str
    settings: Settings
    pages: list[Listed]
    progress: Progress


async def read_listing(options: argparse.Namespace, stack: AsyncExitStack) -> Listing:
    """Read the sources of a command that renders their pages by itself. Raises SitemapError.

    The progress is shown, and the crawler is open, until ``stack`` is closed.
    """
    progress = stack.enter_context(terminal.progress("page"))
    crawler = await stack.enter_async_context(Crawler.open())
    pages = await Sources(crawler, progress).read(options.sources)
    site = str(URL(pages[0].url, encoded=True).origin())
    settings = common.settings_for_site(site, options.config)
    common.quiet_logs(settings.log)
    return Listing(site, settings, pages, progress)


class Sources:
    """Reads sources with ``crawler`` and reports skipped URLs."""

    def __init__(self, crawler: Crawler, progress: Progress) -> None:
        self._crawler = crawler
        self._progress = progress
        self._sites: set[tuple[str, str]] = set()

    async def read(self, sources: list[str], *, follow: int = 0) -> list[Listed]:
        """All pages as pretty URLs. Raises SitemapError.

        A URL that is not a sitemap is a page, whose links are followed to depth ``follow``.
        """
        pages = []
        for entry in await self.listed(sources):
            try:
                page = page_of(entry.url)
            except ValueError as error:
                self._progress.line(f"skipped: {entry.url}: {error}")
                continue
            self._sites.add(site_of(page))
            pages.append(Listed(page, entry.lastmod))
        if not pages and not follow:
            raise SitemapError(f"{', '.join(sources)}: no pages listed")
        return pages

    async def listed(self, sources: list[str]) -> list[Listed]:
        """All pages with their URLs as listed. Raises SitemapError."""
        listed: list[Listed] = []
        for source in sources:
            if source.startswith(("http://", "https://")) and await self.is_page(source):
                listed.append(Listed(source))
            else:
                listed += [entry async for entry in sitemaps.read([source], self._fetch)]
        return listed

    def own_page(self, url: str) -> str | None:
        """The pretty URL of a linked page, if it is on one of the sites."""
        if site_of(url) not in self._sites:
            return None
        try:
            return page_of(url)
        except ValueError:
            return None

    async def is_page(self, url: str) -> bool:
        """Whether a URL is that of a page, not of a sitemap. Raises SitemapError."""
        if "#!" in url:
            return True
        try:
            answer = await self._crawler.get(url)
        except FetchFailed as error:
            raise SitemapError(str(error)) from error
        if answer.status // 100 == 3:
            return True
        return answer.is_html and not sitemaps.is_sitemap(answer.body)

    async def _fetch(self, url: str) -> bytes:
        answer = await self._crawler.get(url)
        if answer.status != 200:
            raise SitemapError(f"{url}: status {answer.status}")
        return answer.body

"""Where commands find pages: sitemaps, files and standard input, or pages whose links are followed."""

from prerender.cli.terminal import Progress
from prerender.errors import FetchFailed, SitemapError
from prerender.tools import sitemaps
from prerender.tools.crawler import Crawler
from prerender.tools.sitemaps import Listed
from prerender.urls.addresses import page_of, site_of


class Sources:
    """Reads what is given on a command line, with ``crawler``; tells what is left out."""

    def __init__(self, crawler: Crawler, progress: Progress) -> None:
        self._crawler = crawler
        self._progress = progress
        self._sites: set[tuple[str, str]] = set()

    async def read(self, sources: list[str], *, follow: int = 0) -> list[Listed]:
        """All pages, in pretty form. Raises SitemapError.

        A URL that is no sitemap is a page itself, whose links may be followed ``follow`` far.
        """
        pages = []
        for entry in await self.listed(sources):
            try:
                page = page_of(entry.url)
            except ValueError as error:
                self._progress.line(f"left out: {entry.url}: {error}")
                continue
            self._sites.add(site_of(page))
            pages.append(Listed(page, entry.lastmod))
        if not pages and not follow:
            raise SitemapError(f"{', '.join(sources)}: no pages are listed")
        return pages

    async def listed(self, sources: list[str]) -> list[Listed]:
        """All pages, as they are written there. Raises SitemapError."""
        listed: list[Listed] = []
        for source in sources:
            if source.startswith(("http://", "https://")) and await self.is_page(source):
                listed.append(Listed(source))
            else:
                listed += [entry async for entry in sitemaps.read([source], self._fetch)]
        return listed

    def own_page(self, url: str) -> str | None:
        """The page that a link leads to, in pretty form, if it is on one of the sites."""
        if site_of(url) not in self._sites:
            return None
        try:
            return page_of(url)
        except ValueError:
            return None

    async def is_page(self, url: str) -> bool:
        """Whether a URL is one of a page and not of a sitemap. Raises SitemapError."""
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

"""Fetches pages and follows links as a crawler that supports the AJAX crawling scheme."""

import asyncio
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass

from protego import Protego

from prerender.background import cancel_all
from prerender.errors import FetchFailed
from prerender.http.conditional import parse_http_date
from prerender.http.robots_tags import is_noindex
from prerender.sitemaps.parsing import Listed
from prerender.snapshots.sameness import needs_no_render
from prerender.tools.concurrency import work_through
from prerender.tools.crawler import SEARCH_ENGINE, USER_AGENT, CrawlerClient, Fetched
from prerender.tools.html import PageContent, read_page
from prerender.urls.addresses import is_ugly, page_of, same_page, site_of
from prerender.urls.ajax_crawling import pretty_to_ugly
from prerender.urls.references import redirect_target

_REMEMBERED = 1000


@dataclass(frozen=True, slots=True)
class CrawledPage:
    """``response``: what the crawler gets. ``document``: the page without a snapshot, if it is HTML.
    ``moved``: the URL that visitors are redirected to, or ''. ``dynamic``: whether the response is what
    search engines get by their User-Agent. ``needless``: whether that is a snapshot that shows what the
    document shows without scripts; None if it is no snapshot."""

    response: Fetched
    document: PageContent | None
    moved: str = ""
    dynamic: bool = False
    needless: bool | None = None


class PageFetcher:
    """Fetches pages with ``crawler``. ``close`` cancels pending requests."""

    def __init__(self, crawler: CrawlerClient) -> None:
        self._crawler = crawler
        self._responses: dict[str, asyncio.Task[Fetched]] = {}

    async def fetch(self, url: str) -> CrawledPage:
        """Fetch a page by its pretty URL: its snapshot if it has one. Raises FetchFailed.

        That is the response of its ugly URL, or else that which search engines get.
        """
        response = await self.once(url.partition("#")[0])
        moved = led_to(url, response)
        document = None
        if response.status == 200 and response.is_html:
            document = await asyncio.to_thread(read_page, response.body, url, response.charset)
        ugly = pretty_to_ugly(url, opted_in=document is not None and document.opted_in)
        if ugly is not None:
            return CrawledPage(await self._crawler.get(ugly), document, moved)
        if document is not None and document.scripts and self._crawler.user_agent == USER_AGENT:
            theirs, needless = await self._as_search_engine(url, document, response)
            if theirs is not None:
                return CrawledPage(theirs, document, moved, dynamic=True)
            return CrawledPage(response, document, moved, needless=needless)
        return CrawledPage(response, document, moved)

    async def _as_search_engine(
        self, url: str, document: PageContent, ours: Fetched
    ) -> tuple[Fetched | None, bool | None]:
        """The response to a search engine, if that gets a snapshot of the page or its error; and
        whether a snapshot shows no more than ``ours``.

        Others are of sites that refuse search engines at addresses that are not theirs.
        """
        try:
            response = await self._crawler.get(url, SEARCH_ENGINE)
        except FetchFailed:
            return None, None
        if response.status != 200:
            rendered = response.status in (404, 410) or response.cache_status is not None
            return response if rendered else None, None
        if not response.is_html:
            return None, None
        page = await asyncio.to_thread(read_page, response.body, url, response.charset)
        if len("".join(page.texts)) > len("".join(document.texts)):
            return response, None
        if response.cache_status is None or "#" in url:
            return None, None
        html, charset = ours.body, ours.charset
        return None, await asyncio.to_thread(needs_no_render, html, charset, response.body)

    async def once(self, url: str) -> Fetched:
        """The response of a URL, fetched once: all ``#!`` states of a page share one document."""
        task = self._responses.get(url)
        if task is None:
            if len(self._responses) >= _REMEMBERED:
                self._responses = {
                    url: task for url, task in self._responses.items() if not task.done()
                }
            task = self._responses[url] = asyncio.create_task(self._crawler.get(url), name=url)
        return await asyncio.shield(task)

    async def close(self) -> None:
        """Cancel requests that nobody waits for."""
        await cancel_all(self._responses.values())


def led_to(page: str, response: Fetched) -> str:
    """The target of a redirect for a visitor of a pretty URL; '' if the response is no redirect."""
    location = response.headers.get("Location", "")
    if response.status // 100 != 3 or not location:
        return ""
    try:
        return redirect_target(page, location)
    except ValueError:
        return ""


def canonicals(response: Fetched, page: PageContent) -> list[str]:
    """The canonical URLs of a page: in its head and in Link headers (RFC 6596)."""
    named = [link for link, relations in response.links if "canonical" in relations]
    return [*page.canonicals, *named]


async def read_robots(crawler: CrawlerClient, site: str, user_agent: str) -> Callable[[str], bool]:
    """Returns whether the site's robots.txt allows a URL. Without one, every URL is allowed."""
    text = ""
    with suppress(FetchFailed):
        response = await crawler.get(f"{site}/robots.txt")
        text = response.body.decode("utf-8", "replace") if response.status == 200 else ""
    rules = Protego.parse(text)
    return lambda url: bool(rules.can_fetch(url, user_agent))


class Frontier:
    """The pages of one ``site`` that were found: each once, and at most ``most`` of them (0: all).

    ``on_new_pages`` is called with the number of new pages.
    """

    def __init__(
        self, site: str, most: int = 0, on_new_pages: Callable[[int], None] = lambda _: None
    ) -> None:
        self._site = site
        self._most = most
        self._on_new_pages = on_new_pages
        self._seen: set[str] = set()
        self._left_out: set[str] = set()

    def new(self, urls: Iterable[str]) -> list[str]:
        """The pages among ``urls``, in pretty form, that are new and within the limit."""
        new = []
        for url in own_pages(urls, self._site):
            if url in self._seen:
                continue
            if self._most and len(self._seen) >= self._most:
                self._left_out.add(url)
                continue
            self._seen.add(url)
            new.append(url)
        self._on_new_pages(len(new))
        return new

    @property
    def left_out(self) -> int:
        """The number of pages beyond the limit."""
        return len(self._left_out)


class SiteCrawl:
    """Finds the pages of a site by following links, at most ``most`` of them.

    ``listed``: the pages that crawlers index: they exist, robots.txt and robots tags allow them, and
    they are their own canonical. ``left_out``: all others, with the reason.
    """

    def __init__(
        self,
        site: str,
        crawler: CrawlerClient,
        *,
        most: int,
        concurrency: int,
        rate: float = 0.0,
        user_agent: str = USER_AGENT,
        done: Callable[[], None] = lambda: None,
        on_new_pages: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._site = site
        self._crawler = crawler
        self._fetcher = PageFetcher(crawler)
        self._concurrency = concurrency
        self._rate = rate
        self._user_agent = user_agent
        self._done = done
        self._allowed: Callable[[str], bool] = lambda _: True
        self._frontier = Frontier(site, most, on_new_pages)
        self.listed: dict[str, Listed] = {}
        self.left_out: dict[str, str] = {}

    async def find(self, urls: Iterable[str]) -> list[Listed]:
        """All pages that can be reached from ``urls``, sorted by URL."""
        self._allowed = await read_robots(self._crawler, self._site, self._user_agent)
        try:
            first = self._frontier.new(urls)
            await work_through(first, self._look, concurrency=self._concurrency, rate=self._rate)
        finally:
            await self._fetcher.close()
        return [self.listed[url] for url in sorted(self.listed)]

    @property
    def beyond(self) -> int:
        """The number of pages beyond the limit, which were not fetched."""
        return self._frontier.left_out

    async def _look(self, url: str) -> list[str]:
        try:
            crawled = await self._fetcher.fetch(url)
        except FetchFailed as error:
            self.left_out[url] = str(error)
            return []
        finally:
            self._done()
        response = crawled.response
        if response.status != 200 or not response.is_html:
            self.left_out[url] = f"status {response.status}, {response.media_type or 'no type'}"
            return self._frontier.new([led_to(url, response)])
        page = await asyncio.to_thread(read_page, response.body, url, response.charset)
        if reason := self._reason(url, response, page):
            self.left_out[url] = reason
        else:
            changed = parse_http_date(response.headers.get("Last-Modified", ""), now=time.time())
            self.listed[url] = Listed(url, changed)
        return self._frontier.new(self._followed([*page.links, *canonicals(response, page)]))

    def _followed(self, links: Iterable[str]) -> list[str]:
        """The links that a crawler of the scheme follows (specification, "Hyperlinks and Sitemaps")."""
        own = [link for link in links if site_of(link) == site_of(self._site)]
        for link in own:
            if is_ugly(link):
                self.left_out[link] = "an ugly URL: crawlers do not follow it"
        return [link for link in own if not is_ugly(link)]

    def _reason(self, url: str, response: Fetched, page: PageContent) -> str:
        """Why crawlers do not index an existing page, or ''."""
        if page.noindex or is_noindex(response.headers.getall("X-Robots-Tag", ())):
            return "noindex"
        # A page without a state is also crawled at its own URL, if ugly URLs are disallowed.
        if not self._allowed(response.url) and ("#" in url or not self._allowed(url)):
            return "robots.txt"
        canonical = next(iter(canonicals(response, page)), "")
        if canonical and not same_page(canonical, url):
            return f"its canonical is {canonical}"
        return ""


def own_pages(urls: Iterable[str], site: str) -> list[str]:
    """The URLs that are pages of a site, in pretty form."""
    own = []
    for url in urls:
        if site_of(url) != site_of(site):
            continue
        try:
            own.append(page_of(url))
        except ValueError:
            continue
    return own

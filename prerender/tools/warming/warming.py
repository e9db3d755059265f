"""Fills the cache of a running proxy by requesting pages as crawlers do.

Pages are requested while the sitemaps are still being read. Pending pages are in a ``Journal``, so that
memory does not depend on the number of pages, an interrupted run resumes, and the next run requests
only pages that changed since.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field

from prerender.background import cancel_all
from prerender.errors import FetchFailed
from prerender.snapshots.snapshot import UNUSABLE
from prerender.tools.crawler import Fetched
from prerender.tools.html import read_page
from prerender.tools.link_following import led_to
from prerender.tools.warming.journal import GOOD, Journal, PageToWarm, WarmingOutcome
from prerender.tools.warming.requests import Requests
from prerender.urls.addresses import is_ugly
from prerender.urls.ajax_crawling import pretty_to_ugly

# Listed or taken together: a transaction of the journal each.
_BATCH = 200
_TAKEN = 32
MOST_FAILURES = 1000
# Between the first request for a page that failed for a reason that may pass, and the second.
_LATER_SECONDS = 10.0
_MAY_PASS = (500, 503, 504)
_REASONS: dict[WarmingOutcome, str] = {
    "no_proxy": "the response is not a snapshot of this proxy",
    "failed": "no good snapshot could be rendered",
}


@dataclass(frozen=True, slots=True)
class Warmed:
    """The outcome of a page; ``reason``: why it failed, or where it redirects to."""

    url: str
    outcome: WarmingOutcome
    reason: str = ""


@dataclass(slots=True)
class Totals:
    """The totals of a run. ``pages``: to warm, as far as they are known. ``failures``: the first ones.
    ``skipped``: done by an earlier run. ``left_out``: beyond the limit. ``unread``: sitemaps that could
    not be read to their end."""

    counts: Counter[str] = field(default_factory=Counter)
    failures: list[Warmed] = field(default_factory=list)
    pages: int = 0
    skipped: int = 0
    left_out: int = 0
    unread: int = 0
    seconds: float = 0.0

    @property
    def failed(self) -> int:
        """How many pages failed."""
        return sum(count for outcome, count in self.counts.items() if outcome not in GOOD)


class Warming:
    """Warms pages.

    ``most``: maximum number of pages; 0: all. ``page_of`` returns the page of a link, in pretty form,
    or None if it is not to be warmed. ``on_page``: called for each page, ``on_new_pages``: with the
    number of further pages to warm.
    """

    def __init__(
        self,
        requests: Requests,
        journal: Journal,
        *,
        concurrency: int,
        most: int = 0,
        on_page: Callable[[Warmed], None] = lambda _: None,
        on_new_pages: Callable[[int], None] = lambda _: None,
        page_of: Callable[[str], str | None],
    ) -> None:
        self._requests = requests
        self._journal = journal
        self._concurrency = concurrency
        self._most = most
        self._on_page = on_page
        self._on_new_pages = on_new_pages
        self._page_of = page_of
        self._taken: deque[PageToWarm] = deque()
        self._requested = 0
        self._running = 0
        self._reading = True
        self._first_pass = True
        self._changed = asyncio.Event()
        self.totals = Totals()

    async def run(self, pages: AsyncGenerator[PageToWarm]) -> Totals:
        """Warm all pages: of those that are known, the last changed first."""
        started = time.monotonic()
        tasks = [
            asyncio.create_task(self._work(), name=f"worker {n}") for n in range(self._concurrency)
        ]
        tasks.append(asyncio.create_task(self._read(pages), name="reading"))
        try:
            await asyncio.gather(*tasks)
        finally:
            await cancel_all(tasks)
            self.totals.seconds = time.monotonic() - started
            self.totals.left_out = self._journal.left() if self._most else 0
        return self.totals

    async def _read(self, pages: AsyncGenerator[PageToWarm]) -> None:
        batch = []
        async with aclosing(pages):
            async for page in pages:
                batch.append(page)
                if len(batch) == _BATCH:
                    self._add(batch)
                    batch = []
        self._add(batch)
        self._reading = False
        self._changed.set()

    def _add(self, pages: Iterable[PageToWarm]) -> None:
        added = self._journal.add(pages)
        self.totals.skipped += added.done
        self.totals.pages += added.new
        self._on_new_pages(added.new)
        self._changed.set()

    async def _work(self) -> None:
        while (page := await self._next()) is not None:
            try:
                await self._warm(page)
            finally:
                self._running -= 1
                self._changed.set()

    async def _next(self) -> PageToWarm | None:
        """The next page; None if there are no more."""
        while True:
            # With a limit, only when all are known it is known which ones changed last.
            if not self._taken and not (self._most and self._reading):
                self._taken.extend(self._journal.take(min(_TAKEN, self._room())))
            if self._taken:
                self._requested += 1
                self._running += 1
                return self._taken.popleft()
            if not self._reading and not self._running:
                if await self._once_more():
                    continue
                return None
            self._changed.clear()
            await self._changed.wait()

    def _room(self) -> int:
        return self._most - self._requested if self._most else _TAKEN

    async def _once_more(self) -> bool:
        """List the pages that may succeed now, for the second and last time."""
        if not self._first_pass:
            self._changed.set()
            return False
        self._first_pass = False
        self._running += 1
        if self._journal.has_later():
            await asyncio.sleep(_LATER_SECONDS)
            self._requested -= self._journal.once_more()
        self._running -= 1
        self._changed.set()
        return True

    async def _warm(self, page: PageToWarm) -> None:
        warmed, response = await self._request(page)
        if self._first_pass and response is not None and _may_pass(warmed, response):
            self._journal.write(page.url, "later")
            return
        self._journal.write(page.url, warmed.outcome)
        self._count(warmed)
        if response is not None:
            await self._follow(page, warmed, response)

    def _count(self, warmed: Warmed) -> None:
        self.totals.counts[warmed.outcome] += 1
        if warmed.outcome not in GOOD and len(self.totals.failures) < MOST_FAILURES:
            self.totals.failures.append(warmed)
        self._on_page(warmed)

    async def _follow(self, page: PageToWarm, warmed: Warmed, response: Fetched) -> None:
        """Add the page that a redirect leads to, or those that links lead to."""
        if warmed.outcome == "redirected":
            there = self._page_of(led_to(page.url, response))
            self._add([PageToWarm(there, depth=page.depth)] if there else [])
        elif page.depth and response.is_html:
            html = await asyncio.to_thread(read_page, response.body, page.url, response.charset)
            followed = (link for link in html.links if not is_ugly(link))
            urls = filter(None, map(self._page_of, followed))
            self._add(PageToWarm(url, depth=page.depth - 1) for url in urls)

    async def _request(self, page: PageToWarm) -> tuple[Warmed, Fetched | None]:
        ugly = pretty_to_ugly(page.url, opted_in=True)
        if ugly is None:
            return Warmed(page.url, "failed", "has no ugly URL"), None
        try:
            response = await self._requests.get(ugly)
        except FetchFailed as error:
            return Warmed(page.url, "failed", str(error)), None
        outcome, age = _outcome(response)
        if outcome == "fresh" and page.lastmod is not None and time.time() - age < page.lastmod:
            outcome = "outdated"
        if there := led_to(page.url, response):
            return Warmed(page.url, "redirected", f"to {there}"), response
        if response.status != 200:
            return Warmed(page.url, "failed", f"status {response.status}"), response
        return Warmed(page.url, outcome, _REASONS.get(outcome, "")), response


def _may_pass(warmed: Warmed, response: Fetched) -> bool:
    return warmed.outcome == "failed" and response.status in _MAY_PASS


def _outcome(response: Fetched) -> tuple[WarmingOutcome, float]:
    """The outcome according to Cache-Status, and the age of a snapshot in seconds."""
    status = response.cache_status
    if status is None:
        return "no_proxy", 0.0
    if "hit" in status:
        age = status.get("age", "")
        outcome: WarmingOutcome = "stale" if "detail" in status else "fresh"
        return outcome, float(age) if age.isdecimal() else 0.0
    if status.get("detail") == "revalidated":
        return "fresh", 0.0
    if "stored" in status and status.get("fwd") != "stale":
        return "rendered", 0.0
    if (
        status.get("fwd") == "stale"
        or status.get("detail", "").removesuffix("-coalesced") in UNUSABLE
    ):
        return "failed", 0.0
    return "rendered" if "collapsed" in status else "not_stored", 0.0

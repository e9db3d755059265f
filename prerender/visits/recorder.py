"""Subscribes to the records of requests, and keeps what crawlers got.

Requests are counted in batches (dashboard/crawlers.py says why) and written every few seconds, in the
background. While the store is away, counts wait; what has no room then is dropped and counted.
"""

import asyncio
import re
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from urllib.parse import urljoin

import structlog
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from prerender.crawlers.triggers import may_be_page
from prerender.crawlers.user_agents import UserAgents
from prerender.errors import StoreError
from prerender.extensions.dashboard.crawlers import OTHERS
from prerender.proxy.decision import Reason
from prerender.snapshots.parsed_html import parse, texts_of
from prerender.snapshots.snapshot import HTML, CacheResult, Snapshot
from prerender.snapshots.target import Target
from prerender.telemetry.records import CLIENT_LEFT, RequestRecord
from prerender.tools.page_metadata import read
from prerender.visits.figures import (
    DAY_SECONDS,
    FACTS,
    HOUR_SECONDS,
    LONGEST_PATH,
    MOST_CRAWLERS,
    OTHER,
    THINNER,
    UNVERIFIED_SUFFIX,
    WHOLE,
    Cell,
    Day,
    Key,
    Outcome,
    Page,
    compared,
    merge_page,
    power_of,
    section_of,
)
from prerender.visits.storage import Pages, Span, VisitStore

EVERY_SECONDS = 10.0
# For alerts, and for the last hour after a restart.
KEPT_HOURS = 15 * 24
_LAST_SECONDS = 3.0
_BATCH = 64
# What may wait for a store that is away.
_MOST_CELLS = 10_000
_MOST_PAGES = 20_000
_MOST_STORED = 64
_NO_VISIT: tuple[Outcome, ...] = ("file", "left")
_NOINDEX = re.compile(r"\b(noindex|none)\b", re.IGNORECASE)
_OF_CACHE: dict[CacheResult | None, Outcome] = {
    CacheResult.HIT: "fresh",
    CacheResult.STALE: "stale",
    CacheResult.REVALIDATED: "fresh",
    CacheResult.KEPT: "stale",
    CacheResult.MISS: "rendered",
    CacheResult.COALESCED: "rendered",
}

log = structlog.get_logger(__name__)


class CrawlerNames:
    """The names of crawlers by their User-Agents. Signed agents have the host of their keys."""

    def __init__(self, user_agents: UserAgents) -> None:
        self._user_agents = user_agents

    def of(self, record: RequestRecord) -> str:
        """The name of the crawler of a request."""
        if record.crawler == "signed":
            return record.agent
        found = self._user_agents.crawlers_of(record.user_agent) if record.crawler else ()
        return found[0].label if found else OTHERS


class Visits:
    """Keeps the visits of crawlers in ``store``, for ``days`` days.

    ``names``: the names of crawlers; ``clean``: masks secrets in paths. ``dropped``: requests and
    visits of pages that found no room while the store was away. Since the start: ``totals``: requests
    by name of the crawler, ``unverified``: those of them from other addresses than its own;
    ``rendered_again``: pages by whether they became thinner.
    """

    def __init__(
        self,
        store: VisitStore,
        names: CrawlerNames,
        clean: Callable[[str], str],
        days: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.kept_days = days
        self.dropped = 0
        self.away = False
        self.totals: Counter[str] = Counter()
        self.unverified: Counter[str] = Counter()
        self.rendered_again: Counter[str] = Counter({THINNER[0]: 0, WHOLE[0]: 0})
        self._names = names
        self._clock = clock
        self._new: list[RequestRecord] = []
        self._cells_of: dict[tuple[Span, int], Day] = {}
        self._pages: Pages = {}
        self._cells = 0
        self._pruned = 0
        self._stored: deque[tuple[float, Target, Snapshot]] = deque(maxlen=_MOST_STORED)
        self._stop = asyncio.Event()
        self._path = lru_cache(maxsize=4096)(
            lambda path: (section_of(path), _storable(clean(path)))
        )

    def __call__(self, record: RequestRecord) -> None:
        """Count a request of a crawler; visitors are not counted."""
        if record.kind == "forward" and record.crawler is None:
            return
        self._new.append(record)
        if len(self._new) >= _BATCH:
            self.count_new()

    def stored(self, target: Target, snapshot: Snapshot) -> None:
        """Read what a new snapshot says. It is parsed later, in another thread."""
        if snapshot.status == 200 and snapshot.content_type == HTML:
            self._stored.append((self._clock(), target, snapshot))

    @asynccontextmanager
    async def storing(self) -> AsyncIterator[None]:
        """Write what was counted while the context is open, and the rest at its end."""
        task = asyncio.create_task(self._write_on(), name="visits of crawlers")
        try:
            yield
        finally:
            self._stop.set()
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await task
            await self.store.close()

    async def _write_on(self) -> None:
        while not self._stop.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(EVERY_SECONDS):
                    await self._stop.wait()
            try:
                await self.write()
            except Exception:
                log.exception("visits_not_written")

    async def write(self) -> None:
        """Write what was counted. What cannot be written is tried again the next time."""
        self.count_new()
        await self._read_stored()
        try:
            await self._write_cells()
            await self._write_pages()
            now = int(self._clock())
            today = now // DAY_SECONDS
            if self._pruned != today:
                await self.store.drop_before("days", today - self.kept_days + 1)
                await self.store.drop_before("hours", now // HOUR_SECONDS - KEPT_HOURS + 1)
                self._pruned = today
        except StoreError as error:
            if not self.away:
                log.warning("visits_not_written", store=self.store.kind, reason=str(error))
            self.away = True
        else:
            self.away = False

    async def _write_cells(self) -> None:
        while self._cells_of:
            # New requests are counted separately meanwhile.
            (span, number), cells = self._cells_of.popitem()
            self._cells -= len(cells)
            try:
                await self.store.add(span, number, cells)
            except StoreError:
                for key, cell in cells.items():
                    self._add(span, number, key, cell)
                raise

    async def _write_pages(self) -> None:
        pages, self._pages = self._pages, {}
        if not pages:
            return
        try:
            await self.store.add_pages(pages)
        except StoreError:
            newer, self._pages = self._pages, pages
            for path, page in newer.items():
                self._visit(path, page)
            raise

    def _add(self, span: Span, number: int, key: Key, cell: Cell) -> None:
        cells = self._cells_of.setdefault((span, number), {})
        known = cells.get(key)
        if known is None:
            if self._cells >= _MOST_CELLS:
                self.dropped += cell.requests if span == "days" else 0
                return
            known = cells[key] = Cell()
            self._cells += 1
        known.add(cell)

    def _visit(self, path: str, page: Page) -> None:
        known = self._pages.get(path)
        if known is not None:
            merge_page(known, page)
        elif len(self._pages) < _MOST_PAGES:
            self._pages[path] = page
        else:
            self.dropped += 1

    def count_new(self) -> None:
        """Count the requests since the last time."""
        # Plain tuples are found like keys, and are made in a third of the time.
        counted: dict[int, dict[tuple[str, ...], Cell]] = {}
        names: dict[tuple[str, str | None, str], str] = {}
        for record in self._new:
            at, kind, target = int(record.time), record.crawler or "", record.snapshot_target
            client = (record.user_agent, record.crawler, record.agent)
            if (name := names.get(client)) is None:
                name = names[client] = self._names.of(record)
            if record.reason is Reason.UNVERIFIED:
                name, kind = f"{name}{UNVERIFIED_SUFFIX}", ""
            section, path = self._path(record.target if target is None else target.path)
            outcome = _outcome(record)
            cells = counted.setdefault(at // HOUR_SECONDS, {})
            key = (name, kind, section, outcome)
            cell = cells.get(key)
            if cell is None:
                cell = cells[key] = Cell()
            cell.requests += 1
            cell.bytes += record.sent_bytes
            power = power_of(record.seconds)
            cell.durations[power] = cell.durations.get(power, 0) + 1
            if kind and outcome not in _NO_VISIT and 0 < len(path) <= LONGEST_PATH:
                if (page := self._pages.get(path)) is not None:
                    page[kind] = (at, record.status)
                else:
                    self._visit(path, {kind: (at, record.status)})
        self._new.clear()
        for hour, cells in counted.items():
            for of, cell in cells.items():
                full = Key._make(of)
                self._add("days", hour * HOUR_SECONDS // DAY_SECONDS, full, cell)
                self._add("hours", hour, full._replace(section=""), cell)
                self._count(full, cell.requests)

    def _count(self, key: Key, requests: int) -> None:
        name = key.crawler.removesuffix(UNVERIFIED_SUFFIX)
        is_verified = name == key.crawler
        if is_verified and not key.kind:
            return  # an unknown client
        if name not in self.totals and len(self.totals) >= MOST_CRAWLERS:
            name = OTHER
        self.totals[name] += requests
        self.unverified[name] += 0 if is_verified else requests

    async def _read_stored(self) -> None:
        pages: list[tuple[str, Page]] = []
        while self._stored:
            at, target, snapshot = self._stored.popleft()
            if 0 < len(target.path) <= LONGEST_PATH:
                facts = await asyncio.to_thread(facts_of, snapshot, target.url)
                pages.append((self._path(target.path)[1], {FACTS: (int(at), *facts)}))
        known: Pages = {}
        with suppress(StoreError):
            known = await self.store.pages({path for path, _ in pages}) if pages else {}
        for path, page in pages:
            if key := compared(known.get(path, {}) | self._pages.get(path, {}), page):
                self.rendered_again[key.crawler] += 1
                self._add("hours", int(page[FACTS][0]) // HOUR_SECONDS, key, Cell(1))
            self._visit(path, page)


def _outcome(record: RequestRecord) -> Outcome:
    status = record.status
    if record.kind == "refuse":
        return "refused"
    if status >= 400:
        if status in (404, 410):
            return "404"
        if status == CLIENT_LEFT:
            return "left"
        return "4xx" if status < 500 else "503" if status == 503 else "5xx"
    if record.source == "snapshot":
        return _OF_CACHE.get(record.cache, "fresh")
    return "forwarded" if may_be_page(record.target) else "file"


def _storable(path: str) -> str:
    """Octets that are not UTF-8 are lone surrogates, which no store takes."""
    return path if path.isascii() else path.encode("utf-8", "backslashreplace").decode()


def facts_of(snapshot: Snapshot, url: str) -> tuple[int, str, int]:
    """1 for noindex, a canonical that names another page or "", and the characters of the text."""
    reading = read(snapshot.body, url)
    tags = [value for name, value in snapshot.headers if name.lower() == "x-robots-tag"]
    noindex = any(_NOINDEX.search(text) for text in (reading.robots, *tags))
    canonical = ""
    if reading.canonical:
        with suppress(ValueError):
            canonical = urljoin(url, reading.canonical)
    if canonical == url:
        canonical = ""
    root = parse(snapshot.body)
    length = 0 if root is None else sum(map(len, texts_of(root)))
    return int(noindex), canonical[:LONGEST_PATH], length


class VisitMetrics(Collector):
    """The metrics of visits."""

    def __init__(self, visits: Visits) -> None:
        self._visits = visits

    def collect(self) -> Iterable[Metric]:
        """The current metrics."""
        self._visits.count_new()
        yield CounterMetricFamily(
            "prerender_visits_dropped",
            "Visits of crawlers that were not kept because their store was away for too long.",
            value=self._visits.dropped,
        )
        for name, help_text, label, counts in (
            (
                "prerender_crawler_requests",
                "Requests by known crawlers, by name.",
                "name",
                self._visits.totals,
            ),
            (
                "prerender_crawler_unverified_requests",
                "Those from addresses that are not the crawler's own ([triggers] verify).",
                "name",
                self._visits.unverified,
            ),
            (
                "prerender_pages_rendered_again",
                "Pages by whether they lost half of their text: thinner, or whole.",
                "text",
                self._visits.rendered_again,
            ),
        ):
            family = CounterMetricFamily(name, help_text, labels=[label])
            for value, number in counts.items():
                family.add_metric([value], number)
            yield family

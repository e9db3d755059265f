"""Subscribes to the records of requests, and keeps what crawlers got.

Counts are written every few seconds, in the background. While the store is away, they wait; what has no
room then is dropped and counted.
"""

import asyncio
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import lru_cache
from operator import attrgetter
from urllib.parse import urljoin

import structlog
from prometheus_client.core import Metric

from prerender.background import repeating
from prerender.content.page_metadata import reading_of
from prerender.crawlers.triggers import may_be_page
from prerender.crawlers.user_agents import UserAgents
from prerender.errors import StoreError
from prerender.http.robots_tags import is_noindex
from prerender.proxy.decision import Reason
from prerender.snapshots.parsed_html import parse, texts_of
from prerender.snapshots.snapshot import HTML, CacheResult, Snapshot
from prerender.snapshots.target import Target
from prerender.telemetry.crawler_requests import OTHERS, Alike, Batch, CrawlerRequests
from prerender.telemetry.records import CLIENT_LEFT, RequestRecord
from prerender.telemetry.scraped_metrics import counter
from prerender.urls.addresses import same_page
from prerender.visits.figures import (
    DAY_SECONDS,
    DURATIONS,
    FACTS,
    HOUR_SECONDS,
    LONGEST_PATH,
    MOST_CRAWLERS,
    OTHER,
    THINNER,
    UNVERIFIED_SUFFIX,
    WHOLE,
    Cell,
    CellKey,
    Day,
    LastVisits,
    VisitOutcome,
    compared,
    merge_page,
    section_of,
)
from prerender.visits.storage import Pages, Span, VisitStore

EVERY_SECONDS = 10.0
# For alerts, and for the last hour after a restart.
RETENTION_HOURS = 15 * 24
_LAST_SECONDS = 3.0
# What may wait for a store that is away.
_MOST_CELLS = 10_000
_MOST_PAGES = 20_000
_MOST_STORED = 64
_NO_VISIT: tuple[VisitOutcome, ...] = ("file", "left")
_OF_CACHE: dict[CacheResult | None, VisitOutcome] = {
    CacheResult.HIT: "fresh",
    CacheResult.STALE: "stale",
    CacheResult.REVALIDATED: "fresh",
    CacheResult.KEPT: "stale",
    CacheResult.MISS: "rendered",
    CacheResult.COALESCED: "rendered",
}

_sent_bytes = attrgetter("sent_bytes")
_seconds = attrgetter("seconds")

log = structlog.get_logger(__name__)


class CrawlerNames:
    """The names of crawlers by their User-Agents. Signed agents have the host of their keys."""

    def __init__(self, user_agents: UserAgents) -> None:
        self._user_agents = user_agents

    def of(self, requests: Alike) -> str:
        """The name of the crawler of requests."""
        if requests.crawler == "signed":
            return requests.agent
        crawlers = self._user_agents.crawlers_of(requests.user_agent) if requests.crawler else ()
        return crawlers[0].label if crawlers else OTHERS


class Visits:
    """Keeps the visits of crawlers in ``store``, for ``days`` days.

    ``requests``: what to count; ``names``: the names of crawlers; ``clean``: masks secrets in paths.
    ``dropped``: requests and visits of pages that found no room while the store was away. Since the
    start: ``totals``: requests by name of the crawler, ``unverified``: those of them from other
    addresses than its own;
    ``rendered_again``: pages by whether they became thinner.
    """

    def __init__(
        self,
        requests: CrawlerRequests,
        store: VisitStore,
        names: CrawlerNames,
        clean: Callable[[str], str],
        days: int,
        *,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.store = store
        self.retention_days = days
        self.dropped = 0
        self.away = False
        self.totals: Counter[str] = Counter()
        self.unverified: Counter[str] = Counter()
        self.rendered_again: Counter[str] = Counter({THINNER[0]: 0, WHOLE[0]: 0})
        self._requests = requests
        self._names = names
        self._clock = clock
        self._cells_of: dict[tuple[Span, int], Day] = {}
        self._pages: Pages = {}
        self._cells = 0
        self._pruned = 0
        self._stored: deque[tuple[float, Target, Snapshot]] = deque(maxlen=_MOST_STORED)
        self._path = lru_cache(maxsize=4096)(
            lambda path: (section_of(path), _storable(clean(path)))
        )
        requests.subscribe(self.count)

    def stored(self, target: Target, snapshot: Snapshot) -> None:
        """Read what a new snapshot says. It is parsed later, in another thread."""
        if snapshot.status == 200 and snapshot.content_type == HTML:
            self._stored.append((self._clock(), target, snapshot))

    @asynccontextmanager
    async def storing(self) -> AsyncIterator[None]:
        """Write what was counted while the context is open, and the rest at its end."""
        try:
            async with repeating(self.write, "visits of crawlers", EVERY_SECONDS, _LAST_SECONDS):
                yield
        finally:
            await self.store.close()

    async def write(self) -> None:
        """Write what was counted. What cannot be written is tried again the next time."""
        self._requests.deliver()
        await self._read_stored()
        try:
            await self._write_cells()
            await self._write_pages()
            now = int(self._clock())
            today = now // DAY_SECONDS
            if self._pruned != today:
                await self.store.drop_before("days", today - self.retention_days + 1)
                await self.store.drop_before("hours", now // HOUR_SECONDS - RETENTION_HOURS + 1)
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

    def _add(self, span: Span, number: int, key: CellKey, cell: Cell) -> None:
        cells = self._cells_of.setdefault((span, number), {})
        known = cells.get(key)
        if known is None:
            if self._cells >= _MOST_CELLS:
                self.dropped += cell.requests if span == "days" else 0
                return
            known = cells[key] = Cell()
            self._cells += 1
        known.add(cell)

    def _visit(self, path: str, page: LastVisits) -> None:
        known = self._pages.get(path)
        if known is not None:
            merge_page(known, page)
        elif len(self._pages) < _MOST_PAGES:
            self._pages[path] = page
        else:
            self.dropped += 1

    def count(self, batch: Batch) -> None:
        """Count requests."""
        for alike, records in batch.groups.items():
            outcome = _outcome(alike)
            if outcome != "forwarded":
                self._count_group(alike, outcome, records)
                continue
            parts: tuple[tuple[bool, VisitOutcome], ...] = ((True, outcome), (False, "file"))
            for is_page, of in parts:
                some = [record for record in records if may_be_page(record.target) is is_page]
                if some:
                    self._count_group(alike, of, some)

    def _count_group(
        self, alike: Alike, outcome: VisitOutcome, records: Sequence[RequestRecord]
    ) -> None:
        name, kind = self._names.of(alike), alike.crawler or ""
        if alike.reason is Reason.UNVERIFIED:
            name, kind = f"{name}{UNVERIFIED_SUFFIX}", ""
        sections: defaultdict[str, list[RequestRecord]] = defaultdict(list)
        last: dict[str, RequestRecord] = {}
        for record in records:
            target = record.snapshot_target
            section, path = self._path(record.target if target is None else target.path)
            sections[section].append(record)
            last[path] = record
        hour = int(alike.minute) * 60 // HOUR_SECONDS
        for section, some in sections.items():
            self._add("days", hour * HOUR_SECONDS // DAY_SECONDS,
                CellKey(name, kind, section, outcome), _cell(some))  # fmt: skip
        key = CellKey(name, kind, "", outcome)
        self._add("hours", hour, key, _cell(records))
        self._count(key, len(records))
        if kind and outcome not in _NO_VISIT:
            for path, record in last.items():
                if 0 < len(path) <= LONGEST_PATH:
                    self._visit(path, {kind: (int(record.time), record.status)})

    def _count(self, key: CellKey, requests: int) -> None:
        name = key.crawler.removesuffix(UNVERIFIED_SUFFIX)
        is_verified = name == key.crawler
        if is_verified and not key.kind:
            return  # an unknown client
        if name not in self.totals and len(self.totals) >= MOST_CRAWLERS:
            name = OTHER
        self.totals[name] += requests
        self.unverified[name] += 0 if is_verified else requests

    async def _read_stored(self) -> None:
        pages: list[tuple[str, LastVisits]] = []
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


def _cell(records: Sequence[RequestRecord]) -> Cell:
    return Cell(
        len(records), sum(map(_sent_bytes, records)), DURATIONS.count(map(_seconds, records))
    )


def _outcome(alike: Alike) -> VisitOutcome:
    """What requests got; "forwarded" also for files."""
    status = alike.status
    if alike.kind == "refuse":
        return "refused"
    if status >= 400:
        if status in (404, 410):
            return "404"
        if status == CLIENT_LEFT:
            return "left"
        return "4xx" if status < 500 else "503" if status == 503 else "5xx"
    if alike.source == "snapshot":
        return _OF_CACHE.get(alike.cache, "fresh")
    return "forwarded"


def _storable(path: str) -> str:
    """Octets that are not UTF-8 are lone surrogates, which no store takes."""
    return path if path.isascii() else path.encode("utf-8", "backslashreplace").decode()


def facts_of(snapshot: Snapshot, url: str) -> tuple[int, str, int]:
    """1 for noindex, a canonical that names another page or "", and the characters of the text."""
    root = parse(snapshot.body)
    reading = reading_of(root, url)
    tags = [value for name, value in snapshot.headers if name.lower() == "x-robots-tag"]
    noindex = reading.noindex or is_noindex(tags)
    canonical = ""
    if reading.canonical:
        with suppress(ValueError):
            canonical = urljoin(url, reading.canonical)
    if same_page(canonical, url):
        canonical = ""
    length = 0 if root is None else sum(map(len, texts_of(root)))
    return int(noindex), canonical[:LONGEST_PATH], length


def visit_metrics(visits: Visits, requests: CrawlerRequests) -> Iterable[Metric]:
    """The metrics of visits."""
    requests.deliver()
    yield counter(
        "prerender_visits_dropped",
        "Visits of crawlers that were not kept because their store was away for too long.",
        visits.dropped,
    )
    text = "Requests by known crawlers, by name."
    yield counter("prerender_crawler_requests", text, visits.totals, "name")
    text = "Those from addresses that are not the crawler's own ([triggers] verify)."
    yield counter("prerender_crawler_unverified_requests", text, visits.unverified, "name")
    text = "Pages by whether they lost half of their text: thinner, or whole."
    yield counter("prerender_pages_rendered_again", text, visits.rendered_again, "text")

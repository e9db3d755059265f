"""Reads the sitemaps of the site regularly, one replica for all, and creates jobs of what has changed.

The state is in the notes of the store. It is lost with the snapshots, so that all pages are new then.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, replace

import structlog
from protego import Protego

from prerender.admin.page_urls import Site
from prerender.background import running
from prerender.errors import FetchFailed, SitemapError, StoreError
from prerender.extensions.jobs import listed_pages
from prerender.extensions.jobs.job import MOST_PAGES
from prerender.extensions.jobs.jobs import READING_SECONDS, Jobs, TooManyJobs
from prerender.extensions.jobs.listed_pages import SitemapChanges
from prerender.sitemaps.origin_sitemaps import OriginSitemaps
from prerender.sitemaps.parsing import Listed
from prerender.snapshots.purges import Purge
from prerender.snapshots.stores.store import Store
from prerender.snapshots.strict_json import read
from prerender.snapshots.variants import Variant

CHANGES = ("new", "changed", "gone")
_STATE, _PAGES = "sitemaps", "sitemaps.pages"
_NOTE_SECONDS = 90 * 86400.0
_AGAIN_SECONDS = 300.0
_LONGEST_WAIT_SECONDS = 60.0
# While another replica reads them, or the store is away.
_SHORTEST_WAIT_SECONDS = 1.0
# Replicas do not ask at the same moment.
_SPREAD = 0.1
_AT_ONCE = 500
_MOST_ERRORS = 10
_MOST_PURGED = 100
_LONGEST_ERROR = 300
# A page that neither of them may fetch is not worth a snapshot.
_CRAWLERS = ("*", "Googlebot")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ReadSitemap:
    """A sitemap or an index: how many pages it lists, and what could not be read."""

    url: str
    pages: int
    error: str


@dataclass(frozen=True, slots=True)
class SitemapReading:
    """The last reading, at ``time`` (Unix seconds), and when the ``next`` one is.

    ``pages``: how many are known. ``new``, ``changed`` and ``gone``: what had changed at
    ``changed_at``, when something did last. ``disallowed``: by robots.txt; ``invalid``: not pages of
    the site. ``job``: the id of the last one. ``notes``: what is wrong.
    """

    time: float
    next: float
    sitemaps: tuple[ReadSitemap, ...] = ()
    pages: int = 0
    new: int = 0
    changed: int = 0
    gone: int = 0
    changed_at: float = 0.0
    disallowed: int = 0
    invalid: int = 0
    job: str = ""
    notes: tuple[str, ...] = ()


class SitemapWatch:
    """Watches ``urls``, or the sitemaps that robots.txt names, every ``interval`` seconds.

    ``variants``: those of each page of the ``site``.
    """

    def __init__(
        self,
        jobs: Jobs,
        store: Store,
        sitemaps: OriginSitemaps,
        urls: Sequence[str],
        interval: float,
        *,
        variants: Sequence[Variant],
        site: Site,
    ) -> None:
        self._jobs = jobs
        self._store = store
        self._sitemaps = sitemaps
        self._urls = urls
        self._interval = interval
        self._variants = variants
        self._site = site
        self._now = asyncio.Event()
        self.changes: Counter[str] = Counter(dict.fromkeys(CHANGES, 0))
        self.last: SitemapReading | None = None

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Watch while the context is open."""
        async with running(self._watch(), "sitemaps"):
            yield

    def read_now(self) -> None:
        """Read them as soon as possible."""
        self._now.set()

    async def reading(self) -> SitemapReading | None:
        """The last reading of any replica; None if there was none. Raises StoreError."""
        note = await self._store.notes.read(_STATE)
        try:
            self.last = read(SitemapReading, note) if note else None
        except ValueError:
            self.last = None
        return self.last

    async def _watch(self) -> None:
        while True:
            at_once = self._now.is_set()
            self._now.clear()
            try:
                with suppress(StoreError):  # it is in the log
                    await self.look(at_once=at_once)
                due = self.last.next if self.last else time.time() + self._interval
                wait = min(max(due - time.time(), _SHORTEST_WAIT_SECONDS), _LONGEST_WAIT_SECONDS)
            except Exception:
                log.exception("sitemaps_failed")
                wait = _AGAIN_SECONDS
            try:
                async with asyncio.timeout(wait * random.uniform(1, 1 + _SPREAD)):  # noqa: S311
                    await self._now.wait()
            except TimeoutError:
                continue

    async def look(self, *, at_once: bool = False) -> None:
        """Read the sitemaps if it is time, and no other replica does. Raises StoreError."""
        async with self._store.alone(_STATE) as alone:
            last = await self.reading()
            if not alone:
                return
            if last is not None and time.time() < last.next and not at_once:
                return
            self.last = await self._read(last or SitemapReading(0, 0))
            note = json.dumps(asdict(self.last)).encode()
            await self._store.notes.set(_STATE, note, _NOTE_SECONDS)

    async def _read(self, last: SitemapReading) -> SitemapReading:
        now = time.time()
        again = now + min(self._interval, _AGAIN_SECONDS)
        # If that is unknown, all pages would be new.
        note = await self._store.notes.read(_PAGES)
        known = await asyncio.to_thread(listed_pages.decode, note)
        try:
            rules = await self._sitemaps.robots()
        except FetchFailed as error:
            # RFC 9309 section 2.3.1.4: nothing is allowed then.
            log.warning("sitemaps_unreadable", reason=str(error))
            return replace(last, time=now, next=again, notes=(f"nothing was read: {error}",))
        watched = _WatchedPages(self._jobs, rules)
        sitemaps = []
        for url in self._urls or self._sitemaps.named_by(rules):
            sitemaps.append(await self._read_sitemap(url, watched))
        whole = not any(one.error for one in sitemaps) and not watched.is_full
        result = await asyncio.to_thread(
            listed_pages.changes, known, watched.pages, now, whole=whole
        )
        reading = replace(
            last,
            time=now,
            next=now + self._interval,
            sitemaps=tuple(sitemaps),
            pages=len(result.known),
            disallowed=watched.disallowed,
            invalid=watched.invalid,
            notes=_notes(result, watched),
        )
        try:
            job = await self._apply(result, watched)
        except (StoreError, TooManyJobs) as error:
            log.warning("sitemaps_not_rendered", reason=str(error))
            return replace(reading, next=again, notes=(*reading.notes, f"not rendered: {error}"))
        if not (result.new or result.changed or result.gone):
            return reading
        reading = replace(
            reading,
            new=result.new,
            changed=result.changed,
            gone=len(result.gone),
            changed_at=now,
            job=job or last.job,
        )
        log.info("sitemaps_changed", new=reading.new, changed=reading.changed, gone=reading.gone)
        return reading

    async def _read_sitemap(self, url: str, watched: "_WatchedPages") -> ReadSitemap:
        errors: list[SitemapError] = []
        count = 0
        batch: list[Listed] = []
        reading = self._sitemaps.read([url], errors.append)
        try:
            async with asyncio.timeout(READING_SECONDS), aclosing(reading) as pages:
                async for page in pages:
                    count += 1
                    batch.append(page)
                    if len(batch) == _AT_ONCE:
                        await asyncio.to_thread(watched.add, batch)
                        batch = []
                        if watched.is_full:
                            break
        except TimeoutError:
            errors.append(SitemapError(f"{url}: took over an hour"))
        await asyncio.to_thread(watched.add, batch)
        if not count and not errors:
            errors.append(SitemapError(f"{url}: no pages listed"))
        if errors:
            log.warning("sitemaps_unreadable", url=url, reason=str(errors[0]), count=len(errors))
        text = "; ".join(str(error) for error in errors[:_MOST_ERRORS])[:_LONGEST_ERROR]
        return ReadSitemap(url, count, text)

    async def _apply(self, result: SitemapChanges, watched: "_WatchedPages") -> str:
        """Create a job, and drop what is gone. Returns the id of the job, or ''. Raises StoreError and
        TooManyJobs."""
        job = ""
        if pages := [page for page in result.pages if page.url not in watched.not_rendered]:
            made = await self._jobs.create(
                pages, priority="low", stale_only=True, source="sitemaps"
            )
            job = made.id
        await self._drop(result.gone)
        self.changes.update(new=result.new, changed=result.changed, gone=len(result.gone))
        if result.new or result.changed or result.gone:
            data = await asyncio.to_thread(listed_pages.encode, result.known)
            if not await self._store.notes.set(_PAGES, data, _NOTE_SECONDS):
                raise StoreError("the store did not take the list of pages")
        return job

    async def _drop(self, paths: Sequence[str]) -> None:
        """Drop all variants of pages: by a purge, of which a CDN learns, or only here if they are many,
        because old purges are merged into one of everything."""
        if 0 < len(paths) <= _MOST_PURGED:
            await self._store.purges.purge(*(Purge("url", path) for path in paths))
            return
        for path in paths:
            with suppress(ValueError):  # not a URL any more, by other rules
                for variant in self._variants:
                    await self._store.delete(self._site.target(path, variant).key)


class _WatchedPages:
    """The pages of a reading by their paths. ``not_rendered``: those that robots.txt
    disallows; they count as listed all the same."""

    def __init__(self, jobs: Jobs, rules: Protego) -> None:
        self._jobs = jobs
        self._rules = rules
        self.pages: dict[str, Listed] = {}
        self.not_rendered: set[str] = set()
        self.invalid = 0
        self.is_full = False

    @property
    def disallowed(self) -> int:
        """How many pages robots.txt disallows."""
        return len(self.not_rendered)

    def add(self, entries: Sequence[Listed]) -> None:
        """Add entries of a sitemap."""
        for entry in entries:
            try:
                target = self._jobs.target(entry.url)
            except ValueError:
                self.invalid += 1
                continue
            if len(self.pages) >= MOST_PAGES and target.path not in self.pages:
                self.is_full = True
                return
            self.pages[target.path] = Listed(target.path, entry.lastmod)
            if not any(self._rules.can_fetch(target.url, name) for name in _CRAWLERS):
                self.not_rendered.add(target.path)


def _notes(result: SitemapChanges, watched: _WatchedPages) -> tuple[str, ...]:
    notes = []
    if watched.is_full:
        notes.append(f"only the first {MOST_PAGES} pages are watched")
    if result.missing:
        notes.append(f"{result.missing} known pages are not listed, and are kept: a sitemap cannot be "
                     "read, or lacks more than half of them")  # fmt: skip
    if result.by_request:
        notes.append("lastmod is ignored: of most pages, it is the time of the request or later")
    return tuple(notes)

"""Creates jobs and fills them: with pages that are given, or with those of sitemaps."""

import asyncio
import secrets
import time
from collections.abc import Iterable
from contextlib import aclosing

import structlog

from prerender.admin.page_urls import Site
from prerender.crawlers.triggers import Triggers
from prerender.extensions.jobs.job import (
    MOST_JOBS,
    MOST_PAGES,
    MOST_STORED_PAGES,
    RETENTION_SECONDS,
    UNFINISHED,
    Job,
    JobProgress,
    JobSource,
    JobStore,
    PageResult,
    Priority,
)
from prerender.sitemaps.origin_sitemaps import OriginSitemaps
from prerender.sitemaps.parsing import Listed
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target
from prerender.urls.addresses import parts_of

# A server may send a byte now and then.
READING_SECONDS = 3600.0
_AT_ONCE = 1000
_LONGEST_SHOWN = 300
_MOST_NOTES = 5
_DAY = 86400.0
# https://www.sitemaps.org/protocol.html
_LONGEST_SITEMAP = 2048

log = structlog.get_logger(__name__)


class TooManyJobs(ValueError):
    """So many jobs are unfinished that there is no room for another one."""


class Jobs:
    """The jobs in ``job_store``. ``store``: has the leases: one replica reads a job's sitemaps."""

    def __init__(
        self,
        job_store: JobStore,
        store: Store,
        site: Site,
        triggers: Triggers,
        sitemaps: OriginSitemaps,
    ) -> None:
        self.job_store = job_store
        self._store = store
        self._site = site
        self._triggers = triggers
        self._sitemaps = sitemaps
        self._filling: set[str] = set()
        self.changed = asyncio.Event()

    async def create(
        self,
        pages: Iterable[Listed] = (),
        sitemaps: Iterable[str] = (),
        *,
        priority: Priority = "normal",
        rate: float = 0.0,
        stale_only: bool = False,
        source: JobSource = "api",
    ) -> Job:
        """A new job. Raises ValueError and StoreError."""
        job = Job(
            secrets.token_hex(8),
            time.time(),
            tuple(map(self.sitemap, sitemaps)),
            priority,
            rate,
            stale_only,
            source,
        )
        await self._make_room()
        # Before the job is there, so that no other replica finds it without a reader.
        async with self._store.alone(f"job {job.id}"):
            self._filling.add(job.id)
            try:
                await self.job_store.add(job)
                if not job.sitemaps:
                    await self._add(job, await asyncio.to_thread(list, pages))
                    await self.job_store.listed(job.id, "")
            finally:
                self._filling.discard(job.id)
        log.info("job_created", id=job.id, sitemaps=len(job.sitemaps))
        self.changed.set()
        return job

    async def progress(self, job: str) -> JobProgress | None:
        """How far a job is; None if there is none with this id."""
        return next((one for one in await self.job_store.jobs() if one.job.id == job), None)

    async def cancel(self, job: str) -> None:
        """Cancel a job, now in this replica, and in the others within seconds."""
        if await self.job_store.cancel(job):
            log.info("job_cancelled", id=job)
        self.changed.set()

    def is_filled(self, job: Job) -> bool:
        """Whether this process is filling a job."""
        return job.id in self._filling

    async def fill(self, job: Job) -> None:
        """Read the sitemaps of a job, unless another replica does. Raises StoreError."""
        if job.id in self._filling:
            return
        self._filling.add(job.id)
        try:
            async with self._store.alone(f"job {job.id}") as alone:
                if alone:
                    await self.job_store.listed(job.id, await self._read(job))
        finally:
            self._filling.discard(job.id)
        self.changed.set()

    async def _read(self, job: Job) -> str:
        """Add the pages of sitemaps. Returns what could not be read. Pages that are read twice, because
        a replica died meanwhile, are duplicates."""
        notes: list[str] = []
        count = 0
        batch: list[Listed] = []
        reading = self._sitemaps.read(list(job.sitemaps), lambda error: notes.append(str(error)))
        try:
            async with asyncio.timeout(READING_SECONDS), aclosing(reading) as pages:
                async for page in pages:
                    if count == MOST_PAGES:
                        notes.insert(0, f"only the first {MOST_PAGES} pages")
                        break
                    count += 1
                    batch.append(page)
                    if len(batch) == _AT_ONCE:
                        await self._add(job, batch)
                        batch = []
        except TimeoutError:
            notes.insert(0, "the sitemaps took over an hour")
        await self._add(job, batch)
        more = len(notes) - _MOST_NOTES
        return "; ".join(notes[:_MOST_NOTES]) + (f"; and {more} more" if more > 0 else "")

    async def _add(self, job: Job, pages: list[Listed]) -> None:
        for start in range(0, len(pages), _AT_ONCE):
            some = await asyncio.to_thread(self._rows, job, pages[start : start + _AT_ONCE])
            await self.job_store.add_pages(job.id, some)

    def _rows(self, job: Job, pages: list[Listed]) -> list[tuple[str, float | PageResult]]:
        return [self._row(job, page) for page in pages]

    def _row(self, job: Job, page: Listed) -> tuple[str, float | PageResult]:
        try:
            target = self.target(page.url)
        except ValueError as error:
            shown = page.url[:_LONGEST_SHOWN] or '""'
            return shown, PageResult("invalid", time.time(), 0, str(error)[:_LONGEST_SHOWN])
        return target.path, since(page, job.created) if job.stale_only else job.created

    def target(self, url: str) -> Target:
        """The page of a URL of the site. Raises ValueError if it may not be rendered."""
        target = self._site.target(url)
        if target.is_long:
            raise ValueError("the URL is too long")
        if not self._triggers.may_render(target.path):
            raise ValueError("[triggers] include and exclude do not allow it")
        return target

    def sitemap(self, url: str) -> str:
        """The URL of a sitemap of the site. Raises ValueError."""
        path, _ = parts_of(f"{self._site.url}{self._site.path('sitemap', url)}")
        if len(path) > _LONGEST_SITEMAP:
            raise ValueError("sitemap: the URL is too long")
        return f"{self._site.url}{path}"

    async def _make_room(self) -> None:
        """Forget old jobs. Raises TooManyJobs."""
        jobs = await self.job_store.jobs()
        old = [one for one in jobs if one.state not in UNFINISHED]
        left = sum(one.pages for one in jobs)
        for number, one in enumerate(old):
            too_many = len(jobs) - number >= MOST_JOBS or left > MOST_STORED_PAGES - MOST_PAGES
            if too_many or time.time() - one.ended > RETENTION_SECONDS:
                await self.job_store.drop(one.job.id)
                left -= one.pages
        unfinished = len(jobs) - len(old)
        if unfinished >= MOST_JOBS or left > MOST_STORED_PAGES - MOST_PAGES:
            raise TooManyJobs(
                f"{unfinished} jobs with {left} pages are unfinished: wait for one, or cancel it"
            )


def since(page: Listed, now: float) -> float:
    """The latest moment of the change that ``lastmod`` says, in Unix seconds; 0 if it says none."""
    if page.lastmod is None:
        return 0.0
    # A date without a time is that of the whole day. One in the future says nothing else than now.
    is_date = page.lastmod % _DAY == 0
    return max(0.0, min(page.lastmod + (_DAY if is_date else 0.0), now))

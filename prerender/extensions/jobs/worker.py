"""Renders the pages of jobs with spare browser capacity.

The pages of jobs of the highest priority come first; jobs of the same priority take turns. Nothing is
started while a render waits for a page or the origin fails, and no more than one page while few pages
are idle or the CPUs are busy. What is running is cancelled when a render has to wait, and done later.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

import structlog

from prerender.admin.page_urls import Site
from prerender.background import cancel_all, finishing, running
from prerender.errors import (
    NotRenderable,
    OriginError,
    PoolBusy,
    PrerenderError,
    ShuttingDown,
    SnapshotTooLarge,
    StoreError,
    code_of,
)
from prerender.extensions.jobs.job import (
    OUTCOMES,
    UNFINISHED,
    Job,
    JobProgress,
    PageOutcome,
    PageResult,
    WaitingPage,
)
from prerender.extensions.jobs.jobs import Jobs
from prerender.rendering.spare_capacity import Background, SpareCapacity
from prerender.snapshots import steady_clock
from prerender.snapshots.freshness import Freshness, is_fresh
from prerender.snapshots.snapshot import CacheResult, SnapshotResult
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target

# Between two starts: the first one counts among the pages in use by then.
_NEXT_SECONDS = 0.05
_LOOK_SECONDS = 1.0
# For jobs of other replicas; one's own wake it.
_IDLE_SECONDS = 10.0
_STORE_AWAY_SECONDS = 2.0
# Between two pages of low priority, while the CPUs are busy.
_LOW_SECONDS = 5.0
# A page that gave way, or that is being rendered for a client.
_AGAIN_SECONDS = 1.0
# Nothing is started for so long when pages have given way again and again.
_LONGEST_WAY_SECONDS = 30.0
_CLOSING_SECONDS = 2.0
# A page that failed is rendered once more after this time.
_RETRY_SECONDS = 15.0
_MOST_TRIES = 2
# After so many failures in a row, nothing is started for a while.
_FAILURES = 3
_FIRST_PAUSE_SECONDS = 2.0
_LONGEST_PAUSE_SECONDS = 60.0
_PRIORITIES = ("high", "normal", "low")
_LONGEST_REASON = 300
_MISSING = (404, 410)

log = structlog.get_logger(__name__)


class _Render(NamedTuple):
    job: str
    page: WaitingPage
    task: asyncio.Task[None]


class Worker:
    """Renders pages of ``jobs``. ``claim_seconds``: how long a page is this replica's, at least as long
    as a render takes."""

    def __init__(
        self,
        jobs: Jobs,
        snapshots: CachedSnapshots,
        store: Store,
        freshness: Freshness,
        site: Site,
        *,
        spare: SpareCapacity,
        claim_seconds: float,
        retry_seconds: float = _RETRY_SECONDS,
        clock: Callable[[], float] = steady_clock.now,
    ) -> None:
        self._jobs = jobs
        self._snapshots = snapshots
        self._store = store
        self._freshness = freshness
        self._site = site
        self._spare = spare
        self._claim_seconds = claim_seconds
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._background: Background[_Render] = Background(snapshots, spare.is_crowded)
        self._running = self._background.running
        self._filling: dict[str, asyncio.Task[None]] = {}
        self._looked = 0.0
        self._is_away = False
        self._is_closing = False
        # The last job that a page was taken from comes last.
        self._turns: dict[str, int] = {}
        self._turn = 0
        self._failures = 0
        self._gave_way = 0.0
        self._paused_until = 0.0
        self._started = 0.0
        # Results that the store could not take.
        self._unwritten: list[tuple[str, str, PageResult]] = []
        self.results: Counter[str] = Counter(dict.fromkeys(OUTCOMES, 0))
        self.unfinished: list[JobProgress] = []

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        """Work while the context is open. Then give back what is running."""
        self._is_closing = False
        # Not ended in the middle of a step: a page that was just taken would be nobody's for a minute.
        async with (
            self._giving_back(),
            running(self._background.watch(), "room for clients"),
            finishing(self._work(), "jobs", self._close, _CLOSING_SECONDS),
        ):
            yield

    def _close(self) -> None:
        self._is_closing = True
        self._jobs.changed.set()

    @asynccontextmanager
    async def _giving_back(self) -> AsyncIterator[None]:
        try:
            yield
        finally:
            renders = list(self._running.items())
            for key, _ in renders:
                self._snapshots.cancel_refresh(key)
            tasks = [*self._filling.values(), *(one.task for _, one in renders)]
            await cancel_all(tasks)
            with suppress(StoreError, TimeoutError):
                async with asyncio.timeout(_CLOSING_SECONDS):
                    for _, render in renders:
                        await self._jobs.job_store.put_back(render.job, render.page, 0)

    async def _work(self) -> None:
        while not self._is_closing:
            try:
                pause = await self._step()
                self._is_away = False
            except StoreError as error:
                if not self._is_away:
                    log.warning("jobs_store_unavailable", reason=str(error))
                self._is_away, pause = True, _STORE_AWAY_SECONDS
            except Exception:
                log.exception("jobs_failed")
                pause = _STORE_AWAY_SECONDS
            if pause:
                with suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._jobs.changed.wait()
            if self._jobs.changed.is_set():
                self._jobs.changed.clear()
                self._looked = 0.0

    async def _step(self) -> float:
        """Start the next page, if there is one and room for it. Returns the seconds until the next
        step."""
        while self._unwritten:
            await self._jobs.job_store.finish(*self._unwritten[0])
            del self._unwritten[0]
        now = time.monotonic()
        if now - self._looked >= (_LOOK_SECONDS if self.unfinished else _IDLE_SECONDS):
            await self._look()
            self._looked = now
        if not self.unfinished:
            return _IDLE_SECONDS
        if now < self._paused_until:
            return _NEXT_SECONDS
        jobs = self.unfinished
        if not self._spare.has_room():
            # One page at a time, and of jobs that can wait only one now and then.
            if self._running or not self._spare.has_page():
                return _NEXT_SECONDS
            if now - self._started < _LOW_SECONDS:
                jobs = [one for one in jobs if one.job.priority != "low"]
        for progress in sorted(jobs, key=self._order):
            job = progress.job
            page = await self._jobs.job_store.take(job.id, job.rate, self._claim_seconds)
            if page is not None:
                self._turn += 1
                self._turns[job.id] = self._turn
                return _NEXT_SECONDS if await self._start(job, page) else 0.0
        return min(_LOOK_SECONDS, *(1 / one.job.rate for one in self.unfinished if one.job.rate), 1)

    def _order(self, progress: JobProgress) -> tuple[int, int]:
        return _PRIORITIES.index(progress.job.priority), self._turns.get(progress.job.id, 0)

    async def _look(self) -> None:
        """Learn of jobs that others have created or cancelled."""
        self.unfinished = [
            one for one in await self._jobs.job_store.jobs() if one.state in UNFINISHED
        ]
        ids = {one.job.id for one in self.unfinished}
        self._turns = {job: turn for job, turn in self._turns.items() if job in ids}
        for key, render in list(self._running.items()):
            if render.job not in ids:
                self._snapshots.cancel_refresh(key)
        for job, task in self._filling.items():
            if job not in ids:
                task.cancel()
        for one in self.unfinished:
            job = one.job.id
            is_filled = job in self._filling or self._jobs.is_filled(one.job)
            if one.state == "reading" and not is_filled:
                task = asyncio.create_task(self._fill(one.job), name=f"sitemaps of {job}")
                self._filling[job] = task
                task.add_done_callback(lambda _, job=job: self._filling.pop(job))  # type: ignore[misc]

    async def _fill(self, job: Job) -> None:
        try:
            await self._jobs.fill(job)
        except StoreError as error:
            log.warning("jobs_store_unavailable", reason=str(error))
        except Exception:
            log.exception("job_not_read", id=job.id)
            with suppress(StoreError):
                await self._jobs.job_store.listed(job.id, "its list could not be read: see the log")

    async def _start(self, job: Job, page: WaitingPage) -> bool:
        """Whether a render was started."""
        target = self._site.target(page.path)
        if not self._freshness.ordinary(target.path):
            await self._finish(job.id, page, "not_stored", reason="its TTL is 0 ([cache])")
            return False
        entry = await self._store.get(target.key)
        now = self._clock()
        if entry is not None and is_fresh(entry.expires, now) and entry.rendered >= page.since:
            await self._finish(
                job.id, page, _outcome_if_fresh(job, entry.rendered), entry.snapshot.status
            )
            return False
        render = None
        if target.key not in self._running:  # also while one that gave way is put back
            render = self._snapshots.render_since(target, page.since)
        if render is None:  # for a client, or another job
            await self._jobs.job_store.put_back(job.id, page, _AGAIN_SECONDS)
            return False
        task = asyncio.create_task(self._wait(job, page, target, render), name=f"job: {target.url}")
        self._background.add(target.key, _Render(job.id, page, task))
        self._started = time.monotonic()
        return True

    async def _wait(
        self, job: Job, page: WaitingPage, target: Target, render: asyncio.Task[SnapshotResult]
    ) -> None:
        try:
            await asyncio.wait([render])
            if render.cancelled():
                # With few pages, the next crawler would have to wait, too, and no page gets done.
                self._gave_way = min(max(self._gave_way * 2, _AGAIN_SECONDS), _LONGEST_WAY_SECONDS)
                self._paused_until = max(self._paused_until, time.monotonic() + self._gave_way)
                await self._again(job, page, _AGAIN_SECONDS)
                return
            error = render.exception()
            if error is not None:
                await self._failed(job, page, error)
                return
            result = render.result()
            if result.how is CacheResult.KEPT and page.tries + 1 < _MOST_TRIES:
                self._fail()
                await self._again(job, replace(page, tries=page.tries + 1), self._retry_seconds)
                return
            self._failures, self._gave_way = 0, 0.0
            outcome = _outcome_of(result, _outcome_if_fresh(job, self._clock() - result.age))
            await self._finish(job.id, page, outcome, result.snapshot.status, result.detail)
        except StoreError as problem:
            log.warning("jobs_store_unavailable", reason=str(problem))
        except Exception:
            log.exception("job_page_failed", url=target.url)
        finally:
            del self._running[target.key]

    async def _failed(self, job: Job, page: WaitingPage, error: BaseException) -> None:
        if isinstance(error, PoolBusy | ShuttingDown):
            await self._again(job, page, _AGAIN_SECONDS)
            return
        status = error.answered_with if isinstance(error, NotRenderable) else 0
        if isinstance(error, NotRenderable) and not error.origin_failed:
            self._failures = 0
            await self._finish(job.id, page, "not_a_page", status, str(error))
            return
        if isinstance(error, OriginError | NotRenderable):
            self._fail()
        if not isinstance(error, PrerenderError):
            log.error("job_page_failed", url=page.path, reason=repr(error), exc_info=error)
        elif page.tries + 1 < _MOST_TRIES and not isinstance(error, SnapshotTooLarge):
            await self._again(job, replace(page, tries=page.tries + 1), self._retry_seconds)
            return
        await self._finish(job.id, page, "failed", status, f"{code_of(error)}: {error}")

    def _fail(self) -> None:
        """After some failures of the origin in a row, leave it alone for a while, then for longer."""
        self._failures += 1
        if (more := self._failures - _FAILURES) >= 0:
            pause = min(_FIRST_PAUSE_SECONDS * 2.0 ** min(more, 10), _LONGEST_PAUSE_SECONDS)
            self._paused_until = max(self._paused_until, time.monotonic() + pause)

    async def _again(self, job: Job, page: WaitingPage, seconds: float) -> None:
        await self._jobs.job_store.put_back(job.id, page, seconds)

    async def _finish(
        self, job: str, page: WaitingPage, outcome: PageOutcome, status: int = 0, reason: str = ""
    ) -> None:
        if status in _MISSING:
            outcome = "missing"
        elif 300 <= status < 400:
            outcome = "redirected"
        self.results[outcome] += 1
        result = PageResult(outcome, time.time(), status, reason[:_LONGEST_REASON])
        try:
            await self._jobs.job_store.finish(job, page.path, result)
        except StoreError:
            self._unwritten.append((job, page.path, result))
            raise


def _outcome_if_fresh(job: Job, rendered: float) -> PageOutcome:
    """The outcome of a page whose snapshot is fresh: another replica or job may have rendered it, or
    this one before it was killed."""
    return "rendered" if rendered >= job.created else "fresh"


def _outcome_of(result: SnapshotResult, if_fresh: PageOutcome) -> PageOutcome:
    match result.how:
        case CacheResult.KEPT:
            return "kept"
        case CacheResult.REVALIDATED:
            return "fresh"
        case CacheResult.COALESCED | CacheResult.HIT:
            return if_fresh
    return "rendered" if result.stored else "not_stored"

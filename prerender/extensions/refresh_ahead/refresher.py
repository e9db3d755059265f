"""Renders popular snapshots again before they expire, with spare browser capacity.

A snapshot is refreshed if it is requested again and again and expires soon or has expired, the most
requested one first. Nothing is started while a render waits for a page, too few pages are idle,
the CPUs are busy or the origin fails; what is running is cancelled when a render has to wait. Replicas
agree by leases.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal

import structlog

from prerender.background import cancel_all
from prerender.errors import PrerenderError
from prerender.extensions.refresh_ahead.popularity import Popularity
from prerender.rendering.spare_capacity import Background
from prerender.snapshots import steady_clock
from prerender.snapshots.freshness import due_at
from prerender.snapshots.snapshot import CacheResult, SnapshotResult
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target

# One request says nothing: crawlers request every page now and then.
_LEAST_REQUESTS = 2
_PLAN_SECONDS = 1.0
# Between two starts: the first one counts among the pages in use by then.
_NEXT_SECONDS = 0.1
# Snapshots that are read from the store at once, to learn when they expire.
_MOST_READS = 50
_MOST_PLANNED = 20_000
# Doubtful snapshots and those of missing pages live for less, and are not refreshed.
_SHORTEST_LIFE_SECONDS = 120.0
# After a failure of a page, and after failures in a row of any pages.
_AGAIN_SECONDS = 60.0
_FIRST_PAUSE_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 300.0

RefreshResult = Literal["refreshed", "failed", "elsewhere", "cancelled"]
RESULTS: tuple[RefreshResult, ...] = ("refreshed", "failed", "elsewhere", "cancelled")

log = structlog.get_logger(__name__)


class Refresher:
    """Refreshes snapshots that expire within ``before`` seconds, ``most`` at the same time (0: none).

    ``has_room``: whether one more may be started. ``is_crowded``: whether renders wait for a page.
    """

    def __init__(
        self,
        snapshots: CachedSnapshots,
        store: Store,
        popular: Popularity,
        *,
        before: float,
        most: int,
        has_room: Callable[[], bool],
        is_crowded: Callable[[], bool],
        clock: Callable[[], float] = steady_clock.now,
    ) -> None:
        self._snapshots = snapshots
        self._store = store
        self._popular = popular
        self._before = before
        self._most = most
        self._has_room = has_room
        self._clock = clock
        self._background: Background[asyncio.Task[None]] = Background(snapshots, is_crowded)
        self._running = self._background.running
        # When to look at a target again, by its key.
        self._planned: dict[str, float] = {}
        self._paused_until = 0.0
        self._pause = _FIRST_PAUSE_SECONDS
        self.results: Counter[RefreshResult] = Counter(dict.fromkeys(RESULTS, 0))

    @property
    def running(self) -> int:
        """How many snapshots are being refreshed."""
        return len(self._running)

    @asynccontextmanager
    async def refreshing(self) -> AsyncIterator[None]:
        """Refresh while the context is open."""
        if not self._most:
            yield
            return
        tasks = [
            asyncio.create_task(self._start_all(), name="refreshes"),
            asyncio.create_task(self._background.watch(), name="room for clients"),
        ]
        try:
            yield
        finally:
            tasks += self._running.values()
            await cancel_all(tasks)

    async def _start_all(self) -> None:
        while True:
            started = False
            try:
                started = await self.start_next()
            except Exception:
                log.exception("refresh_not_started")
            await asyncio.sleep(_NEXT_SECONDS if started else _PLAN_SECONDS)

    def make_room(self) -> None:
        """Cancel a refresh if a render waits, unless its own page was requested meanwhile."""
        self._background.make_room()

    async def start_next(self) -> bool:
        """Start the most requested one that is due, if there is room. Returns whether it did."""
        reads = 0
        for target in self._popular.most_first(_LEAST_REQUESTS):
            now = self._clock()
            if not self._may_start(now) or reads == _MOST_READS:
                return False
            if target.key in self._running or now < self._planned.get(target.key, 0.0):
                continue
            reads += 1
            due = await self._due(target)
            if due > self._clock():
                self._plan(target, due)
            elif self._may_start(now) and self._start(target):
                return True
        return False

    def _may_start(self, now: float) -> bool:
        return now >= self._paused_until and len(self._running) < self._most and self._has_room()

    async def _due(self, target: Target) -> float:
        """When to refresh a target, in Unix seconds."""
        entry = await self._store.get(target.key)
        if entry is None or entry.expires - entry.stored < _SHORTEST_LIFE_SECONDS:
            return self._clock() + _AGAIN_SECONDS
        # Not all replicas at the same moment, and not all pages of a sweep.
        due = due_at(entry, self._before * random.uniform(0.5, 1.0))  # noqa: S311
        return max(due, entry.retry)

    def _plan(self, target: Target, when: float) -> None:
        if len(self._planned) >= _MOST_PLANNED:
            self._planned.clear()
        self._planned[target.key] = when

    def _start(self, target: Target) -> bool:
        refresh = self._snapshots.refresh_ahead(target, self._before)
        if refresh is None:
            return False  # it is being rendered for a client
        task = asyncio.create_task(self._finish(target, refresh), name=f"refresh of {target.url}")
        self._background.add(target.key, task)
        return True

    async def _finish(self, target: Target, refresh: asyncio.Task[SnapshotResult]) -> None:
        try:
            result = await self._result(target, refresh)
            self.results[result] += 1
            again = _AGAIN_SECONDS if result in ("failed", "elsewhere") else 0.0
            self._plan(target, self._clock() + again)
            if result == "refreshed":
                self._popular.fade(target)
                self._pause = _FIRST_PAUSE_SECONDS
            elif result == "failed":
                self._paused_until = self._clock() + self._pause
                self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        finally:
            del self._running[target.key]

    async def _result(self, target: Target, refresh: asyncio.Task[SnapshotResult]) -> RefreshResult:
        await asyncio.wait([refresh])
        if refresh.cancelled():
            return "cancelled"
        error = refresh.exception()
        if isinstance(error, PrerenderError):
            log.info("refresh_failed", url=target.url, reason=str(error))
            return "failed"
        if error is not None:
            log.error("refresh_failed", url=target.url, reason=repr(error), exc_info=error)
            return "failed"
        how = refresh.result().how
        if how is CacheResult.KEPT:
            return "failed"
        return "elsewhere" if how is CacheResult.COALESCED else "refreshed"

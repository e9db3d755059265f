"""Notices a deploy by a page with other scripts or styles, and renews all snapshots of the last one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import structlog

from prerender.background import cancel_all
from prerender.errors import PrerenderError
from prerender.snapshots import steady_clock
from prerender.snapshots.entry import Entry
from prerender.snapshots.freshness import is_fresh
from prerender.snapshots.purges import Purge
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores.store import Store
from prerender.snapshots.target import Target

log = structlog.get_logger(__name__)


class Deploys:
    """Watches stored snapshots. ``popular``: targets in the order in which to renew them."""

    def __init__(
        self,
        snapshots: CachedSnapshots,
        store: Store,
        popular: Callable[[], Iterable[Target]],
        clock: Callable[[], float] = steady_clock.now,
    ) -> None:
        self._snapshots = snapshots
        self._store = store
        self._popular = popular
        self._clock = clock
        self._renewal: asyncio.Task[None] | None = None
        self._renewed_fingerprint = ""
        snapshots.before_storing(self._compare)

    @asynccontextmanager
    async def renewing(self) -> AsyncIterator[None]:
        """End a renewal with the context."""
        try:
            yield
        finally:
            if self._renewal is not None:
                await cancel_all([self._renewal])

    async def _compare(self, target: Target, old: Entry | None, new: Snapshot) -> None:
        """Mark all snapshots of the last deploy stale when a page has new assets."""
        before = old.snapshot.asset_fingerprint if old is not None else ""
        if not before or not new.asset_fingerprint or before == new.asset_fingerprint:
            return
        under_way = self._renewal is not None and not self._renewal.done()
        if under_way and self._renewed_fingerprint == before:
            return  # part of the running renewal
        log.info(
            "deploy_detected",
            url=target.url,
            asset_fingerprint=before,
            consequence="snapshots with the previous scripts and styles are stale",
        )
        await self._store.purges.purge(Purge("asset_fingerprint", before, soft=True))
        if self._renewal is not None:
            self._renewal.cancel()
        self._renewed_fingerprint = before
        self._renewal = asyncio.create_task(self._renew_all(before), name=f"renewal of {before}")

    async def _renew_all(self, asset_fingerprint: str) -> None:
        """Renew one after the other, so that crawlers find room in the browser."""
        for target in self._popular():
            entry = await self._store.get(target.key)
            if (
                entry is None
                or entry.snapshot.asset_fingerprint != asset_fingerprint
                or is_fresh(entry.expires, self._clock())
                or (render := self._snapshots.refresh_ahead(target, 0.0)) is None
            ):
                continue
            # The end of the renewal must not cancel it: clients may wait for it, too.
            await asyncio.wait([render])
            error = None if render.cancelled() else render.exception()
            if isinstance(error, PrerenderError):
                log.info("renewal_failed", url=target.url, reason=str(error))
            elif error is not None:
                log.error("renewal_failed", url=target.url, reason=repr(error), exc_info=error)

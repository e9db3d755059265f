"""Snapshots kept for a time: what is fresh, what may be kept, and when content last changed."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import structlog

from prerender.snapshots.coalesced import Coalesced
from prerender.snapshots.memory import BoundedMemoryCache
from prerender.snapshots.snapshot import Answer, Snapshot, Snapshots, Target

# A page that is missing may appear soon; one that is wrongly missing must not stay so for long.
NOT_FOUND_SECONDS = 60.0

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """A kept snapshot; ``stored`` and ``expires`` on the monotonic clock, in seconds."""

    snapshot: Snapshot
    stored: float
    expires: float

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return self.snapshot.size_bytes


class CachedSnapshots:
    """Keeps the snapshots of ``inner`` in ``cache`` for ``ttl`` seconds; renders each once.

    An entry stays in the cache past its time, until the room is needed, because what comes next is
    compared with it: the same content keeps its Last-Modified.
    """

    def __init__(
        self,
        inner: Snapshots,
        cache: BoundedMemoryCache,
        ttl: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._inner = inner
        self._cache = cache
        self._ttl = ttl
        self._clock = clock
        self._renders: Coalesced[Answer] = Coalesced()

    def fresh(self, target: Target) -> Answer | None:
        """The kept snapshot if it is fresh. Costs microseconds: most requests end here."""
        entry = self._cache.peek(target.key)
        if not isinstance(entry, Entry):
            return None
        now = self._clock()
        if entry.expires <= now:
            return None
        return Answer(entry.snapshot, "hit", age=now - entry.stored, ttl=entry.expires - now)

    async def snapshot(self, target: Target) -> Answer:
        """A fresh snapshot, kept or new. Raises RenderError, OriginError or NotRenderable."""
        if answer := self.fresh(target):
            return answer
        answer, joined = await self._renders.run(target.key, lambda: self._render(target))
        return replace(answer, how="coalesced") if joined else answer

    async def close(self) -> None:
        """Stop the renders that are under way."""
        await self._renders.close()

    async def _render(self, target: Target) -> Answer:
        answer = await self._inner.snapshot(target)
        snapshot = self._keep_date(target, answer.snapshot)
        ttl = self._ttl_of(snapshot)
        now = self._clock()
        kept = ttl > 0 and await self._cache.set(target.key, Entry(snapshot, now, now + ttl))
        return replace(answer, snapshot=snapshot, stored=bool(kept), ttl=ttl if kept else 0.0)

    def _keep_date(self, target: Target, snapshot: Snapshot) -> Snapshot:
        """The new snapshot, with the date of the old one if nothing changed."""
        old = self._cache.peek(target.key)
        if isinstance(old, Entry) and old.snapshot.etag == snapshot.etag:
            return replace(snapshot, last_modified=old.snapshot.last_modified)
        return snapshot

    def _ttl_of(self, snapshot: Snapshot) -> float:
        if not snapshot.storable or snapshot.partial:
            return 0.0
        if snapshot.status == 200:
            return self._ttl
        if snapshot.status in (404, 410):
            return min(self._ttl, NOT_FOUND_SECONDS)
        return 0.0

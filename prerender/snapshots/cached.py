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
# A snapshot that may not be right is looked at again so soon.
DOUBT_SECONDS = 30.0
# What remains of a page's text when something went wrong with it; but content that stays short when
# it is looked at again is the content.
PARTIAL = "partial"
SHRUNKEN = 0.2
MOST_REFUSALS = 3

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Entry:
    """A kept snapshot; ``stored`` and ``expires`` on the monotonic clock, in seconds.

    ``refusals``: how often a worse one was refused in its favour.
    """

    snapshot: Snapshot
    stored: float
    expires: float
    refusals: int = 0

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
        old = self._cache.peek(target.key)
        now = self._clock()
        new = Entry(answer.snapshot, now, now + self._ttl_of(answer.snapshot))
        if isinstance(old, Entry):
            worse = worse_than(old.snapshot, new.snapshot)
            if worse == PARTIAL or (worse and old.refusals < MOST_REFUSALS):
                log.warning("snapshot not replaced", url=target.url, reason=worse)
                await self._cache.set(
                    target.key, replace(old, expires=now + DOUBT_SECONDS, refusals=old.refusals + 1)
                )
                return replace(
                    answer, snapshot=old.snapshot, how="kept", age=now - old.stored, detail=worse
                )
            if old.snapshot.etag == new.snapshot.etag:
                same = replace(new.snapshot, last_modified=old.snapshot.last_modified)
                # What came out the same twice is not in doubt any more.
                new = replace(new, snapshot=same, expires=now + self._ttl_of(same, doubt=False))
        ttl = new.expires - now
        stored = ttl > 0 and await self._cache.set(target.key, new)
        return replace(
            answer,
            snapshot=new.snapshot,
            stored=bool(stored),
            ttl=ttl if stored else 0.0,
            detail=PARTIAL if new.snapshot.facts.partial else "",
        )

    def _ttl_of(self, snapshot: Snapshot, *, doubt: bool = True) -> float:
        if not snapshot.storable or snapshot.facts.partial:
            return 0.0
        if snapshot.status == 200:
            facts = snapshot.facts
            lacking = bool(facts.failed_requests or facts.unanswered_requests)
            return min(self._ttl, DOUBT_SECONDS) if lacking and doubt else self._ttl
        if snapshot.status in (404, 410):
            return min(self._ttl, NOT_FOUND_SECONDS)
        return 0.0


def worse_than(old: Snapshot, new: Snapshot) -> str:
    """In what a new snapshot is so much worse than the old one that it should not replace it, or ''.

    Only pages that are there are compared: one that is gone is gone.
    """
    if old.status != 200 or new.status != 200:
        return ""
    if new.facts.partial:
        return PARTIAL
    if new.facts.failed_requests and not old.facts.failed_requests:
        return "failed-requests"
    if new.facts.text_length < old.facts.text_length * SHRUNKEN:
        return "shrunken"
    return ""

"""The purges that this replica knows, and their effect on entries."""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from prerender.snapshots.entry import Entry
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.stores.backing_store import TRUST_SECONDS
from prerender.snapshots.stores.guarded import Failed, Guarded


class Invalidation:
    """The purges of a ``store``, or of this process alone. Those of a shared store are polled."""

    def __init__(self, store: Guarded | None, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._read_again = inf if store is None else -inf
        self._restored = True  # whether the store has all these purges, as far as is known
        self.purges = Purges()
        self._when_all: Callable[[], object] = lambda: None

    def when_all(self, then: Callable[[], object]) -> None:
        """Call ``then`` when everything is purged, also by another replica."""
        self._when_all = then

    def _learn(self, purges: Purges) -> None:
        is_new = purges.everything > self.purges.everything
        self.purges = purges
        if is_new:
            self._when_all()

    @property
    def generation(self) -> int:
        """The number of the last known purge."""
        return self.purges.generation

    def known(self, now: float) -> bool:
        """Whether the purges of other replicas were read just now."""
        return now < self._read_again

    async def refresh(self) -> None:
        """Read the purges of other replicas, unless they were read just now."""
        store, now = self._store, self._clock()
        if store is None or now < self._read_again:
            return
        cache, known = store.cache, self.generation if self._restored else -1
        before, self._read_again = self._read_again, now + TRUST_SECONDS
        stored = await store.ask("purges", lambda: cache.purges(known))
        if isinstance(stored, Purges):
            await self._unite(stored, store)
        if cache.shared:
            return
        if isinstance(stored, Failed):
            self._read_again = before
        elif self._restored:
            self._read_again = inf

    async def _unite(self, stored: Purges, store: Guarded) -> None:
        """Learn the purges of a store. It gets those that it lacks: a failover may lose some, and some
        were made while it was unavailable."""
        lost = self.purges.missing_in(stored)
        self._restored = True
        if lost:
            restored = await store.ask("purge", lambda: store.cache.restore(lost))
            if isinstance(restored, Failed):
                self._restored = False
            else:
                stored = restored
        self._learn(self.purges.united(stored))

    async def purge(self, *purges: Purge) -> bool:
        """Add purges, at once: each call reads all known ones. Returns False if other replicas could
        not be informed."""
        store = self._store
        if store is not None:
            cache = store.cache
            stored = await store.ask("purge", lambda: cache.purge(*purges))
            if not isinstance(stored, Failed):
                await self._unite(stored, store)
                return True
            self._restored, self._read_again = False, -inf
        # In this process; other replicas are informed when the store is available again.
        self._learn(self.purges.with_(purges, self._clock()))
        return store is None

    def concern(self, path: str, snapshot: Snapshot | None, generation: int) -> bool:
        """Whether a purge since a generation applies to a path, or to what was rendered for it."""
        tags, asset_fingerprint = (
            (snapshot.tags, snapshot.asset_fingerprint) if snapshot else ((), "")
        )
        return self.purges.verdict(path, tags, asset_fingerprint, generation) is not None

    def applied(self, entry: Entry) -> Entry | None:
        """The entry after all purges: unchanged, stale, or None."""
        if entry.generation >= self.generation:
            return entry
        snapshot = entry.snapshot
        verdict = self.purges.verdict(
            entry.path, snapshot.tags, snapshot.asset_fingerprint, entry.generation
        )
        if verdict is not None and not verdict.soft:
            return None
        expires = entry.expires if verdict is None else min(entry.expires, verdict.since)
        return replace(entry, generation=self.generation, expires=expires)

"""What has been purged, as far as this replica knows, and what that makes of an entry."""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from prerender.snapshots.entry import Entry
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.guarded import Failed, Guarded

# So long a copy in memory of what others may change counts without another look.
TRUST_SECONDS = 0.5


class Invalidation:
    """The purges of a ``store``, or of this process alone. Those of a shared store are polled."""

    def __init__(self, store: Guarded | None, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._read_again = -inf
        self.purges = Purges()

    @property
    def generation(self) -> int:
        """The number of the last purge that is known of."""
        return self.purges.generation

    async def refresh(self) -> None:
        """Read what others have purged, unless that was read a moment ago."""
        store, now = self._store, self._clock()
        if store is None or now < self._read_again:
            return
        cache = store.cache
        before, self._read_again = self._read_again, now + TRUST_SECONDS if cache.shared else inf
        found = await store.ask("purges", lambda: cache.purges(self.generation))
        if isinstance(found, Purges):
            self.purges = found
        elif isinstance(found, Failed) and not cache.shared:
            self._read_again = before

    async def purge(self, purge: Purge) -> bool:
        """Purge from now on; False if others that share the store could not be told."""
        store = self._store
        if store is not None:
            cache = store.cache
            found = await store.ask("purge", lambda: cache.purge(purge))
            if not isinstance(found, Failed):
                self.purges = found
                return True
        # Here at least. What is told to the others next will replace it.
        self.purges = self.purges.with_(purge, self._clock())
        return store is None

    def applied(self, entry: Entry) -> Entry | None:
        """The entry as it is after all purges: the same, stale, or None."""
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

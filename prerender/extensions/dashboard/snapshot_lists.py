"""Lists of snapshots (list_rows.py): rows of entries in memory, or lines in the store."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing

from prerender.errors import StoreError, StoreGone
from prerender.extensions.dashboard.list_rows import PIECE, Found, Query, Row, Selection
from prerender.snapshots.entry import Entry
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.guarded import Guarded
from prerender.snapshots.stores.invalidation import Invalidation
from prerender.snapshots.stores.memory import BoundedMemoryCache

_SECONDS = 10.0


class Lists:
    """Finds stored snapshots. Blocks the event loop for a millisecond at a time."""

    def __init__(
        self,
        memory: BoundedMemoryCache,
        store: Guarded | None,
        invalidation: Invalidation,
        clock: Callable[[], float],
    ) -> None:
        self._memory = memory
        self._store = store
        self._invalidation = invalidation
        self._clock = clock

    @property
    def complete(self) -> bool:
        """Whether all snapshots are listed; otherwise only those in memory."""
        return self._store is None or self._store.cache.lists

    async def find(self, query: Query) -> Found:
        """The snapshots that match a query. Raises StoreError, and ValueError for a wrong ``after``."""
        await self._invalidation.refresh()
        selection = Selection(query, self._invalidation.purges, self._clock())
        if self._store is None or not self.complete:
            await self._look_through_memory(selection)
        else:
            await self._look_through(self._store, selection)
        return selection.found()

    async def count(self, purges: Iterable[Purge]) -> int | None:
        """How many snapshots purges would apply to; None if the store cannot list all of them."""
        if not self.complete:
            return None
        purged = Purges(dict.fromkeys(purges, 1))
        try:
            return (await self.find(Query(purged=purged, limit=1))).count
        except StoreError:
            return None

    async def _look_through_memory(self, selection: Selection) -> None:
        kept, now = self._memory.values.expiring(), self._clock()
        for start in range(0, len(kept), PIECE):
            selection.add(
                Row.of(entry, now + left)
                for _, entry, left in kept[start : start + PIECE]
                if isinstance(entry, Entry)
            )
            await asyncio.sleep(0)

    async def _look_through(self, store: Guarded, selection: Selection) -> None:
        """Not a guarded call: a slow list is no reason to stop using the store."""
        if not store.available:
            raise StoreGone("the store is unavailable")
        try:
            async with asyncio.timeout(_SECONDS), aclosing(store.cache.lines()) as pieces:
                async for lines in pieces:
                    selection.add_lines(lines)
                    await asyncio.sleep(0)
        except TimeoutError as error:
            raise StoreError("listing the store took too long") from error

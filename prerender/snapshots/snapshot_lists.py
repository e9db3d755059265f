"""Lists of snapshots (list_rows.py): rows of entries in memory, or lines of the store."""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing

from prerender.errors import StoreError
from prerender.snapshots import steady_clock
from prerender.snapshots.entry import Entry
from prerender.snapshots.list_rows import PIECE, Query, Row, SelectedRows, Selection
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.store import Store

_SECONDS = 10.0


def line_of(entry: Entry, until: float) -> bytes:
    """The line of an entry that is stored until some Unix seconds."""
    return Row.of(entry, until).dump()


class Lists:
    """Finds the snapshots of a ``store``, in threads.

    Create it before the first snapshot is stored: the store keeps no lines of earlier ones.
    """

    def __init__(self, store: Store, clock: Callable[[], float] = steady_clock.now) -> None:
        self._store = store
        self._clock = clock
        store.keep_lines(line_of)

    @property
    def complete(self) -> bool:
        """Whether all snapshots are listed; otherwise only those in memory."""
        return self._store.has_lines or self._store.is_memory

    async def find(self, query: Query) -> SelectedRows:
        """The snapshots that match a query. Raises StoreError, and ValueError for a wrong ``after``."""
        await self._store.purges.refresh()
        selection = Selection(query, self._store.purges.purges, self._clock())
        try:
            async with asyncio.timeout(_SECONDS):
                if self._store.has_lines:
                    await self._look_through_store(selection)
                else:
                    await self._look_through_memory(selection)
        except TimeoutError as error:
            raise StoreError("listing the store took too long") from error
        return await asyncio.to_thread(selection.selected)

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
        entries = self._store.in_memory()
        for start in range(0, len(entries), PIECE):
            rows = (Row.of(*pair) for pair in entries[start : start + PIECE])
            await asyncio.to_thread(selection.add, rows)

    async def _look_through_store(self, selection: Selection) -> None:
        async with aclosing(self._store.lines()) as pieces:
            async for lines in pieces:
                await asyncio.to_thread(selection.add_lines, lines)

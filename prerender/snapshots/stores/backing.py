"""What a store behind the memory offers: aiocache's commands for entries, purges, and perhaps more."""

from collections.abc import AsyncGenerator
from typing import Any

from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.commands import Commands
from prerender.snapshots.stores.serializer import EntrySerializer

# Nothing is kept for ever.
LONGEST_SECONDS = 365 * 86400.0


class BackingCache(Commands):
    """An aiocache cache of entries, with what is needed beside its commands.

    Faults: StoreError for an operation that failed alone; anything else, such as StoreGone or
    TimeoutError, for a store that cannot be reached.

    ``shared``: others write to it too, so that a copy of what it holds may be out of date.
    ``reads_at_once``: how many calls to read are worth making beside each other.
    ``lists``: it keeps a line for each snapshot.
    """

    shared = True
    reads_at_once = 2
    lists = True

    def __init__(self, **options: Any) -> None:
        super().__init__(serializer=EntrySerializer(), **options)

    async def open(self) -> None:
        """Do what is needed before first use."""

    async def lines(self) -> AsyncGenerator[list[bytes]]:
        """The lines of all that is kept, and perhaps of some that is not any more, in pieces."""
        raise NotImplementedError
        yield []  # so that this is a generator

    async def purge(self, purge: Purge) -> Purges:
        """Remember a purge; all that are remembered, this one with a number above all others."""
        raise NotImplementedError

    async def purges(self, generation: int) -> Purges | None:
        """All purges; None if the last of them has the number ``generation``."""
        raise NotImplementedError

    async def acquire(self, key: str) -> int | None:
        """A fence if nobody else holds the lease of a key; None if somebody does."""
        return 0

    async def extend(self, key: str, fence: int) -> None:
        """Hold a lease for some seconds more."""

    async def release(self, key: str, fence: int) -> None:
        """Give a lease back, if it is still held."""

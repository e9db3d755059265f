"""The interface of backing stores behind memory: aiocache's commands, purges, leases and lists."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from typing import Any

from prerender.snapshots.entry import FORMAT, Entry
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.aiocache_commands import Commands
from prerender.snapshots.stores.serializer import EncodedEntry, EntrySerializer

# How long a copy in memory of a shared store is used without reading the store again.
TRUST_SECONDS = 0.5
# Maximum TTL of any value.
LONGEST_SECONDS = 365 * 86400.0


# The line of an entry that is stored until some Unix seconds.
LineOf = Callable[[Entry, float], bytes]
# Lines in a piece of a list.
PIECE = 500
_FORMAT_NOTE = "format"


def _as_it_is(value: Any) -> Any:
    return value


class BackingCache(Commands):
    """An aiocache cache of entries with additional operations.

    Raises StoreError if one operation failed; anything else, such as StoreGone or TimeoutError, means
    that the store is unavailable.

    ``shared``: other processes write to it, so copies in memory may be outdated.
    ``reads_at_once``: the useful number of concurrent reads. ``lists``: it can keep a line beside each
    snapshot, which is written and removed with it; ``line_of`` makes it. ``notes``: it stores notes,
    such as histories. ``trust_seconds``: how long a copy in memory is used without reading the
    store again.
    """

    shared = True
    reads_at_once = 2
    lists = True
    notes = True
    trust_seconds = TRUST_SECONDS
    line_of: LineOf | None = None

    def __init__(self, **options: Any) -> None:
        super().__init__(serializer=EntrySerializer(), **options)

    @property
    def whole(self) -> bool:
        """Whether all its parts are available, as far as is known. It may work without some."""
        return True

    @property
    def faults(self) -> Counter[str]:
        """Faults of its parts, by operation."""
        return Counter()

    async def open(self) -> None:
        """Prepare for use."""

    async def mark_format(self) -> bytes | None:
        """Note the format of this release's entries, for the site. Returns the one noted before, or
        None."""
        site = f"{self.namespace.rsplit(':', 2)[0]}:"
        before = await self.get(_FORMAT_NOTE, loads_fn=_as_it_is, namespace=site)
        if before != FORMAT:
            await self.set(_FORMAT_NOTE, FORMAT, dumps_fn=_as_it_is, namespace=site)
        return before if isinstance(before, bytes) else None

    def line(self, value: bytes, until: float) -> bytes | None:
        """The line of an encoded entry; None if there is none, or nobody wants any."""
        if self.line_of is None or not isinstance(value, EncodedEntry):
            return None
        return self.line_of(value.entry, until)

    async def lines(self) -> AsyncGenerator[list[bytes]]:
        """The lines of all snapshots, in pieces. May include evicted ones."""
        raise NotImplementedError
        yield []  # makes this a generator

    async def purge(self, *purges: Purge) -> Purges:
        """Add purges, with the highest number, all of them or none. Returns all purges."""
        raise NotImplementedError

    async def restore(self, purges: Purges) -> Purges:
        """Add purges that the store lacks, with their numbers. Returns all purges."""
        raise NotImplementedError

    async def purges(self, generation: int) -> Purges | None:
        """All purges; None if the last of them has the number ``generation``."""
        raise NotImplementedError

    async def acquire(self, key: str) -> int | None:
        """Acquire the lease of a key. Returns its fence, or None if another process has it."""
        return 0

    async def extend(self, key: str, fence: int) -> None:
        """Extend a lease by some seconds."""

    async def release(self, key: str, fence: int) -> None:
        """Release a lease, if it is still held."""

"""The store: entries in memory, in front of a backing store that may fail.

A failed read is a miss, and an entry that cannot be written is not stored (guarded.py). A copy in
memory of a shared store is used for its ``trust_seconds``, or while the backing store is unavailable.
"""

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from math import inf

import structlog

from prerender.errors import StoreGone
from prerender.snapshots import steady_clock
from prerender.snapshots.entry import FORMAT, Entry, not_ahead_of
from prerender.snapshots.stores.backing_store import BackingCache, LineOf
from prerender.snapshots.stores.batched import BatchedReads
from prerender.snapshots.stores.guarded import Failed, Guarded
from prerender.snapshots.stores.invalidation import Invalidation
from prerender.snapshots.stores.leases import Leases
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.notes import Notes
from prerender.snapshots.stores.serializer import UNREAD

_CLOCK_SKEW_SECONDS = 60.0
# Additional memory for notes, as a part of that for snapshots.
_NOTES_PART = 8

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to render a target, and the entry before the render.

    ``fence``: a number that grows with each lease; 0 if there are no other replicas, None if another
    replica has the lease. ``generation``: the last purge before the render. ``entry``: the stored entry
    when the lease was acquired.
    """

    fence: int | None
    generation: int
    entry: Entry | None


@dataclass(frozen=True, slots=True)
class StoreState:
    """State and counters of the store.

    ``kind``: the kind of the backing store, in a word. ``lookups``: by layer ("memory" or "slow") and
    result. ``faults``: by operation, and "bad entries".
    """

    kind: str
    available: bool
    memory_bytes: int
    memory_entries: int
    lookups: Counter[tuple[str, str]]
    faults: Counter[str]


class Store:
    """Entries by cache key, with ``leases``, ``notes`` and ``purges``.

    ``memory_hits``: entries that were peeked at and used; the caller counts them.
    """

    def __init__(
        self,
        memory: BoundedMemoryCache,
        slow: BackingCache | None = None,
        clock: Callable[[], float] = steady_clock.now,
    ) -> None:
        self._memory = memory
        self._peek = memory.peek
        self._clock = clock
        self._slow = None if slow is None else Guarded(slow)
        self._shared = slow is not None and slow.shared
        self._trust = 0.0 if slow is None else slow.trust_seconds
        self._reads = None if slow is None else BatchedReads(self._read, slow.reads_at_once)
        self._leases = None if self._slow is None else Leases(self._slow, clock)
        self.purges = Invalidation(self._slow, clock)
        # In memory they have limits of their own: they would evict snapshots otherwise.
        keeper = self._slow if slow is not None and slow.notes else None
        self.notes = Notes(keeper, BoundedMemoryCache(memory.values.max_bytes // _NOTES_PART))
        self.memory_hits = 0
        self._lookups: Counter[tuple[str, str]] = Counter()

    def __repr__(self) -> str:
        state = self.state()
        away = "" if state.available else ", away"
        return f"<Store {state.kind}{away}, {state.memory_entries} in memory, {dict(state.faults)}>"

    async def open(self) -> None:
        """Open the backing cache. A failure is logged, and opening is tried again when needed."""
        if self._slow is not None:
            await self._slow.ask("open", self._slow.cache.open)

    async def log_other_format(self) -> None:
        """Log if the last release that used the backing store has another format. Its entries are not
        used."""
        if self._slow is None:
            return
        before = await self._slow.ask("format", self._slow.cache.mark_format)
        if isinstance(before, bytes) and before not in (FORMAT, b""):
            log.info(
                "cache_format_changed",
                store=self._slow.cache.NAME,
                before=before.decode("ascii", "backslashreplace"),
                now=FORMAT.decode(),
                consequence="pages are rendered anew",
            )

    async def close(self) -> None:
        """Close the backing cache."""
        if self._reads is not None:
            await self._reads.close()
        if self._slow is not None:
            await self._slow.cache.close()

    def state(self) -> StoreState:
        """The current state."""
        slow = self._slow
        faults = Counter() if slow is None else slow.counts.copy()
        if slow is not None:
            faults += slow.cache.faults
        if slow is not None and (bad := slow.cache.serializer.bad_entries):
            faults["bad entries"] = bad
        return StoreState(
            kind="memory" if slow is None else slow.cache.NAME,
            available=slow is None or (slow.available and slow.cache.whole),
            memory_bytes=self._memory.values.used_bytes,
            memory_entries=len(self._memory.values),
            lookups=self._lookups + Counter({("memory", "hit"): self.memory_hits}),
            faults=faults,
        )

    def peek(self, key: str, now: float) -> Entry | None:
        """The entry in memory if it can be used without reading the store. Takes microseconds."""
        entry, purges = self._copy(key), self.purges
        if entry is None or entry.trusted <= now or not purges.known(now):
            return None
        return entry if entry.generation >= purges.purges.generation else None

    async def get(self, key: str, *, again: bool = False) -> Entry | None:
        """The entry of a key after all purges. Never raises for a fault of the store.

        ``again``: do not use a copy in memory of a shared store.
        """
        await self.purges.refresh()
        now = inf if again and self._shared else self._clock()
        entry = self._copy(key)
        # Another replica may have replaced what was purged.
        usable = entry is not None and (
            self._reads is None or (entry.trusted > now and self.purges.applied(entry) is not None)
        )
        self._lookups["memory", "hit" if usable else "miss"] += 1
        if self._reads is not None and not usable:
            entry = await self._reads.get(key, fresh=again)
        return None if entry is None else await self._after_purges(entry)

    async def current(self, key: str, known: Entry | None) -> Entry | None:
        """The entry of a key that was read as ``known`` before, after the purges since then.

        The backing store is not read again: only the holder of the lease has written to it.
        """
        await self.purges.refresh()
        held = self._copy(key)
        if held is not None and (known is None or held.stored > known.stored):
            known = held
        return None if known is None else await self._after_purges(known)

    async def set(self, entry: Entry, ttl: float) -> bool:
        """Store an entry for ``ttl`` seconds. Returns False if it could not be stored."""
        in_memory = self._remember(entry, ttl)
        if self._slow is None:
            return in_memory
        cache = self._slow.cache
        stored = await self._slow.ask("set", lambda: cache.set(entry.key, entry, ttl))
        if stored is False:
            # A later lease has already stored an entry.
            self._forget(entry.key)
        return stored is True or (in_memory and stored is not False)

    def keep_lines(self, line_of: LineOf) -> None:
        """Keep a line beside each snapshot from now on, written and removed with it."""
        if self._slow is not None:
            self._slow.cache.line_of = line_of

    @property
    def trust_seconds(self) -> float:
        """For how long another replica may use a copy of an entry that was replaced."""
        return self._trust if self._shared else 0.0

    @property
    def is_memory(self) -> bool:
        """Whether there is no backing store."""
        return self._slow is None

    @property
    def has_lines(self) -> bool:
        """Whether it has the lines of all snapshots; otherwise there are only ``in_memory``."""
        return self._slow is not None and self._slow.cache.lists

    async def lines(self) -> AsyncGenerator[list[bytes]]:
        """The lines of all snapshots, in pieces. May include evicted ones. Raises StoreGone.

        Not a guarded call: a slow list is no reason to stop using the store.
        """
        if self._slow is None or not self._slow.available:
            raise StoreGone("the store is unavailable")
        async with aclosing(self._slow.cache.lines()) as pieces:
            async for lines in pieces:
                yield lines

    def in_memory(self) -> list[tuple[Entry, float]]:
        """The snapshots in memory, and until when each is stored, in Unix seconds."""
        now = self._clock()
        return [
            (entry, now + left)
            for _, entry, left in self._memory.values.expiring()
            if isinstance(entry, Entry)
        ]

    async def delete(self, key: str) -> None:
        """Delete the entry of a key."""
        self._forget(key)
        if self._slow is not None:
            cache = self._slow.cache
            await self._slow.ask("delete", lambda: cache.delete(key))

    @asynccontextmanager
    async def lease(self, key: str, wait_seconds: float) -> AsyncIterator[Lease]:
        """The right to render a target while the context is open, and its stored entry.

        Waits up to ``wait_seconds`` for another replica that has it.
        """
        if self._leases is None:
            yield Lease(0, self.purges.generation, await self.get(key))
            return
        async with self._leases.hold(key, wait_seconds) as fence:
            # The previous holder may have stored an entry.
            entry = await self.get(key, again=True)
            yield Lease(fence, self.purges.generation, entry)

    @asynccontextmanager
    async def alone(self, name: str, wait_seconds: float = 0) -> AsyncIterator[bool]:
        """Whether no other replica is in a context of this name; True if that is unknown, too.

        Waits up to ``wait_seconds`` for another one.
        """
        if self._leases is None:
            yield True
            return
        async with self._leases.hold(name, wait_seconds) as fence:
            yield fence is not None

    def _copy(self, key: str) -> Entry | None:
        """The entry in memory, regardless of its age."""
        held = self._peek(key)
        return held if isinstance(held, Entry) and held.key == key else None

    def _remember(self, entry: Entry, ttl: float | None) -> bool:
        if self._shared:
            entry = replace(entry, trusted=self._clock() + self._trust)
        return self._memory.put(entry.key, entry, ttl)

    def _forget(self, key: str) -> None:
        self._memory.values.discard(key)

    async def _read(self, keys: list[str]) -> list[Entry | None]:
        """Read the backing cache, or the copies in memory while it is unavailable."""
        assert self._slow is not None
        cache = self._slow.cache
        entries = await self._slow.ask("get", lambda: cache.multi_get(keys))
        if isinstance(entries, Failed):
            self._lookups["slow", "failed"] += len(keys)
            return [self._copy(key) for key in keys]
        for entry in entries:
            result = "hit" if isinstance(entry, Entry) else "miss" if entry is None else "failed"
            self._lookups["slow", result] += 1
        return [
            self._copy(key) if entry is UNREAD else self._remember_read(key, entry)
            for key, entry in zip(keys, entries, strict=True)
        ]

    def _remember_read(self, key: str, entry: Entry | None) -> Entry | None:
        """Put an entry that was read into memory."""
        assert self._slow is not None
        if not self._shared and (newer := self._copy(key)) is not None:
            return newer  # it was replaced while it was read
        if entry is not None and entry.key != key:
            self._slow.cache.serializer.refuse(key, f"it is that of another key: {entry.path}")
            entry = None
        if entry is None:
            self._forget(key)
            return None
        entry = not_ahead_of(entry, self._clock(), _CLOCK_SKEW_SECONDS, self.purges.generation)
        self._remember(entry, None)
        return entry

    async def _after_purges(self, entry: Entry) -> Entry | None:
        left = self.purges.applied(entry)
        if left is None:
            await self.delete(entry.key)
        elif left is not entry:
            self._remember(left, None)
        return left

"""The store as the rest sees it: entries in memory, in front of a slower cache that may fail.

No fault of the slower cache gets out of here: what cannot be read is a miss, what cannot be written is
not kept, and what cannot be reached is left alone for a while (see breaker.py). A copy in memory of
what others may change counts for TRUST_SECONDS; while the slower cache is away it goes on counting.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from math import inf
from typing import TypeVar

import structlog

from prerender.errors import BadEntry, StoreError, StoreGone
from prerender.snapshots import clock as steady
from prerender.snapshots.entry import Entry, decode, encode
from prerender.snapshots.listing import PIECE, Found, Query, Row, Selection
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.backing import SlowCache
from prerender.snapshots.stores.batched import BatchedReads
from prerender.snapshots.stores.breaker import Breaker
from prerender.snapshots.stores.memory import BoundedMemoryCache

TRUST_SECONDS = 0.5
# An entry from the future (the clock of another machine, or ours, is wrong) would never grow old.
_CLOCK_SKEW_SECONDS = 60.0
_FIRST_POLL_SECONDS = 0.025
_LONGEST_POLL_SECONDS = 0.25
_HEARTBEAT_SECONDS = 1.5
_LIST_SECONDS = 10.0

T = TypeVar("T")
log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Failed:
    """In place of a result: the slower cache could not be asked."""


_FAILED = _Failed()
_NOTE = "note:"
# Of the memory for snapshots, how much notes may take beside it.
_NOTES_PART = 8


@dataclass(frozen=True, slots=True)
class _Note:
    """Something beside a snapshot, where there is only memory."""

    data: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.data) + 200


class Store:
    """Entries by the key of their target.

    ``counts``: faults and bad entries, by kind. ``memory_hits``: entries that were peeked at and used,
    counted by whoever uses them.
    """

    def __init__(
        self,
        memory: BoundedMemoryCache,
        slow: SlowCache | None = None,
        clock: Callable[[], float] = steady.now,
    ) -> None:
        self._memory = memory
        # Only used without a slower store: beside the snapshots they would drive them out.
        self._notes = BoundedMemoryCache(memory.max_bytes // _NOTES_PART)
        self._slow = slow
        self._shared = slow is not None and slow.shared
        self._clock = clock
        self._breaker = Breaker()
        self._purges = Purges()
        self._purges_seen = -inf
        self._reads = None if slow is None else BatchedReads(self._read, slow.reads_at_once)
        self.counts: Counter[str] = Counter()
        self.memory_hits = 0
        self._lookups: Counter[tuple[str, str]] = Counter()

    def __repr__(self) -> str:
        kind = "memory" if self._slow is None else type(self._slow).__name__
        state = "" if self._breaker.closed else ", away"
        return f"<Store {kind}{state}, {len(self._memory)} in memory, {dict(self.counts)}>"

    @property
    def lookups(self) -> Counter[tuple[str, str]]:
        """How often which layer, "memory" or "slow", was asked with which result."""
        return self._lookups + Counter({("memory", "hit"): self.memory_hits})

    @property
    def available(self) -> bool:
        """Whether the slower cache answers as far as is known, or there is none."""
        return self._breaker.closed

    @property
    def memory_bytes(self) -> int:
        """What the entries in memory take."""
        return self._memory.used_bytes

    @property
    def memory_entries(self) -> int:
        """How many entries are in memory."""
        return len(self._memory)

    @property
    def kind(self) -> str:
        """Where what is kept is, in a word."""
        return "memory" if self._slow is None else self._slow.NAME

    @property
    def generation(self) -> int:
        """The number of the last purge that is known of."""
        return self._purges.generation

    async def open(self) -> None:
        """Open the slower cache. If that fails it is logged, and tried again when it is needed."""
        if self._slow is not None:
            await self._ask("open", self._slow.open)

    def peek(self, key: str, now: float) -> Entry | None:
        """The entry in memory if it needs no second look. Costs microseconds."""
        entry = self._copy(key)
        if entry is None or entry.trusted <= now or entry.generation < self._purges.generation:
            return None
        return entry

    async def get(self, key: str, *, again: bool = False) -> Entry | None:
        """The entry of a key as it is after all purges. Never raises for a fault of the store.

        ``again``: a copy in memory of what others may have changed does not count.
        """
        await self._look_for_purges()
        now = inf if again and self._shared else self._clock()
        entry = self._copy(key)
        usable = entry is not None and (self._reads is None or entry.trusted > now)
        self._lookups["memory", "hit" if usable else "miss"] += 1
        if self._reads is not None and not usable:
            entry = await self._reads.get(key, anew=again)
        return None if entry is None else await self._after_purges(key, entry)

    async def set(self, key: str, entry: Entry, ttl: float) -> bool:
        """Keep an entry for ``ttl`` seconds. False if it is kept nowhere."""
        kept = self._remember(key, entry, ttl)
        if self._slow is not None:
            slow = self._slow
            stored = await self._ask("set", lambda: slow.set(key, encode(entry), ttl))
            if stored is False:
                # Somebody with a later lease was sooner.
                await self._memory.delete(key)
                return False
            kept = kept or stored is True
            if stored is True:
                line = Row.of(key, entry, self._clock() + ttl).dump()
                await self._ask("list", lambda: slow.enlist(key, line, ttl))
        return kept

    async def find(self, query: Query) -> Found:
        """What is kept and wanted by a query. Raises StoreError, and ValueError for a wrong ``after``.

        The loop is held up for a millisecond at a time.
        """
        await self._look_for_purges()
        selection = Selection(query, self._purges, self._clock())
        if self._slow is None:
            await self._look_through_memory(selection)
        else:
            await self._look_through(self._slow, selection)
        return selection.found()

    async def delete(self, key: str) -> None:
        """Keep nothing for a key."""
        await self._memory.delete(key)
        if self._slow is not None:
            slow = self._slow
            await self._ask("delete", lambda: slow.delete(key))

    async def purge(self, purge: Purge) -> bool:
        """Purge from now on; False if others that share the store could not be told."""
        if self._slow is None:
            self._purges = self._purges.with_(purge, self._clock())
            return True
        slow = self._slow
        purges = await self._ask("purge", lambda: slow.purge(purge))
        if isinstance(purges, _Failed):
            # Here at least. What is told to the others next will replace it.
            self._purges = self._purges.with_(purge, self._clock())
            return False
        self._purges = purges
        return True

    @asynccontextmanager
    async def lease(self, key: str, patience: float) -> AsyncIterator[int | None]:
        """The right to render a target, as a fence, for as long as the context lasts.

        Waits up to ``patience`` seconds for others that have it; None if they still have it then.
        0 where there are no others, or they cannot be asked.
        """
        fence = await self._acquire(key, patience)
        if not fence or self._slow is None:
            yield fence
            return
        slow = self._slow
        heart = asyncio.create_task(self._beat(slow, key, fence), name=f"lease {key}")
        try:
            yield fence
        finally:
            heart.cancel()
            await asyncio.gather(heart, return_exceptions=True)
            await self._ask("release", lambda: slow.release(key, fence))

    async def close(self) -> None:
        """Close what has been opened."""
        if self._reads is not None:
            await self._reads.close()
        if self._slow is not None:
            await self._slow.close()

    async def note(self, key: str, data: bytes, ttl: float) -> None:
        """Keep a note beside the snapshot of a key: in the slower store, or in memory without one."""
        name = f"{_NOTE}{key}"
        if self._slow is None:
            await self._notes.set(name, _Note(data), ttl)
            return
        slow = self._slow
        await self._ask("note", lambda: slow.set(name, data, ttl))

    async def noted(self, key: str) -> bytes | None:
        """The note of a key, if there is one."""
        name = f"{_NOTE}{key}"
        if self._slow is None:
            note = self._notes.peek(name)
            return note.data if isinstance(note, _Note) else None
        slow = self._slow
        data = await self._ask("note", lambda: slow.get(name))
        return None if isinstance(data, _Failed) else data

    async def _look_through_memory(self, selection: Selection) -> None:
        kept, now = self._memory.items(), self._clock()
        for start in range(0, len(kept), PIECE):
            selection.add(
                Row.of(key, entry, now + left)
                for key, entry, left in kept[start : start + PIECE]
                if isinstance(entry, Entry)
            )
            await asyncio.sleep(0)

    async def _look_through(self, slow: SlowCache, selection: Selection) -> None:
        """Not by _ask: that a long list takes long is no reason to leave the store alone."""
        if not self._breaker.closed:
            raise StoreGone("the store is away")
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                async with aclosing(slow.lines()) as pieces:
                    async for lines in pieces:
                        selection.add_lines(lines)
                        await asyncio.sleep(0)
        except (TimeoutError, ValueError) as error:
            raise StoreError(f"no list: {error or 'it took too long'}") from error

    async def _acquire(self, key: str, patience: float) -> int | None:
        if self._slow is None:
            return 0
        slow = self._slow
        deadline = self._clock() + patience
        pause = _FIRST_POLL_SECONDS
        while True:
            fence = await self._ask("lease", lambda: slow.acquire(key))
            if isinstance(fence, _Failed):
                return 0
            if fence is not None or self._clock() + pause > deadline:
                return fence
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL_SECONDS)

    async def _beat(self, slow: SlowCache, key: str, fence: int) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            await self._ask("lease", lambda: slow.extend(key, fence))

    async def _look_for_purges(self) -> None:
        """See what others have purged, if that was not seen a moment ago."""
        slow = self._slow
        now = self._clock()
        if slow is None or now < self._purges_seen + (TRUST_SECONDS if self._shared else inf):
            return
        seen, self._purges_seen = self._purges_seen, now
        purges = await self._ask("purges", lambda: slow.purges(self._purges.generation))
        if isinstance(purges, Purges):
            self._purges = purges
        elif isinstance(purges, _Failed) and not self._shared:
            self._purges_seen = seen

    def _copy(self, key: str) -> Entry | None:
        """The entry in memory, whatever its age."""
        held = self._memory.peek(key)
        return held if isinstance(held, Entry) else None

    async def _read(self, keys: list[str]) -> list[Entry | None]:
        """What the slower cache has, or where it cannot be asked the copies in memory."""
        assert self._slow is not None
        slow = self._slow
        found = await self._ask("get", lambda: slow.multi_get(keys))
        if isinstance(found, _Failed):
            self._lookups["slow", "failed"] += len(keys)
            return [self._copy(key) for key in keys]
        return [await self._kept(key, data) for key, data in zip(keys, found, strict=True)]

    async def _kept(self, key: str, data: bytes | None) -> Entry | None:
        """The entry that was read for a key, in memory from now on."""
        self._lookups["slow", "miss" if data is None else "hit"] += 1
        if not self._shared and (newer := self._copy(key)) is not None:
            return newer  # it was replaced while it was read
        if data is None:
            await self._memory.delete(key)
            return None
        now = self._clock()
        try:
            entry = decode(data, now + TRUST_SECONDS if self._shared else inf)
        except BadEntry as error:
            self.counts["bad entries"] += 1
            log.warning("bad entry in the store", key=key, reason=str(error))
            await self.delete(key)
            return None
        if entry.stored > now + _CLOCK_SKEW_SECONDS:
            entry = replace(entry, stored=now, expires=now)
        self._memory.put(key, entry, None)
        return entry

    def _remember(self, key: str, entry: Entry, ttl: float | None) -> bool:
        if self._shared:
            entry = replace(entry, trusted=self._clock() + TRUST_SECONDS)
        return self._memory.put(key, entry, ttl)

    async def _after_purges(self, key: str, entry: Entry) -> Entry | None:
        purges = self._purges
        if entry.generation >= purges.generation:
            return entry
        snapshot = entry.snapshot
        verdict = purges.verdict(entry.page, snapshot.tags, snapshot.shell, entry.generation)
        if verdict is not None and not verdict.soft:
            await self.delete(key)
            return None
        expires = entry.expires if verdict is None else min(entry.expires, verdict.since)
        entry = replace(entry, generation=purges.generation, expires=expires)
        self._remember(key, entry, None)
        return entry

    async def _ask(self, what: str, call: Callable[[], Awaitable[T]]) -> T | _Failed:
        """The result of a call to the slower cache, or _FAILED: without it one lives, only slower."""
        if self._slow is None or not self._breaker.admits():
            return _FAILED
        try:
            async with asyncio.timeout(self._slow.timeout_seconds):
                result = await call()
        except (StoreError, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            self.counts[what] += 1
            if isinstance(error, StoreGone | TimeoutError):
                if self._breaker.closed:
                    log.warning(
                        "the store is away",
                        store=repr(self),
                        reason=str(error) or "no answer in time",
                    )
                self._breaker.failed()
            elif self.counts[what] == 1:
                log.warning("the store failed", operation=what, reason=reason)
            return _FAILED
        except Exception:
            # What is there may be no Redis at all, and answer what no library expects.
            self.counts[what] += 1
            log.exception("the store failed by a mistake", operation=what)
            self._breaker.failed()
            return _FAILED
        if not self._breaker.closed:
            self._breaker.succeeded()
            log.info("the store is back", store=repr(self))
        return result

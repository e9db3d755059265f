"""Snapshots in an object store (S3, Google Cloud Storage, Azure), behind aiocache's interface.

Objects, each under the prefix of the URL: one for each snapshot, one for the purges, and behind Redis
the mark of missed_by_redis.py. Nothing is ever listed. The object of a snapshot begins with the time
until which it counts, because object stores have no TTL for single objects; a lifecycle rule deletes
what is old.

There are no leases: a fence is the time at which a render began. A write is conditional on what was
read before it (If-Match and If-None-Match, RFC 9110, section 13.1), so the later fence wins.
"""

import asyncio
import re
import struct
import time
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any

from prerender.errors import StoreError
from prerender.snapshots.entry import FORMAT
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.aiocache_backends import dump_purges, parse_purges
from prerender.snapshots.stores.aiocache_commands import timed
from prerender.snapshots.stores.backing_store import LONGEST_SECONDS, BackingCache

if TYPE_CHECKING:
    # It needs obstore, which is optional.
    from prerender.extensions.object_store.bucket import Bucket, Object

# The format, and Unix seconds.
_HEAD = struct.Struct(">4sd")
_MAGIC = b"PRO1"
# The format of an entry and its fence (entry.py).
_FENCE = struct.Struct(">4sQ")
TIMEOUT_SECONDS = 2.0
_TRIES = 5
_PURGES = "purges"
_MARK = "redis"
# A fence further ahead is of a clock that was wrong.
CLOCK_SKEW_MICROSECONDS = 60 * 1_000_000
_OTHER_THAN_IN_NAMES = re.compile(r"[^A-Za-z0-9:._-]", re.ASCII)


class ObjectCache(BackingCache):
    """Keeps bytes in a bucket; keys begin with ``namespace``. Faults are StoreErrors."""

    NAME = "object store"
    shared = True
    reads_at_once = 8  # each takes tens of milliseconds
    lists = False
    notes = False
    trust_seconds = 30.0

    def __init__(self, bucket: "Bucket", namespace: str, timeout: float = TIMEOUT_SECONDS) -> None:
        super().__init__(namespace=namespace, timeout=timeout)
        self._bucket = bucket
        # Objects that are read again and again, by name.
        self._known: dict[str, Object] = {}
        self._parsed: tuple[bytes | None, Purges] = (None, Purges())

    @timed
    async def open(self) -> None:
        """Write the list of purges if there is none, which shows whether we may read and write."""
        if await self._polled(_PURGES) is None:
            await self._bucket.write(self._small(_PURGES), dump_purges(Purges()), None)

    async def _get(self, key: str, encoding: str | None = None, _conn: Any = None) -> bytes | None:
        stored = await self._bucket.read(_name(key))
        return None if stored is None else _value(stored.data)

    async def _multi_get(
        self, keys: list[str], encoding: str | None = None, _conn: Any = None
    ) -> list[bytes | None]:
        # Not a TaskGroup: its errors are not those of the bucket.
        return await asyncio.gather(*map(self._get, keys))

    async def _set(
        self,
        key: str,
        value: bytes,
        ttl: float | None = None,
        _cas_token: Any = None,
        _conn: Any = None,
    ) -> bool:
        return await self._write(key, value, LONGEST_SECONDS if ttl is None else ttl)

    @timed
    async def add(self, key: str, value: bytes, seconds: float) -> bool:
        """Write a snapshot, unless this one or a later one is there. Returns whether it was written."""
        return await self._write(key, value, seconds, again=False)

    async def _write(self, key: str, value: bytes, seconds: float, *, again: bool = True) -> bool:
        if seconds <= 0:
            return False
        data = _HEAD.pack(_MAGIC, time.time() + seconds) + value
        # Without a fence, it counts as the latest.
        fence = inf if (own := fence_of(value)) is None else own
        name = _name(key)
        for _ in range(_TRIES):
            before = await self._bucket.read(name, _HEAD.size + _FENCE.size)
            there = None if before is None else fence_of(before.data[_HEAD.size :])
            if there is not None and (there > fence or (there == fence and not again)):
                return False
            if await self._bucket.write(name, data, before):
                return True
        return False  # others write all the time, and theirs is as new

    @timed
    async def fence(self, key: str) -> int | None:
        """The fence of a snapshot; None if there is none, or its time is over."""
        stored = await self._bucket.read(_name(key), _HEAD.size + _FENCE.size)
        value = None if stored is None else _value(stored.data)
        return None if value is None else fence_of(value)

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return await self._get(key) is not None

    async def _delete(self, key: str, _conn: Any = None) -> int:
        await self._bucket.delete(_name(key))
        return 1

    async def acquire(self, key: str) -> int | None:
        """A fence: others may have one at the same time."""
        return int(time.time() * 1_000_000)

    @timed
    async def purge(self, *purges: Purge) -> Purges:
        """Tell all replicas of purges; all that are remembered."""
        return await self._change(lambda known: known.with_(purges, time.time()))

    @timed
    async def restore(self, purges: Purges) -> Purges:
        """Remember purges that were lost, each with its number; all that are remembered."""
        return await self._change(lambda known: known.restored(purges))

    @timed
    async def purges(self, generation: int) -> Purges | None:
        """All purges; None if the last one has this number."""
        purges = self._purges_of(await self._polled(_PURGES))
        return None if purges.generation == generation else purges

    @timed
    async def read_mark(self) -> bytes | None:
        """The mark of missed_by_redis.py."""
        return await self._polled(_MARK)

    @timed
    async def change_mark(self, change: Callable[[bytes | None], bytes | None]) -> bytes | None:
        """Change the mark, also if others change it. Returns what it is then."""
        return await self._rewrite(_MARK, change)

    async def _change(self, change: Callable[[Purges], Purges]) -> Purges:
        return self._purges_of(
            await self._rewrite(_PURGES, lambda data: dump_purges(change(self._purges_of(data))))
        )

    def _purges_of(self, data: bytes | None) -> Purges:
        if data is not self._parsed[0]:
            self._parsed = data, parse_purges(data)
        return self._parsed[1]

    async def _polled(self, kind: str) -> bytes | None:
        """A small object, which is transferred only if it has changed."""
        name = self._small(kind)
        known = self._known.get(name)
        if known is None:
            current = await self._bucket.read(name)
        else:
            again = await self._bucket.read_unless(name, known.version)
            current = known if again is False else again
        if current is None:
            self._known.pop(name, None)
            return None
        self._known[name] = current
        return current.data

    async def _rewrite(
        self, kind: str, change: Callable[[bytes | None], bytes | None]
    ) -> bytes | None:
        name = self._small(kind)
        for _ in range(_TRIES):
            before = await self._polled(kind)
            data = change(before)
            if data is None or data == before:
                return before
            if await self._bucket.write(name, data, self._known.get(name)):
                return data
        raise StoreError(f"{kind}: conditional write failed {_TRIES} times")

    def _small(self, kind: str) -> str:
        return _name(f"{self.namespace}{kind}")


def _name(key: str) -> str:
    """The object name of a cache key: a digest (Target.key), behind the name of the site."""
    return _OTHER_THAN_IN_NAMES.sub("_", key)


def _value(data: bytes) -> bytes | None:
    """What was kept, unless its time is over."""
    if len(data) < _HEAD.size:
        return None
    magic, until = _HEAD.unpack_from(data)
    return data[_HEAD.size :] if magic == _MAGIC and until > time.time() else None


def fence_of(value: bytes) -> int | None:
    """The fence of a stored snapshot; None for another value, and for a fence of a wrong clock."""
    if len(value) < _FENCE.size:
        return None
    kind, fence = _FENCE.unpack_from(value)
    latest = time.time() * 1_000_000 + CLOCK_SKEW_MICROSECONDS
    return int(fence) if kind == FORMAT and fence <= latest else None

"""Snapshots in an object store (S3, Google Cloud Storage, Azure), behind aiocache's interface.

Objects, each under the prefix of the URL: one for each snapshot, and one for the purges. Nothing is
ever listed. An object begins with the time until which it counts, because object stores know no time
to live of single objects; a lifecycle rule deletes what is old.

There are no leases: a fence is the time at which a render began. A write is conditional on what was
read before it (If-Match and If-None-Match, RFC 9110, section 13.1), so the later fence wins.
"""

import asyncio
import re
import struct
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from prerender.errors import StoreError
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.aiocache_backends import dump_purges, parse_purges
from prerender.snapshots.stores.aiocache_commands import timed
from prerender.snapshots.stores.backing_store import LONGEST_SECONDS, BackingCache

if TYPE_CHECKING:
    # It needs obstore, which is optional.
    from prerender.snapshots.stores.bucket import Bucket, Object

# The format, and Unix seconds.
_HEAD = struct.Struct(">4sd")
_MAGIC = b"PRO1"
# The format of an entry and its fence (entry.py).
_FENCE = struct.Struct(">4sQ")
TIMEOUT_SECONDS = 2.0
_TRIES = 5
# A fence further ahead is of a clock that was wrong.
_CLOCK_SKEW_MICROSECONDS = 60 * 1_000_000
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
        self._known: tuple[Object, Purges] | None = None

    @timed
    async def open(self) -> None:
        """Write the list of purges if there is none, which shows whether we may read and write."""
        before, purges = await self._read_purges()
        if before is None:
            await self._bucket.write(self._purges_name, dump_purges(purges), None)

    async def _get(self, key: str, encoding: str | None = None, _conn: Any = None) -> bytes | None:
        found = await self._bucket.read(_name(key))
        return None if found is None else _value(found.data)

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
        seconds = LONGEST_SECONDS if ttl is None else ttl
        if seconds <= 0:
            return False
        data = _HEAD.pack(_MAGIC, time.time() + seconds) + value
        name = _name(key)
        for _ in range(_TRIES):
            before = await self._bucket.read(name, _HEAD.size + _FENCE.size)
            if before is not None and _is_later(before.data, data):
                return False
            if await self._bucket.write(name, data, before):
                return True
        return False  # others write all the time, and theirs is as new

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return await self._get(key) is not None

    async def _delete(self, key: str, _conn: Any = None) -> int:
        await self._bucket.delete(_name(key))
        return 1

    async def acquire(self, key: str) -> int | None:
        """A fence: others may have one at the same time."""
        return int(time.time() * 1_000_000)

    @timed
    async def purge(self, purge: Purge) -> Purges:
        """Tell all replicas of a purge; all that are remembered."""
        return await self._change(lambda purges: purges.with_(purge, time.time()))

    @timed
    async def restore(self, purges: Purges) -> Purges:
        """Remember purges that were lost, each with its number; all that are remembered."""
        return await self._change(purges.united)

    @timed
    async def purges(self, generation: int) -> Purges | None:
        """All purges; None if the last one has this number."""
        _, found = await self._read_purges()
        return None if found.generation == generation else found

    async def _change(self, change: Callable[[Purges], Purges]) -> Purges:
        for _ in range(_TRIES):
            before, purges = await self._read_purges()
            changed = change(purges)
            if await self._bucket.write(self._purges_name, dump_purges(changed), before):
                return changed
        raise StoreError("others write the list of purges all the time")

    async def _read_purges(self) -> "tuple[Object | None, Purges]":
        """The list of purges, which is transferred only if it has changed."""
        known = self._known
        if known is None:
            found = await self._bucket.read(self._purges_name)
        else:
            again = await self._bucket.read_unless(self._purges_name, known[0].version)
            if again is False:
                return known
            found = again
        if found is None:
            self._known = None
            return None, Purges()
        self._known = found, parse_purges(found.data)
        return self._known

    @property
    def _purges_name(self) -> str:
        return _name(f"{self.namespace}purges")


def _name(key: str) -> str:
    """What an object is called. Keys are digests (Target.key), behind the name of the site."""
    return _OTHER_THAN_IN_NAMES.sub("_", key)


def _value(data: bytes) -> bytes | None:
    """What was kept, unless its time is over."""
    if len(data) < _HEAD.size:
        return None
    magic, until = _HEAD.unpack_from(data)
    return data[_HEAD.size :] if magic == _MAGIC and until > time.time() else None


def _is_later(there: bytes, new: bytes) -> bool:
    """Whether the stored snapshot was rendered under a later lease than the new one."""
    if min(len(there), len(new)) < _HEAD.size + _FENCE.size:
        return False
    kind, fence = _FENCE.unpack_from(there, _HEAD.size)
    new_kind, new_fence = _FENCE.unpack_from(new, _HEAD.size)
    latest = time.time() * 1_000_000 + _CLOCK_SKEW_MICROSECONDS
    return bool(kind == new_kind and new_fence < fence <= latest)

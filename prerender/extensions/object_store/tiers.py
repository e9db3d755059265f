"""Redis in front of an object store: the most requested snapshots are in both.

Redis also has the leases, the lists and the histories. Purges are in both, because Redis may lose them,
and the object store would then serve purged snapshots. If one of the two is unavailable, the other one
is used alone, and what was written in the meantime is copied later (missed_by_bucket.py and
missed_by_redis.py). Snapshots that are read from the object store are written to Redis.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from prerender.background import cancel_all
from prerender.errors import StoreError, StoreGone
from prerender.extensions.object_store.missed_by_bucket import MissedByBucket
from prerender.extensions.object_store.missed_by_redis import MissedByRedis
from prerender.extensions.object_store.object_store import ObjectCache, fence_of
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.backing_store import BackingCache, LineOf
from prerender.snapshots.stores.guarded import Failed, Guarded
from prerender.snapshots.stores.redis import RedisCache
from prerender.snapshots.stores.serializer import UNREAD, EncodedEntry, Unread

# What was read from the object store stays in Redis for so long.
_HOT_SECONDS = 3600.0
# How often the purges of the object store are read while Redis answers.
_PURGES_SECONDS = 10.0
# How often each replica looks for what one of the two has missed.
_RECONCILE_SECONDS = 10.0

T = TypeVar("T")


class TieredCache(BackingCache):
    """``hot`` in front of ``cold``. Raises StoreGone for what neither could do."""

    NAME = "redis and object store"
    shared = True
    reads_at_once = 4

    def __init__(self, hot: RedisCache, cold: ObjectCache, namespace: str) -> None:
        super().__init__(namespace=namespace, timeout=None)
        self._hot = Guarded(hot)
        self._cold = Guarded(cold)
        self._redis, self._objects = hot, cold
        self._read_cold = 0.0
        self._missed_by_redis = MissedByRedis(self._hot, self._cold, hot, cold)
        self._missed_by_bucket = MissedByBucket(self._hot, self._cold, hot, cold)
        self._reconciling: asyncio.Task[None] | None = None

    @property
    def line_of(self) -> LineOf | None:
        """Redis has the lines."""
        return self._redis.line_of

    @line_of.setter
    def line_of(self, line_of: LineOf | None) -> None:
        self._redis.line_of = line_of

    @property
    def whole(self) -> bool:
        """Whether both answer, as far as is known."""
        return self._hot.available and self._cold.available

    @property
    def faults(self) -> Counter[str]:
        """Of both, by operation."""
        return self._hot.counts + self._cold.counts

    async def open(self) -> None:
        """Check that both are reachable and accept the credentials. From now on, reconcile them."""
        await asyncio.gather(
            self._hot.ask("open", self._redis.open), self._cold.ask("open", self._objects.open)
        )
        await self._missed_by_redis.poll()
        if self._reconciling is None:
            self._reconciling = asyncio.create_task(self._reconcile(), name="reconcile stores")

    async def reconcile(self) -> None:
        """Copy to the bucket what it may lack, and see whether Redis may lack something."""
        await self._missed_by_redis.poll()
        await self._missed_by_bucket.copy()

    async def _reconcile(self) -> None:
        while True:
            await asyncio.sleep(_RECONCILE_SECONDS)
            await self.reconcile()

    async def _get(self, key: str, encoding: str | None = None, _conn: Any = None) -> bytes | None:
        """Of what is in Redis only: notes. Raises StoreError if Redis does not respond."""
        return _of_redis(await self._ask(self._hot, "get", lambda: self._redis._get(key)))

    async def _multi_get(
        self, keys: list[str], encoding: str | None = None, _conn: Any = None
    ) -> list[bytes | Unread | None]:
        began = time.time()
        hot = await self._ask(self._hot, "get", lambda: self._redis._multi_get(keys))
        values = [None] * len(keys) if isinstance(hot, Failed) else hot
        by_key: dict[str, bytes | Unread | None] = dict(zip(keys, values, strict=True))
        by_key |= await self._compared(by_key, began)
        missing = [key for key in keys if by_key[key] is None]
        if missing:
            cold = await self._ask(self._cold, "get", lambda: self._objects._multi_get(missing))
            if not isinstance(cold, Failed):
                by_key.update(zip(missing, cold, strict=True))
                await self._warm(dict(zip(missing, cold, strict=True)), began)
            elif isinstance(hot, Failed):
                raise StoreGone("neither Redis nor the object store responds")
            else:
                # Redis may have lost them.
                by_key.update(dict.fromkeys(missing, UNREAD))
        return [by_key[key] for key in keys]

    async def _warm(self, by_key: dict[str, bytes | None], began: float) -> None:
        """Put what was read from the object store into Redis, if nothing newer is there."""
        writes = (
            self._warmed(key, value, began) for key, value in by_key.items() if value is not None
        )
        await asyncio.gather(*writes)

    async def _warmed(self, key: str, value: bytes, began: float) -> None:
        write = partial(self._redis._set, key, value, _HOT_SECONDS)
        if not isinstance(await self._ask(self._hot, "set", write), Failed):
            self._missed_by_redis.compared(key, began)

    async def _compared(
        self, by_key: dict[str, bytes | Unread | None], began: float
    ) -> dict[str, bytes]:
        """The later snapshot of the two stores, of those that may be outdated in Redis."""
        doubted = {
            key: value
            for key, value in by_key.items()
            if isinstance(value, bytes) and self._missed_by_redis.doubts(key, value)
        }
        later = await asyncio.gather(*(self._later(*pair, began) for pair in doubted.items()))
        return dict(zip(doubted, later, strict=True))

    async def _later(self, key: str, value: bytes, began: float) -> bytes:
        """The snapshot of Redis, or a later one of the bucket. The other store gets it."""
        fence = await self._cold.ask("get", lambda: self._objects.fence(key))
        own = fence_of(value) or 0
        if isinstance(fence, Failed):
            return value
        if fence is None or fence < own:
            noted = await self._missed_by_bucket.note(key, own, seconds=0)
            if not isinstance(noted, Failed):
                self._missed_by_redis.compared(key, began)
        elif fence == own:
            self._missed_by_redis.compared(key, began)
        elif (later := await self._replaced(key, began)) is not None:
            return later
        return value

    async def _replaced(self, key: str, began: float) -> bytes | None:
        """The snapshot of the bucket, which Redis gets instead of an older one."""
        later = await self._ask(self._cold, "get", lambda: self._objects._get(key))
        if not isinstance(later, bytes):
            return None
        await self._warmed(key, later, began)
        return later

    async def _set(
        self,
        key: str,
        value: bytes,
        ttl: float | None = None,
        _cas_token: Any = None,
        _conn: Any = None,
    ) -> bool:
        if not isinstance(value, EncodedEntry):
            return _of_redis(
                await self._ask(self._hot, "set", lambda: self._redis._set(key, value, ttl))
            )
        value = self._with_fence(value)
        fence, began = value.entry.fence, time.time()
        # The notes come before the writes: this process may be killed at any moment.
        note = await self._missed_by_bucket.note(key, fence)
        hot = await self._ask(self._hot, "set", lambda: self._redis._set(key, value, ttl))
        if hot is False:
            await self._missed_by_bucket.saved(key, fence)
            return False
        if isinstance(hot, Failed):
            await self._missed_by_redis.note(fence)
        elif isinstance(note, Failed):
            await self._missed_by_bucket.note(key, fence)
        cold = await self._ask(self._cold, "set", lambda: self._objects._set(key, value, ttl))
        if isinstance(cold, Failed):
            if isinstance(hot, Failed):
                raise StoreGone("Redis and the object store both failed to store it")
            return True
        if not cold:
            # Another replica with a later fence was sooner, and Redis did not know of it.
            await self._replaced(key, began)
        elif isinstance(hot, Failed):
            # The mark must cover the end of the write, too, which may have been long ago.
            await self._missed_by_redis.note(fence)
        await self._missed_by_bucket.saved(key, fence)
        return cold

    def _with_fence(self, value: EncodedEntry) -> EncodedEntry:
        """A render without a lease gets its time in milliseconds: that is before all leases, which
        have microseconds. With equal fences, the stores could not find out which one is later.
        """
        entry = value.entry
        if entry.fence:
            return value
        entry = replace(entry, fence=round(entry.stored * 1000))
        with_fence: EncodedEntry = self.serializer.dumps(entry)
        return with_fence

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return isinstance((await self._multi_get([key]))[0], bytes)

    async def _delete(self, key: str, _conn: Any = None) -> int:
        return await self._both(
            "delete", lambda: self._redis._delete(key), lambda: self._objects._delete(key)
        )

    async def lines(self) -> AsyncGenerator[list[bytes]]:
        """The lines that Redis has: those of the last snapshots."""
        async for piece in self._redis.lines():
            yield piece

    async def purge(self, *purges: Purge) -> Purges:
        """Tell all replicas of purges; all that are remembered."""
        hot = await self._hot.ask("purge", lambda: self._redis.purge(*purges))
        if isinstance(hot, Failed):
            return self._checked(
                await self._cold.ask("purge", lambda: self._objects.purge(*purges))
            )
        cold = await self._cold.ask("purge", lambda: self._objects.restore(hot))
        return hot if isinstance(cold, Failed) else cold

    async def restore(self, purges: Purges) -> Purges:
        """Remember purges that were lost, each with its number; all that are remembered."""
        return await self._both(
            "purge", lambda: self._redis.restore(purges), lambda: self._objects.restore(purges)
        )

    async def purges(self, generation: int) -> Purges | None:
        """All purges; None if the last one has this number."""
        now = time.monotonic()
        hot = await self._hot.ask("purges", lambda: self._redis.purges(generation))
        if not isinstance(hot, Failed) and now < self._read_cold:
            return hot
        self._read_cold = now + _PURGES_SECONDS
        cold = await self._cold.ask("purges", lambda: self._objects.purges(-1))
        if isinstance(cold, Failed) or cold is None:
            return None if hot is None else self._checked(hot)
        if isinstance(hot, Failed):
            return cold
        return await self._complete(cold)

    async def _complete(self, cold: Purges) -> Purges:
        """The purges of both. A store that lacks some gets them."""
        hot = self._checked(await self._hot.ask("purges", lambda: self._redis.purges(-1)))
        if cold.missing_in(hot):
            await self._hot.ask("purge", lambda: self._redis.restore(cold))
        if hot.missing_in(cold):
            await self._cold.ask("purge", lambda: self._objects.restore(hot))
        return hot.united(cold)

    async def acquire(self, key: str) -> int | None:
        """A fence for the lease of a key; None if another replica holds it."""
        fence = await self._hot.ask("lease", lambda: self._redis.acquire(key))
        return await self._objects.acquire(key) if isinstance(fence, Failed) else fence

    async def extend(self, key: str, fence: int) -> None:
        """Hold a lease for some seconds more."""
        await self._hot.ask("lease", lambda: self._redis.extend(key, fence))

    async def release(self, key: str, fence: int) -> None:
        """Give a lease back, if it is still held."""
        await self._hot.ask("release", lambda: self._redis.release(key, fence))

    async def _close(self, *_: Any, **__: Any) -> None:
        if self._reconciling is not None:
            await cancel_all([self._reconciling])
        await self._redis.close()

    async def _both(
        self, what: str, hot: Callable[[], Awaitable[T]], cold: Callable[[], Awaitable[T]]
    ) -> T:
        """What the object store gives, or Redis if that cannot be asked."""
        first, second = await asyncio.gather(
            self._ask(self._hot, what, hot), self._ask(self._cold, what, cold)
        )
        return self._checked(first if isinstance(second, Failed) else second)

    @staticmethod
    def _checked(result: T | Failed | None) -> T:
        if isinstance(result, Failed) or result is None:
            raise StoreGone("neither Redis nor the object store responds")
        return result

    @staticmethod
    async def _ask(store: Guarded, what: str, call: Callable[[], Awaitable[T]]) -> T | Failed:
        """A call below aiocache's commands, with the timeout that they have."""

        async def within() -> T:
            async with asyncio.timeout(store.cache.timeout):
                return await call()

        return await store.ask(what, within)


def _of_redis(result: T | Failed) -> T:
    """What only Redis can give. Not StoreGone: the bucket would not be used for a while either."""
    if isinstance(result, Failed):
        raise StoreError("Redis does not respond")
    return result

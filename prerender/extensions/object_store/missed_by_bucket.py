"""Snapshots that Redis has and the bucket may lack, because a write failed or its proxy was killed.

Each write to the bucket is noted in Redis before it begins, by key and fence, and the note is removed
after it. Notes that remain are due after a while; any replica then copies the snapshot from Redis to
the bucket. Of two replicas that write the same key at the same time, neither removes the other's note.
"""

import asyncio

from prerender.extensions.object_store.object_store import ObjectCache, fence_of
from prerender.snapshots.stores.guarded import Failed, Guarded
from prerender.snapshots.stores.redis import RedisCache

# Longer than a write takes: others leave its snapshot alone until then.
_DUE_SECONDS = 30.0
# A snapshot has about 50 kB.
_AT_ONCE = 16


class MissedByBucket:
    """Notes in ``hot`` (Redis) what ``cold`` (the bucket) may lack, and copies it."""

    def __init__(
        self, hot: Guarded, cold: Guarded, redis: RedisCache, objects: ObjectCache
    ) -> None:
        self._hot, self._cold = hot, cold
        self._redis, self._objects = redis, objects

    async def note(self, key: str, fence: int, seconds: float | None = None) -> Failed | None:
        """Note a snapshot, to be copied in ``seconds``."""
        due = _DUE_SECONDS if seconds is None else seconds
        return await self._hot.ask("unsaved", lambda: self._redis.note_unsaved(key, fence, due))

    async def saved(self, key: str, fence: int) -> None:
        """Remove the note of a snapshot: the bucket has it, or need not have it."""
        await self._hot.ask("unsaved", lambda: self._redis.forget_unsaved(key, fence))

    async def copy(self) -> None:
        """Copy all snapshots that are due, until a store fails."""
        while True:
            taken = await self._hot.ask(
                "unsaved", lambda: self._redis.take_unsaved(_DUE_SECONDS, _AT_ONCE)
            )
            if isinstance(taken, Failed):
                return
            copied = await asyncio.gather(*(self._copied(*note) for note in taken))
            if len(taken) < _AT_ONCE or not all(copied):
                return

    async def _copied(self, key: str, fence: int) -> bool:
        hot = await self._hot.ask("get", lambda: self._redis.with_ttl(key))
        if isinstance(hot, Failed):
            return False
        # Otherwise it was purged or evicted, or replaced by something that is no snapshot.
        if hot is not None and fence_of(hot[0]) is not None:
            value, seconds = hot
            done = await self._cold.ask("set", lambda: self._objects.add(key, value, seconds))
            if isinstance(done, Failed):
                return False
        await self.saved(key, fence)
        return True

"""Leases: the right to render a target, which one replica has at a time."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from prerender.background import running
from prerender.snapshots.stores.guarded import Failed, Guarded

_FIRST_POLL_SECONDS = 0.025
_LONGEST_POLL_SECONDS = 0.25
_HEARTBEAT_SECONDS = 1.5


class Leases:
    """Holds leases of a store, and extends them while they are needed."""

    def __init__(self, store: Guarded, clock: Callable[[], float]) -> None:
        self._store = store
        self._cache = store.cache
        self._clock = clock

    @asynccontextmanager
    async def hold(self, key: str, wait_seconds: float) -> AsyncIterator[int | None]:
        """Hold a lease while the context is open. Yields its fence.

        Waits up to ``wait_seconds`` for another holder; yields None if it still has the lease then,
        and 0 if the store has no leases or is unavailable.
        """
        fence = await self._acquire(key, wait_seconds)
        if not fence:
            yield fence
            return
        try:
            async with running(self._beat(key, fence), f"lease {key}"):
                yield fence
        finally:
            await self._store.ask("release", lambda: self._cache.release(key, fence))

    async def _acquire(self, key: str, wait_seconds: float) -> int | None:
        deadline = self._clock() + wait_seconds
        pause = _FIRST_POLL_SECONDS
        while True:
            fence = await self._store.ask("lease", lambda: self._cache.acquire(key))
            if isinstance(fence, Failed):
                return 0
            if fence is not None or self._clock() + pause > deadline:
                return fence
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_POLL_SECONDS)

    async def _beat(self, key: str, fence: int) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            await self._store.ask("lease", lambda: self._cache.extend(key, fence))

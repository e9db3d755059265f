"""Writes that one of two stores has missed, repeated from the other store when it responds again.

Without them a snapshot would be in one store only, and would be rendered again when that one loses it.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable

from prerender.snapshots.stores.guarded import Failed

# More than are rendered during an outage of ten minutes, at ten per second. A key takes 200 bytes.
_MOST_KEYS = 10_000
_PAUSE_SECONDS = 1.0


class MissedWrites:
    """Keys that a store has missed. ``copy(key, seconds)`` writes one for so many seconds."""

    def __init__(self, copy: Callable[[str, float], Awaitable[object]]) -> None:
        self._copy = copy
        # In Unix seconds, until when each is to be kept.
        self._until: OrderedDict[str, float] = OrderedDict()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._until)

    def add(self, key: str, seconds: float) -> None:
        """Note a write that is to be kept for so many seconds. The oldest ones are forgotten."""
        self._until[key] = time.time() + seconds
        if len(self._until) > _MOST_KEYS:
            self._until.popitem(last=False)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._repeat(), name="missed writes")

    async def close(self) -> None:
        """Stop repeating."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _repeat(self) -> None:
        while self._until:
            await asyncio.sleep(_PAUSE_SECONDS)
            while self._until:
                key, until = next(iter(self._until.items()))
                seconds = until - time.time()
                if seconds > 0 and isinstance(await self._copy(key, seconds), Failed):
                    break
                # It may have been missed once more meanwhile.
                if self._until.get(key) == until:
                    del self._until[key]

"""Batches concurrent reads into one call.

The overhead of a call (a connection, a command, a response, a thread) is shared by the batch. A single
read is not delayed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Generic, TypeVar, cast

from prerender.background import cancel_all

# Bounds the memory of a batch.
MOST_KEYS = 32

T = TypeVar("T")


class BatchedReads(Generic[T]):
    """Calls ``read`` with several keys, in at most ``calls`` concurrent calls.

    Exceptions of ``read`` are raised to all its callers. Reads of the same key are shared.
    """

    def __init__(self, read: Callable[[list[str]], Awaitable[list[T]]], calls: int) -> None:
        self._read = read
        self._most_calls = calls
        self._waiting: dict[str, asyncio.Future[T]] = {}
        self._running: dict[str, asyncio.Future[T]] = {}
        self._calls: set[asyncio.Task[None]] = set()

    async def get(self, key: str, *, fresh: bool = False) -> T:
        """Read a key; ``fresh``: with a call that has not started yet.

        A cancelled caller does not affect the others.
        """
        future = self._waiting.get(key)
        if future is None and not fresh:
            future = self._running.get(key)
        if future is None:
            future = self._waiting[key] = asyncio.get_running_loop().create_future()
            if len(self._calls) < self._most_calls:
                # It starts after other ready tasks, which may read, too.
                self._calls.add(asyncio.create_task(self._read_all(), name="batched reads"))
        return await asyncio.shield(future)

    async def close(self) -> None:
        """Cancel all reads."""
        await cancel_all(self._calls)
        for future in self._waiting.values():
            future.cancel()

    async def _read_all(self) -> None:
        try:
            while self._waiting:
                batch = dict(islice(self._waiting.items(), MOST_KEYS))
                for key in batch:
                    del self._waiting[key]
                self._running |= batch
                await self._read_some(batch)
        finally:
            # Now, not when the task is done one iteration later: reads until then would wait.
            self._calls.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _read_some(self, batch: dict[str, asyncio.Future[T]]) -> None:
        try:
            values = await self._read(list(batch))
        except Exception as error:
            for future in batch.values():
                future.set_exception(error)
                future.exception()  # retrieved here, in case all callers have left
        else:
            for future, value in zip(batch.values(), values, strict=True):
                future.set_result(value)
        finally:
            for key, future in batch.items():
                future.cancel()
                if self._running.get(key) is future:
                    del self._running[key]

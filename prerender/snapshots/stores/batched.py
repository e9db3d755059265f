"""Reads that are asked for at about the same time, done by one call.

What a call to a store costs beside its bytes (a connection borrowed, a command packed and its answer
parsed, a thread woken) is paid once for all of them: alone a read is as soon as ever, under load it is
cheap.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import islice
from typing import Generic, TypeVar, cast

# What is read at once is held in memory at once.
MOST_KEYS = 32

T = TypeVar("T")


class BatchedReads(Generic[T]):
    """Asks ``read`` for many keys together, in at most ``calls`` calls at a time.

    What ``read`` raises is raised to all whom it was for. Of the same key there is one read at a time.
    """

    def __init__(self, read: Callable[[list[str]], Awaitable[list[T]]], calls: int) -> None:
        self._read = read
        self._most_calls = calls
        self._waiting: dict[str, asyncio.Future[T]] = {}
        self._running: dict[str, asyncio.Future[T]] = {}
        self._calls: set[asyncio.Task[None]] = set()

    async def get(self, key: str, *, anew: bool = False) -> T:
        """What is read for a key; ``anew``: by a call that has not begun yet.

        Who leaves takes nothing from the others who asked for it.
        """
        future = self._waiting.get(key)
        if future is None and not anew:
            future = self._running.get(key)
        if future is None:
            future = self._waiting[key] = asyncio.get_running_loop().create_future()
            if len(self._calls) < self._most_calls:
                # It begins after what else is ready in this turn of the loop, which may ask as well.
                self._calls.add(asyncio.create_task(self._answer_all(), name="batched reads"))
        return await asyncio.shield(future)

    async def close(self) -> None:
        """Read nothing more; whoever waits is cancelled."""
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        for future in self._waiting.values():
            future.cancel()

    async def _answer_all(self) -> None:
        try:
            while self._waiting:
                batch = dict(islice(self._waiting.items(), MOST_KEYS))
                for key in batch:
                    del self._waiting[key]
                self._running |= batch
                await self._answer(batch)
        finally:
            # Not when the task is done, a turn of the loop later: who asks until then would wait.
            self._calls.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _answer(self, batch: dict[str, asyncio.Future[T]]) -> None:
        try:
            found = await self._read(list(batch))
        except Exception as error:
            for future in batch.values():
                future.set_exception(error)
                future.exception()  # seen here, in case everybody who asked has left
        else:
            for future, value in zip(batch.values(), found, strict=True):
                future.set_result(value)
        finally:
            for key, future in batch.items():
                future.cancel()
                if self._running.get(key) is future:
                    del self._running[key]

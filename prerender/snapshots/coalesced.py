"""One piece of work however many ask for it at once."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Coalesced(Generic[T]):
    """Shares running work by key. The work outlives whoever asked first."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[T]] = {}

    def __len__(self) -> int:
        return len(self._running)

    async def run(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
        """The result of ``work()``, or of the same work that is running already.

        The second value tells whether it was running already. A caller that is cancelled leaves the
        work to the others; an exception of the work is raised to each of them.
        """
        joined = self.runs(key)
        return await asyncio.shield(self.start(key, work)), joined

    def runs(self, key: str) -> bool:
        """Whether the work of a key is running."""
        return key in self._running

    def start(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Begin ``work()`` if it is not running already, without waiting for its end."""
        task = self._running.get(key)
        if task is None:
            task = asyncio.create_task(work(), name=f"render {key}")
            self._running[key] = task
            task.add_done_callback(lambda done: self._finished(key, done))
        return task

    async def close(self) -> None:
        """Cancel what is running and wait for its end."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _finished(self, key: str, task: asyncio.Task[T]) -> None:
        self._running.pop(key, None)
        if not task.cancelled():
            task.exception()  # seen here, in case everybody who asked has left

"""Request coalescing: concurrent callers share one running task per key."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from prerender.background import cancel_all
from prerender.errors import RenderError, ShuttingDown

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Shared(Generic[T]):
    """A task, the generation of its start, whether its work has begun, and the number of waiting
    callers."""

    task: asyncio.Task[T]
    generation: int
    begun: bool = False
    waiting: int = 0


class Coalesced(Generic[T]):
    """Shares running work by key. It outlives the first caller.

    When the last caller leaves, work that still waits for its turn (``begin``) is cancelled.
    ``generation``: a number that grows whenever the work would have another result.
    """

    def __init__(self, generation: Callable[[], int] = lambda: 0) -> None:
        self._generation = generation
        self._running: dict[str, _Shared[T]] = {}
        self._tasks: set[asyncio.Task[T]] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._running)

    async def run(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> tuple[T, bool]:
        """The result of ``work()``, or of the running work with this key.

        The second value tells whether it was running already. A cancelled caller does not affect the
        others; exceptions of the work are raised to all of them. Raises ShuttingDown after ``close()``,
        and RenderError if the work was cancelled otherwise.
        """
        if self._closed:
            raise ShuttingDown("the proxy is shutting down")
        shared = self._running.get(key)
        joined = shared is not None
        if shared is None:
            shared = self._running[key] = self._start(key, work)
        shared.waiting += 1
        try:
            return await asyncio.shield(shared.task), joined
        except asyncio.CancelledError:
            if _is_cancelled():
                raise
            if self._closed:
                raise ShuttingDown("the proxy is shutting down") from None
            # Not a cancellation of the caller, whose client would get no response.
            raise RenderError("what it waited for was cancelled") from None
        finally:
            shared.waiting -= 1
            if not shared.waiting and not shared.begun:
                # Later callers must not get the cancelled task.
                self._forget(key, shared)
                shared.task.cancel()

    def begin(self, key: str) -> None:
        """The running work of a key has got its turn: it is finished even without callers.

        A crawler that disconnected will return and find the result.
        """
        if shared := self._running.get(key):
            shared.begun = True

    def runs(self, key: str) -> bool:
        """Whether the work of a key is running."""
        return key in self._running

    async def ended(self, key: str) -> None:
        """Wait for the end of the running work of a key, however it ends."""
        if shared := self._running.get(key):
            await asyncio.wait([shared.task])

    async def outdated_ended(self, key: str) -> tuple[asyncio.Task[T], int] | None:
        """Wait for the end of the running work of a key if it was started in an earlier generation.
        Returns it, with that generation."""
        shared = self._running.get(key)
        if shared is None or shared.generation >= self._generation():
            return None
        await asyncio.wait([shared.task])
        return shared.task, shared.generation

    def start(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> asyncio.Task[T]:
        """Start ``work()`` unless it is running already. It is finished even without callers."""
        shared = self._running.get(key)
        if shared is None:
            shared = self._running[key] = self._start(key, work)
        shared.begun = True
        return shared.task

    def stop(self, key: str) -> bool:
        """Cancel the work of a key, if nobody waits for it. Returns whether it was cancelled."""
        shared = self._running.get(key)
        if shared is None or shared.waiting:
            return False
        self._forget(key, shared)
        return shared.task.cancel()

    async def close(self) -> None:
        """Cancel all running work and wait for its end. Callers get ShuttingDown."""
        self._closed = True
        await cancel_all(self._tasks)

    def _start(self, key: str, work: Callable[[], Coroutine[Any, Any, T]]) -> _Shared[T]:
        task = asyncio.create_task(work(), name=f"shared {key}")
        shared = _Shared(task, self._generation())
        self._tasks.add(task)
        task.add_done_callback(lambda _: self._finished(key, shared))
        return shared

    def _finished(self, key: str, shared: _Shared[T]) -> None:
        self._forget(key, shared)
        self._tasks.discard(shared.task)
        if not shared.task.cancelled():
            shared.task.exception()  # retrieved here, in case all callers have left

    def _forget(self, key: str, shared: _Shared[T]) -> None:
        if self._running.get(key) is shared:
            del self._running[key]


def _is_cancelled() -> bool:
    """Whether the current task itself is cancelled."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0

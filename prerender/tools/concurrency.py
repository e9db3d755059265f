"""Processes many jobs concurrently, with limits on concurrency and rate."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from prerender.background import cancel_all

T = TypeVar("T")


class Pace:
    """Limits to ``rate`` per second; 0: no limit."""

    def __init__(self, rate: float) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = 0.0

    async def wait(self) -> None:
        """Wait until the rate allows the next one."""
        now = time.monotonic()
        self._next = max(self._next, now)
        turn = self._next
        self._next += self._gap
        if turn > now:
            await asyncio.sleep(turn - now)


async def work_through(
    first: Iterable[T],
    do: Callable[[T], Awaitable[Iterable[T]]],
    *,
    concurrency: int,
    rate: float = 0.0,
) -> None:
    """Process all jobs and the jobs that they return. An error ends everything."""
    queue: asyncio.Queue[T] = asyncio.Queue()
    pace = Pace(rate)
    for one in first:
        queue.put_nowait(one)

    async def worker() -> None:
        while True:
            one = await queue.get()
            await pace.wait()
            for more in await do(one):
                queue.put_nowait(more)
            queue.task_done()

    done = asyncio.create_task(queue.join(), name="all done")
    workers = [asyncio.create_task(worker(), name=f"worker {n}") for n in range(concurrency)]
    try:
        await asyncio.wait([done, *workers], return_when=asyncio.FIRST_COMPLETED)
        for failed in workers:
            if failed.done():
                failed.result()
    finally:
        await cancel_all((done, *workers))

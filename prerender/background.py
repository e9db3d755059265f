"""Work in the background of a context."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run ``work`` as a task with this name while the context is open. Then cancel it, and wait for its
    end; its result and errors are ignored."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def finishing(
    work: Coroutine[Any, Any, None], name: str, stop: Callable[[], object], seconds: float
) -> AsyncIterator[None]:
    """Run ``work`` as a task with this name while the context is open. Then ``stop`` it: it has so many
    seconds to finish before it is cancelled."""
    task = asyncio.create_task(work, name=name)
    try:
        yield
    finally:
        stop()
        await asyncio.wait([task], timeout=seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

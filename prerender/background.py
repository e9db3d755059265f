"""Work in the background of a context."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any

import structlog

from prerender.errors import StoreError

log = structlog.get_logger(__name__)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None], name: str) -> AsyncIterator[None]:
    """Run ``work`` as a task with this name while the context is open. Then cancel it, and wait for its
    end. Errors are logged."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_error)
    try:
        yield
    finally:
        await cancel_all([task])


@asynccontextmanager
async def finishing(
    work: Coroutine[Any, Any, None], name: str, stop: Callable[[], object], seconds: float
) -> AsyncIterator[None]:
    """Run ``work`` as a task with this name while the context is open. Then ``stop`` it: it has so many
    seconds to finish before it is cancelled. Errors are logged."""
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(_log_error)
    try:
        yield
    finally:
        stop()
        await asyncio.wait([task], timeout=seconds)
        await cancel_all([task])


@asynccontextmanager
async def repeating(
    do: Callable[[], Awaitable[None]], name: str, every_seconds: float, last_seconds: float = 0.0
) -> AsyncIterator[None]:
    """Call ``do`` again and again while the context is open, and once more at its end, if that takes no
    longer than ``last_seconds``. Errors are logged."""
    stopped = asyncio.Event()

    async def once() -> None:
        try:
            await do()
        except StoreError as error:
            # The store logs that it is unavailable; nothing is replaced that could not be read.
            log.debug("store_did_not_respond", name=name, reason=str(error))
        except Exception:
            log.exception("background_failed", name=name)

    async def work() -> None:
        while not stopped.is_set():
            await once()
            with suppress(TimeoutError):
                async with asyncio.timeout(every_seconds):
                    await stopped.wait()
        await once()

    async with finishing(work(), name, stopped.set, last_seconds):
        yield


def _log_error(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()):
        log.error("background_failed", name=task.get_name(), exc_info=error)


async def cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel tasks, and wait for their end; their results and errors are ignored."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)

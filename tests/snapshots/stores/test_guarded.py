"""Calls to a store that may fail."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from prerender.errors import StoreGone
from prerender.snapshots.stores.file import FileCache
from prerender.snapshots.stores.guarded import FAILED, Guarded

SECONDS = 10.0


def _succeed(future: asyncio.Future[str]) -> None:
    future.set_result("value")


def _fail(future: asyncio.Future[str]) -> None:
    future.set_exception(StoreGone("the store is gone"))


@pytest.mark.parametrize("end", [_succeed, _fail])
@pytest.mark.parametrize("steps", range(5))
async def test_a_cancellation_is_not_lost(
    end: Callable[[asyncio.Future[str]], None], steps: int, tmp_path: Path
) -> None:
    """It may arrive at any moment after the store's response (gh-86296)."""
    response: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    store = Guarded(FileCache(tmp_path, "a:", 1_000_000))

    async def use() -> None:
        await store.ask("read", lambda: asyncio.wait_for(asyncio.shield(response), SECONDS))
        await asyncio.sleep(SECONDS)

    task = asyncio.create_task(use())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    end(response)
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task}, timeout=SECONDS / 2)
    assert task.cancelled()


@pytest.mark.parametrize("call", [_succeed, _fail])
async def test_an_earlier_cancellation_does_not_count(
    call: Callable[[asyncio.Future[str]], None], tmp_path: Path
) -> None:
    """Cleanup in a cancelled task still gets the store's result."""
    store = Guarded(FileCache(tmp_path, "a:", 1_000_000))
    results: list[object] = []

    async def answer() -> str:
        response: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        call(response)
        return await response

    async def use(ask: Callable[[], Awaitable[str]]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            results.append(await store.ask("read", ask))

    task = asyncio.create_task(use(answer))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})
    assert results == ["value" if call is _succeed else FAILED]

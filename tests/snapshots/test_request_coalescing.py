"""Callers share running work."""

import asyncio

import pytest

from prerender.errors import RenderError
from prerender.snapshots.request_coalescing import Coalesced


async def test_cancelled_work_is_an_error_for_who_waits_for_it() -> None:
    """A CancelledError would end the connection of a client without a response."""
    shared: Coalesced[None] = Coalesced()
    begun, end = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        begun.set()
        await end.wait()

    task = shared.start("key", work)
    waiting = asyncio.create_task(shared.run("key", work))
    leaving = asyncio.create_task(shared.run("key", work))
    async with asyncio.timeout(20):
        await begun.wait()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        task.cancel()
        with pytest.raises(RenderError):
            await waiting
    await shared.close()

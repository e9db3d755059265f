"""Work in the background: errors are logged, and what is repeated goes on, and is done once more."""

import asyncio

import pytest
from structlog.testing import capture_logs

from prerender.background import finishing, repeating, running


async def test_repeating_survives_errors_and_ends_with_one_more_call() -> None:
    calls: list[int] = []
    thrice = asyncio.Event()

    async def fail() -> None:
        calls.append(len(calls))
        if len(calls) == 3:
            thrice.set()
        raise RuntimeError("on purpose")

    async with asyncio.timeout(10):
        async with repeating(fail, "test", 0.001, last_seconds=10):
            await thrice.wait()
    assert len(calls) >= 4


async def test_repeating_waits_no_longer_than_it_may_at_the_end() -> None:
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with asyncio.timeout(10):
        async with repeating(hang, "test", 1, last_seconds=0.01):
            await begun.wait()


@pytest.mark.parametrize("ends", [False, True])
async def test_work_that_fails_is_logged(ends: bool) -> None:
    failed = asyncio.Event()

    async def fail() -> None:
        failed.set()
        raise RuntimeError("on purpose")

    with capture_logs() as logs:
        async with asyncio.timeout(10):
            context = finishing(fail(), "a", int, 10) if ends else running(fail(), "a")
            async with context:
                await failed.wait()
    assert [(log["event"], log["name"]) for log in logs] == [("background_failed", "a")]

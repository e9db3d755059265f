"""Work in the background goes on after an error, and is done once more at the end."""

import asyncio

from prerender.background import repeating


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

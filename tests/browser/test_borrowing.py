"""A page is lent to one caller after the other, whatever they do."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from prerender.browser.pool import Pool
from prerender.errors import PoolBusy
from tests.support.pools import SECONDS, Borrower, pool_of, state


@pytest.fixture(scope="module")
async def one_page() -> AsyncIterator[Pool]:
    async with pool_of(1, queue=3) as pool:
        yield pool


@pytest.fixture
async def pool(one_page: Pool) -> AsyncIterator[Pool]:
    """A pool with one page, which is idle before and after each test."""
    await state(one_page, "1 idle, 0 busy, 0 waiting")
    yield one_page
    await state(one_page, "1 idle, 0 busy, 0 waiting")


async def test_callers_wait_in_their_order(pool: Pool) -> None:
    callers = [Borrower(pool) for _ in range(4)]
    for number, caller in enumerate(callers):
        await state(pool, f"0 idle, 1 busy, {3 - number} waiting")
        await caller.has_page()
        await caller.give_back()


async def test_a_wait_has_its_limit(pool: Pool) -> None:
    holder = Borrower(pool)
    await state(pool, "0 idle, 1 busy, 0 waiting")
    with pytest.raises(PoolBusy, match=r"no page became free in 0\.1 s"):
        await Borrower(pool, timeout=0.05).task
    await state(pool, "0 idle, 1 busy, 0 waiting")
    await holder.give_back()


async def test_a_caller_who_leaves_gives_its_place_back(pool: Pool) -> None:
    holder = Borrower(pool)
    await state(pool, "0 idle, 1 busy, 0 waiting")
    for _ in range(4):
        leaving = Borrower(pool)
        await state(pool, "0 idle, 1 busy, 1 waiting")
        leaving.task.cancel()
        await asyncio.wait([leaving.task])
        await state(pool, "0 idle, 1 busy, 0 waiting")
    await holder.give_back()


async def test_a_page_for_a_caller_who_has_just_left(pool: Pool) -> None:
    """The caller is cancelled after the page was assigned to it. The next caller gets the page."""
    holder = Borrower(pool)
    await state(pool, "0 idle, 1 busy, 0 waiting")
    for others in (0, 1):
        leaving = Borrower(pool)
        following = [Borrower(pool) for _ in range(others)]
        await state(pool, f"0 idle, 1 busy, {1 + others} waiting")
        await holder.give_back()
        # The waiting task wakes up in the round of the loop after the one that hands over.
        while f"{1 + others} waiting" in repr(pool):
            await asyncio.sleep(0)
        leaving.task.cancel()
        await asyncio.wait([leaving.task])
        assert leaving.task.cancelled()
        assert leaving.page is None
        if others:
            await state(pool, "0 idle, 1 busy, 0 waiting")
            await following[0].give_back()
        await state(pool, "1 idle, 0 busy, 0 waiting")
        holder = Borrower(pool)
        await state(pool, "0 idle, 1 busy, 0 waiting")
    await holder.give_back()


async def test_a_caller_who_fails_or_leaves_while_it_holds_a_page(pool: Pool) -> None:
    with pytest.raises(ZeroDivisionError):
        async with pool.place() as place, pool.page(place, SECONDS):
            _ = 1 / 0
    holder = Borrower(pool)
    await state(pool, "0 idle, 1 busy, 0 waiting")
    holder.task.cancel()
    await asyncio.wait([holder.task])

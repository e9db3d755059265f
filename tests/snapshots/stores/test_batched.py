"""Reads at about the same time are one call to the store."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.errors import StoreGone
from prerender.snapshots.stores.batched import MOST_KEYS, BatchedReads
from tests.support import raw

Reads = BatchedReads[bytes | None]
T = TypeVar("T")


class Shelf:
    """A store that responds when it may."""

    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.fault: Exception | None = None

    async def read(self, keys: list[str]) -> list[bytes | None]:
        self.calls.append(sorted(keys))
        await self.open.wait()
        if self.fault is not None:
            raise self.fault
        return [None if key == "nothing" else key.encode() for key in keys]

    async def next_call(self, asking: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Read until there is a call. Returns the task of the read."""
        before = len(self.calls)
        task = asyncio.create_task(asking)
        async with asyncio.timeout(raw.SECONDS):
            while len(self.calls) == before:
                await asyncio.sleep(0)
        return task


def shut(calls: int) -> tuple[Shelf, Reads]:
    """A blocked shelf, and reads from it."""
    shelf = Shelf()
    shelf.open.clear()
    return shelf, BatchedReads(shelf.read, calls)


async def ask(reads: Reads, *keys: str) -> list[bytes | BaseException | None]:
    async with asyncio.timeout(raw.SECONDS):
        return await asyncio.gather(*(reads.get(key) for key in keys), return_exceptions=True)


async def test_what_is_asked_for_in_one_turn_is_one_call() -> None:
    shelf = Shelf()
    reads = BatchedReads(shelf.read, 2)
    assert await ask(reads, "a", "nothing", "b", "a") == [b"a", None, b"b", b"a"]
    assert shelf.calls == [["a", "b", "nothing"]]


async def test_what_is_asked_for_while_all_calls_are_under_way_goes_with_the_next() -> None:
    shelf, reads = shut(1)
    first = await shelf.next_call(ask(reads, "a"))
    others = [asyncio.create_task(ask(reads, key)) for key in ("b", "c")]
    await asyncio.sleep(0)
    shelf.open.set()
    assert [await task for task in (first, *others)] == [[b"a"], [b"b"], [b"c"]]
    assert shelf.calls == [["a"], ["b", "c"]]


async def test_a_late_call_does_not_hold_up_another() -> None:
    shelf, reads = shut(2)
    late = await shelf.next_call(ask(reads, "late"))
    soon = await shelf.next_call(ask(reads, "soon"))
    shelf.open.set()
    assert (await soon, await late) == ([b"soon"], [b"late"])


async def test_many_are_read_in_pieces() -> None:
    shelf = Shelf()
    keys = [f"{number:03}" for number in range(2 * MOST_KEYS + 1)]
    reads = BatchedReads(shelf.read, 1)
    assert await ask(reads, *keys) == [key.encode() for key in keys]
    assert [len(call) for call in shelf.calls] == [MOST_KEYS, MOST_KEYS, 1]


async def test_a_fault_is_told_to_all_who_asked_and_to_nobody_else() -> None:
    shelf = Shelf()
    shelf.fault = StoreGone("away")
    reads = BatchedReads(shelf.read, 1)
    assert await ask(reads, "a", "b") == [shelf.fault, shelf.fault]
    shelf.fault = None
    assert await ask(reads, "a") == [b"a"]


async def test_the_same_key_is_read_once_at_a_time() -> None:
    shelf, reads = shut(2)
    first = await shelf.next_call(ask(reads, "a"))
    second = await shelf.next_call(ask(reads, "a", "b"))
    shelf.open.set()
    assert (await first, await second) == ([b"a"], [b"a", b"b"])
    assert shelf.calls == [["a"], ["b"]]


async def test_a_fresh_read_uses_a_later_call() -> None:
    shelf, reads = shut(1)
    first = await shelf.next_call(reads.get("a"))
    again = asyncio.create_task(reads.get("a", fresh=True))
    await asyncio.sleep(0)
    # This one could have either.
    third = asyncio.create_task(reads.get("a"))
    await asyncio.sleep(0)
    shelf.open.set()
    async with asyncio.timeout(raw.SECONDS):
        assert (await first, await again, await third) == (b"a",) * 3
    assert shelf.calls == [["a"], ["a"]]


async def test_who_leaves_takes_nothing_from_the_others() -> None:
    shelf, reads = shut(1)
    leaving = asyncio.create_task(reads.get("a"))
    staying = await shelf.next_call(reads.get("b"))
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    same = asyncio.create_task(reads.get("a"))
    await asyncio.sleep(0)
    shelf.open.set()
    async with asyncio.timeout(raw.SECONDS):
        assert (await staying, await same) == (b"b", b"a")
    assert shelf.calls == [["a", "b"]]


async def test_nobody_waits_for_what_is_closed() -> None:
    shelf, reads = shut(1)
    asked = [await shelf.next_call(reads.get("a"))]
    asked.append(asyncio.create_task(reads.get("b")))
    await asyncio.sleep(0)
    await reads.close()
    async with asyncio.timeout(raw.SECONDS):
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 2


@pytest.mark.heavy
@pytest.mark.parametrize("calls", [1, 2, 3])
@given(turns=st.lists(st.integers(min_value=0, max_value=4), max_size=40))
def test_everybody_gets_what_they_asked_for_whenever_they_asked(
    calls: int, turns: list[int]
) -> None:
    async def run() -> None:
        shelf = Shelf()
        reads = BatchedReads(shelf.read, calls)

        async def ask_later(number: int, turns: int) -> None:
            for _ in range(turns):
                await asyncio.sleep(0)
            assert await reads.get(str(number)) == str(number).encode()

        async with asyncio.timeout(raw.SECONDS):
            await asyncio.gather(*(ask_later(*pair) for pair in enumerate(turns)))
        assert sorted(key for call in shelf.calls for key in call) == sorted(
            str(number) for number in range(len(turns))
        )

    asyncio.run(run())

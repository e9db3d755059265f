"""The order of the queue. Pure, except for futures."""

import asyncio
from contextlib import suppress
from types import NoneType

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from prerender.browser.queue import FairQueue, Place, section_of
from prerender.errors import PoolBusy
from tests.support import raw


@pytest.mark.parametrize(
    ("url", "section"),
    [
        ("https://www.example.com/", "#"),
        ("https://www.example.com/#!", "#"),
        ("https://www.example.com/search?q=1", "search#"),
        ("https://www.example.com/search?q=2#!", "search#"),
        ("https://www.example.com/shop/lamps/7", "shop#"),
        ("https://www.example.com/#!/items/3", "#items"),
        ("https://www.example.com/#!items?sort=up", "#items"),
        ("https://www.example.com/shop/#!/items/3?a/b", "shop#items"),
    ],
)
def test_sections(url: str, section: str) -> None:
    assert section_of(url) == section


async def test_sections_take_turns() -> None:
    queue = FairQueue(10)
    places = {name: queue.enter(name[0]) for name in ("a1", "a2", "a3", "b1", "c1", "c2")}
    for place in places.values():
        queue.wait(place)
    assert len(queue) == 6
    served = [queue.next() for _ in range(7)]
    assert served == [*(places[name] for name in ("a1", "b1", "c1", "a2", "c2", "a3")), None]
    # Who comes back with nothing is first in its section.
    queue.wait(queue.enter("a"))
    queue.wait(places["a1"])
    assert queue.next() is places["a1"]


async def test_the_largest_section_gives_up_its_newest_place() -> None:
    queue = FairQueue(3)
    left = asyncio.Event()

    async def hold(place: Place) -> None:
        try:
            async with place.limit:
                queue.wait(place)
                await asyncio.Event().wait()
        finally:
            left.set()

    flood = [queue.enter("flood") for _ in range(3)]
    tasks = [asyncio.create_task(hold(place)) for place in flood]
    await asyncio.sleep(0)
    with pytest.raises(PoolBusy):
        queue.enter("flood")
    other = queue.enter("other")
    async with asyncio.timeout(raw.SECONDS):
        await left.wait()
        with pytest.raises(TimeoutError):
            await tasks[2]
    assert [type(place.error) for place in flood] == [NoneType, NoneType, PoolBusy]
    # Two against one: a further one would only turn the tables.
    with pytest.raises(PoolBusy):
        queue.enter("other")
    queue.leave(other)
    queue.leave(other)
    queue.enter("third")
    for task in tasks[:2]:
        task.cancel()
    await asyncio.wait(tasks)


_OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["enter", "wait", "leave", "next", "fail"]), st.integers(0, 3)),
    max_size=60,
)


@given(operations=_OPERATIONS, size=st.integers(0, 6))
def test_no_place_is_lost_and_nobody_is_passed_over(
    operations: list[tuple[str, int]], size: int
) -> None:
    async def run() -> None:
        queue = FairQueue(size)
        places: list[Place] = []
        waiting: list[Place] = []
        # The sections served while one waited: none occurs twice.
        passed: dict[str, set[str]] = {}
        for operation, number in operations:
            section = f"section {number}"
            if operation == "enter":
                with suppress(PoolBusy):
                    place = queue.enter(section)
                    # Never left: this task does not wait again, so no limit can end it.
                    await place.limit.__aenter__()
                    places.append(place)
            elif operation == "next":
                lines = {place.section for place in waiting if place.error is None}
                served = queue.next()
                assert (served is None) == (not lines)
                if served:
                    assert served in waiting
                    first = next(place for place in waiting if place.section == served.section)
                    assert served is first
                    for other in lines - {served.section}:
                        earlier = passed.setdefault(other, set())
                        assert served.section not in earlier
                        earlier.add(served.section)
                    passed.pop(served.section, None)
                    waiting.remove(served)
                    places.remove(served)
            elif operation == "fail":
                queue.take_all_away("there is no browser")
                assert all(place.error for place in places)
            elif number < len(places):
                place = places[number]
                if operation == "wait" and place not in waiting:
                    queue.wait(place)
                    waiting.append(place)
                elif operation == "leave":
                    queue.leave(place)
                    places.remove(place)
                    waiting = [other for other in waiting if other is not place]
            for place in [place for place in places if place.error]:
                places.remove(place)
            waiting = [place for place in waiting if place.error is None]
            lines = {place.section for place in waiting}
            passed = {name: earlier for name, earlier in passed.items() if name in lines}
            assert len(places) <= size
            assert len(queue) == len(waiting)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())

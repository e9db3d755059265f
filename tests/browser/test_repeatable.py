"""The state of a page at a virtual time does not depend on the machine.

Frames, timers and animations follow the virtual clock. So the snapshot of a page is always the
same, byte for byte: rendered alone, and eight at once with busy CPUs.
"""

import asyncio
from collections import defaultdict

import pytest

from tests.conftest import Proxy, StartOrigin, StartProxy, pages
from tests.sites.corpus import origin as corpus
from tests.support.processes import busy_loops

# What these pages show is not the page's own doing.
NOT_REPEATABLE = {
    "endless-clock": "the time of day",
}
PAGES = [name for name in corpus.page_names() if name not in NOT_REPEATABLE]
AT_ONCE = 8
SETTINGS: dict[str, dict[str, object]] = {
    "site": {"url": "https://www.example.com"},
    "browser": {"pages": 4},
    "cache": {"ttl": 0},
}
# When its scripts begin, by its clock, and how many timers fire until the end of its budget.
BEGINNING = """<!DOCTYPE html><title>Beginning</title><p id="out"></p><script>
  const say = (what) => out.append(`${what} ${performance.now()} `);
  say("script");
  addEventListener("DOMContentLoaded", () => say("parsed"));
  addEventListener("load", () => say("loaded"));
  setTimeout(() => say("timer"), 5);
  let ticks = 0;
  setInterval(() => { out.title = ++ticks; }, 10);
</script>"""


@pytest.mark.ci_only
async def test_pages_begin_in_each_tab_at_the_same_time_of_their_clock(
    start_origin: StartOrigin, start_own_proxy: StartProxy
) -> None:
    """In the first tab of a process, in a new one, and in one that is kept under load."""
    site = await pages(start_origin, {"/": BEGINNING})
    proxy = await start_own_proxy(site.url, SETTINGS | {"browser": {"pages": 2}})
    alone = [(await proxy.crawl(f"/?alone={number}")).text for number in range(2)]
    async with busy_loops(2):
        others = [proxy.crawl(f"/?at-once={number}") for number in range(4)]
        replies = await asyncio.gather(*others)
    assert {*alone, *(reply.text for reply in replies)} == {alone[0]}
    assert "script 0 " in alone[0]


@pytest.mark.parametrize(
    ("names", "renders"),
    [
        pytest.param(PAGES[::97], 2, id="some"),
        pytest.param(PAGES, 50, id="all", marks=[pytest.mark.long, pytest.mark.timeout(4 * 3600)]),
    ],
)
async def test_snapshots_are_the_same(
    names: list[str], renders: int, start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await start_origin(corpus.application())
    proxy = await start_proxy(origin.url, SETTINGS)
    snapshots: dict[str, set[bytes]] = defaultdict(set)
    await _render(proxy, names, renders, snapshots, at_once=1)
    async with busy_loops(2):
        await _render(proxy, names, renders, snapshots, at_once=AT_ONCE)
    different = {name: found for name, found in snapshots.items() if len(found) > 1}
    assert not different, different


async def _render(
    proxy: Proxy, names: list[str], renders: int, snapshots: dict[str, set[bytes]], at_once: int
) -> None:
    left = iter(names * renders)

    async def crawler() -> None:
        for name in left:
            reply = await proxy.crawl(f"/{name}.html")
            assert reply.status == 200, (name, reply.text)
            snapshots[name].add(reply.body)

    await asyncio.gather(*(crawler() for _ in range(at_once)))

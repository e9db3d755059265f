"""Snapshots of applications made with today's frameworks are complete (see frameworks/README.md).

Each route is rendered alone and eight at once, and compared with what a reader sees who opens the
same route in a browser that knows nothing of us, and waits.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self

import pytest
import pytest_asyncio

from prerender.browser.accessibility import Announcement, announced, lost
from prerender.browser.devtools import DevTools, Session
from prerender.urls.ajax_crawling import pretty_to_ugly
from tests.browser.test_settling import settle_seconds
from tests.conftest import Proxy, Reply, proxied
from tests.sites.frameworks import origin
from tests.support import processes
from tests.support.plain_browser import plain_browser

SETTINGS: dict[str, dict[str, object]] = {
    # Pages that show an error in the place of a part whose data fails.
    "render": {"optional": ["/api/broken"]},
    "site": {"url": "https://www.example.com"},
    "browser": {"pages": 4},
}
# Most take a tenth of a second; one that is waited for in vain takes longer than this.
AT_MOST_SECONDS = 15.0
AT_ONCE = 8
READERS = 16
SEEN = (Path(origin.__file__).parent / "seen.js").read_text("utf-8")
# Longer than any application is silent before it goes on: its origin answers within 0.2 s.
STILL_SECONDS = 1.2
ANSWER_SECONDS = 4.0
PATIENCE_SECONDS = 30.0
LOOK_EVERY_SECONDS = 0.2


@dataclass(frozen=True)
class Route:
    """A route of an application: what its snapshot has to say, in this order.

    ``scrolls``: a reader has to scroll to see it all. ``more``: the snapshot shows more than a reader
    has on the screen at a time.
    """

    path: str
    says: tuple[str, ...]
    status: int = 200
    scrolls: bool = False
    more: bool = False

    def problem(self, answer: Reply) -> str:
        """What is wrong with the answer for this route, or ''."""
        status = answer.headers.get("Cache-Status", "")
        if answer.status != self.status:
            return f"status {answer.status}, {status}"
        if "stored" not in status or "cut-off" in status:
            return f"not stored as a whole: {status}"
        rest = re.sub("<[^>]*>", "", answer.text)
        if re.search("loading|waiting", rest, re.IGNORECASE):
            return f"is still loading: {answer.text}"
        for text in self.says:
            _, found, rest = rest.partition(text)
            if not found:
                return f"does not say {text!r}: {answer.text}"
        return ""


WREN_TO_OSPREY = ("Wren", "Siskin", "Curlew", "Gannet", "Osprey")
ROUTES = [
    Route("/react18/birds", ("All birds", "The menu", "Birds: 5 of them", *WREN_TO_OSPREY)),
    Route("/react18/birds/3", ("Curlew", "Numenius", "moor 3", "harbour 3", "oak wood 3")),
    Route("/react18/birds/99", ("Unknown: no bird 99",), status=404),
    Route("/react18/words", ("Vögel der Küste", "Guten Tag, Otto")),
    Route("/react18/form", ("moor", "harbour", "It spans 176 cm")),
    Route("/react18/broken", ("The menu", "Sorry: this part is broken")),
    Route("/react18/nowhere", ("Not here", "There is no such page"), status=404),
    Route("/react19/birds", ("All birds", "The menu", "Wren", "moor 1", "Osprey", "salt marsh 5")),
    Route("/react19/birds/4", ("Gannet", "moor 4, harbour 4, oak wood 4, salt marsh 4")),
    Route("/react19/birds/99", ("The menu", "Unknown bird 99"), status=404),
    Route("/react19/notes", ("Note 1", "Note 11", "Note 30", "That is all"), scrolls=True),
    Route("/react19/list", ("Row 0", "Row 1", "Row 5")),
    Route("/react19/long-page", ("Row 0", "Row 20", "Row 99"), more=True),
    Route("/react19/moving", ("second state", "176 cm", "Wren", "Came into view"), scrolls=True),
    Route("/react19/polling", ("Curlew, asked for again", "moor 2, harbour 2")),
    Route("/react19/transition", WREN_TO_OSPREY),
    Route("/react19/ready", ("It says itself when it is ready",)),
    Route("/react19/broken", ("The menu", "Sorry: out of order")),
    Route("/react19/nowhere", ("Not here", "There is no such page"), status=404),
    Route(
        "/react19-streamed/",
        ("Made on a server", "In the browser: Wren", "The late part", "moor 2, harbour 2"),
    ),
    Route("/vue3/birds", ("5 birds", "The menu", "Large ones: 2", *WREN_TO_OSPREY)),
    Route("/vue3/hashbang#!/birds", ("5 birds", "The menu", "Large ones: 2", *WREN_TO_OSPREY)),
    Route("/vue3/birds/4", ("Gannet", "moor 4, harbour 4", "Beside the application: Morus")),
    Route("/vue3/hashbang#!/birds/2", ("Siskin", "moor 2, harbour 2", "Beside the", "Spinus")),
    Route("/vue3/birds/99", ("The menu", "Unknown bird: no bird 99"), status=404),
    Route("/vue3/words", ("The menu", "Vögel der Küste", "5 Arten")),
    Route("/vue3/moving", ("The menu", "The second state", "It has entered")),
    Route("/vue3/form", ("moor", "harbour", "It spans 160 cm")),
    Route("/vue3/nowhere", ("Not here", "There is no such page"), status=404),
    Route("/vue2/#!/birds", ("5 birds", "The menu", "Large ones: 2", *WREN_TO_OSPREY)),
    Route("/vue2/#!/birds/3", ("The menu", "Curlew", "moor 3, harbour 3, oak wood 3")),
    Route("/preact/birds", ("5 birds", *WREN_TO_OSPREY)),
    Route("/preact/birds/4", ("Gannet", "moor 4, harbour 4, oak wood 4, salt marsh 4")),
    Route("/preact/broken", ("Sorry: this part is broken",)),
    Route("/preact/nowhere", ("There is no page", "/preact/nowhere"), status=404),
    Route("/lit/#!/birds", ("Birds: 5", "The menu", *WREN_TO_OSPREY)),
    Route("/lit/#!/birds/3", ("The menu", "Curlew", "moor 3", "an empty slot", "From the light")),
    Route("/lit/#!/until", ("The menu", "Siskin")),
    Route("/lit/#!/replaced", ("The menu", "Replaced to the end")),
    Route("/lit/#!/lazy", ("The menu", "Defined late")),
    Route("/svelte5/#!/birds", ("5 birds", "The menu", "Large ones: 2", *WREN_TO_OSPREY)),
    Route("/svelte5/#!/birds/2", ("The menu", "Siskin", "moor 2, harbour 2")),
    Route("/svelte5/#!/moving", ("The menu", "176 cm, 100 %", "The outro has ended")),
    Route("/svelte5/#!/broken", ("The menu", "Sorry: this part is broken")),
    Route("/svelte5/#!/nowhere", ("Not here", "There is no such page"), status=404),
    Route("/solid/birds", ("5 birds", "The menu", *WREN_TO_OSPREY)),
    Route("/solid/birds/3", ("Curlew", "The menu", "moor 3, harbour 3, oak wood 3")),
    Route("/solid/in-order", ("birds/1/places says", "moor 1", "birds/2 says", "Spinus spinus")),
    Route("/solid/later", ("The menu", "Osprey")),
    Route("/solid/broken", ("The menu", "Sorry: out of order")),
    Route("/solid/nowhere", ("Not here", "There is no such page"), status=404),
    Route(
        "/alpine/",
        (
            "Curlew",
            "Large ones: 2",
            *WREN_TO_OSPREY,
            "Opened slowly",
            "moor 3",
            "The part seen has come",
            "Beside the application",
        ),
        scrolls=True,
    ),
    Route("/backbone/#!birds", ("All birds", "Birds: 5", *WREN_TO_OSPREY)),
    Route("/backbone/#!birds/4", ("Gannet", "moor 4", "Morus bassanus", "It has slid down")),
    Route("/backbone/#!birds/99", ("Unknown: no bird 99",), status=404),
    Route("/backbone/#!else", ("There is no such page",)),
    Route("/mithril/#!/birds", ("All birds", *WREN_TO_OSPREY)),
    Route("/mithril/#!/birds/3", ("Curlew", "Curlew", "moor 3, harbour 3, oak wood 3")),
    Route("/mithril/#!/birds/99", ("Unknown: no bird 99",), status=404),
    Route("/mithril/#!/late", ("Resolved late",)),
    Route("/knockout/#!/birds", ("Large ones: 2", *WREN_TO_OSPREY)),
    Route("/knockout/#!/birds/2", ("Siskin", "moor 2, harbour 2")),
    Route(
        "/angular/birds", ("All birds", "The menu", "Large ones: 2", *WREN_TO_OSPREY, "5 in all")
    ),
    Route("/angular/zones/birds", ("All birds", "Large ones: 2", *WREN_TO_OSPREY, "5 in all")),
    Route("/angular/birds/3", ("Curlew", "The menu", "moor 3, harbour 3, oak wood 3")),
    Route("/angular/zones/birds/2", ("Siskin", "The menu", "moor 2, harbour 2")),
    Route("/angular/birds/1", ("Wren", "moor 1")),
    Route("/angular/deferred", ("part idle", "part timer", "part viewport"), scrolls=True),
    Route("/angular/zones/deferred", ("part idle", "part timer", "part viewport"), scrolls=True),
    Route("/angular/nowhere", ("Not here", "There is no such page"), status=404),
    Route(
        "/htmx/",
        (
            *WREN_TO_OSPREY,
            "part delayed",
            "nested",
            "its inner part",
            "part swapped",
            "part revealed",
            "part intersecting",
        ),
        scrolls=True,
    ),
    Route("/turbo/", ("The frame has come", "streamed", "The far frame has come"), scrolls=True),
    Route("/libraries/#!/anime", ("Wren", "Curlew", "176", "Turning", "The timeline has ended")),
    Route("/libraries/#!/d3", ("15 cm", "22 cm", "95 cm", "176 cm", "160 cm", "chart is drawn")),
    Route("/libraries/#!/lazysizes", ("The picture far below is there",), scrolls=True),
    Route("/libraries/#!/worker", ("From a worker: Troglodytes troglodytes",)),
]


@pytest_asyncio.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with proxied(origin.application(), SETTINGS) as proxy:
        yield proxy


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
async def test_alone(route: Route, proxy: Proxy) -> None:
    before = processes.waited_seconds()
    answer = await proxy.crawl(route.path)
    problem = route.problem(answer)
    assert not problem, problem
    # What has ended meanwhile counts no more.
    waited = max(0.0, processes.waited_seconds() - before)
    assert settle_seconds(answer) - waited < AT_MOST_SECONDS


# All of them take long in real time.
SELECTED = pytest.mark.parametrize(
    "routes",
    [
        pytest.param(ROUTES[::5], id="a fifth"),
        pytest.param(ROUTES, id="all", marks=pytest.mark.long),
    ],
)


@SELECTED
async def test_eight_at_once(routes: list[Route]) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def problem(route: Route, proxy: Proxy) -> str:
        async with room:
            return route.problem(await proxy.crawl(route.path))

    async with proxied(origin.application(), SETTINGS) as other:
        problems = await asyncio.gather(*(problem(route, other) for route in routes))
    failed = [f"{route.path}: {text}" for route, text in zip(routes, problems, strict=True) if text]
    assert not failed, "\n".join(failed)


@SELECTED
async def test_a_reader_sees_the_same(routes: list[Route], proxy: Proxy) -> None:
    """The snapshot without scripts, and the route itself, in a plain Chromium in real time.

    So does who has a screen reader.
    """
    failed = []
    rest = iter(routes)

    async def compare(reader: _Reader) -> None:
        for route in rest:
            shown = await reader.snapshot(proxy, route)
            announced = await reader.announced()
            seen = await reader.page(proxy, route)
            if missing := lost(await reader.announced(), announced):
                failed.append(f"{route.path}: a screen reader misses {missing}")
            if route.more:
                shown = [item for item in shown if item in seen]
            for ours, theirs in zip_longest(shown, seen):
                if ours != theirs:
                    failed.append(f"{route.path}: {ours} instead of {theirs}")
                    break

    async with plain_browser("--window-size=1280,1024") as browser:
        readers = [await _Reader.come(browser) for _ in range(READERS)]
        await asyncio.gather(*map(compare, readers))
    assert not failed, "\n".join(failed)


class _Reader:
    """A page of the plain browser, and who looks at it."""

    def __init__(self, page: Session) -> None:
        self._page = page
        self._asked: dict[str, float] = {}
        page.on(
            "Network.requestWillBeSent",
            lambda asked: self._asked.setdefault(asked["requestId"], time.monotonic()),
        )
        for end in ("Network.loadingFinished", "Network.loadingFailed"):
            page.on(end, lambda answered: self._asked.pop(answered["requestId"], None))

    @classmethod
    async def come(cls, browser: DevTools) -> Self:
        target = await browser.call("Target.createTarget", url="about:blank")
        page = await browser.attach(target["targetId"])
        await asyncio.gather(page.call("Page.enable"), page.call("Network.enable"))
        return cls(page)

    async def snapshot(self, proxy: Proxy, route: Route) -> list[Any]:
        """What there is to see in the snapshot, without scripts."""
        ugly = pretty_to_ugly(route.path, opted_in=True)
        assert ugly is not None
        await self._open(proxy.url + ugly, scripts=False)
        return await self._look()

    async def page(self, proxy: Proxy, route: Route) -> list[Any]:
        """What there is to see on the page, when nothing has changed and no answer come for long."""
        await self._open(proxy.url + route.path, scripts=True)
        seen, since = await self._look(), time.monotonic()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while time.monotonic() - since < STILL_SECONDS:
                if route.scrolls:
                    await self._page.evaluate("scrollBy(0, innerHeight)")
                await asyncio.sleep(LOOK_EVERY_SECONDS)
                now = await self._look()
                if now != seen or self._waits_for_an_answer():
                    seen, since = now, time.monotonic()
        return seen

    async def _open(self, url: str, *, scripts: bool) -> None:
        self._asked.clear()
        await self._page.call("Emulation.setScriptExecutionDisabled", value=not scripts)
        loaded = self._page.expect("Page.loadEventFired")
        await self._page.call("Page.navigate", url=url)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await loaded

    async def announced(self) -> tuple[Announcement, ...]:
        """What a screen reader says of what is open."""
        return announced((await self._page.call("Accessibility.getFullAXTree"))["nodes"])

    def _waits_for_an_answer(self) -> bool:
        """That a worker's script has come is told to the worker only, so patience ends."""
        return any(time.monotonic() - asked < ANSWER_SECONDS for asked in self._asked.values())

    async def _look(self) -> list[Any]:
        seen = await self._page.evaluate(SEEN)
        return [seen["title"], *seen["texts"]]

"""Snapshots of applications made with today's frameworks are complete (frameworks/README.md).

Each route is rendered alone and eight at once, and compared with what a visitor sees at the same
route in an unmodified browser.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, Self

import pytest
import pytest_asyncio

from prerender.browser.devtools import DevTools, Session
from prerender.content.accessibility import Announcement, announced, lost
from prerender.urls.ajax_crawling import pretty_to_ugly
from tests.browser.test_settling import settle_seconds
from tests.conftest import Proxy, Reply, proxied
from tests.sites.frameworks import origin
from tests.sites.frameworks.routes import ROUTES, Route
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
READERS = 8
# One of each application; of these, a few.
SOME = [*{route.path.split("/")[1]: route for route in ROUTES}.values()]
BESIDE_OTHERS = SOME[::5]
ALONE = SOME[2::8]
SEEN = (Path(origin.__file__).parent / "seen.js").read_text("utf-8")
# Longer than any application is silent before it goes on: its origin answers within 0.2 s.
STILL_SECONDS = 1.2
LONGER_SECONDS = 6.0
ANSWER_SECONDS = 4.0
PATIENCE_SECONDS = 30.0
LOOK_EVERY_SECONDS = 0.2


def problem_of(route: Route, answer: Reply) -> str:
    """What is wrong with the response for a route, or ''."""
    status = answer.headers.get("Cache-Status", "")
    if answer.status != route.status:
        return f"status {answer.status}, {status}"
    if "stored" not in status or "cut-off" in status:
        return f"not stored as a whole: {status}"
    return route.problem(answer.text)


@pytest_asyncio.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    async with proxied(origin.application(), SETTINGS) as proxy:
        yield proxy


@pytest.mark.parametrize(
    "route",
    [pytest.param(one, marks=() if one in ALONE else pytest.mark.long) for one in ROUTES],
    ids=lambda route: route.path,
)
async def test_alone(route: Route, proxy: Proxy) -> None:
    wait = processes.CpuWait()
    answer = await proxy.crawl(route.path)
    problem = problem_of(route, answer)
    assert not problem, problem
    assert settle_seconds(answer) - wait.seconds < AT_MOST_SECONDS


def some_or_all(some: list[Route]) -> pytest.MarkDecorator:
    """All of them take long in real time."""
    everything = pytest.param(ROUTES, id="all", marks=pytest.mark.long)
    return pytest.mark.parametrize("routes", [pytest.param(some, id="some"), everything])


@some_or_all(BESIDE_OTHERS)
async def test_eight_at_once(routes: list[Route], proxy: Proxy) -> None:
    async with proxy.client.post(f"{proxy.admin_url}/api/v1/purge", json={"all": True}) as purged:
        assert purged.status == 200
    room = asyncio.Semaphore(AT_ONCE)

    async def problem(route: Route) -> str:
        async with room:
            return problem_of(route, await proxy.crawl(route.path))

    problems = await asyncio.gather(*map(problem, routes))
    failed = [f"{route.path}: {text}" for route, text in zip(routes, problems, strict=True) if text]
    assert not failed, "\n".join(failed)


@some_or_all(ROUTES[::38])
async def test_a_reader_sees_the_same(routes: list[Route], proxy: Proxy) -> None:
    """The snapshot without scripts equals the route in an unmodified Chromium in real time, also
    for screen readers.
    """
    failed = []
    rest = iter(routes)

    async def compare(reader: _Reader) -> None:
        for route in rest:
            shown = await reader.snapshot(proxy, route)
            announced = await reader.announced()
            seen = await reader.page(proxy, route, shown)
            if missing := lost(await reader.announced(), announced):
                failed.append(f"{route.path}: a screen reader misses {missing}")
            if route.more:
                shown = [item for item in shown if item in seen]
            for ours, theirs in zip_longest(shown, seen):
                if ours != theirs:
                    failed.append(f"{route.path}: {ours} instead of {theirs}")
                    break

    async with plain_browser("--window-size=1280,1024") as browser:
        readers = [await _Reader.come(browser) for _ in routes[:READERS]]
        await asyncio.gather(*map(compare, readers))
    assert not failed, "\n".join(failed)


class _Reader:
    """A page of the unmodified browser."""

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
        """The contents of the snapshot, without scripts."""
        ugly = pretty_to_ugly(route.path, opted_in=True)
        assert ugly is not None
        await self._open(proxy.url + ugly, scripts=False)
        return await self._look()

    async def page(self, proxy: Proxy, route: Route, shown: list[Any]) -> list[Any]:
        """The contents of the page, after no change and no response for long; for longer if they are
        not those of the snapshot, because a busy machine may have stopped it.
        """
        await self._open(proxy.url + route.path, scripts=True)
        seen, since = await self._look(), time.monotonic()
        async with asyncio.timeout(PATIENCE_SECONDS):
            while time.monotonic() - since < (STILL_SECONDS if seen == shown else LONGER_SECONDS):
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
        await self._page.call("Page.navigate", PATIENCE_SECONDS, url=url)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await loaded

    async def announced(self) -> tuple[Announcement, ...]:
        """What a screen reader announces."""
        return announced((await self._page.call("Accessibility.getFullAXTree"))["nodes"])

    def _waits_for_an_answer(self) -> bool:
        """Only the worker learns that its script has arrived, so patience ends."""
        return any(time.monotonic() - asked < ANSWER_SECONDS for asked in self._asked.values())

    async def _look(self) -> list[Any]:
        seen = await self._page.evaluate(SEEN)
        return [seen["title"], *seen["texts"]]

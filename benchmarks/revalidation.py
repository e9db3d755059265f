"""The cost of keeping a site fresh: with renewals without rendering, and with a render each time.

    .venv/bin/python benchmarks/revalidation.py [--pages 2000] [--at-once 8] [--turns 4]
        [--node-modules FOLDER]
    .venv/bin/python benchmarks/revalidation.py --days 3 [--pages 150] [--at-once 8]

The site is an application of tests/sites/frameworks, whose pages get their data from an API. At first
each page is rendered, by the two proxies in turns of a few pages, and its next two renewals are checked
by rendering. Then in each turn 2 % of the pages change, all snapshots expire, and a crawler requests
every page, from each of the two proxies: three turns of renewals, and one in which each page is checked
by rendering. Prerender, which renders each page again, renders some of them in each turn.

With ``--days``, snapshots expire every hour of a few seconds, so all checks of these days are included.
CPU time is that of a server and browser. Requires Chromium.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path

import uvloop
from aiohttp import ClientSession, DummyCookieJar, web
from measuring import application_runner, free_port, proxy, serving
from renderers import Renderer, cpu_seconds, prerender

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.sites.frameworks import origin as frameworks

_CHANGED = 50  # one page in so many
# Renewals wait for the origin: clients for each page of the browser.
_CLIENTS = 3
# Misses are compared in turns of so many pages.
_BLOCK = 100
_MOST_OF_RIVAL = 200
_HOURS = 24
# An hour takes so many seconds per page.
_HOUR = 0.05
_PATH = "/react18/birds/"
PUBLIC = "https://www.example.com"


@dataclass
class Site:
    """The site of one proxy. ``requests`` at its origin."""

    requests: Counter[str] = field(default_factory=Counter)

    def application(self) -> web.Application:
        """The origin, which counts requests."""
        application = frameworks.application()

        @web.middleware
        async def count(request: web.Request, handler: object) -> web.StreamResponse:
            self.requests[request.path] += 1
            assert callable(handler)
            response: web.StreamResponse = await handler(request)
            return response

        application.middlewares.append(count)
        return application

    async def running(self, stack: AsyncExitStack) -> str:
        """Start the origin. Returns its URL."""
        return await stack.enter_async_context(serving(application_runner(self.application())))


@dataclass
class Proxy:
    """A proxy as a process, with its site."""

    site: Site
    client: ClientSession
    pid: int
    url: str
    admin: str
    clients: int
    results: Counter[str] = field(default_factory=Counter)

    async def html(self, path: str) -> str:
        """The snapshot of a path."""
        async with self.client.get(f"{self.url}{path}?_escaped_fragment_=") as response:
            status = response.headers.get("Cache-Status", str(response.status))
            self.results[
                "renewed" if "revalidated" in status else status.split(";")[1].strip()
            ] += 1
            return await response.text()

    async def crawled(self, pages: Iterable[int]) -> "tuple[dict[int, str], Costs]":
        """Request pages. Returns their snapshots, and the costs."""
        return await crawled(self, self.site, pages, self.clients)

    async def expire(self) -> None:
        """Let all snapshots expire."""
        purge = {"prefix": "/", "soft": True}
        async with self.client.post(f"{self.admin}/api/v1/purge", json=purge) as response:
            response.raise_for_status()


async def started(
    stack: AsyncExitStack,
    client: ClientSession,
    *,
    revalidate: bool,
    at_once: int,
    day: float = 86400,
) -> Proxy:
    """Start a proxy in front of its own origin."""
    site = Site()
    origin = await site.running(stack)
    admin = free_port()
    settings = {
        "SITE_URL": PUBLIC,
        "ADMIN_PORT": str(admin),
        "CACHE_REVALIDATE": str(revalidate).lower(),
        "CACHE_MAX_AGE_WITHOUT_RENDER": str(day),
        "BROWSER_PAGES": str(at_once),
        "RENDER_TIMEOUT": "60",
    }
    environment = {f"PRERENDER_{name}": value for name, value in settings.items()}
    side = await stack.enter_async_context(proxy(origin, **environment))
    return Proxy(site, client, side.pid, side.url, f"http://127.0.0.1:{admin}", _CLIENTS * at_once)


@dataclass
class Costs:
    """What keeping pages fresh has cost so far."""

    pages: int = 0
    cpu: float = 0.0
    seconds: float = 0.0
    requests: int = 0

    def __str__(self) -> str:
        return (
            f"{self.cpu:.2f} s CPU ({1000 * self.cpu / self.pages:.2f} ms a page), "
            f"{self.pages / self.seconds:.1f} pages/s, {self.requests} requests at the origin"
        )

    def __add__(self, other: "Costs") -> "Costs":
        return Costs(
            self.pages + other.pages,
            self.cpu + other.cpu,
            self.seconds + other.seconds,
            self.requests + other.requests,
        )


async def crawled(
    side: Renderer, site: Site, pages: Iterable[int], clients: int
) -> tuple[dict[int, str], Costs]:
    """Request pages. Returns their snapshots, and the costs."""
    found: dict[int, str] = {}
    left = iter(pages)

    async def crawl() -> None:
        for number in left:
            found[number] = await side.html(f"{_PATH}{number}")

    site.requests.clear()
    cpu, began = cpu_seconds(side), time.monotonic()
    await asyncio.gather(*(crawl() for _ in range(clients)))
    seconds = time.monotonic() - began
    await asyncio.sleep(1)  # until the pages of the browser are clean
    return found, Costs(len(found), cpu_seconds(side) - cpu, seconds, site.requests.total())


def make_birds(pages: int) -> None:
    """Let the site have so many pages."""
    frameworks.BIRDS[:] = [
        {"id": n, "name": f"Bird {n}", "latin": f"Avis {n}", "span": 10 + n % 200}
        for n in range(1, pages + 1)
    ]


def change(pages: int, turn: int) -> str:
    """Change some pages. Returns what they show."""
    mutation = f"Avis mutata {turn}"
    for number in range(turn % pages, pages, _CHANGED):
        frameworks.BIRDS[number]["latin"] = mutation
    return mutation


async def turns(pages: int, at_once: int, count: int, modules: Path | None) -> list[str]:
    """Let all snapshots expire a few times. Returns a table."""
    make_birds(pages)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(ClientSession(cookie_jar=DummyCookieJar()))
        proxies = {
            "with revalidation": await started(stack, client, revalidate=True, at_once=at_once),
            "without": await started(stack, client, revalidate=False, at_once=at_once),
        }
        rival = None
        if modules is not None:
            its_site = Site()
            origin = await its_site.running(stack)
            starting = prerender(client, origin, modules, first=f"{_PATH}1")
            rival = await stack.enter_async_context(starting), its_site
        await _misses(proxies, pages)
        await _checked(proxies["with revalidation"], pages)
        return await _turns(proxies, pages, at_once, count, rival)


async def _misses(proxies: dict[str, Proxy], pages: int) -> None:
    total = {name: Costs() for name in proxies}
    order = list(proxies)
    for first in range(1, pages + 1, _BLOCK):
        for name in order:
            side = proxies[name]
            block = range(first, min(first + _BLOCK, pages + 1))
            total[name] += (await side.crawled(block))[1]
        order.reverse()
    for name, cost in total.items():
        print(f"misses, {name}: {cost}", flush=True)


async def _checked(side: Proxy, pages: int) -> None:
    for number in range(2):
        await side.expire()
        side.results.clear()
        _, cost = await side.crawled(range(1, pages + 1))
        print(f"check {number + 1}: {dict(side.results)}, {cost}", flush=True)


async def days(pages: int, at_once: int, count: int) -> None:
    """Let all snapshots expire every hour."""
    make_birds(pages)
    everything = range(1, pages + 1)
    hour = _HOUR * pages
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(ClientSession(cookie_jar=DummyCookieJar()))
        side, other = [
            await started(stack, client, revalidate=revalidate, at_once=at_once, day=_HOURS * hour)
            for revalidate in (True, False)
        ]
        for one in (side, other):
            await one.crawled(everything)
        for day in range(count):
            side.results.clear()
            total = Costs()
            for turn in range(day * _HOURS, (day + 1) * _HOURS):
                until = time.monotonic() + hour
                change(pages, turn)
                await side.expire()
                snapshots, cost = await side.crawled(everything)
                total += cost
                await asyncio.sleep(until - time.monotonic())
            await other.expire()
            other.results.clear()
            others, without = await other.crawled(everything)
            same = _same(snapshots, others)
            times = (without.cpu / without.pages) / (total.cpu / total.pages)
            print(f"day {day + 1}: {dict(side.results)}, {total}")
            print(f"  without: {dict(other.results)}, {without}")
            print(f"  {times:.1f} times less CPU; {same} of {pages} are the same bytes", flush=True)


def _same(ours: dict[int, str], others: dict[int, str]) -> int:
    """How many snapshots are equal. Prints what differs."""
    for number, html in ours.items():
        if html != others[number]:
            left, right = (it.replace("<", "\n<").splitlines() for it in (html, others[number]))
            print(f"  page {number}:", *unified_diff(left, right, n=0, lineterm=""), sep="\n    ")
    return sum(html == others[number] for number, html in ours.items())


async def _turns(
    proxies: dict[str, Proxy],
    pages: int,
    at_once: int,
    count: int,
    rival: tuple[Renderer, Site] | None,
) -> list[str]:
    # Of the turns, and of those without checks.
    total = {name: Costs() for name in proxies}
    renewing = {name: Costs() for name in proxies}
    rivals = Costs()
    everything = range(1, pages + 1)
    for turn in range(count):
        mutation = change(pages, turn)
        found: dict[str, dict[int, str]] = {}
        costs: dict[str, Costs] = {}
        for name, side in proxies.items():
            await side.expire()
            side.results.clear()
            found[name], costs[name] = await side.crawled(everything)
            total[name] += costs[name]
            print(f"turn {turn + 1}, {name}: {dict(side.results)}, {costs[name]}", flush=True)
        ours, others = found.values()
        same = _same(ours, others)
        changed = sum(mutation in html for html in ours.values())
        print(f"  {same} of {pages} snapshots are the same bytes; {changed} show the change")
        if proxies["with revalidation"].results["renewed"] >= pages / 2:
            for name, cost in costs.items():
                renewing[name] += cost
        if rival is not None:
            some = everything[:_MOST_OF_RIVAL]
            snapshots, cost = await crawled(*rival, some, at_once)
            complete = sum("Avis" in html for html in snapshots.values())
            print(f"turn {turn + 1}, Prerender: {complete} complete, {cost}", flush=True)
            # Errors take no CPU time.
            if complete == len(some):
                rivals += cost
    for what, sums in (("turns without checks", renewing), ("all turns", total)):
        ours, others = sums.values()
        if not ours.pages:
            continue
        print(f"{what}: {others.cpu / ours.cpu:.1f} times less CPU with revalidation")
        for name, cost in sums.items():
            print(f"  {name}: {cost}")
        if rivals.pages:
            times = (ours.pages / ours.seconds) / (rivals.pages / rivals.seconds)
            print(f"  Prerender: {rivals}; kept fresh {times:.1f} times as many pages per second")
    prerender_too = {"Prerender": rivals} if rivals.pages else {}
    return _table(pages, total | prerender_too)


def _table(pages: int, total: dict[str, Costs]) -> list[str]:
    yardstick = total["without"]
    rows = [
        f"{pages} pages of a React application, 2 % of which have changed since all were rendered.",
        "",
        "| | CPU ms a page | ratio | pages/s | ratio | requests at the origin, a page |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, cost in total.items():
        cpu, rate = cost.cpu / cost.pages, cost.pages / cost.seconds
        ratios = cpu / (yardstick.cpu / yardstick.pages), rate * yardstick.seconds / yardstick.pages
        rows.append(
            f"| {name} | {1000 * cpu:.1f} | {ratios[0]:.2f} | {rate:.1f} | {ratios[1]:.2f} "
            f"| {cost.requests / cost.pages:.2f} |"
        )
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--days", type=int)
    parser.add_argument("--node-modules", type=Path)
    options = parser.parse_args()
    pages, at_once = options.pages, options.at_once
    if options.days:
        uvloop.run(days(pages or 150, at_once, options.days))
    else:
        table = turns(pages or 2000, at_once, options.turns, options.node_modules)
        print(*uvloop.run(table), sep="\n")

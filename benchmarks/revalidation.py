"""The cost of keeping a site fresh: with renewals without rendering, and with a render each time.

    .venv/bin/python benchmarks/revalidation.py [--pages 2000] [--at-once 8]

The site is an application of tests/sites/frameworks, whose pages get their data from an API. Each page
is rendered three times, after which renewals are trusted for some rounds. Then 2 % of the pages change,
all snapshots expire, and a crawler requests every page, from each of the two proxies in turns. CPU time
is that of the proxy and its browser. Requires Chromium.
"""

import argparse
import asyncio
import sys
import time
from collections import Counter
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import uvloop
from aiohttp import ClientSession, DummyCookieJar, web
from measuring import application_runner, free_port, proxy, serving

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.sites.frameworks import origin as frameworks

_CHANGED = 50  # one page in so many
_CHECKED_ROUNDS = 3
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


@dataclass
class Proxy:
    """A proxy as a process, with its site."""

    site: Site
    pid: int
    url: str
    admin: str

    def cpu_seconds(self) -> float:
        """CPU time so far, of the proxy and all processes of its browser."""
        total = 0.0
        process = psutil.Process(self.pid)
        for one in [process, *process.children(recursive=True)]:
            try:
                total += sum(one.cpu_times()[:4])
            except psutil.Error:
                continue
        return total


async def started(stack: AsyncExitStack, *, revalidate: bool, at_once: int) -> Proxy:
    """Start a proxy in front of its own origin."""
    site = Site()
    origin = await stack.enter_async_context(serving(application_runner(site.application())))
    admin = free_port()
    settings = {
        "SITE_URL": PUBLIC,
        "ADMIN_PORT": str(admin),
        "CACHE_REVALIDATE": str(revalidate).lower(),
        "BROWSER_PAGES": str(at_once),
        "RENDER_TIMEOUT": "60",
    }
    environment = {f"PRERENDER_{name}": value for name, value in settings.items()}
    side = await stack.enter_async_context(proxy(origin, **environment))
    return Proxy(site, side.pid, side.url, f"http://127.0.0.1:{admin}")


async def refreshed(
    client: ClientSession, side: Proxy, pages: int, at_once: int
) -> tuple[dict[int, bytes], Counter[str], float, float]:
    """Let all snapshots expire, and request them. Returns bodies, cache results, and seconds of CPU and
    of real time."""
    purge = {"prefix": "/", "soft": True}
    async with client.post(f"{side.admin}/api/v1/purge", json=purge) as response:
        response.raise_for_status()
    bodies: dict[int, bytes] = {}
    results: Counter[str] = Counter()
    numbers = iter(range(1, pages + 1))

    async def crawl() -> None:
        for number in numbers:
            url = f"{side.url}/react18/birds/{number}?_escaped_fragment_="
            async with client.get(url) as response:
                bodies[number] = await response.read()
                status = response.headers.get("Cache-Status", str(response.status))
                results["renewed" if "revalidated" in status else status.split(";")[1].strip()] += 1

    cpu, began = side.cpu_seconds(), time.monotonic()
    await asyncio.gather(*(crawl() for _ in range(at_once)))
    seconds = time.monotonic() - began
    await asyncio.sleep(1)  # until the pages of the browser are clean
    return bodies, results, side.cpu_seconds() - cpu, seconds


async def main(pages: int, at_once: int) -> None:
    """Measure and print."""
    frameworks.BIRDS[:] = [
        {"id": n, "name": f"Bird {n}", "latin": f"Avis {n}", "span": 10 + n % 200}
        for n in range(1, pages + 1)
    ]
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(ClientSession(cookie_jar=DummyCookieJar()))
        proxies = {
            "with": await started(stack, revalidate=True, at_once=at_once),
            "without": await started(stack, revalidate=False, at_once=at_once),
        }
        for number in range(_CHECKED_ROUNDS):
            for name, side in proxies.items():
                if number and name == "without":
                    continue
                _, results, cpu, _ = await refreshed(client, side, pages, at_once)
                print(f"  round {number + 1}, {name}: {dict(results)}, {cpu:.1f} s CPU", flush=True)
        for number in range(0, pages, _CHANGED):
            frameworks.BIRDS[number]["latin"] = "Avis mutata"
        found: dict[str, dict[int, bytes]] = {}
        costs = {}
        for name, side in proxies.items():
            side.site.requests.clear()
            found[name], results, cpu, seconds = await refreshed(client, side, pages, at_once)
            costs[name] = cpu
            print(
                f"{name} revalidation: {dict(results)}, {cpu:.2f} s CPU "
                f"({1000 * cpu / pages:.2f} ms a page), {pages / seconds:.1f} pages/s, "
                f"{side.site.requests.total()} requests at the origin"
            )
        same = sum(found["with"][n] == found["without"][n] for n in found["with"])
        changed = sum(b"Avis mutata" in body for body in found["with"].values())
        print(f"CPU: {costs['without'] / costs['with']:.1f} times less with revalidation")
        print(f"{same} of {pages} snapshots are the same bytes; {changed} show the change")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=8)
    options = parser.parse_args()
    uvloop.run(main(options.pages, options.at_once))

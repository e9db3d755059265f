"""The effect of a hostile page on others: renders and forwarded requests beside each hostile page.

    .venv/bin/python benchmarks/neighbours.py [--only NAME ...] [--renders 30] [--at-once 3]

Requires Chromium. Each hostile page of tests/sites/hostile.py is rendered repeatedly while other pages
are rendered and plain requests are forwarded. Before each, the same is measured without it, on the
same machine. Prints how many of the other renders succeeded, their medians with ratio, and the 99th
percentile of the plain requests.
"""

import argparse
import asyncio
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from aiohttp import ClientError, ClientSession, DummyCookieJar, TCPConnector, web
from measuring import started

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.sites.hostile import GREEDY

FILE_BYTES = 20_000
RATE = 50
FINISHED = "all of it"
PAGE = f"""<!DOCTYPE html><title>Page</title><ul id="list"></ul><script>
  fetch("/list").then((answer) => answer.json()).then((items) => {{
    for (const item of items) {{
      const entry = document.createElement("li");
      entry.textContent = item;
      document.getElementById("list").append(entry);
    }}
    setTimeout(() => document.body.append("{FINISHED}"), 200);
  }});
</script>"""


@dataclass
class Side:
    """The measurement beside a hostile page, or without one."""

    renders: list[float] = field(default_factory=list)
    failed: int = 0
    plain: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.renders)

    @property
    def p99(self) -> float:
        return sorted(self.plain)[int(len(self.plain) * 0.99)]


async def origin() -> None:
    """The site, in its own process."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/file":
            return web.Response(body=b"x" * FILE_BYTES)
        if request.path == "/list":
            return web.json_response([f"item {number}" for number in range(300)])
        if request.path == "/data":
            return web.Response(text="x")
        html = GREEDY.get(request.path[1:], PAGE)
        return web.Response(text=html, content_type="text/html")

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"url=http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


async def crawl(client: ClientSession, url: str, page: str) -> tuple[int, str]:
    """Request a snapshot of a new page. Returns its status and text."""
    address = f"{url}{page}?{time.monotonic_ns()}&_escaped_fragment_="
    async with client.get(address) as answer:
        return answer.status, await answer.text()


async def render(client: ClientSession, url: str, options: argparse.Namespace, side: Side) -> None:
    """Render other pages, some at once."""
    left = list(range(options.renders))

    async def lane() -> None:
        while left:
            number = left.pop()
            begun = time.perf_counter()
            status, text = await crawl(client, url, f"/page/{number}")
            side.renders.append(time.perf_counter() - begun)
            side.failed += status != 200 or FINISHED not in text

    await asyncio.gather(*(lane() for _ in range(options.at_once)))


@asynccontextmanager
async def plain_requests(client: ClientSession, url: str, side: Side) -> AsyncIterator[None]:
    """Send plain requests at a fixed rate. Returns their latencies in milliseconds."""

    async def one() -> None:
        begun = time.perf_counter()
        async with client.get(f"{url}/file") as answer:
            assert len(await answer.read()) == FILE_BYTES
        side.plain.append((time.perf_counter() - begun) * 1000)

    async def all_of_them(group: asyncio.TaskGroup) -> None:
        while True:
            group.create_task(one())
            await asyncio.sleep(1 / RATE)

    async with asyncio.TaskGroup() as group:
        sending = group.create_task(all_of_them(group))
        yield
        sending.cancel()


@asynccontextmanager
async def hostile(client: ClientSession, url: str, name: str) -> AsyncIterator[None]:
    """Request a hostile page repeatedly."""

    ended = False

    async def again_and_again() -> None:
        while not ended:
            try:
                await crawl(client, url, f"/{name}")
            except ClientError as error:
                print(f"{name}: {error!r}", file=sys.stderr)

    asking = asyncio.create_task(again_and_again())
    await asyncio.sleep(0.5)  # the render has begun
    yield
    # A render continues without its client: wait until it has ended, before the next measurement.
    ended = True
    await asking


async def measure(
    client: ClientSession, url: str, options: argparse.Namespace, name: str = ""
) -> Side:
    """Measure beside a hostile page, or without one."""
    side = Side()
    async with AsyncExitStack() as stack:
        if name:
            await stack.enter_async_context(hostile(client, url, name))
        async with plain_requests(client, url, side):
            await render(client, url, options, side)
    return side


async def main(options: argparse.Namespace) -> None:
    """Measure and print both for each page."""
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(started(sys.executable, __file__, "--origin"))
        proxy = await stack.enter_async_context(
            started(
                sys.executable, "-m", "prerender", "serve",
                PRERENDER_ORIGIN_URL=site.url, PRERENDER_SERVER_PORT="0", PRERENDER_ADMIN_PORT="0",
                PRERENDER_SITE_URL="https://www.example.com", PRERENDER_LOG_LEVEL="info",
            )
        )  # fmt: skip
        client = await stack.enter_async_context(
            ClientSession(connector=TCPConnector(limit=0), cookie_jar=DummyCookieJar())
        )
        await measure(client, proxy.url, options)  # warm up the browser
        print("seconds of a render, milliseconds of a plain request (99th percentile)")
        for name in options.only or GREEDY:
            quiet = await measure(client, proxy.url, options)
            beside = await measure(client, proxy.url, options, name)
            total, ratio = len(beside.renders), beside.median / quiet.median
            print(
                f"{name:28} {total - beside.failed}/{total}"
                f"   median {quiet.median:.2f} -> {beside.median:.2f} x {ratio:.1f}"
                f"   plain {quiet.p99:.1f} -> {beside.p99:.1f}",
                flush=True,
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=GREEDY, metavar="NAME")
    parser.add_argument("--renders", type=int, default=30)
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--origin", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(origin() if arguments.origin else main(arguments))

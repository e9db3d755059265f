"""The effect of rendering on forwarding: its latency while nothing renders, and while all pages do.

    .venv/bin/python benchmarks/proxy_under_renders.py [--rounds 5] [--seconds 4] [--rate 100]

Requires Chromium. Plain requests are sent at a fixed rate while crawlers constantly request uncached
pages. Both are measured in turns, so that a noisy machine affects both. Compare the ratio of the 99th
percentiles.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import uvloop
from aiohttp import ClientSession, DummyCookieJar, TCPConnector, web
from measuring import started

FILE_BYTES = 20_000
# A page that computes, draws and fetches data, like an application.
PAGE = """<!DOCTYPE html><title>Page</title><ul id="list"></ul><script>
  fetch("/data").then((answer) => answer.json()).then((items) => {
    let sum = 0;
    for (let i = 0; i < 3e7; i++) sum = (sum + i * 7) % 1000003;
    for (const item of items) {
      const entry = document.createElement("li");
      entry.textContent = item + " " + sum;
      document.getElementById("list").append(entry);
    }
  });
</script>"""


async def origin() -> None:
    """The site, in its own process."""

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/file":
            return web.Response(body=b"x" * FILE_BYTES)
        if request.path == "/data":
            return web.json_response([f"item {number}" for number in range(300)])
        return web.Response(text=PAGE, content_type="text/html")

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"url=http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


async def plain(client: ClientSession, url: str, rate: float, seconds: float) -> list[float]:
    """Latencies in milliseconds of requests sent at a fixed rate."""
    latencies: list[float] = []

    async def one() -> None:
        begun = time.perf_counter()
        async with client.get(url) as answer:
            assert len(await answer.read()) == FILE_BYTES
        latencies.append((time.perf_counter() - begun) * 1000)

    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(int(rate * seconds)):
            await asyncio.sleep(max(0.0, start + number / rate - time.perf_counter()))
            group.create_task(one())
    return latencies


@asynccontextmanager
async def crawled(url: str, crawlers: int, renders: list[int]) -> AsyncIterator[None]:
    """Crawl without a pause. The statuses of responses are added to ``renders``."""

    async def crawl() -> None:
        async with ClientSession(cookie_jar=DummyCookieJar()) as client:
            while True:
                page = f"{url}/?_escaped_fragment_={time.monotonic_ns()}"
                async with client.get(page) as answer:
                    await answer.read()
                    renders.append(answer.status)

    tasks = [asyncio.create_task(crawl()) for _ in range(crawlers)]
    while len(renders) < crawlers:
        await asyncio.sleep(0.05)
    yield
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def percentile(values: list[float], share: float) -> float:
    """The value that this share of values does not exceed."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


async def main(options: argparse.Namespace) -> None:
    """Measure all sides in turns, and print the results."""
    cpus = len(os.sched_getaffinity(0))
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(started(sys.executable, __file__, "--origin"))
        proxy = await stack.enter_async_context(
            started(
                sys.executable, "-m", "prerender", "serve",
                PRERENDER_ORIGIN_URL=site.url, PRERENDER_SERVER_PORT="0", PRERENDER_ADMIN_PORT="0",
                PRERENDER_LOG_LEVEL="info",
            )
        )  # fmt: skip
        client = await stack.enter_async_context(ClientSession(connector=TCPConnector(limit=0)))
        renders: list[int] = []
        async with crawled(proxy.url, 1, renders):  # warm up the browser
            pass
        sides: dict[str, list[list[float]]] = {"idle": [], "rendering": []}
        rendered, spent = 0, 0.0
        for _ in range(options.rounds):
            for side, latencies in sides.items():
                renders.clear()
                async with AsyncExitStack() as load:
                    if side == "rendering":
                        await load.enter_async_context(
                            crawled(proxy.url, options.crawlers, renders)
                        )
                    before, begun = len(renders), time.perf_counter()
                    latencies.append(
                        await plain(client, f"{proxy.url}/file", options.rate, options.seconds)
                    )
                    rendered += len(renders) - before
                    spent += time.perf_counter() - begun if side == "rendering" else 0
                assert set(renders) <= {200}, f"not all was rendered: {renders}"
                await asyncio.sleep(0.5)
    print(
        f"{cpus} CPUs, {options.rate} plain requests/s, {rendered / spent:.1f} renders/s; milliseconds"
    )
    for side, rounds in sides.items():
        middle = statistics.median(percentile(values, 0.5) for values in rounds)
        late = statistics.median(percentile(values, 0.99) for values in rounds)
        floor = statistics.median(percentile(values, 0.99) for values in sides["idle"])
        print(f"{side:10} p50 {middle:6.2f}   p99 {late:6.2f}   x {late / floor:.2f} of idle")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--rate", type=float, default=100)
    parser.add_argument("--crawlers", type=int, default=8)
    parser.add_argument("--origin", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(origin() if arguments.origin else main(arguments))

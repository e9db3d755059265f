"""The cost of a cache hit by store: memory, disk, Redis, an object store, Prerender's memory cache.

    .venv/bin/python benchmarks/stores.py [--seconds 3] [--rounds 3] [--prerender FOLDER]

Requires wrk, redis-server, moto and Chromium. FOLDER is where `npm install --ignore-scripts prerender@5
prerender-memory-cache` was run; without it, only this proxy is measured. All sides serve the same
pages and get the same load in turns. The memory in front of the others is disabled, so that every
hit reads them. Compare ratios, and the CPU time per request beyond that of a bare aiohttp response.
"""

import argparse
import asyncio
import sys
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import renderers
import uvloop
from aiohttp import ClientError, ClientSession, web
from measuring import Side, in_turns, median, proxy, redis, started, wrk
from replicas import s3_server
from yarl import URL

# Concurrent requests for the same page share a read of the store, so each is for another page.
PAGES = 32
CONNECTIONS = 8
UGLY = "?_escaped_fragment_="
_TAKING_TURNS = """
local number = 0
request = function()
  number = number + 1
  return wrk.format("GET", "{before}" .. number % {pages} .. "{after}")
end
"""
WORDS = " ".join(f"word{number * 7919 % 10007}" for number in range(5000))
PAGE = f"<!DOCTYPE html><title>Benchmark</title><p>{WORDS}</p>"
BARE = "bare aiohttp"


async def serve_bare() -> None:
    """The baseline: bare aiohttp. Prints its URL."""

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=PAGE, content_type="text/html")

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"url=http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


@dataclass(frozen=True)
class Asked:
    """A side, and its URLs: numbers between two texts."""

    side: Side
    before: str = "/"
    after: str = UGLY

    def script(self, folder: Path) -> str:
        """A script for wrk that requests one page after another."""
        file = folder / f"{self.side.pid}.lua"
        file.write_text(_TAKING_TURNS.format(before=self.before, pages=PAGES, after=self.after))
        return str(file)

    async def warm(self) -> int:
        """Request every page until it is cached. Returns the size of one in bytes."""
        size = 0
        async with ClientSession() as client, asyncio.timeout(300):
            for number in range(PAGES):
                url = URL(f"{self.side.url}{self.before}{number}{self.after}", encoded=True)
                while not (size := await _size_of(client, url)):
                    await asyncio.sleep(0.2)
        return size


async def _size_of(client: ClientSession, url: URL) -> int:
    try:
        async with client.get(url) as answer:
            body = await answer.text()
            return len(body) if answer.status == 200 and WORDS[:100] in body else 0
    except ClientError:
        return 0


async def main(seconds: int, rounds: int, folder: str | None) -> None:
    """Measure all sides in turns, and print medians."""

    async def page(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text=PAGE, content_type="text/html")

    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runner = web.ServerRunner(web.Server(page, access_log=None))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
        redis_url = await stack.enter_async_context(redis(scratch))
        s3 = await stack.enter_async_context(s3_server())
        stores = {
            "memory": ("memory://", "64MiB"),
            "disk": (f"file://{scratch}", "0"),
            "Redis": (redis_url, "0"),
            "Redis behind memory": (redis_url, "64MiB"),
            "object store": (s3.url, "0"),
        }
        credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        bare = await stack.enter_async_context(started(sys.executable, __file__, "--bare"))
        sides = {BARE: Asked(bare)}
        for name, (url, max_bytes) in stores.items():
            settings = {"PRERENDER_CACHE_URL": url, "PRERENDER_CACHE_MAX_BYTES": max_bytes}
            ours = proxy(origin, **settings, **credentials)
            sides[name] = Asked(await stack.enter_async_context(ours))
        if folder is not None:
            client = await stack.enter_async_context(renderers.crawler())
            modules = Path(folder).resolve() / "node_modules"
            theirs = await stack.enter_async_context(
                renderers.prerender(client, origin, modules, cached=True)
            )
            url = URL(theirs.url_of("/"), encoded=True)
            side = Side(str(url.origin()), theirs.pid)
            sides["Prerender, memory"] = Asked(side, url.raw_path_qs, "")
        sizes = {name: await asked.warm() for name, asked in sides.items()}
        measured = await in_turns(
            {
                name: partial(
                    wrk, asked.side, "/", seconds, CONNECTIONS, script=asked.script(scratch)
                )
                for name, asked in sides.items()
            },
            rounds,
        )
    floor = measured[BARE]
    print(f"{sizes['memory']:,} bytes, {CONNECTIONS} connections, {PAGES} pages, one process each")
    print(f"{'':20} requests/s   ratio   CPU us   above bare aiohttp")
    for name, values in measured.items():
        rate, cpu = (median(values, what) for what in ("requests_per_second", "cpu_us"))
        bare_rate, bare_cpu = (median(floor, what) for what in ("requests_per_second", "cpu_us"))
        print(
            f"{name:20} {rate:10,.0f}  x {rate / bare_rate:5.2f} {cpu:8.0f}   {cpu - bare_cpu:+8.0f}"
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prerender", metavar="FOLDER")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        if options.bare:
            loop.run(serve_bare())
        else:
            loop.run(main(options.seconds, options.rounds, options.prerender))

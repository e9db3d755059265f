"""The effect of shared assets: this proxy with and without the cache of assets, in one run.

    .venv/bin/python benchmarks/shared_assets.py [--states 50] [--pages 4] [--latency-ms 20]

Requires Chromium. Both render many states of an application with 20 scripts of 50 kB and a style
sheet, in turns, so that a noisy machine affects both. The number of requests to the origin is exact;
of times, compare the ratio.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import uvloop
from aiohttp import ClientSession, web

from prerender import app
from prerender.config import load
from prerender.config.settings import LogSettings
from prerender.telemetry import logs

SCRIPTS = 20
SCRIPT = f"window.loaded = (window.loaded || 0) + 1; /*{'x' * 50_000}*/"
PAGE = (
    '<!DOCTYPE html><title>States</title><link rel="stylesheet" href="/style.css"><p id="out">'
    + "".join(f'<script src="/{number}.js"></script>' for number in range(SCRIPTS))
    + f"<script>if (loaded === {SCRIPTS}) out.textContent = location.hash;</script>"
)
TERMS = {
    "fresh for an hour": {"Cache-Control": "max-age=3600"},
    "an entity-tag only": {"ETag": '"1"'},
}


@dataclass
class Side:
    """A proxy with its own origin, which counts requests."""

    headers: dict[str, str]
    latency_seconds: float
    requests: int = 0
    sent_bytes: int = 0
    url: str = ""
    times: list[float] = field(default_factory=list)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/":
            return web.Response(text=PAGE, content_type="text/html")
        self.requests += 1
        await asyncio.sleep(self.latency_seconds)
        if request.headers.get("If-None-Match"):
            return web.Response(status=304, headers=self.headers)
        is_script = request.path.endswith(".js")
        text, media_type = (SCRIPT, "text/javascript") if is_script else ("p {}", "text/css")
        self.sent_bytes += len(text)
        return web.Response(text=text, content_type=media_type, headers=self.headers)

    @asynccontextmanager
    async def running(self, pages: int, cache_bytes: int) -> AsyncIterator["Side"]:
        """Run both servers in this process."""
        runner = web.ServerRunner(web.Server(self.answer, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        values: dict[str, dict[str, object]] = {
            "origin": {"url": f"http://127.0.0.1:{runner.addresses[0][1]}"},
            "site": {"url": "https://www.example.com"},
            "server": {"port": 0},
            "admin": {"port": 0},
            "browser": {"pages": pages},
            "network": {"cache_bytes": cache_bytes},
        }
        async with app.serving(load(None, {}, values)) as serving:
            self.url = f"http://127.0.0.1:{serving.public_port}"
            yield self
        await runner.cleanup()

    async def render(self, client: ClientSession, states: range, at_once: int) -> None:
        """Render states, several at once."""
        room = asyncio.Semaphore(at_once)

        async def one(state: int) -> None:
            async with room:
                started = time.monotonic()
                async with client.get(f"{self.url}/?_escaped_fragment_=/{state}") as answer:
                    text = await answer.text()
                if f"#!/{state}<" not in text:
                    raise RuntimeError(f"state {state}: {text[:200]}")
                self.times.append(time.monotonic() - started)

        await asyncio.gather(*(one(state) for state in states))


async def compare(headers: dict[str, str], states: int, pages: int, latency: float) -> None:
    """Measure both sides in turns."""
    without, shared = Side(headers, latency), Side(headers, latency)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(ClientSession())
        await stack.enter_async_context(without.running(pages, 0))
        await stack.enter_async_context(shared.running(pages, 64 * 1024**2))
        for start in range(0, states, 2 * pages):
            some = range(start, min(start + 2 * pages, states))
            await without.render(client, some, pages)
            await shared.render(client, some, pages)
    for name, side in (("without", without), ("shared", shared)):
        print(
            f"  {name:8} {side.requests:6} requests for assets, {side.sent_bytes / 1e6:7.1f} MB, "
            f"{statistics.median(side.times) * 1000:6.0f} ms a render"
        )
    ratio = statistics.median(shared.times) / statistics.median(without.times)
    print(
        f"  ratio    {shared.requests / without.requests:6.2f}"
        f"{shared.sent_bytes / without.sent_bytes:24.2f}{ratio:15.2f}"
    )


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=50)
    parser.add_argument("--pages", type=int, default=4)
    parser.add_argument("--latency-ms", type=float, default=20)
    options = parser.parse_args()
    logs.configure(LogSettings(level="error"))
    for name, headers in TERMS.items():
        print(f"{options.states} states, {SCRIPTS + 1} assets with {name}:")
        await compare(headers, options.states, options.pages, options.latency_ms / 1000)


if __name__ == "__main__":
    asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main())

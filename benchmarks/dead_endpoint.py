"""The cost of one endpoint of the site that never responds, and that every page requests.

    .venv/bin/python benchmarks/dead_endpoint.py [--pages 80] [--at-once 8] [--rounds 3]

Requires Chromium. First ten pages are rendered, from which the proxy learns that the request hangs.
Then pages with and without that request are rendered in turns. Compare the ratio.
"""

import argparse
import asyncio
import itertools
import statistics
import time
from collections import Counter
from contextlib import AsyncExitStack

import uvloop
from aiohttp import ClientSession, DummyCookieJar, web
from measuring import application_runner, serving

from prerender import app
from prerender.config import load
from prerender.config.settings import LogSettings
from prerender.telemetry import logs

LEARNING_PAGES = 10
CONTENT = "content " * 60
DATA = "fetch('/data').then(async (answer) => { out.textContent = await answer.text(); });"
DEAD = "fetch('/dead').catch(() => 0);"

_numbers = itertools.count()


async def _answer(request: web.Request) -> web.Response:
    if request.path == "/dead":
        await asyncio.Event().wait()
    if request.path == "/data":
        return web.Response(text="the data")
    script = f"{DEAD if request.path.startswith('/dead/') else ''}{DATA}"
    html = f"<!DOCTYPE html><title>t</title><p>{CONTENT}<p id=out></p><script>{script}</script>"
    return web.Response(text=html, content_type="text/html")


class Crawler:
    """Requests new pages of a proxy."""

    def __init__(self, client: ClientSession, url: str, at_once: int) -> None:
        self._client = client
        self._url = url
        self._room = asyncio.Semaphore(at_once)

    async def pages(self, kind: str, count: int) -> tuple[float, float, Counter[int]]:
        """Pages per second, the median of their seconds, and their statuses."""
        statuses: Counter[int] = Counter()

        async def one() -> float:
            async with self._room:
                started = time.monotonic()
                url = f"{self._url}/{kind}/{next(_numbers)}?_escaped_fragment_="
                async with self._client.get(url) as answer:
                    text = await answer.text()
                statuses[answer.status] += 1
                if answer.status == 200 and "the data" not in text:
                    raise RuntimeError(f"an incomplete page: {text[:300]}")
                return time.monotonic() - started

        started = time.monotonic()
        seconds = await asyncio.gather(*(one() for _ in range(count)))
        return count / (time.monotonic() - started), statistics.median(seconds), statuses


async def main(options: argparse.Namespace) -> None:
    """Learn, then measure both kinds in turns."""
    logs.configure(LogSettings(level="error"))
    site = web.Application()
    site.router.add_get("/{path:.*}", _answer)
    async with AsyncExitStack() as stack:
        origin = await stack.enter_async_context(serving(application_runner(site)))
        values: dict[str, dict[str, object]] = {
            "origin": {"url": origin},
            "site": {"url": "https://www.example.com"},
            "server": {"port": 0},
            "admin": {"port": 0},
            "cache": {"ttl": 0},
            "log": {"access": "none"},
        }
        running = await stack.enter_async_context(app.serving(load(None, {}, values)))
        client = await stack.enter_async_context(ClientSession(cookie_jar=DummyCookieJar()))
        crawler = Crawler(client, f"http://127.0.0.1:{running.public_port}", options.at_once)
        _, seconds, _ = await crawler.pages("dead", min(LEARNING_PAGES, options.pages))
        print(f"first pages: median {seconds:.1f} s")
        rates: dict[str, list[float]] = {"live": [], "dead": []}
        for _ in range(options.rounds):
            for kind, known in rates.items():
                rate, seconds, statuses = await crawler.pages(kind, options.pages)
                known.append(rate)
                print(f"  {kind}: {rate:5.1f}/s, median {seconds * 1000:4.0f} ms, {dict(statuses)}")
        live, dead = (statistics.median(known) for known in rates.values())
        print(f"  ratio {dead / live:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=80)
    parser.add_argument("--at-once", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(main(parser.parse_args()))

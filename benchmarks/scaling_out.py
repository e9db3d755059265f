"""Three proxies on one Redis behind nginx, crawled while one proxy and then Redis are killed.

    .venv/bin/python benchmarks/scaling_out.py [--urls 10000] [--proxies 3] [--at-once 24]

Every URL of a light site is asked for twice, the second time by another crawler a little later. After a
third of the requests one proxy is killed (kill -9, with all of its browser), after two thirds Redis is.
Counted are answers that were lost or wrong, and renders for each URL: one is what there should be, and
more of them what the failures cost. Needs Chromium, nginx and redis-server.
"""

import argparse
import asyncio
import itertools
import os
import re
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import measuring
import psutil
import renderers
import uvloop
from aiohttp import ClientError, ClientSession, web

# How far behind the first crawler the second one is, in URLs.
BEHIND = 200
PAGE = """<!DOCTYPE html><title>Light</title><p id="out"></p><script>
  document.getElementById("out").textContent = "state " + location.hash;
</script>"""
_SAID = re.compile(r'<p id="out">state #!/(\d+)</p>')


@dataclass
class Counts:
    """What happened."""

    answers: Counter[str] = field(default_factory=Counter)
    waited: int = 0
    milliseconds: list[float] = field(default_factory=list)
    events: list[str] = field(default_factory=list)


@dataclass
class Site:
    """The light site, in this process; ``asked`` is how many documents it was asked for: renders."""

    asked: int = 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Its URL."""

        async def page(_: web.BaseRequest) -> web.StreamResponse:
            self.asked += 1
            return web.Response(text=PAGE, content_type="text/html")

        runner = web.ServerRunner(web.Server(page, access_log=None))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


async def main(urls: int, proxies: int, at_once: int) -> list[str]:
    """Crawl, and return the table as lines of Markdown."""
    counts = Counts()
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        site = Site()
        site_url = await stack.enter_async_context(site.running())
        redis_url = await stack.enter_async_context(measuring.redis(folder))
        settings = {
            "PRERENDER_SITE_URL": "https://www.example.com",
            "PRERENDER_CACHE_URL": redis_url,
            "PRERENDER_LOG_FORMAT": "json",
        }
        sides = [
            await stack.enter_async_context(measuring.proxy(site_url, **settings))
            for _ in range(proxies)
        ]
        # A request that a proxy has not begun to answer when it dies is sent to the next one.
        front = await stack.enter_async_context(measuring.in_front_of(folder, sides))
        client = await stack.enter_async_context(renderers.crawler())
        redis = int(redis_url.rpartition(":")[2].partition("/")[0])
        failures = {
            2 * urls // 3: lambda: _kill(sides[0].pid, "a proxy", counts),
            4 * urls // 3: lambda: _kill(_listener(redis), "Redis", counts),
        }
        for path in range(proxies * 2):  # each has started its browser
            await _ask(client, front.url, 10**9 + path, Counts())
        site.asked, started = 0, time.perf_counter()
        crawling = _crawling(client, front.url, iter(_order(urls)), counts, failures)
        await asyncio.gather(*(crawling() for _ in range(at_once)))
        seconds = time.perf_counter() - started
    rows = _rows(counts, urls, site.asked, seconds)
    title = f"{proxies} proxies, {urls:,} URLs, each asked for twice, {at_once} requests at once"
    return [title, "", "| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)]


def _crawling(
    client: ClientSession,
    url: str,
    numbers: Iterator[int],
    counts: Counts,
    failures: dict[int, Callable[[], None]],
) -> Callable[[], Awaitable[None]]:
    """A crawler that shares ``numbers`` with others; failures come after so many answers of all."""
    done = itertools.count()

    async def crawl() -> None:
        for number in numbers:
            await _ask(client, url, number, counts)
            if (failure := failures.get(next(done))) is not None:
                failure()

    return crawl


def _order(urls: int) -> list[int]:
    """Each URL twice: by a first crawler, and by a second one that is some URLs behind."""
    order = []
    for number in range(urls + BEHIND):
        if number < urls:
            order.append(number)
        if number >= BEHIND:
            order.append(number - BEHIND)
    return order


async def _ask(client: ClientSession, url: str, number: int, counts: Counts) -> None:
    begun = time.perf_counter()
    try:
        async with client.get(f"{url}/?_escaped_fragment_=/{number}") as answer:
            text = await answer.text(errors="replace")
            said = _SAID.search(text)
            if answer.status != 200:
                counts.answers[f"status {answer.status}"] += 1
            elif said is None or int(said[1]) != number:
                counts.answers["wrong"] += 1
            else:
                counts.answers["right"] += 1
                if "fwd=" in answer.headers["Cache-Status"]:
                    counts.waited += 1
    except (ClientError, OSError, TimeoutError) as error:
        counts.answers[f"lost: {type(error).__name__}"] += 1
    counts.milliseconds.append((time.perf_counter() - begun) * 1000)


def _kill(pid: int, what: str, counts: Counts) -> None:
    """kill -9: nothing is said, nothing is finished."""
    counts.events.append(f"{what} killed after {sum(counts.answers.values())} answers")
    print(counts.events[-1], flush=True)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _listener(port: int) -> int:
    """Who listens on a port."""
    for connection in psutil.net_connections("tcp"):
        if connection.laddr.port == port and connection.status == psutil.CONN_LISTEN:
            assert connection.pid is not None
            return connection.pid
    raise RuntimeError(f"nobody listens on {port}")


def _rows(counts: Counts, urls: int, renders: int, seconds: float) -> list[tuple[str, str]]:
    times = sorted(counts.milliseconds)
    others = [f"{count} {what}" for what, count in counts.answers.items() if what != "right"]
    late = times[int(len(times) * 0.99)]
    return [
        *((f"failure {number}", event) for number, event in enumerate(counts.events, 1)),
        ("right answers", f"{counts.answers['right']:,} of {2 * urls:,}"),
        ("lost or wrong", ", ".join(others) or "none"),
        ("renders", f"{renders:,}, {renders / urls:.3f} for each URL"),
        ("answers from a store", f"{2 * urls - counts.waited:,}"),
        ("requests per second", f"{len(times) / seconds:.0f}, in {seconds:.0f} s"),
        ("median, 99 % within", f"{statistics.median(times):.0f} ms, {late:.0f} ms"),
    ]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--urls", type=int, default=10_000)
    parser.add_argument("--proxies", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=24)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        lines = runner.run(main(options.urls, options.proxies, options.at_once))
    print("\n".join(lines))

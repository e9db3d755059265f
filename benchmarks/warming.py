"""Whether ``prerender warm`` keeps all pages of a proxy busy, compared with a minimal client.

    .venv/bin/python benchmarks/warming.py [--pages 500] [--parts 5]

Requires Chromium. Both request new pages of the example shop from the same proxy, eight at a time.
They take turns, with a part of the pages each, so that a noisy machine affects both. Compare the ratio
of renders per second. The start of the command counts, too.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop
from aiohttp import ClientSession, web
from measuring import proxy, started
from yarl import URL

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from prerender.urls.ajax_crawling import pretty_to_ugly
from tests.tools.test_check import load_shop

AT_ONCE = 8


async def origin() -> None:
    """The example shop, in its own process."""
    runner = web.AppRunner(load_shop().make_app(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"url=http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


def pages(site: str, side: str, numbers: range) -> list[str]:
    """URLs of different pages."""
    return [f"{site}/?{side}={number}#!/items/{number % 12 + 1}" for number in numbers]


async def bare(url: str, wanted: list[str]) -> float:
    """Request these pages in a loop. Returns seconds."""
    waiting = list(wanted)
    started_at = time.perf_counter()

    async def ask(client: ClientSession) -> None:
        while waiting:
            ugly = pretty_to_ugly(waiting.pop())
            assert ugly is not None
            asked = URL(f"{url}/{ugly.split('/', 3)[3]}", encoded=True)
            async with client.get(asked) as answer:
                await answer.read()
                assert answer.status == 200, answer.status

    async with ClientSession() as client:
        await asyncio.gather(*(ask(client) for _ in range(AT_ONCE)))
    return time.perf_counter() - started_at


async def warm(url: str, wanted: list[str], state: Path) -> float:
    """Run the command for these pages. Returns seconds."""
    started_at = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prerender", "warm", "-", "--via", url, "--state", str(state)),
        *("--concurrency", str(AT_ONCE)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
    )
    await process.communicate("\n".join(wanted).encode())
    assert process.returncode == 0, process.returncode
    return time.perf_counter() - started_at


async def main(options: argparse.Namespace) -> None:
    """Measure both sides in turns, and print the results."""
    async with AsyncExitStack() as stack:
        site = await stack.enter_async_context(started(sys.executable, __file__, "--origin"))
        served = await stack.enter_async_context(proxy(site.url))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        await bare(served.url, pages(site.url, "first", range(12)))  # warm up the browser
        seconds = {"bare": 0.0, "warm": 0.0}
        size = options.pages // options.parts
        for part in range(options.parts):
            numbers = range(part * size, (part + 1) * size)
            seconds["bare"] += await bare(served.url, pages(site.url, "bare", numbers))
            wanted = pages(site.url, "warm", numbers)
            seconds["warm"] += await warm(served.url, wanted, folder / "state")
    total = size * options.parts
    print(f"{len(os.sched_getaffinity(0))} CPUs, {total} pages each, {AT_ONCE} at once")
    for side, spent in seconds.items():
        print(f"{side}: {total / spent:.1f} renders a second")
    print(f"warm / bare: {seconds['bare'] / seconds['warm']:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--parts", type=int, default=5)
    parser.add_argument("--origin", action="store_true")
    given = parser.parse_args()
    uvloop.run(origin() if given.origin else main(given))

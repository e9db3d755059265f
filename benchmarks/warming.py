"""Whether ``prerender warm`` keeps all pages of a proxy busy, compared with a minimal client.

    .venv/bin/python benchmarks/warming.py [--pages 500] [--parts 5] [--listed 1000000]

Requires Chromium. Both request new pages of the example shop from the same proxy, eight at a time.
They take turns, with a part of the pages each, so that a noisy machine affects both. Compare the ratio
of renders per second. The start of the command counts, too.

Then the command reads sitemap indexes of a tenth of ``--listed`` pages, and of all of them, which a
server makes while it sends them; it requests 100 of the pages. Compare the memory.
"""

import argparse
import asyncio
import os
import re
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
from tests.support import example

AT_ONCE = 8
REQUESTED = 100
IN_A_SITEMAP = 50_000


async def serve(application: web.Application) -> None:
    """Serve the example shop or sitemaps, in its own process."""
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"url=http://127.0.0.1:{runner.addresses[0][1]}", flush=True)
    await asyncio.Event().wait()


def listing() -> web.Application:
    """Serves /N/index.xml with N pages, and what a proxy would respond for each of them."""

    async def index(request: web.Request) -> web.Response:
        count = int(request.match_info["count"])
        names = (f"http://{request.host}/{count}/{n}.xml" for n in range(0, count, IN_A_SITEMAP))
        entries = "".join(f"<sitemap><loc>{name}</loc></sitemap>" for name in names)
        return web.Response(text=f"<sitemapindex>{entries}</sitemapindex>")

    async def sitemap(request: web.Request) -> web.StreamResponse:
        count, first = (int(request.match_info[name]) for name in ("count", "first"))
        response = web.StreamResponse()
        response.enable_compression()
        await response.prepare(request)
        await response.write(b"<urlset>")
        for start in range(first, min(count, first + IN_A_SITEMAP), 1000):
            numbers = range(start, min(count, start + 1000))
            entry = f"<url><loc>http://{request.host}/{count}/category/a-product-%d</loc></url>"
            await response.write("".join(entry % number for number in numbers).encode())
        await response.write(b"</urlset>")
        return response

    async def page(_: web.Request) -> web.Response:
        headers = {"Cache-Status": "prerender; fwd=miss; stored; ttl=3600"}
        return web.Response(text="<p>page", content_type="text/html", headers=headers)

    application = web.Application()
    application.router.add_get("/{count}/index.xml", index)
    application.router.add_get("/{count}/{first}.xml", sitemap)
    application.router.add_get("/{path:.*}", page)
    return application


def peak_memory(pid: int) -> int:
    """The peak memory of a process so far in bytes (VmHWM, proc_pid_status(5))."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else 0


async def read(url: str, count: int, folder: Path) -> None:
    """Print what the command needs for so many pages."""
    state = folder / f"listed-{count}"
    began = os.times()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "prerender", "warm", f"{url}/{count}/index.xml", "--via", url),
        *("--state", str(state), "--max-pages", str(REQUESTED)),
        stdout=asyncio.subprocess.DEVNULL,
    )
    peak = 0
    ended = asyncio.create_task(process.wait())
    while not ended.done():
        peak = max(peak, peak_memory(process.pid))
        await asyncio.wait([ended], timeout=0.05)
    assert await ended == 0, process.returncode
    now = os.times()
    seconds = now.children_user + now.children_system - began.children_user - began.children_system
    disk = state.stat().st_size / 1024**2
    print(
        f"{count} listed pages: {peak / 1024**2:.0f} MiB of memory, {seconds:.1f} CPU seconds, "
        f"{disk:.0f} MiB on disk"
    )


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
    if options.listed:
        await read_listings(options.listed)


async def read_listings(count: int) -> None:
    """Measure the command with a tenth of the pages, and with all of them."""
    with tempfile.TemporaryDirectory() as folder:
        async with started(sys.executable, __file__, "--listing") as listed:
            for pages_listed in (count // 10, count):
                await read(listed.url, pages_listed, Path(folder))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=500)
    parser.add_argument("--parts", type=int, default=5)
    parser.add_argument("--listed", type=int, default=1_000_000)
    parser.add_argument("--origin", action="store_true")
    parser.add_argument("--listing", action="store_true")
    given = parser.parse_args()
    if given.origin or given.listing:
        uvloop.run(serve(listing() if given.listing else example.shop()))
    else:
        uvloop.run(main(given))

"""Many renders, after which processes, files, tasks, folders and memory must be constant.

    .venv/bin/python benchmarks/soak.py [--heavy 1000] [--small 10000] [--pages 2]

Requires Chromium. The heavy page keeps 30 MB of objects alive, the small one none. Prints a line after
each tenth of the renders; the browser's memory is that of all its processes.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import psutil
import uvloop
from aiohttp import ClientSession, DummyCookieJar, web
from measuring import application_runner, serving

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from prerender import app
from prerender.browser.processes import memory_of, survey
from prerender.config.settings import LogSettings
from prerender.telemetry import logs
from tests.conftest import settings_for
from tests.support import processes

SMALL = "<!DOCTYPE html><p id='out'></p><script>out.textContent = 'done ' + location.hash</script>"
# Boxed numbers: about 30 bytes each, on the page's heap.
HEAVY = """<!DOCTYPE html><p id='out'></p><script>
  globalThis.kept = Array.from({length: 1_000_000}, (_, i) => ({number: i + 0.5}));
  out.textContent = 'done ' + location.hash + (kept.length - 1_000_000 || '');
</script>"""


async def main(options: argparse.Namespace) -> None:
    """Render both pages repeatedly, and print the state."""
    logs.configure(LogSettings(level="warning"))
    site = web.Application()
    for path, html in (("/small", SMALL), ("/heavy", HEAVY)):
        site.router.add_get(path, _page(html))
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        tempfile.tempdir = folder
        url = await stack.enter_async_context(serving(application_runner(site)))
        settings = settings_for(
            url, {"browser": {"pages": options.pages}, "cache": {"max_bytes": "1MiB"}}
        )
        running = await stack.enter_async_context(app.serving(settings))
        client = await stack.enter_async_context(ClientSession(cookie_jar=DummyCookieJar()))
        base = f"http://127.0.0.1:{running.public_port}"
        for path, count in (("/heavy", options.heavy), ("/small", options.small)):
            print(f"{path}: {count} renders, {options.pages} at once")
            numbers = iter(range(count))
            for _ in range(10):
                started = time.perf_counter()
                share = [number for number, _ in zip(numbers, range(count // 10), strict=False)]
                await _render(client, base + path, share, options.pages)
                rate = len(share) / (time.perf_counter() - started)
                print(f"  {rate:5.1f}/s  {_census(running, folder)}", flush=True)


def _page(html: str):
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=html, content_type="text/html")

    return answer


async def _render(client: ClientSession, url: str, numbers: list[int], at_once: int) -> None:
    left = iter(numbers)

    async def crawl() -> None:
        for number in left:
            async with client.get(f"{url}?_escaped_fragment_={number}") as answer:
                text = await answer.text()
                assert answer.status == 200, text
                assert f"done #!{number}<" in text, text

    await asyncio.gather(*(crawl() for _ in range(at_once)))


def _census(running: app.Running, folder: str) -> str:
    sessions = processes.sessions()
    browser = sum(memory_of(survey(session)) for session in sessions)
    own = psutil.Process().memory_info().rss
    return (
        f"browser {browser >> 20} MiB in {sum(len(survey(s)) for s in sessions)} processes, "
        f"proxy {own >> 20} MiB, {len(os.listdir('/proc/self/fd'))} files, "
        f"{len(asyncio.all_tasks())} tasks, {len(os.listdir(folder))} folders, "
        f"{running.pool.browsers_started} browsers started"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--heavy", type=int, default=1000)
    parser.add_argument("--small", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=2)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(main(parser.parse_args()))

"""Complete or not, and how soon: this proxy beside Prerender (npm), on the same pages and Chromium.

    .venv/bin/python benchmarks/against_prerender.py [--prerender FOLDER] [--only TEXT] [--write FILE]

The pages are those of tests/corpus, each of which finishes by one mechanism of the web platform and
then says so. Each is rendered by both sides, one after the other, without any cache. Then both get the
same static page and the same application eight at once. FOLDER is where `npm install --ignore-scripts
prerender@5` was run; without it only our side is measured. --only takes the pages with TEXT in their
names. The table in the documentation is docs/completeness.md. Needs Node.js and Chromium.
"""

import argparse
import asyncio
import os
import platform
import re
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import uvloop
from aiohttp import ClientSession, ClientTimeout, web
from measuring import free_port
from yarl import URL

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from prerender.rendering import chromium
from tests.corpus import origin as corpus

AT_ONCE = 8
BURST = 80
APPLICATION = "timers-and-fetches-chained"
STATIC = "/static"
# Pages that never end are let go after this long; both sides have a limit of 20 s of their own.
PATIENCE_SECONDS = 40
# Prerender asks for pages with its own options; the rest are its defaults.
_NODE = """
const prerender = require(process.env.PRERENDER_FOLDER + "/node_modules/prerender");
prerender({
  port: +process.env.PORT, browserDebuggingPort: +process.env.DEBUG_PORT,
  chromeLocation: process.env.CHROME, logRequests: false,
  chromeFlags: ["--no-sandbox", "--headless", "--disable-gpu", "--hide-scrollbars",
    "--disable-background-networking", "--no-first-run",
    "--remote-debugging-port=" + process.env.DEBUG_PORT, "--user-data-dir=" + process.env.PROFILE],
}).start();
"""


@dataclass(frozen=True)
class Outcome:
    """One render: whether its text was the page's own last one, and its milliseconds."""

    complete: bool
    milliseconds: float


@dataclass(frozen=True)
class Side:
    """Something that renders: how its URL for a page is made."""

    name: str
    client: ClientSession
    base: str
    prefix: str

    async def render(self, path: str, expected: str | None) -> Outcome:
        """Ask for one page; ``expected`` is what it has to say in the end."""
        mark = "&" if "?" in path else "?"
        ugly = f"{path}{mark}_escaped_fragment_="
        url = f"{self.base}{self.prefix}{path}" if self.prefix else f"{self.base}{ugly}"
        started = time.perf_counter()
        try:
            async with self.client.get(URL(url, encoded=True), allow_redirects=False) as answer:
                text = await answer.text(errors="replace")
                status = answer.status
        except (OSError, TimeoutError):
            text, status = "", 0
        took = (time.perf_counter() - started) * 1000
        said = re.search(r'<p id="out">(.*?)</p>', text)
        right = expected is None or (said is not None and said[1] == expected)
        return Outcome(status == 200 and right, took)


@asynccontextmanager
async def origin() -> AsyncIterator[str]:
    """The corpus on a free port."""
    application = corpus.application()

    async def static(_: web.Request) -> web.Response:
        return web.Response(text="<title>t</title><p id=out>static", content_type="text/html")

    # Before the corpus's own route, which takes every path.
    fixed = web.Application()
    fixed.router.add_get(STATIC, static)
    for resource in application.router.resources():
        fixed.router.register_resource(resource)
    runner = web.AppRunner(fixed, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def process(*command: str, **environment: str) -> AsyncIterator[None]:
    """A program that is ended with all it started."""
    running = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield
    finally:
        running.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await running.wait()
        # What it has left behind, too: Prerender does not end its Chromium when it is asked to stop.
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        await running.wait()


async def until_it_answers(side: Side) -> None:
    """Wait until a side renders its first page."""
    async with asyncio.timeout(60):
        while not (await side.render(STATIC, None)).complete:
            await asyncio.sleep(0.2)


@asynccontextmanager
async def ours(client: ClientSession, origin_url: str) -> AsyncIterator[Side]:
    """This proxy, without its cache."""
    port = free_port()
    async with process(
        sys.executable, "-m", "prerender", "serve",
        PRERENDER_ORIGIN_URL=origin_url, PRERENDER_SERVER_PORT=str(port),
        PRERENDER_ADMIN_PORT="0", PRERENDER_CACHE_TTL="0",
    ):  # fmt: skip
        side = Side("prerender-proxy", client, f"http://127.0.0.1:{port}", "")
        await until_it_answers(side)
        yield side


@asynccontextmanager
async def theirs(client: ClientSession, origin_url: str, folder: str) -> AsyncIterator[Side]:
    """Prerender, with its defaults."""
    port = free_port()
    profile = tempfile.mkdtemp()
    try:
        async with process(
            "node", "-e", _NODE,
            PRERENDER_FOLDER=str(Path(folder).resolve()), PORT=str(port), PROFILE=profile,
            DEBUG_PORT=str(free_port()), CHROME=chromium.find(),
        ):  # fmt: skip
            side = Side("Prerender", client, f"http://127.0.0.1:{port}", f"/{origin_url}")
            await until_it_answers(side)
            yield side
    finally:
        shutil.rmtree(profile, ignore_errors=True)


async def burst(side: Side, path: str, expected: str | None, count: int) -> tuple[float, float]:
    """Renders per second with some at once, and the share that was complete."""
    numbers = iter(range(count))
    outcomes: list[Outcome] = []

    async def crawler() -> None:
        for number in numbers:
            # A target of its own each time: equal ones that meet would share a render here.
            outcomes.append(await side.render(f"{path}?number={number}", expected))

    started = time.perf_counter()
    await asyncio.gather(*(crawler() for _ in range(AT_ONCE)))
    seconds = time.perf_counter() - started
    return count / seconds, sum(outcome.complete for outcome in outcomes) / count


def expected_text(name: str) -> str:
    """What a page of the corpus says when it has finished."""
    page = (corpus.FOLDER / f"{name}.html").read_text(encoding="utf-8")
    found = re.search(r'<meta name="expected" content="([^"]*)">', page)
    assert found
    return found[1]


def summary(results: dict[str, dict[str, Outcome]], bursts: dict[str, list[float]]) -> list[str]:
    """The tables, as lines of Markdown."""
    sides = list(results)
    pages = list(results[sides[0]])
    lines = [f"| | {' | '.join(sides)} |", "|---|" + "---:|" * len(sides)]

    def row(title: str, values: list[str]) -> None:
        lines.append(f"| {title} | {' | '.join(values)} |")

    row(
        f"complete, of {len(pages)} pages",
        [str(sum(outcome.complete for outcome in results[side].values())) for side in sides],
    )
    times = [sorted(outcome.milliseconds for outcome in results[side].values()) for side in sides]
    row("median ms", [f"{statistics.median(each):.0f}" for each in times])
    row("90 % within ms", [f"{each[int(len(each) * 0.9)]:.0f}" for each in times])
    titles = (
        f"static page, {AT_ONCE} at once, renders/s",
        f"application, {AT_ONCE} at once, renders/s",
    )
    for i, title in enumerate(titles):
        row(title, [f"{bursts[side][i]:.1f}" for side in sides])
    if len(sides) == 2:
        mine, other = (results[side] for side in sides)
        ratio = statistics.median(
            other[page].milliseconds / mine[page].milliseconds for page in pages
        )
        lines += ["", f"Page by page, the median of the ratios of the times is {ratio:.1f}."]
        rates = [bursts[sides[0]][i] / bursts[sides[1]][i] for i in range(len(titles))]
        lines.append(f"Renders per second: {rates[0]:.1f} and {rates[1]:.1f} times as many.")
    head = "".join(f" {side} | ms |" for side in sides)
    lines += ["", f"| page |{head}", "|---|" + "---|---:|" * len(sides)]
    for page in pages:
        outcomes = [results[side][page] for side in sides]
        cells = [
            f"{'complete' if outcome.complete else '**no**'} | {outcome.milliseconds:.0f}"
            for outcome in outcomes
        ]
        row(page, cells)
    return lines


async def main(folder: str | None, only: str, write: Path | None) -> None:
    """Measure, print, and write the tables."""
    results: dict[str, dict[str, Outcome]] = {}
    bursts: dict[str, list[float]] = {}
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            ClientSession(timeout=ClientTimeout(total=PATIENCE_SECONDS))
        )
        url = await stack.enter_async_context(origin())
        sides = [await stack.enter_async_context(ours(client, url))]
        if folder:
            sides.append(await stack.enter_async_context(theirs(client, url, folder)))
        for name in (name for name in corpus.page_names() if only in name):
            for side in sides:
                outcome = await side.render(f"/{name}.html", expected_text(name))
                results.setdefault(side.name, {})[name] = outcome
                print(f"{side.name:16} {name:40} {outcome}", flush=True)
        for side in sides:
            bursts[side.name] = [
                (await burst(side, STATIC, None, BURST))[0],
                (await burst(side, f"/{APPLICATION}.html", expected_text(APPLICATION), BURST))[0],
            ]
    lines = summary(results, bursts)
    print("\n".join(lines))
    if write:
        machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"
        write.write_text(
            "# Complete, and how soon\n\n"
            "Made by `benchmarks/against_prerender.py`; do not edit. Every page of `tests/corpus` was\n"
            "rendered by both sides on one machine in one run, without a cache, by the same Chromium\n"
            f"({machine}). The times are of that machine; compare the ratios.\n\n"
            + "\n".join(lines)
            + "\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prerender", metavar="FOLDER")
    parser.add_argument("--only", metavar="TEXT", default="")
    parser.add_argument("--write", metavar="FILE", type=Path)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(main(options.prerender, options.only, options.write))

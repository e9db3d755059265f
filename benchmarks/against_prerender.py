"""Completeness and speed: this proxy and Prerender (npm), with the same pages and Chromium.

    .venv/bin/python benchmarks/against_prerender.py [--prerender FOLDER] [--only TEXT] [--write FILE]

Each page of tests/sites/corpus completes by one mechanism of the web platform, and then shows that it
is complete. Both sides render each page in turns, without a cache. Then they render all pages eight at
a time, and likewise a static page and an application. FOLDER is where `npm install --ignore-scripts
prerender@5` was run; without it, only this proxy is measured. --only selects the pages with TEXT in
their names. The result is docs/completeness.md. Requires Node.js and Chromium.
"""

import argparse
import asyncio
import os
import platform
import re
import statistics
import sys
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import renderers
import uvloop
from aiohttp import web
from renderers import FINISHED, STATIC, Outcome, Start, burst, together

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.sites.corpus import origin as corpus

AT_ONCE = 8
BURST = 80
APPLICATION = "timers-and-fetches-chained"


@asynccontextmanager
async def origin() -> AsyncIterator[str]:
    """Serves the corpus on a free port."""
    application = corpus.application()

    async def static(_: web.Request) -> web.Response:
        text = f"<title>t</title><p id=out>{FINISHED}"
        return web.Response(text=text, content_type="text/html")

    # Before the route of the corpus, which matches every path.
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


def expected_text(name: str) -> str:
    """The text of a page of the corpus when it is complete."""
    page = (corpus.FOLDER / f"{name}.html").read_text(encoding="utf-8")
    found = re.search(r'<meta name="expected" content="([^"]*)">', page)
    assert found
    return found[1]


@dataclass
class Measured:
    """One side: each page alone; then concurrent renders per second, and how many were complete."""

    alone: dict[str, Outcome] = field(default_factory=dict)
    rates: list[float] = field(default_factory=list)
    complete_at_once: int = 0


# The keys of ``Measured.rates``.
BURSTS = ("all pages", "static page", "application")


def summary(sides: dict[str, Measured]) -> list[str]:
    """The tables, as lines of Markdown."""
    pages = list(next(iter(sides.values())).alone)
    lines = [f"| | {' | '.join(sides)} |", "|---|" + "---:|" * len(sides)]

    def row(title: str, values: Iterable[object]) -> None:
        lines.append(f"| {title} | {' | '.join(map(str, values))} |")

    row(
        f"complete, of {len(pages)} pages",
        (sum(outcome.complete for outcome in side.alone.values()) for side in sides.values()),
    )
    row(f"the same, {AT_ONCE} at once", (side.complete_at_once for side in sides.values()))
    times = [sorted(one.milliseconds for one in side.alone.values()) for side in sides.values()]
    row("median ms", (f"{statistics.median(each):.0f}" for each in times))
    row("90 % within ms", (f"{each[int(len(each) * 0.9)]:.0f}" for each in times))
    for i, title in enumerate(BURSTS):
        rates = (f"{side.rates[i]:.1f}" for side in sides.values())
        row(f"{title}, {AT_ONCE} at once, renders/s", rates)
    if len(sides) == 2:
        mine, other = sides.values()
        ratio = statistics.median(
            other.alone[page].milliseconds / mine.alone[page].milliseconds for page in pages
        )
        lines += ["", f"Median speed-up per page: {ratio:.1f}."]
        more = zip(BURSTS, mine.rates, other.rates, strict=True)
        ratios = (f"{title} {ours / theirs:.1f}" for title, ours, theirs in more)
        lines.append(f"Speed-up in renders per second: {', '.join(ratios)}.")
    head = "".join(f" {title} | ms |" for title in sides)
    lines += ["", f"| page |{head}", "|---|" + "---|---:|" * len(sides)]
    for page in pages:
        outcomes = (side.alone[page] for side in sides.values())
        row(
            page,
            (
                f"{'complete' if outcome.complete else '**no**'} | {outcome.milliseconds:.0f}"
                for outcome in outcomes
            ),
        )
    return lines


async def alone(
    starts: Mapping[str, Start], pages: Sequence[str], measured: Mapping[str, Measured]
) -> None:
    """Render each page alone, the sides in turns."""
    async with AsyncExitStack() as stack:
        sides = {title: await stack.enter_async_context(start()) for title, start in starts.items()}
        for name in pages:
            for title, side in sides.items():
                outcome = await renderers.render(side, f"/{name}.html", expected_text(name))
                measured[title].alone[name] = outcome
                print(f"{title:16} {name:40} {outcome}", flush=True)


async def at_once(start: Start, pages: Sequence[str], measured: Measured) -> None:
    """Concurrent renders: of all pages, and of two single pages. The side is restarted for each,
    because after some pages Prerender does not respond to any other."""
    page = f"/{APPLICATION}.html"
    async with start() as side:
        all_pages = ((f"/{name}.html", expected_text(name)) for name in pages)
        of_all, outcomes = await together(side, all_pages, AT_ONCE)
    measured.complete_at_once = sum(outcome.complete for outcome in outcomes)
    async with start() as side:
        of_static, _ = await burst(side, STATIC, BURST, AT_ONCE)
        of_page, _ = await burst(side, page, BURST, AT_ONCE, expected_text(APPLICATION))
    measured.rates = [of_all, of_static, of_page]


async def main(folder: str | None, only: str, write: Path | None) -> None:
    """Measure, print, and write the tables."""
    pages = [name for name in corpus.page_names() if only in name]
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(renderers.crawler())
        url = await stack.enter_async_context(origin())
        starts: dict[str, Start] = {"prerender-proxy": partial(renderers.ours, client, url)}
        if folder:
            modules = Path(folder).resolve() / "node_modules"
            starts["Prerender"] = partial(renderers.prerender, client, url, modules)
        measured = {title: Measured() for title in starts}
        await alone(starts, pages, measured)
        for title, start in starts.items():
            await at_once(start, pages, measured[title])
    lines = summary(measured)
    print("\n".join(lines))
    if write:
        machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"
        write.write_text(
            "# Completeness and speed\n\n"
            "Generated by `benchmarks/against_prerender.py`; do not edit. Every page of "
            "`tests/sites/corpus` was\nrendered by both programs in one run, without a "
            "cache, with the same Chromium\n"
            f"({machine}). Absolute times depend on the machine: compare the ratios.\n\n"
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

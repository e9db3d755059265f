"""Completeness and speed: this proxy and Prerender (npm), with the same pages and Chromium.

    .venv/bin/python benchmarks/against_prerender.py [--node-modules FOLDER] [--only TEXT]
        [--rounds N] [--write FILE]

There are three collections of pages. Each page of tests/sites/corpus completes by one mechanism of the
web platform; tests/sites/frameworks are applications made with frameworks; tests/sites/wild are pages
and servers after public reports, whose snapshots are opened in a browser without scripts. Both sides
render each page alone, in turns, and then all pages eight at a time, without a cache. FOLDER contains
Prerender (see
renderers.py); without it, only this proxy is measured. --only selects the pages with TEXT in their
names. --rounds also counts how many pages are complete in N rounds of this proxy:
alone, eight at a time, and eight at a time with four busy loops on the same CPUs. The result is
docs/completeness.md. Requires Node.js and Chromium.
"""

import argparse
import asyncio
import os
import platform
import re
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import renderers
import uvloop
from aiohttp import web
from measuring import application_runner, serving
from renderers import Check, Outcome, Renderer, Start, together

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.sites.corpus import origin as corpus
from tests.sites.frameworks import origin as frameworks
from tests.sites.frameworks.routes import ROUTES
from tests.sites.wild import application as wild
from tests.support.plain_browser import plain_browser
from tests.support.processes import busy_loops
from tests.support.readers import Reader

AT_ONCE = 8
BUSY_LOOPS = 4
OURS, PRERENDER = "prerender-proxy", "Prerender"


@dataclass(frozen=True)
class Page:
    """A page, and whether its snapshot is complete. Hash-bang states have ugly paths for all sides."""

    name: str
    path: str
    is_complete: Check
    kind: str = ""


@dataclass(frozen=True)
class Collection:
    """The pages of one origin, and how often they are rendered in a burst."""

    title: str
    application: web.Application
    pages: Sequence[Page]
    repeats: int = 1


@dataclass
class Measured:
    """One side: each page alone; with ``AT_ONCE``, renders per second and the complete share."""

    alone: dict[str, Outcome] = field(default_factory=dict)
    rate: float = 0.0
    complete: float = 0.0


# The number of complete pages in each round, by kind of round.
Rounds = dict[str, list[int]]


def collections(only: str, reader: Reader) -> list[Collection]:
    """All collections: the pages with ``only`` in their names."""
    of_corpus = [
        Page(name, f"/{name}.html", partial(renderers.finished, expected=_expected(name)))
        for name in corpus.page_names()
        if only in name
    ]
    of_frameworks = [
        Page(route.path, renderers.ugly(route.path), route.is_complete)
        for route in ROUTES
        if only in route.path
    ]
    of_wild = [
        Page(case.path, case.path, partial(_reads, reader, case), case.kind)
        for case in wild.CASES
        if only in case.path
    ]
    found = (
        Collection("Corpus", corpus.application(), of_corpus),
        Collection("Framework applications", frameworks.application(), of_frameworks, repeats=3),
        Collection("The wild", wild.application(), of_wild),
    )
    return [each for each in found if each.pages]


async def _reads(reader: Reader, case: wild.Case, html: str) -> bool:
    return bool(html) and not case.problem(html, *await reader.read(html))


def _expected(name: str) -> str:
    """The text of a page of the corpus when it is complete."""
    page = (corpus.FOLDER / f"{name}.html").read_text(encoding="utf-8")
    found = re.search(r'<meta name="expected" content="([^"]*)">', page)
    assert found
    return found[1]


async def measure(
    collection: Collection, starts: Mapping[str, Start], rounds: int
) -> tuple[dict[str, Measured], Rounds]:
    """Measure one collection with all sides."""
    measured = {title: Measured() for title in starts}
    await _alone(collection.pages, starts, measured)
    for title, start in starts.items():
        async with start() as side:
            pages = [*collection.pages] * collection.repeats
            rate, outcomes = await together(side, _checks(pages), AT_ONCE)
        measured[title].rate = rate
        measured[title].complete = sum(one.complete for one in outcomes) / len(outcomes)
        print(f"{collection.title}: {title} {rate:.1f} renders/s", flush=True)
    return measured, await _rounds(collection, starts[OURS], rounds)


async def _alone(
    pages: Sequence[Page], starts: Mapping[str, Start], measured: Mapping[str, Measured]
) -> None:
    """Render each page alone, the sides in turns."""
    async with AsyncExitStack() as stack:
        sides = {title: await stack.enter_async_context(start()) for title, start in starts.items()}
        for page in pages:
            for title, side in sides.items():
                outcome = await renderers.render(side, page.path, page.is_complete)
                measured[title].alone[page.name] = outcome
                print(f"{title:16} {page.name:40} {outcome}", flush=True)


async def _rounds(collection: Collection, start: Start, count: int) -> Rounds:
    found: Rounds = {}

    async def one(kind: str, side: Renderer, at_once: int) -> None:
        _, outcomes = await together(side, _checks(collection.pages), at_once)
        found.setdefault(kind, []).append(sum(outcome.complete for outcome in outcomes))
        missing = " ".join(outcome.path for outcome in outcomes if not outcome.complete)
        print(f"{collection.title}: {kind}: {found[kind][-1]} complete {missing}", flush=True)

    async with start() as side:
        for _ in range(count):
            await one("alone", side, 1)
            await one(f"{AT_ONCE} at once", side, AT_ONCE)
            async with busy_loops(BUSY_LOOPS):
                await one(f"{AT_ONCE} at once, with {BUSY_LOOPS} busy loops", side, AT_ONCE)
    return found


def _checks(pages: Sequence[Page]) -> Iterable[tuple[str, Check]]:
    return ((page.path, page.is_complete) for page in pages)


def tables(collection: Collection, sides: dict[str, Measured], rounds: Rounds) -> list[str]:
    """A section of the page, as lines of Markdown."""
    count = len(collection.pages)
    lines = [
        f"## {collection.title}",
        "",
        f"| | {' | '.join(sides)} |",
        "|---|" + "---:|" * len(sides),
    ]

    def row(title: str, values: Iterable[object]) -> None:
        lines.append(f"| {title} | {' | '.join(map(str, values))} |")

    row(
        f"complete, of {count} pages",
        (sum(outcome.complete for outcome in side.alone.values()) for side in sides.values()),
    )
    row(f"complete, {AT_ONCE} at once", (f"{side.complete:.0%}" for side in sides.values()))
    times = [sorted(one.milliseconds for one in side.alone.values()) for side in sides.values()]
    row("median ms", (f"{statistics.median(each):.0f}" for each in times))
    row("90 % within ms", (f"{each[int(len(each) * 0.9)]:.0f}" for each in times))
    row(f"renders/s, {AT_ONCE} at once", (f"{side.rate:.1f}" for side in sides.values()))
    if len(sides) == 2:
        mine, other = sides.values()
        faster = statistics.median(
            other.alone[page].milliseconds / outcome.milliseconds
            for page, outcome in mine.alone.items()
        )
        lines += [
            "",
            f"Speed-up: {faster:.1f} alone (median of all pages), "
            f"{mine.rate / other.rate:.1f} with {AT_ONCE} at once.",
        ]
    kinds = dict.fromkeys(page.kind for page in collection.pages if page.kind)
    if kinds:
        lines += ["", f"| kind of fault | pages | {' | '.join(sides)} |"]
        lines += ["|---|" + "---:|" * (len(sides) + 1)]
    for kind in kinds:
        names = [page.name for page in collection.pages if page.kind == kind]
        counts = (sum(side.alone[name].complete for name in names) for side in sides.values())
        row(f"{kind} | {len(names)}", counts)
    for kind, complete in rounds.items():
        lines += [
            "",
            f"Complete in {len(complete)} rounds, {kind}: at least {min(complete)} of {count}.",
        ]
    head = "".join(f" {title} | ms |" for title in sides)
    lines += ["", f"| page |{head}", "|---|" + "---|---:|" * len(sides)]
    for page in collection.pages:
        outcomes = (side.alone[page.name] for side in sides.values())
        row(
            page.name,
            (
                f"{'complete' if outcome.complete else '**no**'} | {outcome.milliseconds:.0f}"
                for outcome in outcomes
            ),
        )
    return [*lines, ""]


async def main(modules: Path | None, only: str, rounds: int, write: Path | None) -> None:
    """Measure, print, and write the tables."""
    lines = []
    async with plain_browser("--window-size=1280,1024") as browser:
        reader = Reader(browser)
        for collection in collections(only, reader):
            lines += await _section(collection, reader, modules, rounds)
    print("\n".join(lines))
    if write:
        machine = f"{os.cpu_count()} cores, {platform.system()} {platform.release()}"
        write.write_text(
            "# Completeness and speed\n\n"
            "Generated by `benchmarks/against_prerender.py`; do not edit. Both programs rendered "
            "every page of\n`tests/sites/corpus`, `tests/sites/frameworks` and `tests/sites/wild` in "
            "one run, without a cache, with the\nsame Chromium "
            f"({machine}). Absolute times depend on the machine: compare the ratios.\n\n"
            + "\n".join(lines),
            encoding="utf-8",
        )


async def _section(
    collection: Collection, reader: Reader, modules: Path | None, rounds: int
) -> list[str]:
    origin = serving(application_runner(collection.application))
    async with renderers.crawler() as client, origin as url:
        reader.site = url
        first = collection.pages[0].path
        # Pages that show an error in the place of a part whose data fails.
        ours = partial(renderers.ours, client, url, first, PRERENDER_RENDER_OPTIONAL="/api/broken")
        starts: dict[str, Start] = {OURS: ours}
        if modules:
            starts[PRERENDER] = partial(renderers.prerender, client, url, modules, first=first)
        return tables(collection, *await measure(collection, starts, rounds))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node-modules", metavar="FOLDER", type=Path)
    parser.add_argument("--only", metavar="TEXT", default="")
    parser.add_argument("--rounds", metavar="N", type=int, default=0)
    parser.add_argument("--write", metavar="FILE", type=Path)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(main(options.node_modules, options.only, options.rounds, options.write))

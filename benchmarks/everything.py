"""All benchmarks beside all rivals, as docs/benchmarks.md: `make bench`.

    .venv/bin/python benchmarks/everything.py [--quick] [--node-modules FOLDER] [--write]

Takes about half an hour on two cores, and wants them for itself: Chromium gives way to all that runs.
--quick shows within minutes whether everything runs; its figures say nothing. With --write the page and
its plots are written. --urls is for the part with failures (scaling_out.py).
"""

import argparse
import asyncio
import datetime
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import cached_path
import forwarding
import growth
import measuring
import misses
import psutil
import scaling_out
import uvloop
from measuring import Measured, median

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from prerender import __version__
from prerender.browser import chromium

Found = TypeVar("Found")
DOCS = Path(__file__).resolve().parent.parent / "docs"
HEAD = """# Benchmarks

Made by `make bench`; do not edit. Every table is of one run in which all sides took turns, on
{machine}. The figures are of that machine: compare the ratios.

prerender-proxy {version}, {versions}.
Prerender and Rendertron have their defaults and the same Chromium. The *bare loop*, the floor, is that
Chromium with nothing around it: no proxy, no guard, nothing cleaned, and pages that say themselves when
they have finished.
"""


@dataclass(frozen=True)
class Goal:
    """What was meant to be reached, and what was."""

    text: str
    reached: float | None
    least: float

    def row(self) -> str:
        """A line of a table."""
        if self.reached is None:
            return f"| {self.text} | {self.least:g} | not measured | |"
        return (
            f"| {self.text} | {self.least:g} | {self.reached:.2f} | "
            f"{'yes' if self.reached >= self.least else '**no**'} |"
        )


async def main(*, quick: bool, modules: Path | None, urls: int) -> tuple[str, list[growth.Growth]]:
    """Measure; the page, and what is to be plotted."""
    seconds, rounds = (1, 1) if quick else (3, 3)
    hits = await _section("hits", lambda: cached_path.measure(seconds, rounds, modules))
    busy, calm = await _section("forwarding", lambda: forwarding.measure(seconds, rounds, modules))
    scale = misses.QUICK if quick else misses.FULL
    rendered = await _section("misses", lambda: misses.measure(scale, modules))
    grown = await _section("growth", lambda: growth.measure(growth.QUICK if quick else growth.FULL))
    failures = await _section("failures", lambda: scaling_out.main(urls, 3, 24))
    parts = [
        [HEAD.format(machine=_machine(), version=__version__, versions=_versions())],
        ["## What was meant to be reached", "", *_goals(hits, busy, rendered)],
        ["## Kept snapshots, and 304s", "", *_hits(hits)],
        ["## Forwarding", "", *_forwarded(busy, calm)],
        ["## Rendering", "", *misses.tables(rendered)],
        ["## How cost grows", ""],
        *([*one.table(), "", f"![{one.title}](benchmarks/{one.name}.svg)"] for one in grown),
        ["## Scaling out, with failures", "", *failures],
    ]
    return "\n\n".join("\n".join(part).strip("\n") for part in parts) + "\n", grown


async def _section(name: str, measure: Callable[[], Awaitable[Found]]) -> Found:
    print(f"{datetime.datetime.now(datetime.UTC):%H:%M:%S} {name}", flush=True)
    return await measure()


def _goals(
    hits: dict[str, list[Measured]],
    forwarded: dict[str, list[Measured]],
    rendered: misses.Results,
) -> list[str]:
    def ratio(results: dict[str, list[Measured]], mine: str, other: str) -> float | None:
        if other not in results:
            return None
        rates = (median(results[name], "requests_per_second") for name in (mine, other))
        return next(rates) / next(rates)

    def of_hits(mine: str, other: str) -> float | None:
        return ratio(hits, f"snapshot, {mine}", f"snapshot, {other}")

    def of_misses(at_once: int, other: str, figure: str) -> float | None:
        """The worse one of both pages; of times the other way round."""
        found = []
        for title in misses.PATHS:
            if (other, title, at_once) not in rendered.misses:
                return None
            mine, theirs = (
                getattr(rendered.misses[side, title, at_once], figure)
                for side in (misses.OURS, other)
            )
            found.append(theirs / mine if figure == "p50_ms" else mine / theirs)
        return min(found)

    goals = (
        Goal("times as fast as Prerender, a miss alone", of_misses(1, "Prerender", "p50_ms"), 10),
        Goal(
            "times as many misses a second as Prerender, 8 at once",
            of_misses(8, "Prerender", "per_second"),
            8,
        ),
        Goal(
            "of the bare loop's renders a second, 8 at once",
            of_misses(8, misses.FLOOR, "per_second"),
            0.75,
        ),
        Goal("times Prerender's rate of hits", of_hits("ours", "Prerender"), 4),
        Goal("of a bare aiohttp handler's rate of hits", of_hits("ours", "aiohttp"), 0.65),
        Goal(
            "of nginx's rate of hits, with nginx in front (deploy/nginx/caching.conf)",
            of_hits("nginx in front", "nginx"),
            0.9,
        ),
        Goal("times http-proxy's rate of forwarding", ratio(forwarded, "ours", "http-proxy"), 1.7),
    )
    return ["| | at least | measured | reached |", "|---|---:|---:|---|", *(g.row() for g in goals)]


def _hits(measured: dict[str, list[Measured]]) -> list[str]:
    title = (
        f"{cached_path.BODY_BYTES:,} bytes, {cached_path.CONNECTIONS} connections, one process on one "
        "core each; ratios to nginx."
    )
    lines = [
        title,
        "",
        "| | requests/s | ratio | CPU µs a request | ratio |",
        "|---|" + "---:|" * 4,
    ]
    for name, values in measured.items():
        lines.append(_compared(name, values, measured[f"{name.partition(',')[0]}, nginx"]))
    return lines


def _forwarded(busy: dict[str, list[Measured]], calm: dict[str, list[Measured]]) -> list[str]:
    other = "http-proxy" if "http-proxy" in busy else "bare aiohttp"
    title = (
        f"{forwarding.BODY_BYTES:,} bytes, {forwarding.BUSY_CONNECTIONS} connections, one process on "
        f"one core each; ratios to {other}. The last column is the median time with one client."
    )
    lines = [
        title,
        "",
        "| | requests/s | ratio | CPU µs a request | ratio | ms |",
        "|---|" + "---:|" * 5,
    ]
    for name, values in busy.items():
        row = _compared(name, values, busy[other])
        lines.append(f"{row} {median(calm[name], 'p50_ms'):.2f} |")
    return lines


def _compared(name: str, values: Sequence[Measured], yardstick: Sequence[Measured]) -> str:
    rate, cost = (median(values, what) for what in ("requests_per_second", "cpu_us"))
    return (
        f"| {name} | {rate:,.0f} | {rate / median(yardstick, 'requests_per_second'):.2f} | "
        f"{cost:.1f} | {cost / median(yardstick, 'cpu_us'):.2f} |"
    )


def _machine() -> str:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"))
    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{measuring.CPUS} cores ({model[1] if model else platform.machine()}), {memory:.0f} GiB, "
        f"{platform.system()} {platform.release().partition('-')[0]}, "
        f"{datetime.datetime.now(datetime.UTC):%-d %B %Y}"
    )


def _versions() -> str:
    programs = {
        "Chromium": [chromium.find(), "--version"],
        "nginx": ["nginx", "-v"],
        "Redis": ["redis-server", "--version"],
        "Node.js": ["node", "--version"],
    }
    found = [f"Python {platform.python_version()}"]
    for name, command in programs.items():
        if shutil.which(command[0]):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if version := re.search(r"\d+(\.\d+)+", done.stdout + done.stderr):
                found.append(f"{name} {version[0]}")
    return ", ".join(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--node-modules", type=Path)
    parser.add_argument("--urls", type=int)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        page, grown = runner.run(
            main(
                quick=options.quick,
                modules=options.node_modules and options.node_modules.resolve(),
                urls=options.urls or (100 if options.quick else 10_000),
            )
        )
    print(page)
    if options.write:
        (DOCS / "benchmarks.md").write_text(page, encoding="utf-8")
        for one in grown:
            one.plot(DOCS / "benchmarks")

"""The cost of renders from outside: this proxy, Prerender, Rendertron and the bare loops, in one run.

    .venv/bin/python benchmarks/misses.py [--quick] [--node-modules FOLDER]

Measures 1, 8 and 32 concurrent renders; concurrent identical ones; memory after many; and the time to
the first one. All sides run without a cache, with the same Chromium and, if they have a pool, the same
number of pages, in turns. Requires Chromium, and Node.js for the competitors (see renderers.py).
"""

import argparse
import asyncio
import statistics
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import renderers
import uvloop
from measuring import CPUS
from renderers import APPLICATION, STATIC, Renderer, Start

PAGES = 4 * CPUS
PATHS = {"static page": STATIC, "application": APPLICATION}
AT_ONCE = (1, 8, 32)
OURS, FLOOR, NO_FRAMES = "prerender-proxy", "bare loop", "bare loop without frames"


@dataclass(frozen=True)
class Scale:
    """The extent of the measurement: renders one after the other, concurrent ones, and so on."""

    rounds: int = 3
    renders: int = 12
    concurrent: int = 96
    identical: int = 100
    many: int = 1000
    starts: int = 5


FULL = Scale()
QUICK = Scale(rounds=1, renders=3, concurrent=8, identical=20, many=20, starts=1)


@dataclass(frozen=True)
class Burst:
    """A burst of renders with this many at once."""

    per_second: float
    cpu_ms: float
    outcomes: list[renderers.Outcome]


@dataclass(frozen=True)
class Misses:
    """Renders with this many at once: medians over the rounds, and the share that was complete.

    The CPU time of a render is that of all processes. It hardly depends on other load.
    """

    per_second: float
    p50_ms: float
    cpu_ms: float
    complete: float


@dataclass(frozen=True)
class Identical:
    """Concurrent requests for one page: seconds until the last response, and the number of renders."""

    seconds: float
    renders: int


@dataclass(frozen=True)
class Results:
    """Results by side; misses also by page and concurrency."""

    misses: dict[tuple[str, str, int], Misses]
    identical: dict[str, Identical]
    memory_mib: dict[str, tuple[float, float]]
    start_seconds: dict[str, float]
    sides: list[str]


async def measure(scale: Scale, modules: Path | None) -> Results:
    """Measure everything."""
    async with renderers.Site().running() as site, renderers.crawler() as client:
        starts = renderers.all_of(client, site.url, PAGES, modules)
        started = {
            name: await _start_seconds(start, scale.starts) for name, start in starts.items()
        }
        async with AsyncExitStack() as stack:
            running = {
                name: await stack.enter_async_context(start()) for name, start in starts.items()
            }
            for side in running.values():  # warm up: open all pages, compile scripts
                for path in PATHS.values():
                    await renderers.burst(side, path, PAGES, PAGES)
            misses = await _misses(running, scale)
            identical = {
                name: await _identical(side, site, scale.identical)
                for name, side in running.items()
            }
        memory = {name: await _memory(start, scale.many) for name, start in starts.items()}
    return Results(misses, identical, memory, started, list(starts))


async def _misses(running: dict[str, Renderer], scale: Scale) -> dict[tuple[str, str, int], Misses]:
    found: dict[tuple[str, str, int], list[Burst]] = {}
    for _ in range(scale.rounds):
        for title, path in PATHS.items():
            for at_once in AT_ONCE:
                count = scale.renders if at_once == 1 else scale.concurrent
                for name, side in running.items():
                    used = renderers.cpu_seconds(side)
                    rate, outcomes = await renderers.burst(side, path, count, at_once)
                    cpu_ms = (renderers.cpu_seconds(side) - used) * 1000 / count
                    burst = Burst(rate, cpu_ms, outcomes)
                    found.setdefault((name, title, at_once), []).append(burst)
                    print(f"  {name}, {title}, {at_once} at once: {rate:.1f}/s", flush=True)
    return {key: _medians(bursts) for key, bursts in found.items()}


def _medians(bursts: list[Burst]) -> Misses:
    outcomes = [outcome for burst in bursts for outcome in burst.outcomes]
    return Misses(
        statistics.median(burst.per_second for burst in bursts),
        statistics.median(outcome.milliseconds for outcome in outcomes),
        statistics.median(burst.cpu_ms for burst in bursts),
        statistics.mean(outcome.complete for outcome in outcomes),
    )


async def _identical(side: Renderer, site: renderers.Site, count: int) -> Identical:
    path = f"{APPLICATION}?all={time.monotonic_ns()}"
    asked, started = site.asked, time.perf_counter()
    outcomes = await asyncio.gather(*(renderers.render(side, path) for _ in range(count)))
    seconds = time.perf_counter() - started
    complete = sum(outcome.complete for outcome in outcomes)
    print(f"  identical: {complete} of {count} answered whole in {seconds:.2f} s", flush=True)
    return Identical(seconds, site.asked - asked)


async def _memory(start: Start, many: int) -> tuple[float, float]:
    """MiB after a few renders, and after many."""
    async with start() as side:
        await renderers.burst(side, APPLICATION, PAGES, PAGES)
        before = renderers.memory_mib(side)
        await renderers.burst(side, APPLICATION, many, PAGES)
        after = renderers.memory_mib(side)
    print(f"  memory: {before:.0f} MiB, then {after:.0f} MiB", flush=True)
    return before, after


async def _start_seconds(start: Start, times: int) -> float:
    """Seconds from the start to the first snapshot."""
    seconds = []
    for _ in range(times):
        begun = time.perf_counter()
        async with start() as side:
            assert (await renderers.render(side, STATIC)).complete
            seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)


def tables(results: Results) -> list[str]:
    """The tables, as lines of Markdown."""
    sides = " | ".join(f"{side} | ms" for side in results.sides)
    lines = [
        "### Misses",
        "",
        "Renders per second, and the median time of one, in milliseconds.",
        "",
        f"| | {sides} | ratio to Prerender | to the floor | without frames |",
        "|---|" + "---:|" * (2 * len(results.sides) + 3),
    ]
    for title in PATHS:
        for at_once in AT_ONCE:
            row = {side: results.misses[side, title, at_once] for side in results.sides}
            cells = [
                f"{one.per_second:.1f} | {one.p50_ms:.0f}{'' if one.complete == 1 else ' (!)'}"
                for one in row.values()
            ]
            ratios = [
                ratio(results, title, at_once, other) for other in ("Prerender", FLOOR, NO_FRAMES)
            ]
            lines.append(
                f"| {title}, {at_once} at once | {' | '.join(cells)} | {' | '.join(ratios)} |"
            )
    incomplete = any(one.complete < 1 for one in results.misses.values())
    lines += [
        "",
        "(!): not all of its answers were whole." if incomplete else "All answers were whole.",
        "",
        "### CPU, the same page at once, memory, start",
        "",
        "Milliseconds of CPU time for one render of either page, 8 at once; seconds until all who ask",
        "for the same page at once are answered, and the number of renders that took; MiB when it has",
        "just rendered a few, and after many; seconds from its start to the first snapshot.",
        "",
        "| | CPU ms | same page | renders | MiB at first | MiB later | first snapshot |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for side in results.sides:
        same, (before, after) = results.identical[side], results.memory_mib[side]
        cpu = ", ".join(f"{results.misses[side, title, 8].cpu_ms:.0f}" for title in PATHS)
        lines.append(
            f"| {side} | {cpu} | {same.seconds:.2f} | {same.renders} | {before:.0f} | {after:.0f} | "
            f"{results.start_seconds[side]:.2f} |"
        )
    return lines


def ratio(results: Results, title: str, at_once: int, other: str) -> str:
    """Renders per second relative to another side; empty if that was not measured."""
    if (other, title, at_once) not in results.misses:
        return ""
    mine, theirs = (results.misses[side, title, at_once] for side in (OURS, other))
    return f"{mine.per_second / theirs.per_second:.2f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--node-modules", type=Path)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        measured = runner.run(measure(QUICK if options.quick else FULL, options.node_modules))
    print("\n".join(tables(measured)))

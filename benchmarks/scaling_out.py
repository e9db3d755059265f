"""Three proxies on Redis and an object store behind nginx, crawled while parts of it fail at random.

    .venv/bin/python benchmarks/scaling_out.py [--urls 10000] [--seconds 600] [--proxies 3]
                                               [--at-once 24] [--seed 1] [--redis loses] [--all]

The crawlers find new URLs at an even rate, or as fast as they are rendered, and request known URLs
again. Meanwhile, proxies and one of Redis and the bucket are killed (kill -9) and restarted, or stopped
(SIGSTOP) for some seconds. The bucket keeps its objects. A restarted Redis is empty, and pages that
neither it nor a proxy has are rendered again while the bucket is away. With ``--redis saves`` it has
its data again, as with a volume.

Every response must be the right snapshot, or a 503 with Retry-After. At the end, all proxies must serve
the same snapshot of each URL, and do so again after Redis was emptied. Without failures, each URL is
rendered once; more renders are the cost of the failures. Exits with 1 if a requirement is not met, or
after more than 1.2 renders per URL with at least 1,000 URLs. Requires Chromium, nginx, redis-server and
moto.

--all prints all tables of docs/scaling.md: it first runs stores.py, processes.py and capacity.py, which
also require wrk.
"""

import argparse
import asyncio
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import uvloop
from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar
from replicas import Part, Replicas, replicas, shown_in

_OTHERS = ("stores.py", "processes.py", "capacity.py", "capacity.py --real", "capacity.py --table")
MOST_RENDERS = 1.2
# With fewer URLs, one failure can affect more than a fifth of them.
_MANY_URLS = 1000
# The number of recent URLs that are requested again most often.
_LAST = 50
# The pause of a crawler between two requests.
_PAUSE_SECONDS = 0.02
# Ranges of seconds: between two failures, until a killed part restarts, until a stopped one resumes.
_BETWEEN, _GONE, _STOPPED = (1.0, 5.0), (0.5, 4.0), (1.0, 8.0)
# The proxies look every ten seconds for what Redis or the bucket has missed.
_SETTLED_SECONDS = 15.0
# What the bucket has missed is due after 30 s, and each proxy copies 16 at a time.
_SAVED_SECONDS = 180.0
# The number of attempts until all proxies serve the same snapshot.
_LOOKS = 5


@dataclass
class Counts:
    """The results of a run."""

    answers: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    milliseconds: list[float] = field(default_factory=list)
    differing: dict[int, str] = field(default_factory=dict)
    only_in_redis: int = 0
    unsaved: int = 0
    seconds: float = 0.0
    renders: int = 0

    @property
    def bad(self) -> list[str]:
        """Outcomes that must not occur."""
        allowed = ("right", "503 with Retry-After")
        return [f"{count} {what}" for what, count in self.answers.items() if what not in allowed]


@dataclass(frozen=True)
class Options:
    """Command-line options."""

    urls: int = 10_000
    seconds: float = 600
    proxies: int = 3
    at_once: int = 24
    seed: int = 1
    redis: str = "loses"


async def run(options: Options) -> Counts:
    """Crawl until the time is over and all URLs were requested."""
    counts = Counts()
    with tempfile.TemporaryDirectory() as folder:
        async with (
            replicas(Path(folder), options.proxies, redis_saves=options.redis == "saves") as stage,
            _client() as client,
        ):
            started = time.monotonic()
            chance = random.Random(options.seed)
            numbers = _order(options, chance)
            over = asyncio.Event()
            parts = stage.parts()
            failing = [
                asyncio.create_task(
                    _fail({kind: parts[kind] for kind in kinds}, chance, counts, over)
                )
                for kinds in (("a proxy",), ("Redis", "the bucket"))
            ]
            crawlers = (_crawl(client, stage.url, numbers, counts) for _ in range(options.at_once))
            await asyncio.gather(*crawlers)
            over.set()
            await asyncio.gather(*failing)
            counts.seconds = time.monotonic() - started
            await _inspect(client, stage, options.urls, counts)
    return counts


@asynccontextmanager
async def _client() -> AsyncIterator[ClientSession]:
    timeout = ClientTimeout(120)
    async with ClientSession(cookie_jar=DummyCookieJar(), timeout=timeout) as client:
        yield client


def _order(options: Options, chance: random.Random) -> Iterator[int]:
    """New URLs at an even rate until the end; between them, known ones: recent ones, or any."""
    started, known = time.monotonic(), 0
    while (passed := time.monotonic() - started) < options.seconds or known < options.urls:
        if known < min(options.urls, 1 + options.urls * passed / options.seconds):
            known += 1
            yield known
        else:
            yield chance.randint(max(1, known - _LAST) if chance.random() < 0.5 else 1, known)


async def _crawl(client: ClientSession, url: str, numbers: Iterator[int], counts: Counts) -> None:
    for number in numbers:
        began = time.perf_counter()
        answer, _ = await _ask(client, url, number)
        counts.answers[answer] += 1
        counts.milliseconds.append((time.perf_counter() - began) * 1000)
        # Retry-After is longer than a second.
        await asyncio.sleep(_PAUSE_SECONDS if answer == "right" else 1)


async def _ask(client: ClientSession, url: str, number: int) -> tuple[str, int]:
    """Request a page. Returns the outcome in words, and the render that was served."""
    try:
        async with client.get(f"{url}/{number}?_escaped_fragment_=") as answer:
            text = await answer.text(errors="replace")
            if answer.status == 503 and answer.headers.get("Retry-After", "").isdigit():
                return "503 with Retry-After", 0
            if answer.status != 200:
                return f"status {answer.status}", 0
            page, render = shown_in(text) or (0, 0)
            return ("right", render) if page == number else ("wrong", 0)
    except (ClientError, OSError, TimeoutError) as error:
        return f"lost: {type(error).__name__}", 0


async def _fail(
    parts: dict[str, list[Part]], chance: random.Random, counts: Counts, over: asyncio.Event
) -> None:
    """Make one of these parts at a time fail and come back."""
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(chance.uniform(*_BETWEEN)):
                await over.wait()
                return
        kind = chance.choice(list(parts))
        killed = chance.random() < 0.5
        counts.failures[f"{kind} {'killed' if killed else 'stopped'}"] += 1
        await _outage(chance.choice(parts[kind]), killed, chance)


async def _outage(part: Part, killed: bool, chance: random.Random) -> None:
    if killed:
        await part.kill()
        await asyncio.sleep(chance.uniform(*_GONE))
        await part.start()
    else:
        part.stop()
        await asyncio.sleep(chance.uniform(*_STOPPED))
        part.resume()


async def _inspect(client: ClientSession, stage: Replicas, urls: int, counts: Counts) -> None:
    """Check what is stored, in Redis and then in the bucket."""
    await asyncio.sleep(_SETTLED_SECONDS)
    # Proxies compare snapshots in Redis with those in the bucket when they read them.
    before = await _shown(client, stage, urls, counts)
    counts.unsaved = await _unsaved(stage)
    renders = stage.site.renders.copy()
    counts.renders = sum(renders[number] for number in before)
    await stage.redis.empty()
    await asyncio.sleep(_SETTLED_SECONDS)
    for number, shown in (await _shown(client, stage, urls, counts)).items():
        again = shown > renders[number]
        counts.only_in_redis += again
        if shown != before[number] and not again:
            seen = f"render {shown} from the bucket, {before[number]} before Redis was emptied"
            counts.differing.setdefault(number, seen)


async def _unsaved(stage: Replicas) -> int:
    """How many snapshots the bucket still lacks after some time."""
    count = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(_SAVED_SECONDS):
            while count := await stage.redis.unsaved():
                await asyncio.sleep(1)
    return count


async def _shown(
    client: ClientSession, stage: Replicas, urls: int, counts: Counts
) -> dict[int, int]:
    """The render of each page, which must be the same from all proxies."""
    shown = {}

    async def compare(numbers: Iterator[int]) -> None:
        for number in numbers:
            # A replica that cannot read the stores for a moment serves its copy, or renders.
            for _ in range(_LOOKS):
                found = [await _ask(client, proxy.url, number) for proxy in stage.proxies]
                if len(set(found)) == 1:
                    break
                await asyncio.sleep(1)
            counts.answers.update(what for what, _ in found if what != "right")
            if len(set(found)) > 1:
                seen = ", ".join(f"{what} ({render})" for what, render in found)
                counts.differing[number] = f"from each proxy, with the render: {seen}"
            shown[number] = found[0][1]

    numbers = iter(range(1, urls + 1))
    await asyncio.gather(*(compare(numbers) for _ in range(8)))
    return shown


def table(counts: Counts, options: Options) -> list[str]:
    """The outcome as lines of Markdown."""
    asked = sum(counts.answers.values())
    times = sorted(counts.milliseconds)
    late = times[int(len(times) * 0.99)]
    failures = [f"{what} {count} times" for what, count in sorted(counts.failures.items())]
    rows = {
        "failures": ", ".join(failures) or "none",
        "right responses": f"{counts.answers['right']:,} of {asked:,}",
        "503 with Retry-After": f"{counts.answers['503 with Retry-After']:,}",
        "lost or wrong": ", ".join(counts.bad) or "none",
        "URLs with different snapshots at the end": f"{len(counts.differing):,}",
        "snapshots still to be copied to the bucket": f"{counts.unsaved:,}",
        "URLs that the bucket had missed": f"{counts.only_in_redis:,}",
        "renders": f"{counts.renders:,}, {counts.renders / options.urls:.3f} for each URL",
        "requests per second": f"{len(times) / counts.seconds:.0f}, in {counts.seconds:.0f} s",
        "median, 99 % within": f"{statistics.median(times):.0f} ms, {late:.0f} ms",
    }
    title = (
        f"{options.proxies} proxies on an object store and a Redis that {options.redis} its data, "
        f"{options.urls:,} URLs, {options.at_once} requests at once"
    )
    return [
        title,
        "",
        "| | |",
        "|---|---|",
        *(f"| {name} | {value} |" for name, value in rows.items()),
        *(f"\nURL {number}: {seen}" for number, seen in counts.differing.items()),
    ]


def passed(counts: Counts, options: Options) -> bool:
    """Whether the results are as required."""
    few = options.urls < _MANY_URLS or counts.renders <= MOST_RENDERS * options.urls
    return few and not (counts.bad or counts.differing or counts.unsaved)


async def main(options: Options) -> list[str]:
    """Run the benchmark. Returns the table."""
    return table(await run(options), options)


def print_others() -> bool:
    """Run the other benchmarks of docs/scaling.md. Returns whether all succeeded."""
    well = True
    for command in _OTHERS:
        print(f"{command}\n", flush=True)
        script, *options = command.split()
        file = Path(__file__).with_name(script)
        well &= subprocess.run([sys.executable, file, *options], check=False).returncode == 0
        print(flush=True)
    return well


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in vars(Options()).items():
        choices = ("saves", "loses") if name == "redis" else None
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=type(value), default=value, choices=choices)
    parser.add_argument("--all", action="store_true")
    arguments = vars(parser.parse_args())
    well = print_others() if arguments.pop("all") else True
    given = Options(**arguments)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        outcome = runner.run(run(given))
    print("\n".join(table(outcome, given)))
    sys.exit(not (well and passed(outcome, given)))

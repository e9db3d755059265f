"""How cost grows with pages, stored snapshots and replicas: a table and a plot for each.

    .venv/bin/python benchmarks/growth.py [--quick] [--plots FOLDER]

Requires wrk, nginx, redis-server and Chromium; for plots, `pip install --group bench`. Only one
snapshot is rendered; the store is filled with copies of it under other keys.
"""

import argparse
import asyncio
import dataclasses
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import measuring
import renderers
import uvloop
from measuring import CPUS, Side
from renderers import APPLICATION, STATIC

from prerender.config import load
from prerender.snapshots.stores.from_settings import open_store
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import ugly_to_pretty

PUBLIC = "https://www.example.com"
# Each request is for a random one of ``count`` snapshots.
_LUA = """
request = function()
  return wrk.format("GET", "{path}?number=" .. math.random({count}) .. "&_escaped_fragment_=")
end
"""


@dataclass(frozen=True)
class Scale:
    """The extent of the measurement."""

    pages: Sequence[int] = (1, 2, 3, 4, 6, 8, 12)
    renders: int = 60
    snapshots: Sequence[int] = (100, 1_000, 10_000, 100_000)
    seconds: int = 5
    replicas: Sequence[int] = (1, 2, 3)


FULL = Scale()
QUICK = Scale(pages=(1, 3), renders=8, snapshots=(100, 1_000), seconds=1, replicas=(1, 2))


@dataclass(frozen=True)
class Growth:
    """Figures for a growing value, which is the first one of each of ``rows``."""

    name: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[float]]

    def table(self) -> list[str]:
        """The table as lines of Markdown."""
        lines = [f"| {' | '.join(self.columns)} |", f"|{'---:|' * len(self.columns)}"]
        for row in self.rows:
            cells = (f"{cell:,.0f}" if cell >= 100 else f"{cell:g}" for cell in row)
            lines.append(f"| {' | '.join(cells)} |")
        return [f"### {self.title}", "", *lines]

    def plot(self, folder: Path) -> None:
        """Write NAME.svg to a folder."""
        import matplotlib as mpl  # noqa: PLC0415 -- not everybody draws

        mpl.use("svg")
        # Keep text as text, and make the file reproducible.
        mpl.rcParams |= {"svg.fonttype": "none", "svg.hashsalt": self.name, "font.size": 10}
        from matplotlib import pyplot  # noqa: PLC0415

        xs = [row[0] for row in self.rows]
        figure, axes = pyplot.subplots(1, len(self.columns) - 1, figsize=(8, 2.8))
        for number, one in enumerate(axes, 1):
            one.plot(xs, [row[number] for row in self.rows], marker="o", color="#0369a1")
            one.set_xlabel(self.columns[0])
            one.set_title(self.columns[number], fontsize=10)
            one.set_ylim(bottom=0)
            one.grid(alpha=0.3)
            if xs[-1] / xs[0] >= 100:
                one.set_xscale("log")
        figure.tight_layout()
        folder.mkdir(exist_ok=True)
        figure.savefig(folder / f"{self.name}.svg", metadata={"Date": None})
        pyplot.close(figure)


async def measure(scale: Scale) -> list[Growth]:
    """Measure everything."""
    async with renderers.Site().running() as site, renderers.crawler() as client:
        return [
            await _pages(client, site, scale),
            await _snapshots(client, site, scale),
            await _replicas(client, site, scale),
        ]


async def _pages(client: renderers.ClientSession, site: renderers.Site, scale: Scale) -> Growth:
    rows = []
    for pages in scale.pages:
        async with renderers.ours(client, site.url, PRERENDER_BROWSER_PAGES=str(pages)) as side:
            await renderers.burst(side, APPLICATION, 2 * pages, pages)
            rate, _ = await renderers.burst(side, APPLICATION, scale.renders, 2 * pages)
            rows.append((pages, round(rate, 1), round(renderers.memory_mib(side))))
        print(f"  {pages} pages: {rows[-1]}", flush=True)
    columns = ("pages", "renders per second", "MiB, with Chromium")
    return Growth("pages", f"Pages of the pool, on {CPUS} CPUs", columns, rows)


async def _snapshots(client: renderers.ClientSession, site: renderers.Site, scale: Scale) -> Growth:
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        settings = {
            "PRERENDER_SITE_URL": PUBLIC,
            "PRERENDER_CACHE_URL": f"file://{folder}/snapshots",
            "PRERENDER_CACHE_TTL": "1d",
        }
        async with renderers.ours(client, site.url, f"{STATIC}?number=0", **settings):
            pass  # number 0 is rendered and stored
        filled = 0
        for count in scale.snapshots:
            await _fill(settings, filled + 1, count)
            filled = count
            script = folder / "requests.lua"
            script.write_text(_LUA.format(path=STATIC, count=count))
            async with measuring.proxy(site.url, **settings) as side:
                # Fill the memory.
                for _ in range(2):
                    hit = await measuring.wrk(side, "/", scale.seconds, 8, script=str(script))
                server = renderers.Server(client, side.pid, str)
                memory = round(renderers.memory_mib(server))
                rows.append((count, round(hit.requests_per_second), round(hit.cpu_us, 1), memory))
            print(f"  {count} snapshots: {rows[-1]}", flush=True)
    columns = ("snapshots", "hits per second", "CPU µs a hit", "MiB, with Chromium")
    return Growth("snapshots", "Kept snapshots, in a file behind 256 MiB of memory", columns, rows)


async def _fill(settings: dict[str, str], first: int, last: int) -> None:
    """Copy snapshot 0 in the store of the settings."""
    loaded = load(None, settings | {"PRERENDER_ORIGIN_URL": PUBLIC})
    store = await open_store(loaded)

    def target(number: int) -> Target:
        pretty = ugly_to_pretty(f"{STATIC}?number={number}&_escaped_fragment_=")
        assert pretty is not None
        return Target.of(loaded.public_url, pretty)

    entry = await store.get(target(0).key)
    assert entry is not None
    for number in range(first, last + 1):
        to = target(number)
        copy = dataclasses.replace(entry, key=to.key, path=to.path)
        await store.set(copy, loaded.cache.ttl)
    await store.close()


async def _replicas(client: renderers.ClientSession, site: renderers.Site, scale: Scale) -> Growth:
    rows = []
    for count in scale.replicas:
        async with _behind_nginx(site.url, count) as front:
            server = renderers.Server(
                client, front.pid, lambda path: front.url + renderers.ugly(path)
            )
            await renderers.burst(server, APPLICATION, 6 * count, 3 * count)
            rate, _ = await renderers.burst(server, APPLICATION, scale.renders, 6 * count)
            hit = await measuring.wrk(front, renderers.ugly(STATIC), scale.seconds, 32)
            rows.append((count, round(rate, 1), round(hit.requests_per_second)))
        print(f"  {count} replicas: {rows[-1]}", flush=True)
    columns = ("replicas", "renders per second", "hits per second")
    title = f"Replicas on one Redis behind nginx, three pages each, all on {CPUS} CPUs"
    return Growth("replicas", title, columns, rows)


@asynccontextmanager
async def _behind_nginx(site: str, count: int) -> AsyncIterator[Side]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        settings = {
            "PRERENDER_SITE_URL": PUBLIC,
            "PRERENDER_CACHE_URL": await stack.enter_async_context(measuring.redis(folder)),
            "PRERENDER_BROWSER_PAGES": "3",
        }
        sides = [
            await stack.enter_async_context(measuring.proxy(site, **settings)) for _ in range(count)
        ]
        yield await stack.enter_async_context(measuring.in_front_of(folder, sides))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--plots", type=Path)
    options = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(measure(QUICK if options.quick else FULL))
    for growth in found:
        print("\n".join(growth.table()))
        if options.plots:
            growth.plot(options.plots)

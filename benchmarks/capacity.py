"""The capacity model of docs/scaling.md, against simulated crawlers and against real proxies.

    .venv/bin/python benchmarks/capacity.py [--pages 1000000] [--periods 2] [--seed 1]
    .venv/bin/python benchmarks/capacity.py --real [--pages 150] [--periods 2]
    .venv/bin/python benchmarks/capacity.py --table

Traffic has the shape of real crawlers: requests for popular pages (Zipf), a crawler that goes through
all pages one after the other, and bursts of requests for one page, as after it was shared. The
simulation counts what happens to each request. --real sends such traffic to three proxies on Redis and
an object store behind nginx, and compares what they did with the simulation; that needs Chromium,
nginx, redis-server and moto. Exits with 1 if renders, hits by tier or cores differ by more than 20 %.
--table prints the table of docs/scaling.md.
"""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from heapq import heappop, heappush
from itertools import accumulate
from math import ceil
from pathlib import Path

import uvloop
from aiohttp import ClientSession, DummyCookieJar
from capacity_model import COSTS, HOT_SECONDS, TRUST_SECONDS, Rates, Setup, Traffic, model
from prometheus_client.parser import text_string_to_metric_families
from replicas import Replicas, replicas, shown_in

MOST_DIFFERENCE = 0.2
# A tier that takes less of all CPU than this may differ more: it hardly counts.
_SMALL_SHARE = 0.002
# For the table. CPU and memory of proxies as measured (docs/benchmarks.md), at most so busy.
_ROWS = (
    (100_000, 1, 5), (100_000, 7, 5), (1_000_000, 1, 50), (1_000_000, 7, 50), (1_000_000, 30, 50),
    (10_000_000, 7, 200), (10_000_000, 30, 200),
)  # fmt: skip
_MODELLED_PAGES = 100_000
_PROXIES, _LEAST_CORES, _BUSY, _PAGES_PER_CORE = 3, 1.0, 0.6, 4
_PROXY_GB, _PAGE_GB, _REDIS_GB, _SNAPSHOT_KB = 0.3, 0.045, 2.0, 50
# US dollars: a month of a core, of a GB of memory and of a GB of Redis; a GB and month of storage, and
# single requests.
_CORE_PRICE, _GB_PRICE, _REDIS_PRICE = 30.0, 3.2, 12.0
_STORAGE_PRICE, _PUT_PRICE, _GET_PRICE = 0.023, 5e-6, 0.4e-6
_ONE_MILLION = Traffic()
_SMALL = Traffic(pages=150, popular=12, sweeping=5, bursts=0.2, burst=10, burst_seconds=2)
_SMALL_SETUP = Setup(redis=150, ttl=20)


def requests(
    traffic: Traffic, seconds: float, chance: random.Random
) -> Iterator[tuple[float, int]]:
    """Times and pages of all requests, in order."""
    cumulated = list(accumulate(traffic.popularity()))
    pages = range(traffic.pages)
    events: list[tuple[float, int, int]] = []
    for kind, rate in enumerate((traffic.popular, traffic.sweeping, traffic.bursts)):
        if rate:
            heappush(events, (chance.expovariate(rate), kind, 0))
    while events:
        now, kind, page = heappop(events)
        if now > seconds:
            return
        if kind == 3:
            yield now, page
        elif kind == 1:
            yield now, page
            heappush(events, (now + 1 / traffic.sweeping, 1, (page + 1) % traffic.pages))
        else:
            (page,) = chance.choices(pages, cum_weights=cumulated)
            rate = traffic.bursts if kind else traffic.popular
            heappush(events, (now + chance.expovariate(rate), kind, 0))
            yield now, page
            for _ in range(traffic.burst - 1 if kind else 0):
                heappush(events, (now + chance.uniform(0, traffic.burst_seconds), 3, page))


def simulate(traffic: Traffic, setup: Setup, seconds: float, seed: int = 1) -> Rates:
    """Count the outcomes of all requests, after a first TTL in which the stores fill."""
    # The requests are the same as those to real proxies.
    chance = random.Random(seed + 1)
    asked = requests(traffic, setup.ttl + seconds, random.Random(seed))
    expires = array("d", bytes(8 * traffic.pages))
    trusted = [array("d", bytes(8 * traffic.pages)) for _ in range(setup.replicas)]
    redis: OrderedDict[int, float] = OrderedDict()
    renders = memory = hot = cold = 0
    for now, page in asked:
        counts = now > setup.ttl
        copies = trusted[int(chance.random() * setup.replicas)]
        if now < expires[page] and now < copies[page]:
            memory += counts
            continue
        copies[page] = now + TRUST_SECONDS
        if now >= expires[page]:
            expires[page] = now + setup.ttl
            redis[page] = expires[page]
            renders += counts
        elif redis.get(page, 0.0) > now:
            hot += counts
        else:
            redis[page] = now + HOT_SECONDS
            cold += counts
        redis.move_to_end(page)
        if len(redis) > setup.redis:
            redis.popitem(last=False)
    return Rates(renders / seconds, memory / seconds, hot / seconds, cold / seconds)


async def real(traffic: Traffic, setup: Setup, seconds: float, seed: int) -> Rates:
    """Send the requests to proxies, and count their outcomes. Redis evicts nothing."""
    with tempfile.TemporaryDirectory() as folder:
        ttl = {"PRERENDER_CACHE_TTL": str(setup.ttl)}
        async with (
            replicas(Path(folder), setup.replicas, **ttl) as stage,
            ClientSession(cookie_jar=DummyCookieJar()) as client,
        ):
            asked = list(requests(traffic, setup.ttl + seconds, random.Random(seed)))
            first = [one for one in asked if one[0] <= setup.ttl]
            started = time.monotonic()
            await _send(client, stage.url, first, started)
            before = await _hits_in_memory(client, stage), stage.site.renders.total()
            await _send(client, stage.url, asked[len(first) :], started)
            after = await _hits_in_memory(client, stage), stage.site.renders.total()
    memory, renders = after[0] - before[0], after[1] - before[1]
    redis = len(asked) - len(first) - memory - renders
    return Rates(renders / seconds, memory / seconds, redis / seconds, 0.0)


async def _send(
    client: ClientSession, url: str, asked: list[tuple[float, int]], started: float
) -> None:
    async with asyncio.TaskGroup() as group:
        for at, page in asked:
            await asyncio.sleep(max(0.0, started + at - time.monotonic()))
            group.create_task(_ask(client, url, page + 1))


async def _ask(client: ClientSession, url: str, page: int) -> None:
    async with client.get(f"{url}/{page}?_escaped_fragment_=") as answer:
        shown = shown_in(await answer.text())
        assert shown is not None
        assert shown[0] == page


async def _hits_in_memory(client: ClientSession, stage: Replicas) -> float:
    hits = 0.0
    for proxy in stage.proxies:
        async with client.get(f"http://127.0.0.1:{proxy.admin_port}/metrics") as answer:
            for family in text_string_to_metric_families(await answer.text()):
                for sample in family.samples:
                    if sample.name == "prerender_store_lookups_total" and sample.labels == {
                        "layer": "memory",
                        "result": "hit",
                    }:
                        hits += sample.value
    return hits


def compared(names: str, expected: Rates, found: Rates) -> bool:
    """Print both. Returns whether they are close enough."""
    print(f"| per second | {names} | ratio |\n|---|---:|---:|---:|")
    near = True
    for what in (*COSTS, "cores"):
        one, other = getattr(expected, what), getattr(found, what)
        ratio = one / other if other else 1.0
        counts = other * COSTS.get(what, 1.0) > _SMALL_SHARE * found.cores
        near = near and (not counts or abs(ratio - 1) <= MOST_DIFFERENCE)
        print(f"| {what} | {one:.2f} | {other:.2f} | {ratio:.2f} |")
    return near


def sizing(pages: int, ttl_days: float, rate: float) -> str:
    """A row of the table: the resources for crawlers that request each page once per TTL, and
    popular pages at ``rate`` requests per second in total.
    """
    # The figures are proportional to the pages, so fewer are enough.
    part = pages / _MODELLED_PAGES
    ttl = ttl_days * 86400
    sweeping = _MODELLED_PAGES / ttl
    traffic = Traffic(_MODELLED_PAGES, rate / part - sweeping, sweeping, bursts=0)
    setup = Setup(redis=round(_REDIS_GB * 1e6 / _SNAPSHOT_KB / part), ttl=ttl)
    found = model(traffic, setup)
    renders, bucket = found.renders * part, found.bucket * part
    cores = max(_LEAST_CORES, found.cores * part / _BUSY)
    memory = _PROXIES * _PROXY_GB + cores * _PAGES_PER_CORE * _PAGE_GB
    storage = pages * _SNAPSHOT_KB / 1e6
    month = 30 * 86400
    machines = cores * _CORE_PRICE + memory * _GB_PRICE + _REDIS_GB * _REDIS_PRICE
    objects = (
        storage * _STORAGE_PRICE
        + renders * month * _PUT_PRICE
        + (3 * renders + bucket) * month * _GET_PRICE
    )
    cells = (
        f"{pages:,}", f"{ttl_days:g} d", f"{rate:g}", f"{renders:.1f}", f"{cores:.1f}",
        f"{memory:.1f} GB", f"{storage:,.0f} GB", f"${machines:,.0f}", f"${objects:,.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def table() -> list[str]:
    """Lines of Markdown."""
    return [
        "| pages | fresh for | requests/s | renders/s | cores | memory | storage | machines | bucket |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(sizing(*row) for row in _ROWS),
    ]


def main(options: argparse.Namespace) -> bool:
    """Compare both. Returns whether they are close enough."""
    if options.table:
        print("\n".join(table()))
        return True
    traffic, setup = (_SMALL, _SMALL_SETUP) if options.real else (_ONE_MILLION, Setup())
    traffic = replace(traffic, pages=options.pages or traffic.pages)
    # The sweep renders the pages again every so often.
    sweep = traffic.pages / traffic.sweeping
    seconds = options.periods * ceil(setup.ttl / sweep) * sweep
    print(f"{traffic}\n{setup}\n")
    simulated = simulate(traffic, setup, seconds, options.seed)
    if not options.real:
        return compared("model | simulation", model(traffic, setup), simulated)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found = runner.run(real(traffic, setup, seconds, options.seed))
    return compared("simulation | proxies", simulated, found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=0)
    parser.add_argument("--periods", type=float, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--table", action="store_true")
    sys.exit(not main(parser.parse_args()))

"""Searches 100,000 snapshots in each store, and measures how long that blocks the event loop.

    python benchmarks/listing.py [--snapshots 100000]

``search``: real time of a search for a part of a path, sorted by size. ``stall``: the longest time for
which no other task could run.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path

import uvloop

sys.path.insert(0, str(Path(__file__).parent.parent))

from prerender.snapshots.entry import Entry
from prerender.snapshots.list_rows import Query
from prerender.snapshots.snapshot import Facts, Snapshot
from prerender.snapshots.snapshot_lists import Lists
from prerender.snapshots.stores.file import FileCache
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.redis import RedisCache
from prerender.snapshots.stores.store import Store
from tests.support.redis_server import redis_server

NAMESPACE = "prerender:benchmark:1:"
BODY = b"<!doctype html><html lang=en><head><meta charset=utf-8><title>Lamp %d</title>" + b"x" * 200


def entry(number: int) -> Entry:
    key = f"{number:032x}"
    snapshot = Snapshot(200, (), BODY % number, f'"{number}"', 1, facts=Facts(settled="nothing"))
    page = f"/shop/category-{number % 97}/#!/items/{number}"
    return Entry(key, page, snapshot, time.time() - number, time.time() + 3600)


async def measure(name: str, store: Store) -> None:
    longest = 0.0

    async def feel() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0)
            longest = max(longest, time.perf_counter() - before)

    await Lists(store).find(Query())
    others = asyncio.create_task(feel())
    started = time.perf_counter()
    found = await Lists(store).find(Query(search="category-42/", sort="size", descending=True))
    seconds = time.perf_counter() - started
    others.cancel()
    print(
        f"{name:8} {found.count:6} found {seconds * 1000:7.0f} ms search {longest * 1000:6.1f} ms stall"
    )


async def main(count: int) -> None:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = await stack.enter_async_context(redis_server(folder))
        file = FileCache(folder / "file", NAMESPACE, 10**10)
        await file.open()
        redis = RedisCache(server.url, NAMESPACE, 60.0)
        memory = BoundedMemoryCache(10**10)
        stores = {"memory": Store(memory)}
        stores["file"] = Store(BoundedMemoryCache(0), file)
        stores["redis"] = Store(BoundedMemoryCache(0), redis)
        for start in range(0, count, 100):
            batch = [entry(number) for number in range(start, start + 100)]
            for one in batch:
                await stores["memory"].set(one, 3600)
                await file.set(one.key, one, 3600)
            await asyncio.gather(*(redis.set(one.key, one, 3600) for one in batch))
        for name, store in stores.items():
            await measure(name, store)
            await store.close()
            await memory.clear()  # exclude existing objects from garbage collection


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--snapshots", type=int, default=100_000)
    uvloop.run(main(parser.parse_args().snapshots))

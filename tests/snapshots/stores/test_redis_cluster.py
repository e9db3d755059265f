"""Redis Cluster and Sentinel, as real processes: a failover and a migration of slots cost only
renders.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.crc import key_slot

from prerender.errors import StoreGone
from prerender.snapshots.list_rows import Query
from prerender.snapshots.purges import Purge
from prerender.snapshots.snapshot import SnapshotResult
from prerender.snapshots.stores.redis import RedisCache
from tests.snapshots.stores.test_redis import (
    NAMESPACE,
    TIMEOUT,
    back,
    connected,
    entry,
    leave_in_the_middle,
    replica,
)
from tests.support import raw
from tests.support.raw import SECONDS
from tests.support.redis_cluster import (
    Cluster,
    redis_cluster,
    redis_with_sentinels,
    until_linked,
    until_primary,
)
from tests.support.renders import Replica, target, until

PAGES = 60


@asynccontextmanager
async def crawled(*replicas: Replica) -> AsyncIterator[list[SnapshotResult]]:
    """The responses to crawlers that request pages all the time. A missing response is an error."""
    stop = asyncio.Event()
    answers: list[SnapshotResult] = []

    async def crawl(name: int) -> None:
        number = name
        while not stop.is_set():
            number += 7
            answers.append(await replicas[name % len(replicas)].get(f"/{number % PAGES}"))
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as crawlers:
        for name in range(10):
            crawlers.create_task(crawl(name))
        yield answers
        stop.set()
    assert {answer.snapshot.status for answer in answers} == {200}


async def more(answers: list[SnapshotResult], count: int) -> None:
    wanted = len(answers) + count
    await until(lambda: len(answers) >= wanted, 60)


async def move_a_slot(cluster: Cluster, answers: list[SnapshotResult], page: str) -> None:
    """Move the slot of a page to another primary while crawlers request the page."""
    key = f"{NAMESPACE}{target(page).key}"
    slot, place = key_slot(key.encode()), cluster.place(key)
    source, to = cluster.primaries[place], cluster.primaries[(place + 1) % 3]
    await cluster.begin_to_move(slot, source, to)
    await more(answers, PAGES)
    await cluster.finish_moving(slot, source, to)
    await more(answers, PAGES)


@pytest.mark.long
async def test_a_slot_moves_and_a_primary_dies(tmp_path: Path) -> None:
    async with (
        redis_cluster(tmp_path) as cluster,
        replica(cluster.url, timeout=5.0) as one,
        replica(cluster.url, timeout=5.0) as other,
    ):
        async with crawled(one, other) as answers:
            await more(answers, 2 * PAGES)
            assert min([await node.client.dbsize() for node in cluster.primaries]) > 0
            await move_a_slot(cluster, answers, "/7")
            async with connected(cluster.url) as cache:
                before = await cache.identity()
            # Of the three, that with the purges.
            await cluster.fail_over(cluster.place(f"{NAMESPACE}purges"))
            await more(answers, 4 * PAGES)
        await back(one)
        await back(other)
        # The new primary may lack the last writes of the old one.
        await one.get("/7")
        assert (await one.get("/7")).how == "hit"
        assert await one.store.purges.purge(Purge("all"))
        async with asyncio.timeout(SECONDS):
            while (await other.lists.find(Query())).count:
                await asyncio.sleep(0.01)
        assert (await one.get("/7")).how == "miss"
        assert (await other.get("/7")).how == "hit"
        assert (await other.lists.find(Query())).count == 1
        async with connected(cluster.url) as cache:
            await fences_and_leases(cache)
            await notes_of_unsaved(cache)
            assert await cache.identity() not in ("", before)
        async with connected(cluster.url, raw=True) as cache:
            await leave_in_the_middle(cache)


@pytest.mark.long
async def test_every_primary_dies_in_turn(tmp_path: Path) -> None:
    """As in operation: nobody tells the replicas to take over."""
    async with (
        redis_cluster(tmp_path, "--cluster-node-timeout", "2000") as cluster,
        replica(cluster.url, timeout=TIMEOUT) as one,
        replica(cluster.url, timeout=TIMEOUT) as other,
        crawled(one, other) as answers,
    ):
        for place in range(3):
            await more(answers, 4 * PAGES)
            await cluster.primaries[place].kill()
            await until_primary(cluster.replicas[place])
            await more(answers, 4 * PAGES)
            await back(one)
            await back(other)
            await cluster.primaries[place].start()
            await until_linked(cluster.primaries[place])
        for page in range(20):
            await more(answers, PAGES)
            await one.store.purges.purge(Purge("url", f"/{page}"))


async def fences_and_leases(cache: RedisCache) -> None:
    for key in map(str, range(10)):
        fence = await cache.acquire(key)
        assert fence
        assert await cache.acquire(key) is None
        assert await cache.set(key, entry(fence, key=key), 60)
        assert not await cache.set(key, entry(fence - 1, key=key), 60)
        await cache.release(key, fence)
        assert await cache.acquire(key)


async def notes_of_unsaved(cache: RedisCache) -> None:
    key = f"{NAMESPACE}k"
    for fence in (1, 2):
        await cache.note_unsaved(key, fence, 0)
    await cache.forget_unsaved(key, 1)
    assert await cache.take_unsaved(60, 10) == [(key, 2)]
    assert await cache.take_unsaved(60, 10) == []
    await cache.forget_unsaved(key, 2)


@pytest.mark.ci_only
async def test_sentinel(tmp_path: Path) -> None:
    async with (
        redis_with_sentinels(tmp_path) as watched,
        replica(watched.url, timeout=5.0) as one,
    ):
        async with crawled(one) as answers:
            await more(answers, 2 * PAGES)
            await watched.fail_over()
            await more(answers, 2 * PAGES)
        await back(one)
        assert await one.store.purges.purge(Purge("all"))
        assert await watched.replica.client.exists(f"{NAMESPACE}purges")
        # The old primary comes back as a replica, and is not written to.
        await watched.primary.start()
        assert (await one.get("/last")).how == "miss"
        assert await watched.replica.client.exists(f"{NAMESPACE}{target('/last').key}")
        async with connected(watched.url) as cache:
            await fences_and_leases(cache)
        async with connected(watched.url, raw=True) as cache:
            await leave_in_the_middle(cache)


@pytest.mark.parametrize("kind", ["cluster", "sentinel"])
async def test_nobody_there(kind: str) -> None:
    ports = raw.free_ports(2)
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    url = f"redis+{kind}://{hosts}/{'primary' if kind == 'sentinel' else ''}"
    async with connected(url) as cache:
        with pytest.raises(StoreGone):
            await cache.open()
    async with replica(url, 10**6, timeout=TIMEOUT) as one:
        started = time.monotonic()
        assert (await one.get()).how == "miss"
        assert (await one.get()).how == "hit"
        assert time.monotonic() - started < SECONDS

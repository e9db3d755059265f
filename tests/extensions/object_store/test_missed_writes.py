"""Redis and the bucket behind it agree again after one of them missed a write, whatever was killed.

A replica that cannot reach one of the two stands for one whose store is down. It is never opened, so
nothing of it remains: as if it was killed after its last write.
"""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from aiohttp import ClientSession

from prerender.extensions.object_store import missed_by_bucket, missed_by_redis
from prerender.extensions.object_store.bucket import Bucket
from prerender.extensions.object_store.object_store import ObjectCache
from prerender.extensions.object_store.tiers import TieredCache
from prerender.snapshots.entry import Entry
from prerender.snapshots.purges import Purge
from prerender.snapshots.stores.redis import RedisCache
from tests.conftest import StartOrigin
from tests.extensions.object_store.test_objects import bucket, replicas
from tests.snapshots.stores.test_redis import entry
from tests.support import raw
from tests.support.raw import SECONDS
from tests.support.redis_server import RedisServer, redis_server
from tests.support.s3_server import S3Server, forwarding, url_of

_numbers = count()


class Site:
    """The stores of one site: ``namespace`` is its own, so that tests share the bucket."""

    def __init__(self, redis: RedisServer, s3: S3Server, stack: AsyncExitStack) -> None:
        self.redis, self.s3 = redis, s3
        self.namespace = f"missed{next(_numbers)}:"
        self._stack = stack
        self.hot = RedisCache(redis.url, self.namespace, SECONDS)
        stack.push_async_callback(self.hot.close)
        self.cold = bucket(s3.url, self.namespace)

    def replica(
        self, *, redis: bool = True, url: str = "", timeout: float = SECONDS
    ) -> TieredCache:
        """A replica that reaches both stores, or one of them. ``url``: of another bucket."""
        where = self.redis.url if redis else f"redis://{nowhere()}"
        hot = RedisCache(where, self.namespace, timeout)
        cold = bucket(url or self.s3.url, self.namespace, timeout)
        cache = TieredCache(hot, cold, self.namespace)
        self._stack.push_async_callback(cache.close)
        return cache

    def without_bucket(self) -> TieredCache:
        return self.replica(url=url_of(f"http://{nowhere()}"))

    async def opened(self, *, timeout: float = SECONDS) -> TieredCache:
        cache = self.replica(timeout=timeout)
        await cache.open()
        return cache

    async def in_redis(self, key: str = "k") -> Entry | None:
        return await read(self.hot, key)

    async def in_bucket(self, key: str = "k") -> Entry | None:
        return await read(self.cold, key)

    async def unsaved(self) -> int:
        return int(await self.redis.client.zcard(f"{self.namespace}unsaved"))


def nowhere() -> str:
    return f"127.0.0.1:{raw.free_port()}"


async def read(cache: RedisCache | ObjectCache | TieredCache, key: str = "k") -> Entry | None:
    (found,) = await cache.multi_get([key])
    assert found is None or isinstance(found, Entry)
    return found


@asynccontextmanager
async def site_of(redis: RedisServer, s3: S3Server) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(redis, s3, stack)


@pytest.fixture
async def site(redis: RedisServer, s3: S3Server) -> AsyncIterator[Site]:
    async with site_of(redis, s3) as made:
        yield made


@pytest.fixture
def due_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_by_bucket, "_DUE_SECONDS", 0.0)


async def made(cache: TieredCache, text: str, key: str = "k") -> Entry:
    fence = await cache.acquire(f"{text}:{key}")
    assert fence
    return entry(fence, text, key=key)


async def restarted(redis: RedisServer) -> None:
    await redis.kill()
    await redis.start()


# ---- missed by the bucket


@pytest.mark.ci_only
@pytest.mark.usefixtures("due_at_once")
async def test_others_copy_what_a_killed_replica_could_not_save(site: Site) -> None:
    killed = site.without_bucket()
    keys = [f"k{number}" for number in range(8)]
    for key in keys:
        assert await killed.set(key, await made(killed, "x", key), 60)
    await killed.reconcile()
    assert await site.unsaved() == len(keys)
    others = [site.replica() for _ in range(2)]
    async with asyncio.timeout(SECONDS):
        while await site.unsaved():
            await asyncio.gather(*(other.reconcile() for other in others))
    for key in keys:
        assert await site.in_bucket(key) == await site.in_redis(key) is not None


@pytest.mark.usefixtures("due_at_once")
@pytest.mark.parametrize("steps", [1, 2, 3])
async def test_a_replica_that_is_killed_in_the_middle_of_a_write(site: Site, steps: int) -> None:
    other = site.replica()
    new = await made(other, "new")
    await site.hot.note_unsaved(f"{site.namespace}k", new.fence, 0)
    if steps > 1:
        assert await site.hot.set("k", new, 60)
    if steps > 2:
        assert await site.cold.set("k", new, 3600)
    objects = Bucket(site.s3.url, SECONDS)
    before = await objects.read(f"{site.namespace}k")
    await other.reconcile()
    if steps > 2:
        assert await objects.read(f"{site.namespace}k") == before
    assert await site.in_bucket() == await site.in_redis() == (new if steps > 1 else None)
    assert not await site.unsaved()


async def test_a_write_in_progress_is_left_alone(site: Site) -> None:
    one, other = site.without_bucket(), site.replica()
    old = await made(one, "old")
    assert await one.set("k", old, 60)
    await other.reconcile()
    assert await site.in_bucket() is None
    assert await site.unsaved() == 1
    # A write removes its own note only.
    assert await other.set("k", await made(other, "new"), 60)
    assert await site.unsaved() == 1


@pytest.mark.usefixtures("due_at_once")
async def test_a_copy_overwrites_nothing_later(site: Site) -> None:
    killed, other = site.without_bucket(), site.replica()
    old, new = await made(killed, "old"), await made(killed, "new")
    assert await killed.set("k", old, 60)
    assert await site.cold.set("k", new, 60)
    await other.reconcile()
    assert await site.in_bucket() == new
    assert not await site.unsaved()
    # A slow render that nobody wants: its note is removed as well.
    assert not await other.set("k", old, 60)
    assert await site.in_redis() == new
    await other.reconcile()
    assert await site.in_bucket() == new
    assert not await site.unsaved()


@pytest.mark.usefixtures("due_at_once")
async def test_foreign_values(site: Site) -> None:
    name = f"{site.namespace}unsaved"
    await site.redis.client.set(name, b"foreign")
    site.s3.put(f"{site.namespace}redis", b"\xff" * 100)
    killed, other = site.without_bucket(), await site.opened()
    await other.reconcile()
    assert await killed.set("k", await made(killed, "x"), 60)
    await site.redis.client.set(f"{site.namespace}history", b"PRH1 something", px=60_000)
    await site.redis.client.lpush(f"{site.namespace}list", b"foreign")
    foreign = (b"gone", b"\xff", b"1 gone", b"2 history", b"3 list")
    await site.redis.client.zadd(name, dict.fromkeys(foreign, 1))
    await other.reconcile()
    assert await site.in_bucket() == await site.in_redis() is not None
    assert not await site.unsaved()
    assert {path.rpartition(":")[2] for path in site.s3.names() if site.namespace in path} == {
        "k", "purges", "redis",
    }  # fmt: skip


@pytest.mark.usefixtures("due_at_once")
async def test_two_writers_of_a_key(site: Site) -> None:
    """The later one notes its write first, is overtaken, and is killed before it is in the bucket."""
    other, killed = site.replica(), site.without_bucket()
    old, new = await made(other, "old"), await made(killed, "new")
    key = f"{site.namespace}k"
    await site.hot.note_unsaved(key, new.fence, 0)
    assert await other.set("k", old, 60)
    assert await site.hot.set("k", new, 60)
    await other.reconcile()
    assert await site.in_bucket() == await site.in_redis() == new
    assert not await site.unsaved()


# ---- missed by Redis


async def test_replicas_learn_that_redis_missed_a_write(site: Site) -> None:
    running = await site.opened()
    old = await made(running, "old")
    assert await running.set("k", old, 60)
    killed = site.replica(redis=False)
    new = await made(killed, "new")
    assert await killed.set("k", new, 60)
    assert await site.in_redis() == old
    assert await read(await site.opened()) == new
    assert await site.in_redis() == new
    # Somebody who is running learns it at the next look.
    newest = await made(killed, "newest")
    assert await killed.set("k", newest, 60)
    await running.reconcile()
    assert await read(running) == newest


@pytest.mark.usefixtures("due_at_once")
async def test_a_restarted_redis_has_older_data(site: Site) -> None:
    running = await site.opened()
    old, only = await made(running, "old"), await made(running, "only", "only")
    assert await running.set("k", old, 60)
    assert await site.hot.set("only", only, 60)
    await site.redis.client.save()
    new = await made(running, "new")
    assert await running.set("k", new, 60)
    await restarted(site.redis)
    assert await site.in_redis() == old
    await running.reconcile()
    assert await read(running) == new
    assert await site.in_redis() == new
    # What the bucket lacks is copied to it.
    assert await read(running, "only") == only
    await running.reconcile()
    assert await site.in_bucket("only") == only


async def test_a_purge_holds_although_redis_has_older_data(site: Site) -> None:
    async with replicas(site.replica()) as (one,):
        for page in ("/a", "/b"):
            assert (await one.get(page)).how == "miss"
        await site.redis.client.save()
        assert await one.store.purges.purge(Purge("url", "/b"))
    await restarted(site.redis)
    async with replicas(site.replica()) as (other,):
        assert (await other.get("/a")).how == "hit"
        assert (await other.get("/b")).how == "miss"


@pytest.mark.parametrize("missed_by", ["redis", "bucket"])
async def test_a_later_purge_hides_none_that_one_of_them_missed(site: Site, missed_by: str) -> None:
    first, later = Purge("url", "/a"), Purge("url", "/b")
    here, there = (site.cold, site.hot) if missed_by == "redis" else (site.hot, site.cold)
    await here.purge(first)
    await there.purge(later)
    read = await site.replica().purges(-1)
    assert read is not None
    assert read.records.keys() == {first, later}
    for cache in (here, there):
        purges = await cache.purges(-1)
        assert purges is not None
        assert purges.records == read.records


async def test_the_bucket_is_away_while_they_are_compared(site: Site) -> None:
    running = await site.opened(timeout=0.5)
    old = await made(running, "old")
    assert await running.set("k", old, 60)
    killed = site.replica(redis=False)
    new = await made(killed, "new")
    assert await killed.set("k", new, 60)
    await running.reconcile()
    site.s3.signal(signal.SIGSTOP)
    try:
        assert await read(running) == old
    finally:
        site.s3.signal(signal.SIGCONT)
    async with asyncio.timeout(SECONDS):
        while await read(running) != new:
            await asyncio.sleep(0.02)


async def test_each_snapshot_is_compared_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(missed_by_redis, "_MARGIN_MICROSECONDS", 0)
    running = await site.opened()
    old, new = await made(running, "old"), await made(running, "new")
    assert await running.set("k", old, 60)
    await restarted(site.redis)
    assert await site.hot.set("k", old, 60)
    await running.reconcile()
    assert await read(running) == old
    # A write that no mark announces, as none of ours is.
    assert await site.cold.set("k", new, 60)
    assert await read(running) == old
    await restarted(site.redis)
    assert await site.hot.set("k", old, 60)
    await running.reconcile()
    assert await read(running) == new


async def test_a_mark_covers_the_writes_after_it(site: Site) -> None:
    """Redis misses two writes under one mark. The first snapshot is compared before the second."""
    running, killed = await site.opened(), site.replica(redis=False)
    assert await running.set("k", await made(running, "old"), 60)
    for text in ("new", "newer"):
        new = await made(killed, text)
        assert await killed.set("k", new, 60)
        await running.reconcile()
        assert await read(running) == new


async def test_the_mark_comes_before_the_snapshot(
    site: Site,
    client: ClientSession,
    start_origin: StartOrigin,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A replica may be killed in between. After a write that took long, the mark is renewed."""
    origin = await start_origin(forwarding(site.s3, client))
    without_redis = site.replica(redis=False, url=url_of(origin.url))

    async def written() -> list[str]:
        origin.requests.clear()
        assert await without_redis.set("k", await made(without_redis, "x"), 60)
        puts = (request.path for request in origin.requests if request.method == "PUT")
        return [path.rpartition(":")[2] for path in puts]

    assert await written() == ["redis", "k"]
    assert await written() == ["k"]
    monkeypatch.setattr(missed_by_redis, "_AHEAD_MICROSECONDS", 0)
    site.s3.put(f"{site.namespace}redis", b"")
    await without_redis.reconcile()
    assert await written() == ["redis", "k", "redis"]


async def test_a_user_without_info(s3: S3Server, tmp_path: Path) -> None:
    user = ("--user", "default", "on", "nopass", "~*", "+@all", "-info")
    async with redis_server(tmp_path, *user) as redis, site_of(redis, s3) as site:
        running = await site.opened()
        assert await site.hot.identity() == ""
        assert await running.set("k", await made(running, "old"), 60)
        killed = site.replica(redis=False)
        new = await made(killed, "new")
        assert await killed.set("k", new, 60)
        await running.reconcile()
        assert await read(running) == new
        assert not running.faults


async def test_histories_are_not_compared(site: Site) -> None:
    async with replicas(site.replica()) as (one,):
        await one.store.notes.set("k", b"note", 60)
        await site.redis.client.save()
        await restarted(site.redis)
        await one.get("/a")
        assert await one.store.notes.get("k") == b"note"
        assert not [name for name in site.s3.names() if f"{site.namespace}note" in name]
        assert not await site.unsaved()


# ---- two writers of one snapshot


@pytest.mark.usefixtures("due_at_once")
@pytest.mark.parametrize("missed", ["bucket", "redis"])
async def test_renders_without_a_lease(site: Site, missed: str) -> None:
    """A replica that cannot reach the stores for a moment renders without one. The later is kept."""
    running = await site.opened()
    assert await running.set("k", entry(0, "old"), 60)
    other = site.replica(redis=False) if missed == "redis" else site.without_bucket()
    new = entry(0, "new")
    assert await other.set("k", new, 60)
    await running.reconcile()
    shown = await read(running)
    await running.reconcile()
    assert shown is not None
    assert shown.snapshot.body == new.snapshot.body
    assert await site.in_bucket() == await site.in_redis() == shown
    # One with a lease is later than both.
    leased = await made(running, "leased")
    assert await running.set("k", leased, 60)
    assert not await running.set("k", new, 60)
    assert await site.in_bucket() == await site.in_redis() == leased

"""The store in a bucket, alone and behind Redis: which write wins. No fault costs a response."""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

import pytest
from aiohttp import ClientSession, web

from prerender.config import Settings, load
from prerender.errors import ConfigError, StoreError, StoreGone
from prerender.extensions.object_store.bucket import Bucket
from prerender.extensions.object_store.object_store import ObjectCache
from prerender.extensions.object_store.store_kinds import object_store
from prerender.extensions.object_store.tiers import TieredCache
from prerender.snapshots.list_rows import Query
from prerender.snapshots.purges import Purge
from prerender.snapshots.stores.backing_store import BackingCache
from prerender.snapshots.stores.redis import RedisCache
from tests.conftest import StartOrigin
from tests.snapshots.stores.test_redis import NAMESPACE, PAGE, entry
from tests.support import raw
from tests.support.raw import SECONDS
from tests.support.redis_server import RedisServer
from tests.support.renders import Replica, target
from tests.support.s3_server import S3Server, forwarding, s3_server, url_of

# What is answered by a server that is not well, and by one that is no object store.
BAD_ANSWERS = (403, 500, 503, 507, 200)


def bucket(url: str, namespace: str, timeout: float = SECONDS) -> ObjectCache:
    return ObjectCache(Bucket(url, timeout), namespace, timeout)


@asynccontextmanager
async def replicas(*caches: BackingCache, memory: int = 0) -> AsyncIterator[list[Replica]]:
    async with AsyncExitStack() as stack:
        made = [Replica(cache, memory) for cache in caches]
        for one in made:
            stack.push_async_callback(one.store.close)
            stack.push_async_callback(one.cached.close)
            await one.store.open()
        yield made


def tiers(redis: RedisServer, url: str) -> TieredCache:
    hot = RedisCache(redis.url, NAMESPACE, SECONDS)
    return TieredCache(hot, bucket(url, NAMESPACE, SECONDS), NAMESPACE)


# ---- the bucket alone


async def test_a_snapshot_is_one_object(s3: S3Server) -> None:
    async with replicas(*(bucket(s3.url, "one:[::1]:") for _ in range(2))) as (one, other):
        assert (await one.get("/a")).how == "miss"
        assert (await other.get("/a")).how == "hit"
        assert other.renders.count == 0
        names = {name for name in s3.names() if "one:" in name}
        assert names == {f"one:_::1_:{target('/a').key}", "one:_::1_:purges"}
        await other.store.delete(target("/a").key)
        assert (await one.get("/a")).how == "miss"


async def test_what_requests_cost(
    s3: S3Server, redis: RedisServer, client: ClientSession, start_origin: StartOrigin
) -> None:
    """The figures of docs/scaling.md. Nothing is ever listed, and frequent reads cost one request."""
    origin = await start_origin(forwarding(s3, client))
    url, asked = url_of(origin.url), origin.requests
    async with replicas(bucket(url, "cost:"), memory=10**6) as (one,):
        asked.clear()
        assert (await one.get("/a")).how == "miss"
        key = target("/a").key
        assert requests(asked, key) == {"GET": 3, "PUT": 1}
        for _ in range(20):
            assert (await one.get("/a")).how == "hit"
        assert requests(asked, key) == {"GET": 3, "PUT": 1}
        # Refreshed before it expires.
        entry = await one.store.get(key)
        assert entry is not None
        old = replace(entry, stored=entry.stored - 90, expires=entry.expires - 90)
        assert await one.store.set(old, 3600)
        asked.clear()
        refresh = one.cached.refresh_ahead(target("/a"), before=50.0)
        assert refresh is not None
        assert (await refresh).how == "miss"
        assert requests(asked, key) == {"GET": 2, "PUT": 1}
    async with replicas(bucket(url, "cost:")) as (other,):
        asked.clear()
        assert (await other.get("/a")).how == "hit"
        assert requests(asked, key) == {"GET": 1}
    async with replicas(tiers(redis, url)) as (third,):
        asked.clear()
        assert (await third.get("/b")).how == "miss"
        assert requests(asked, target("/b").key) == {"GET": 3, "PUT": 1}
        for _ in range(20):
            assert (await third.get("/b")).how == "hit"
        assert requests(asked, target("/b").key) == {"GET": 3, "PUT": 1}
    assert not [
        path
        for path in (request.path_qs for request in asked)
        if "list-type" in path or path.endswith("snapshots")
    ]


def requests(asked: Sequence[web.BaseRequest], key: str) -> Counter[str]:
    """The requests for an object, by method."""
    return Counter(request.method for request in asked if request.path_qs.endswith(key))


async def test_the_later_fence_wins(s3: S3Server) -> None:
    cache = bucket(s3.url, "fences:")
    first, second = await cache.acquire("k"), await cache.acquire("k")
    assert first
    assert second
    assert second >= first
    later = entry(first + 1, "later", key="k")
    assert await cache.set("k", later, 60)
    assert not await cache.set("k", entry(first, "earlier", key="k"), 60)
    assert (await cache.multi_get(["k"]))[0] == later
    # A clock that was wrong does not win forever.
    ahead = int((time.time() + 86400) * 1_000_000)
    assert await cache.set("k", entry(ahead, "ahead", key="k"), 60)
    assert await cache.set("k", later, 60)


async def test_writers_at_the_same_moment(s3: S3Server) -> None:
    """The object changes between the check and the write."""
    store = Bucket(s3.url, SECONDS)
    assert await store.write("race", b"first", None)
    assert not await store.write("race", b"second", None)
    before = await store.read("race")
    assert before is not None
    assert await store.write("race", b"third", before)
    assert not await store.write("race", b"fourth", before)
    found = await store.read("race", 3)
    assert found is not None
    assert found.data == b"thi"
    assert await store.read_unless("race", found.version) is False


async def test_what_is_over_or_foreign_is_a_miss(s3: S3Server) -> None:
    cache = bucket(s3.url, "foreign:")
    now = entry(key="k")
    assert not await cache.set("k", now, 0)
    assert await cache.set("k", now, 0.001)
    while time.time() <= now.stored + 0.1:
        await asyncio.sleep(0.01)
    assert await cache.multi_get(["k", "none"]) == [None, None]
    for data in (b"", b"PRO1", b"\xff" * 5000):
        s3.put("foreign:k", data)
        assert await cache.multi_get(["k"]) == [None]
        assert await cache.set("k", now, 60)
        assert await cache.multi_get(["k"]) == [now]
    s3.put("foreign:purges", b"\xff\nnonsense 7\n12")
    assert len(await cache.purge(Purge("all"))) == 1


async def test_purges_reach_all_and_none_is_lost(s3: S3Server) -> None:
    caches = [bucket(s3.url, "purges:") for _ in range(2)]
    async with replicas(*caches, memory=10**6) as (one, other):
        await one.get("/a")
        await one.get("/b")
        assert (await other.get("/a")).how == "hit"
        assert await one.store.purges.purge(Purge("url", "/a"))
        async with asyncio.timeout(SECONDS):
            while (await other.get("/a")).how == "hit":
                await asyncio.sleep(0.01)
        # The first one's copy was purged; that of the other one is found, and not removed.
        assert (await one.get("/a")).how == "hit"
        assert (one.renders.count, other.renders.count) == (2, 1)
        assert (await one.get("/b")).how == "hit"
        # Neither has seen the other's.
        await asyncio.gather(*(cache.purge(Purge("tag", "t")) for cache in caches))
        for number in range(3):
            await caches[number % 2].purge(Purge("url", f"/{number}"))
        await caches[0].purge(Purge("url", "/3"), Purge("url", "/4"))
        found = await caches[0].purges(-1)
        assert found is not None
        assert len(found) == 7


async def test_histories_and_lists_are_in_memory(s3: S3Server) -> None:
    async with replicas(bucket(s3.url, "notes:"), memory=10**6) as (one,):
        await one.get("/a")
        await one.store.notes.set("k", b"note", 60)
        assert await one.store.notes.get("k") == b"note"
        assert (await one.lists.find(Query())).count == 1
        assert len([name for name in s3.names() if "notes:" in name]) == 2


# ---- faults


@pytest.mark.parametrize("status", BAD_ANSWERS)
async def test_a_bucket_that_forbids_or_is_full(status: int, start_origin: StartOrigin) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=b"<Error><Code>No</Code></Error>")

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    url = url_of((await start_origin(application)).url)
    async with replicas(bucket(url, NAMESPACE), memory=10**6) as (one,):
        for page in ("/a", "/b", "/a", "/b"):
            assert (await one.get(page)).snapshot.status == 200
        assert one.renders.count == 2
        assert not await one.store.purges.purge(Purge("all"))
        assert (await one.get("/a")).how == "miss"
        assert one.store.state().faults
    if status != 200:
        with pytest.raises(StoreGone):
            await bucket(url, NAMESPACE).multi_get(["a", "b"])


async def test_a_bucket_that_is_slow_then_away() -> None:
    async with s3_server() as s3:
        cache = bucket(s3.url, NAMESPACE, 0.5)
        async with replicas(cache, memory=10**6) as (one,):
            s3.signal(signal.SIGSTOP)
            for page in ("/a", "/b", "/a"):
                assert (await one.get(page)).snapshot.status == 200
            assert one.renders.count == 2
            assert not one.store.state().available
            s3.signal(signal.SIGCONT)
            await s3.kill()
            assert (await one.get("/c")).how == "miss"
            assert (await one.get("/a")).how == "hit"
            await s3.start()
            number = 0
            async with asyncio.timeout(SECONDS):
                while not one.store.state().available:
                    number += 1
                    await one.get(f"/back/{number}")
                    await asyncio.sleep(0.02)


# ---- behind Redis


async def test_what_redis_has_lost_comes_from_the_bucket(redis: RedisServer) -> None:
    async with s3_server() as s3, replicas(tiers(redis, s3.url)) as (one,):
        assert (await one.get("/a")).how == "miss"
        assert (await one.get("/b")).how == "miss"
        assert await one.store.purges.purge(Purge("url", "/b"))
        await one.store.notes.set("k", b"note", 60)
        assert {name.rpartition(":")[2] for name in s3.names()} == {
            target("/a").key, target("/b").key, "purges", "redis",
        }  # fmt: skip
        await redis.client.flushall()
        async with replicas(tiers(redis, s3.url)) as (other,):
            assert (await other.get("/a")).how == "hit"
            # It is in Redis again, and the purge is known to a proxy that was not there.
            assert await redis.client.exists(f"{NAMESPACE}{target('/a').key}")
            assert (await other.get("/b")).how == "miss"
            assert await redis.client.exists(f"{NAMESPACE}purges")
            assert (await other.lists.find(Query())).count == 1


async def test_each_page_is_rendered_once(redis: RedisServer, s3: S3Server) -> None:
    caches = [tiers(redis, s3.url) for _ in range(3)]
    async with replicas(*caches) as made:
        pages = [f"/once/{number}" for number in range(10)]
        answers = await asyncio.gather(*(one.get(page) for page in pages for one in made))
        assert {answer.snapshot.status for answer in answers} == {200}
        assert sum(one.renders.count for one in made) == len(pages)


async def test_without_redis_notes_are_unknown_and_the_bucket_is_used(s3: S3Server) -> None:
    """Notes are in Redis only: one that is taken for absent would be replaced by an empty one."""

    def without_redis() -> TieredCache:
        hot = RedisCache(f"redis://127.0.0.1:{raw.free_port()}", "notes-away:", SECONDS)
        return TieredCache(hot, bucket(s3.url, "notes-away:"), "notes-away:")

    async with replicas(without_redis(), without_redis()) as (one, other):
        assert (await one.get("/a")).stored
        for _ in range(3):
            with pytest.raises(StoreError):
                await one.store.notes.read("k")
            assert await one.store.notes.get("k") is None
            assert not await one.store.notes.set("k", b"note", 60)
        assert (await one.get("/a")).how == "hit"
        assert (await other.get("/a")).how == "hit"


@pytest.mark.ci_only
async def test_either_of_the_two_is_away(redis: RedisServer) -> None:
    async with s3_server() as s3, replicas(tiers(redis, s3.url)) as (one,):
        await one.get("/a")
        await s3.kill()
        assert (await one.get("/a")).how == "hit"
        assert (await one.get("/b")).how == "miss"
        assert (await one.get("/b")).how == "hit"
        assert await one.store.purges.purge(Purge("url", "/a"))
        assert not one.store.state().available
        await redis.kill()
        assert (await one.get("/c")).how == "miss"
        assert not await one.store.purges.purge(Purge("url", "/b"))
        await s3.start()
        await until_kept(one, "without-redis")
        # The bucket alone, and then Redis, hear of the purges.
        await redis.start()
        async with asyncio.timeout(SECONDS):
            while await redis.client.hlen(f"{NAMESPACE}purges") < 3:
                await one.get("/d")
                await asyncio.sleep(0.02)


async def test_a_copy_in_memory_is_used_if_redis_is_empty_and_the_bucket_away(
    redis: RedisServer,
) -> None:
    async with s3_server() as s3, replicas(tiers(redis, s3.url), memory=10**6) as (one,):
        assert (await one.get("/a")).how == "miss"
        await s3.kill()
        await redis.client.flushall()
        assert await one.store.get(target("/a").key, again=True)
        assert one.store.state().lookups["slow", "failed"]
        assert (await one.get("/a")).how == "hit"
        assert one.renders.count == 1


async def until_kept(one: Replica, name: str) -> None:
    number = 0
    async with asyncio.timeout(SECONDS):
        while not (await one.get(f"/{name}/{number}")).stored:
            number += 1
            await asyncio.sleep(0.02)


async def test_a_render_without_redis_is_not_overwritten_by_an_earlier_one(
    redis: RedisServer, s3: S3Server
) -> None:
    async with replicas(tiers(redis, s3.url)) as (one,):
        cache = tiers(redis, s3.url)
        fence = await cache.acquire(PAGE.key)
        assert fence
        # Somebody who could not ask Redis was later, and sooner done.
        late = bucket(s3.url, NAMESPACE)
        newer = entry(fence + 1, "newer")
        assert await late.set(PAGE.key, newer, 60)
        assert not await cache.set(PAGE.key, entry(fence, "older"), 60)
        in_redis = await redis.client.get(f"{NAMESPACE}{PAGE.key}")
        assert in_redis == late.serializer.dumps(newer)
        found = await one.store.get(PAGE.key)
        assert found is not None
        assert found.snapshot.body == newer.snapshot.body
        await cache.close()


# ---- settings


def configured(**cache: str) -> Settings:
    origin = {"PRERENDER_ORIGIN_URL": "http://127.0.0.1:3000"}
    return load(None, origin | {f"PRERENDER_CACHE_{name.upper()}": v for name, v in cache.items()})


def test_a_redis_in_front_of_something_else() -> None:
    with pytest.raises(ConfigError, match="has no effect unless url is an object store"):
        configured(hot_url="redis://h")
    with pytest.raises(ConfigError, match="give a Redis, as for url"):
        configured(url="s3://bucket", hot_url="file:///a")


async def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "prerender.extensions.object_store.bucket", None)
    with pytest.raises(ConfigError, match=r"pip install 'prerender-proxy\[s3\]'"):
        object_store(configured(url="s3://bucket/prefix"), NAMESPACE)


async def test_the_other_kinds() -> None:
    for url in ("gs://bucket/prefix", "az://container/prefix?account_name=name"):
        cache = object_store(configured(url=url), NAMESPACE)
        assert isinstance(cache, ObjectCache)


async def test_an_account_that_is_missing() -> None:
    with pytest.raises(ConfigError, match=r"\[cache\] url: "):
        object_store(configured(url="az://container"), NAMESPACE)


async def test_a_bucket_that_is_not_there(s3: S3Server) -> None:
    cache = bucket(s3.url.replace("//snapshots", "//another-bucket"), NAMESPACE)
    with pytest.raises(StoreGone):
        await cache.purge(Purge("all"))

"""The store in Redis: authentication and failures, which crawlers do not notice."""

import asyncio
import pickle
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiocache.serializers import NullSerializer
from structlog.testing import capture_logs

from prerender.errors import StoreError, StoreGone
from prerender.snapshots.entry import Entry, encode
from prerender.snapshots.purges import MOST_RECORDS, Purge, Purges
from prerender.snapshots.snapshot import Snapshot
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.stores import guarded
from prerender.snapshots.stores.backing_store import TRUST_SECONDS
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.redis import RedisCache
from prerender.snapshots.stores.store import Store
from tests.support import certificates
from tests.support.processes import Stopwatch
from tests.support.raw import SECONDS, Origin, Reader, Writer, origin
from tests.support.redis_server import RedisServer, redis_server
from tests.support.renders import Clock, Renders, Replica, freshness_of, target, until

TIMEOUT = 0.5
NAMESPACE = "prerender:www.example.com:1:"
PAGE = target()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as running:
        yield running


@asynccontextmanager
async def connected(
    url: str, namespace: str = NAMESPACE, *, raw: bool = False, timeout: float = SECONDS
) -> AsyncIterator[RedisCache]:
    cache = RedisCache(url, namespace, timeout)
    if raw:
        cache.serializer = NullSerializer(encoding=None)
    try:
        yield cache
    finally:
        await cache.close()


@asynccontextmanager
async def replica(
    url: str, memory: int = 0, renders: Renders | None = None, *, timeout: float = SECONDS
) -> AsyncIterator[Replica]:
    async with connected(url, timeout=timeout) as cache:
        made = Replica(cache, memory, renders)
        yield made
        await made.cached.close()


def entry(fence: int = 0, text: str = "x", key: str = PAGE.key) -> Entry:
    now = time.time()
    snapshot = Snapshot(200, (), f"<p>{text}".encode(), f'"{text}"', 1)
    return Entry(key, "/", snapshot, now, now + 100, fence=fence)


async def test_it_is_a_cache_of_aiocache(server: RedisServer) -> None:
    async with connected(server.url, raw=True) as cache:
        assert await cache.get("k") is None
        assert await cache.set("k", b"\xff\0", 60)
        assert await cache.get("k") == b"\xff\0"
        assert await cache.exists("k")
        assert await server.client.keys() == [f"{NAMESPACE}k".encode()]
        assert 59_000 < await server.client.pttl(f"{NAMESPACE}k") <= 60_000
        assert await cache.delete("k") == 1
        assert await cache.delete("k") == 0
        for ttl in (0, -1):
            assert not await cache.set("k", b"v", ttl)
        assert await cache.set("k", b"v", 0.05)
        await until_gone(cache)
        async with connected(server.url, "other:", raw=True) as other:
            await cache.set("k", b"v", 60)
            assert await other.get("k") is None


async def until_gone(cache: RedisCache) -> None:
    async with asyncio.timeout(10):
        while await cache.get("k") is not None:
            pass


# ---- the way in


async def test_users_passwords_databases_and_sockets(tmp_path: Path) -> None:
    password = "p@ss:/%w?rd#"
    escaped = "p%40ss%3A%2F%25w%3Frd%23"
    async with redis_server(
        tmp_path, "--user", "default", "on", "nopass", "~*", "+@all",
        "--user", "crawler", "on", f">{password}", "~prerender:*", "+@all",
    ) as server:  # fmt: skip
        for url, database in (
            (f"redis://crawler:{escaped}@127.0.0.1:{server.port}/3", 3),
            (f"unix://crawler:{escaped}@{server.socket}?db=4", 4),
            (f"unix://{server.socket}", 0),
        ):
            async with connected(url, raw=True) as cache:
                await cache.open()
                assert await cache.set("k", b"v", 60)
                assert await cache.acquire("k")
                await cache.purge(Purge("all"))
            await server.client.select(database)
            assert await server.client.exists(f"{NAMESPACE}k")
        async with connected(f"redis://crawler:wrong@127.0.0.1:{server.port}") as cache:
            with pytest.raises(StoreGone, match="invalid username"):
                await cache.open()
        async with connected(f"redis://127.0.0.1:{server.port}/99") as cache:
            with pytest.raises(StoreError, match="DB index"):
                await cache.open()


async def test_tls(tmp_path: Path) -> None:
    file = tmp_path / "certificate.pem"
    certificates.write(file, "localhost")
    other = RedisServer(tmp_path)  # only for its port
    async with redis_server(
        tmp_path, "--tls-port", str(other.port), "--tls-cert-file", str(file),
        "--tls-key-file", str(file), "--tls-auth-clients", "no",
    ):  # fmt: skip
        trusting = f"rediss://localhost:{other.port}/0?ssl_ca_certs={file}"
        async with connected(trusting, raw=True) as cache:
            assert await cache.set("k", b"v", 60)
            assert await cache.get("k") == b"v"
        async with connected(f"rediss://localhost:{other.port}/0", raw=True) as cache:
            with pytest.raises(StoreGone, match="certificate"):
                await cache.get("k")
    await other.client.aclose()


# ---- what is found in it


@pytest.mark.parametrize(
    "bad",
    [
        b"",
        b"\xff\xfe",
        b'{"html": "<p>',
        pickle.dumps({"a": 1}),
        b"cos\nsystem\n(S'false'\ntR.",
        encode(entry())[:-1],
        b"PRS0" + encode(entry())[4:],
    ],
)
async def test_bad_entries_are_misses_and_are_overwritten(server: RedisServer, bad: bytes) -> None:
    async with replica(server.url) as one:
        await server.client.set(f"{NAMESPACE}{PAGE.key}", bad)
        assert (await one.get()).how == "miss"
        assert one.store.state().faults["bad entries"] == 1
        assert (await one.get()).how == "hit"


async def test_a_key_of_another_type_is_a_miss_and_is_overwritten(server: RedisServer) -> None:
    async with replica(server.url) as one:
        await server.client.rpush(f"{NAMESPACE}{PAGE.key}", "a", "b")
        assert (await one.get()).how == "miss"
        assert (await one.get()).how == "hit"


async def test_large_values_go_both_ways(server: RedisServer) -> None:
    async with connected(server.url, raw=True) as cache:
        large = bytes(range(256)) * 40_000
        assert await cache.set("k", large, 60)
        assert await cache.get("k") == large


# ---- faults


async def test_refused(tmp_path: Path) -> None:
    gone = RedisServer(tmp_path)
    async with replica(gone.url, timeout=TIMEOUT) as one:
        watch = Stopwatch()
        assert (await one.get()).how == "miss"
        assert watch.seconds < 1
        assert (await one.get()).how == "miss"
        assert one.renders.count == 2
    await gone.client.aclose()


@pytest.mark.parametrize(
    "reply",
    [
        None,
        b"HTTP/1.1 400 Bad Request\r\n\r\n<html>",
        b"\0\xff\r\n" * 9,
        b"$99\r\nhalf",
        b":5\r\n",
        b"*0\r\n",
    ],
)
async def test_a_server_that_is_no_redis(reply: bytes | None) -> None:
    async def serve(_: Origin, reader: Reader, writer: Writer) -> None:
        while await reader.read(1000):
            if reply is not None:
                writer.write(reply)

    async with (
        origin(serve) as other,
        replica(f"redis://127.0.0.1:{other.port}", timeout=TIMEOUT) as one,
    ):
        watch = Stopwatch()
        assert (await one.get()).how == "miss"
        # The timeout once, and not again while the breaker is open.
        assert watch.seconds < TIMEOUT * 2 + 1
        assert ", away" in repr(one.store)
        assert (await one.get()).how == "miss"


async def test_paused_killed_and_back(server: RedisServer) -> None:
    async with replica(server.url, memory=10**6, timeout=TIMEOUT) as one:
        assert (await one.get()).how == "miss"
        server.signal(signal.SIGSTOP)
        await asyncio.sleep(TRUST_SECONDS)  # until the copy in memory has to be verified
        watch = Stopwatch()
        assert (await one.get()).how == "hit"
        assert (await one.get("/other")).how == "miss"
        assert watch.seconds < TIMEOUT * 2 + 1
        server.signal(signal.SIGCONT)
        await back(one)
        await server.kill()
        # What is in memory is better than nothing.
        assert (await one.get()).how == "hit"
        assert (await one.get("/third")).how == "miss"
        await server.start()
        await back(one)
        assert await server.client.dbsize() > 0


async def back(one: Replica) -> None:
    """Wait until the store is used again, by requests like those of crawlers."""
    async with asyncio.timeout(15):
        number = 0
        while ", away" in repr(one.store):
            number += 1
            await one.get(f"/back/{number}")
            await asyncio.sleep(0.02)


async def test_traffic_goes_on_while_redis_comes_and_goes(server: RedisServer) -> None:
    async with replica(server.url, memory=10**6, timeout=TIMEOUT) as one:
        stop = asyncio.Event()
        answers = []

        async def crawl(name: int) -> None:
            while not stop.is_set():
                answers.append(await one.get(f"/{name % 7}"))
                await asyncio.sleep(0.005)

        crawlers = [asyncio.create_task(crawl(name)) for name in range(20)]
        for _ in range(2):
            await asyncio.sleep(0.2)
            await server.kill()
            await asyncio.sleep(0.2)
            await server.start()
        await server.client.client_pause(300)
        await until(lambda: len(answers) > 1000, 30)
        stop.set()
        await asyncio.gather(*crawlers)
        assert all(answer.snapshot.status == 200 for answer in answers)
        await back(one)


async def test_a_full_redis_costs_no_answer(server: RedisServer) -> None:
    async with replica(server.url) as one:
        await one.get("/before")
        await server.client.config_set("maxmemory", 1)
        assert (await one.get()).how == "miss"
        assert one.store.state().faults["set"] > 0
        assert (await one.get("/before")).how == "hit"
        await server.client.config_set("maxmemory", 0)
        await one.get()
        assert (await one.get()).how == "hit"


async def test_refused_writes_are_logged_also_after_an_outage(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with replica(server.url) as one:
        await server.kill()
        assert not await one.store.set(entry(), 60)
        await server.start()
        await back(one)
        with capture_logs() as logs:
            await server.client.config_set("maxmemory", 1)
            for _ in range(3):
                assert not await one.store.set(entry(), 60)
            monkeypatch.setattr(guarded, "_LOG_SECONDS", 0.0)
            assert not await one.store.set(entry(), 60)
        assert [line["event"] for line in logs] == ["store_operation_failed"] * 2
        assert {line["operation"] for line in logs} == {"set"}


async def test_read_only(server: RedisServer) -> None:
    async with replica(server.url) as one:
        await one.get("/before")
        await server.client.replicaof("127.0.0.1", 1)
        await server.client.config_set("replica-serve-stale-data", "yes")
        assert (await one.get("/before")).how == "hit"
        assert (await one.get()).how == "miss"
        await server.client.replicaof("NO", "ONE")
        await one.get()
        assert (await one.get()).how == "hit"


async def test_many_at_once_wait_for_a_connection(server: RedisServer) -> None:
    async with connected(server.url, raw=True) as cache:
        await cache.set("k", b"v" * 1000, 60)
        assert set(await asyncio.gather(*(cache.get("k") for _ in range(500)))) == {b"v" * 1000}
        assert len(await server.client.client_list()) < 50


async def test_who_leaves_in_the_middle_takes_nobodys_answer(server: RedisServer) -> None:
    async with connected(server.url, raw=True) as cache:
        await leave_in_the_middle(cache)


async def leave_in_the_middle(cache: RedisCache) -> None:
    for number in range(20):
        await cache.set(f"{number}", f"{number}".encode() * 5000, 60)
    for number in range(100):
        leaving = asyncio.create_task(cache.get(f"{number % 20}"))
        for _ in range(number % 5):
            await asyncio.sleep(0)
        leaving.cancel()
        other = (number + 1) % 20
        assert await cache.get(f"{other}") == f"{other}".encode() * 5000


# ---- replicas


async def test_a_purge_is_seen_by_all_within_a_second(server: RedisServer) -> None:
    async with replica(server.url, 10**6) as one, replica(server.url, 10**6) as other:
        await one.get("/a")
        await one.get("/b")
        assert (await other.get("/a")).how == "hit"
        assert await one.store.purges.purge(Purge("url", "/a"))
        asked = shown = purged = time.monotonic()
        async with asyncio.timeout(SECONDS):
            while (await other.get("/a")).how == "hit":
                shown = asked
                await asyncio.sleep(0.01)
                asked = time.monotonic()
        assert shown - purged < 1
        assert (await other.get("/b")).how == "hit"
        assert other.renders.count == 1
        other.renders.text = "refreshed" * 300
        assert await other.store.purges.purge(Purge("all"))
        await other.get("/b")
        asked = shown = purged = time.monotonic()
        async with asyncio.timeout(SECONDS):
            while b"refreshed" not in (await one.get("/b")).snapshot.body:
                shown = asked
                await asyncio.sleep(0.01)
                asked = time.monotonic()
        assert shown - purged < 1
        assert one.renders.count == 2


async def test_a_purge_that_redis_has_lost_is_told_again(server: RedisServer) -> None:
    async with replica(server.url, 10**6) as one, replica(server.url, 10**6) as other:
        await one.get("/a")
        assert await one.store.purges.purge(Purge("tag", "first"))
        assert await one.store.purges.purge(Purge("url", "/a"))
        # A failover may forget the last writes.
        assert await server.client.delete(f"{NAMESPACE}purges")
        async with asyncio.timeout(SECONDS):
            while not await server.client.hlen(f"{NAMESPACE}purges"):
                await one.get("/b")
                await asyncio.sleep(0.01)
        assert (await other.get("/a")).how == "miss"
        assert other.store.purges.purges.records == one.store.purges.purges.records
        assert len(other.store.purges.purges) == 2


async def test_a_purge_that_nobody_hears_says_so(server: RedisServer) -> None:
    async with replica(server.url, 10**6, timeout=TIMEOUT) as one:
        await one.get()
        await server.kill()
        assert not await one.store.purges.purge(Purge("all"))
        assert (await one.get()).how == "miss"
        # The others hear of it when Redis is back.
        await server.start()
        await back(one)
        async with asyncio.timeout(SECONDS):
            while not await server.client.hlen(f"{NAMESPACE}purges"):
                await one.get("/b")
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["redis was away", "a failover lost it"])
async def test_a_later_purge_of_another_replica_hides_none(server: RedisServer, how: str) -> None:
    first, later = Purge("url", "/a"), Purge("url", "/b")
    async with (
        replica(server.url, 10**6, timeout=TIMEOUT) as one,
        replica(server.url, 10**6) as other,
    ):
        await one.get("/a")
        if how == "redis was away":
            await server.kill()
            assert not await one.store.purges.purge(first)
            await server.start()
        else:
            assert await one.store.purges.purge(first)
            await server.client.delete(f"{NAMESPACE}purges")
        assert await other.store.purges.purge(later)
        async with asyncio.timeout(SECONDS):
            while await server.client.hlen(f"{NAMESPACE}purges") < 3:
                await one.get("/c")
                await asyncio.sleep(0.01)
        async with asyncio.timeout(SECONDS):
            while first not in other.store.purges.purges.records:
                await other.get("/c")
                await asyncio.sleep(0.01)
        assert one.store.purges.purges.records == other.store.purges.purges.records
        assert (await one.get("/a")).how == "miss"


async def test_merging_undoes_no_later_purge(server: RedisServer) -> None:
    key = f"{NAMESPACE}purges"
    async with connected(server.url) as cache:
        records = {Purge("url", f"/{n}").dump(): n + 1 for n in range(MOST_RECORDS + 1)}
        await server.client.hset(key, mapping=records)
        read = await cache.purges(0)
        assert read is not None
        # Before they are merged, another replica purges again.
        later = {Purge("all"): MOST_RECORDS + 2, Purge("url", "/0"): MOST_RECORDS + 3}
        await cache.restore(Purges(later))
        await cache._merge(key, read)
        merged = await cache.purges(0)
        assert merged is not None
        assert len(merged) <= MOST_RECORDS
        assert later.items() <= merged.records.items()


async def test_purges_are_bounded(server: RedisServer) -> None:
    async with connected(server.url) as cache:
        records = {Purge("url", f"/{n}\udcff").dump(): n + 1 for n in range(MOST_RECORDS)}
        await server.client.hset(f"{NAMESPACE}purges", mapping=records)
        first = await cache.purge(Purge("tag", "last"))
        assert len(first) == MOST_RECORDS + 1
        found = await cache.purges(0)
        assert found is not None
        assert len(found) <= MOST_RECORDS
        assert found.generation > first.generation
        assert found.verdict("/0\udcff", (), "", 0) is not None
        assert await cache.purges(found.generation) is None


async def test_a_replica_whose_clock_is_behind_deletes_no_snapshot(server: RedisServer) -> None:
    async with replica(server.url) as one, connected(server.url) as cache:
        behind = Store(BoundedMemoryCache(0), cache, Clock(time.time() - 600))
        assert await one.store.purges.purge(Purge("all"))
        assert (await one.get("/a")).how == "miss"
        assert await behind.get(target("/a").key) is not None
        assert await cache.exists(target("/a").key)


async def test_many_first_requests_over_three_replicas(server: RedisServer) -> None:
    renders = Renders("x" * 50_000)
    async with (
        replica(server.url, 10**7, renders) as one,
        replica(server.url, 10**7, renders) as two,
        replica(server.url, 10**7, renders) as three,
    ):
        renders.gate.clear()
        replicas = (one, two, three)
        asking = [asyncio.create_task(replicas[n % 3].get()) for n in range(200)]
        await until(lambda: renders.running)
        await asyncio.sleep(0.2)  # the others find the lease taken
        renders.gate.set()
        answers = await asyncio.gather(*asking)
        assert renders.count == 1
        assert len({answer.snapshot.body for answer in answers}) == 1
        assert {answer.how for answer in answers} == {"miss", "coalesced"}


async def test_a_stale_snapshot_is_refreshed_by_one_replica(server: RedisServer) -> None:
    renders = Renders("x" * 2000)
    async with (
        replica(server.url, 10**6, renders) as one,
        replica(server.url, 10**6, renders) as two,
    ):
        await one.get()
        await one.store.purges.purge(Purge("all", soft=True))
        renders.gate.clear()
        assert (await one.get()).detail == "stale"
        await until(lambda: renders.running)
        async with asyncio.timeout(SECONDS):
            while (await two.get()).detail != "stale":
                await asyncio.sleep(0.01)
        await until(lambda: not len(two.cached._renders))
        assert renders.count == 2
        renders.gate.set()
        async with asyncio.timeout(SECONDS):
            while (await two.get()).detail:
                await asyncio.sleep(0.01)
        assert renders.count == 2


async def test_the_lease_of_a_dead_holder_ends(server: RedisServer) -> None:
    async with connected(server.url) as cache, replica(server.url) as one:
        assert await cache.acquire(PAGE.key)
        assert await cache.acquire(PAGE.key) is None
        lease = f"{NAMESPACE}lease:{PAGE.key}"
        assert 0 < await server.client.pttl(lease) <= 5000
        await server.client.pexpire(lease, 300)
        assert (await one.get()).how == "miss"
        # It had a lease of its own, and gave it back.
        assert await cache.acquire(PAGE.key)


async def test_a_lease_is_waited_for_as_long_as_a_render_may_take(server: RedisServer) -> None:
    async with connected(server.url) as cache:
        one = Replica(cache)
        one.cached = CachedSnapshots(one.renders, one.store, freshness_of(100.0), 0.3)
        await cache.acquire(PAGE.key)
        started, watch = time.monotonic(), Stopwatch()
        assert (await one.get()).how == "miss"
        assert time.monotonic() - started > 0.2
        assert watch.seconds < 2


async def test_a_lease_is_held_as_long_as_it_is_needed(server: RedisServer) -> None:
    async with connected(server.url) as cache, replica(server.url) as one:
        one.renders.gate.clear()
        asking = asyncio.create_task(one.get())
        await until(lambda: one.renders.running)
        lease = f"{NAMESPACE}lease:{PAGE.key}"
        # Each extension sets the ordinary time, which is shorter.
        await server.client.pexpire(lease, 60_000)
        async with asyncio.timeout(30):
            while await server.client.pttl(lease) > 10_000:
                await asyncio.sleep(0.05)
        assert await cache.acquire(PAGE.key) is None
        one.renders.gate.set()
        await asking
        assert await cache.acquire(PAGE.key)


async def test_who_was_slower_does_not_overwrite_who_came_later(server: RedisServer) -> None:
    async with connected(server.url) as cache:
        store = Store(BoundedMemoryCache(10**6), cache)
        first = await cache.acquire(PAGE.key)
        assert first
        await cache.release(PAGE.key, first)
        second = await cache.acquire(PAGE.key)
        assert second
        assert second > first
        await cache.release(PAGE.key, first)
        assert await cache.acquire(PAGE.key) is None
        assert await store.set(entry(second, "later"), 60)
        assert not await store.set(entry(first, "slower"), 60)
        found = await store.get(PAGE.key)
        assert found is not None
        assert found.snapshot.body == b"<p>later"
        assert await store.set(entry(second, "again"), 60)

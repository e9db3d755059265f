"""Foreign data in a shared store, in place of an entry, is a miss and is overwritten.

It has the proxy's own keys, and valid checksums where there are any: a damaged disk, another
version, another program or an intruder may leave it there.
"""

import asyncio
import json
import random
import struct
import time
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import xxhash
from aiocache import SimpleMemoryCache
from aiocache.plugins import HitMissRatioPlugin
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from prerender.errors import BadEntry, ConfigError
from prerender.extensions.dashboard import history
from prerender.extensions.dashboard.histories import Histories
from prerender.extensions.markdown.snapshots import MARKDOWN, MarkdownSnapshots, _key
from prerender.http.encodings import encoded
from prerender.snapshots.entry import Entry, decode, encode
from prerender.snapshots.list_rows import Query, Row, parse
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.snapshot import Facts, Snapshot, etag_of
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.snapshot_lists import Lists
from prerender.snapshots.stores.aiocache_backends import dump_purges, named, parse_purges
from prerender.snapshots.stores.backing_store import BackingCache
from prerender.snapshots.stores.file import FileCache
from prerender.snapshots.stores.from_settings import open_store
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.redis import RedisCache
from prerender.snapshots.stores.store import Store
from tests.conftest import settings_for
from tests.support import processes, raw
from tests.support.redis_server import RedisServer, redis_server
from tests.support.renders import Renders, freshness_of, target

NAMESPACE = "prerender:www.example.com:1:"
PAGE = target("/lamps")
OTHER = target("/chairs")
BODY = b"<p>" + b"a lamp " * 200


def entry(**changes: Any) -> Entry:
    now = time.time()
    snapshot = Snapshot(
        200, (("Link", "</x>"),), BODY, etag_of(200, (), BODY), 1, facts=Facts(settled="nothing"),
        tags=("lamps",), asset_fingerprint="00ff", encoded=encoded(BODY),
    )  # fmt: skip
    return replace(Entry(PAGE.key, PAGE.path, snapshot, now, now + 100), **changes)


def repacked(whole: bytes, change: Callable[[dict[str, Any]], Any], tail: bytes = b"") -> bytes:
    """The bytes of an entry with another header and a valid checksum."""
    length = struct.unpack(">L", whole[20:24])[0]
    header = json.loads(whole[24 : 24 + length])
    changed = change(header)
    text = json.dumps(header if changed is None else changed).encode()
    rest = struct.pack(">L", len(text)) + text + whole[24 + length :] + tail
    checksum = xxhash.xxh3_64_intdigest(whole[4:12] + rest)
    return whole[:12] + struct.pack(">Q", checksum) + rest


def test_what_is_repacked_unchanged_is_the_entry() -> None:
    whole = entry()
    assert decode(repacked(encode(whole), lambda header: None)) == whole


WRONG: dict[str, list[Any]] = {
    "status": ["200", 199, 600, 2**70, 200.5, None, True, []],
    "headers": [
        [["Link", "a\r\nSet-Cookie: a=b"]], [["Link", "a\nb"]], [["Link", "a\0b"]], [["a b", "c"]],
        [["", "c"]], [["a\r\nb", "c"]], [["\u00e4", "c"]], [["Link", "\ud800"]], [["Link"]], [["a", 1]],
        {"Link": "a"}, "Link", [["Link", "a", "b"]], None, 0,
    ],
    "etag": ["x", '"a"b"', '"a\r\nb"', "", '"\ud800"', 'w/"a"', None, 5],
    "content_type": ["text/html\r\nX: y", "a\0", None, 1],
    "last_modified": [-1, 10**12, 1.5, "1", None],
    "stored": [-1, 1e300, "1", None, True, float("inf"), float("nan"), 10**400],
    "expires": [-1, 1e15, float("nan"), time.time() + 10**9, "x", None],
    "retry": [-1, 1e300, float("inf"), "x"],
    "ttl": [-1, "x", float("nan"), 1e300],
    "refusals": [-1, "x", 1.5, None],
    "generation": [-1, "x", 1.5, None],
    "tags": [["a b"], ["a\n"], ["x" * 129], [1], "lamps", None, ["x"] * 257, ["\u00e4"]],
    "asset_fingerprint": [1, None, []],
    "key": ["x", "", None, 1, OTHER.key],
    "path": [None, 1, []],
    "variant": [None, {}, {"device": "desktop"}, {"device": "tv", "language": ""}, "desktop"],
    "storable": [1, None, "yes"],
    "facts": [None, [], {}, {"settled": "x"}],
    "bodies": [
        [], [["identity", 3]], [["identity", -1]], [["identity", "3"]], [["br", len(BODY)]],
        [["identity", 10**30]], [["identity", len(BODY)], ["deflate", 0]], None, {"identity": 3},
        [["identity", len(BODY)], ["br", 0], ["br", 0]], [["identity", 0], ["identity", len(BODY)]],
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_header_is_a_bad_entry(name: str) -> None:
    whole = encode(entry())
    for value in WRONG[name]:
        data = repacked(whole, partial(dict.update, **{name: value}))
        try:
            found = decode(data)
        except BadEntry:
            continue
        # What is right in itself, and wrong in this place only.
        assert (name, found.key) == ("key", value)
    with pytest.raises(BadEntry):
        decode(repacked(whole, lambda header: header.pop(name) and None))


def test_what_else_may_be_wrong_with_an_entry() -> None:
    whole = encode(entry())
    for data in (
        repacked(whole, lambda header: header.update(more=1)),
        repacked(whole, lambda header: [header]),
        repacked(whole, lambda header: 1),
        repacked(whole, lambda header: None, tail=b"x"),
        whole[:4] + b"\xff" * 8 + whole[12:],
        whole[:20] + b"\xff" * 4 + whole[24:],
    ):
        with pytest.raises(BadEntry):
            decode(data)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(), max_size=9)
    | st.sampled_from(["a\r\nb", "a\0", "\ud800", "\udcff", 10**400, -1, 2**64, 1e308]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=6,
)  # fmt: skip


def mutated(value: Any, place: int, by: Any) -> Any:
    """JSON with another value at any depth."""
    if isinstance(value, dict) and value and place % 3:
        name = sorted(value)[place % len(value)]
        return value | {name: mutated(value[name], place // 3, by)}
    if isinstance(value, list) and value and place % 3:
        at = place % len(value)
        return [*value[:at], mutated(value[at], place // 3, by), *value[at + 1 :]]
    return by


@given(st.integers(0, 10**9), VALUES)
def test_any_header_is_an_entry_that_can_be_sent_or_a_bad_one(place: int, by: Any) -> None:
    data = repacked(encode(entry()), lambda header: mutated(header, place, by))
    try:
        found = decode(data)
    except BadEntry:
        return
    assert decode(encode(found)) == found
    for coding in ("identity", "br"):
        sent = found.snapshot.best([coding, "identity"])
        for lines in (sent.fields, sent.content_fields):
            assert all(line.count(b"\r") == 0 for line in lines.split(b"\r\n"))
            assert not {0, 10} & set(lines.replace(b"\r\n", b""))
    json.dumps(Row.of(found, 1.0))


@given(st.integers(0, 10**9), VALUES)
def test_any_row_is_right_or_left_out(place: int, by: Any) -> None:
    row = Row.of(entry(), time.time() + 9)
    line = json.dumps(mutated(json.loads(row.dump()), place, by)).encode()
    found = parse([line, row.dump(), b"]", b"1],[1", b"", b"\xff", b'"' * 9])
    assert found[-1] == row
    for one in found:
        assert list(map(type, one)) == list(map(type, row))


@given(st.integers(0, 10**9), VALUES)
def test_any_history_is_right_or_a_bad_one(place: int, by: Any) -> None:
    version = history.Version(1.0, 200, '"x"', 10, "title", "text")
    render = history.RenderSummary(1.0, 2.0, facts=Facts(errors=("x",)))
    whole = history.encode(history.History(PAGE.key, PAGE.path, render, (version,)))
    told = mutated(json.loads(zlib.decompress(whole[12:])), place, by)
    try:
        found = history.decode(whole[:12] + zlib.compress(json.dumps(told).encode()))
    except BadEntry:
        return
    assert history.decode(history.encode(found)) == found


# ---- in each store


class Shelf:
    """A store and its backing store. ``plant``: replace the data of a key."""

    def __init__(self, cache: BackingCache, server: RedisServer | None) -> None:
        self.cache = cache
        self.server = server
        self.renders = Renders("x" * 2000)
        self.store = Store(BoundedMemoryCache(0), cache)
        self.lists = Lists(self.store)
        self.cached = CachedSnapshots(self.renders, self.store, freshness_of(100.0), 5.0)
        self.markdown = MarkdownSnapshots(self.cached, self.store)

    async def plant(self, key: str, data: bytes) -> None:
        if self.server is not None:  # past what compares the fences
            await self.server.client.set(f"{NAMESPACE}{key}", data)
        else:
            await self.cache.set(key, data, 60, dumps_fn=bytes)

    async def bytes_of(self, key: str) -> bytes:
        found = await self.cache.get(key, loads_fn=lambda data: data)
        assert isinstance(found, bytes)
        return found

    async def keys(self) -> list[str]:
        return [row.key for row in (await self.lists.find(Query())).rows]


@pytest.fixture(params=["file", "redis", "aiocache"])
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shelf]:
    async with AsyncExitStack() as stack:
        server, cache = None, BackingCache
        if request.param == "redis":
            server = await stack.enter_async_context(redis_server(tmp_path))
            made: BackingCache = RedisCache(server.url, NAMESPACE, raw.SECONDS)
        elif request.param == "file":
            made = FileCache(tmp_path, NAMESPACE, 10**8, raw.SECONDS)
        else:
            made = named("aiocache://aiocache.SimpleMemoryCache", NAMESPACE, raw.SECONDS)
        assert isinstance(made, cache)
        shelf = Shelf(made, server)
        await shelf.store.open()
        stack.push_async_callback(shelf.store.close)
        stack.push_async_callback(shelf.cached.close)
        stack.push_async_callback(shelf.markdown.close)
        yield shelf


@asynccontextmanager
async def a_miss(shelf: Shelf) -> AsyncIterator[None]:
    """Change the stored page. It is then rendered and stored again."""
    assert (await shelf.cached.snapshot(PAGE)).snapshot.body == b"<p>" + b"x" * 2000 + b" of /lamps"
    count = shelf.renders.count
    yield
    answer = await shelf.cached.snapshot(PAGE)
    assert answer.how == "miss"
    assert answer.stored
    assert answer.snapshot.body.endswith(b" of /lamps")
    assert shelf.renders.count == count + 1
    assert (await shelf.cached.snapshot(PAGE)).how == "hit"


async def test_the_entry_of_another_page_is_a_miss(shelf: Shelf) -> None:
    await shelf.cached.snapshot(OTHER)
    async with a_miss(shelf):
        await shelf.plant(PAGE.key, await shelf.bytes_of(OTHER.key))
    assert shelf.store.state().faults["bad entries"] == 1
    assert (await shelf.cached.snapshot(OTHER)).how == "hit"


async def test_every_wrong_header_is_a_miss(shelf: Shelf) -> None:
    for name in WRONG:
        async with a_miss(shelf):
            whole = await shelf.bytes_of(PAGE.key)
            wrong = WRONG[name][0]
            await shelf.plant(
                PAGE.key,
                repacked(whole, lambda header: header.update({name: wrong})),  # noqa: B023
            )


async def test_random_bytes_are_a_miss(shelf: Shelf) -> None:
    chance = random.Random(9)
    for _ in range(40):
        async with a_miss(shelf):
            data = bytearray(await shelf.bytes_of(PAGE.key))
            for _ in range(chance.choice((1, 3, 100))):
                data[chance.randrange(len(data))] ^= chance.randrange(1, 256)
            await shelf.plant(PAGE.key, bytes(data[: chance.choice((None, len(data) // 2, 3))]))


async def test_a_fence_of_the_future_is_replaced(shelf: Shelf) -> None:
    async with a_miss(shelf):
        whole = encode(replace(entry(), fence=2**64 - 1, expires=time.time() - 1))
        await shelf.plant(PAGE.key, whole)


async def test_ages_of_the_future_do_not_last(shelf: Shelf) -> None:
    now = time.time()
    ahead = now + 10**8
    async with a_miss(shelf):
        await shelf.plant(PAGE.key, encode(entry(stored=ahead, expires=ahead + 100, retry=ahead)))
    # Nor does a number that would be newer than all purges.
    await shelf.plant(PAGE.key, encode(entry(generation=2**62)))
    assert (await shelf.cached.snapshot(PAGE)).how == "hit"
    await shelf.store.purges.purge(Purge("all"))
    assert (await shelf.cached.snapshot(PAGE)).how == "miss"


async def test_wrong_markdown_is_a_miss(shelf: Shelf) -> None:
    await shelf.markdown.snapshot(OTHER)
    made = (await shelf.markdown.snapshot(PAGE)).snapshot
    assert made.content_type == MARKDOWN
    key = _key(PAGE, (await shelf.cached.snapshot(PAGE)).snapshot)
    for wrong in (
        await shelf.bytes_of(PAGE.key),
        repacked(await shelf.bytes_of(key), lambda header: header.update(content_type="a\r\nb")),
        b"PRS4",
    ):
        await shelf.plant(key, wrong)
        assert (await shelf.markdown.snapshot(PAGE)).snapshot.body == made.body
        assert decode(await shelf.bytes_of(key)).snapshot.body == made.body


async def test_wrong_notes_are_none(shelf: Shelf) -> None:
    histories = Histories(shelf.store.notes, 3)
    good = history.encode(history.History(OTHER.key, OTHER.path))
    for wrong in (good, good[:-1], b"", b"\xff" * 99, encode(entry())):
        await shelf.store.notes.set(PAGE.key, wrong, 60)
        assert await histories.of(PAGE.key) is None
    await shelf.store.notes.set(OTHER.key, good, 60)
    assert await histories.of(OTHER.key) is not None


# ---- what only Redis has


async def test_wrong_leases_hold_up_nobody(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server:
        shelf = Shelf(RedisCache(server.url, NAMESPACE, raw.SECONDS), server)
        name = f"{NAMESPACE}lease:{PAGE.key}"
        for plant in (
            server.client.set(name, "x"),
            server.client.set(name, "x", ex=10**6),
            server.client.rpush(name, "x"),
            server.client.hset(name, "x", "y"),
        ):
            await server.client.delete(name)
            await plant
            watch = processes.Stopwatch()
            async with shelf.store.lease(PAGE.key, 5.0) as lease:
                assert lease.fence
                # Somebody takes it away, or puts something else there.
                await server.client.delete(name)
                await server.client.rpush(name, "x")
            assert watch.seconds < 3
        assert not shelf.store.state().faults
        await shelf.store.close()


async def test_wrong_purges_are_left_out(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server:
        name = f"{NAMESPACE}purges"
        wrong: list[dict[str, Any]] = [
            {"": "x"}, {"": ""}, {"": "1e400"}, {"": "-1"}, {"": str(2**80)}, {"": "nan"},
            {"url:hard:/lamps": "x"}, {"url:hard:/lamps": "-5"}, {"url:hard:/lamps": str(2**62)},
            {"url:hard:/lamps": ""}, {"x": "5"}, {"\xff": "\xff"}, {"all:hard:": "1.5"},
        ]  # fmt: skip
        for fields in [*wrong, None]:
            await server.client.delete(name)
            await (
                server.client.hset(name, mapping=fields)
                if fields
                else server.client.rpush(name, "x")
            )
            shelf = Shelf(RedisCache(server.url, NAMESPACE, raw.SECONDS), server)
            await shelf.cached.snapshot(PAGE)
            assert (await shelf.cached.snapshot(PAGE)).how == "hit", fields
            assert await shelf.store.purges.purge(Purge("url", PAGE.path))
            assert (await shelf.cached.snapshot(PAGE)).how == "miss", fields
            assert (await shelf.cached.snapshot(PAGE)).how == "hit", fields
            assert not shelf.store.state().faults
            await shelf.cached.close()
            await shelf.store.close()


async def test_wrong_lines_are_left_out(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server:
        shelf = Shelf(RedisCache(server.url, NAMESPACE, raw.SECONDS), server)
        await shelf.cached.snapshot(PAGE)
        lines = f"{NAMESPACE}lines"
        for number, line in enumerate(
            (b"", b"]", b"[]", b"null", b"\n\n", b"[1,\n2]", b"\xff", b"{}")
        ):
            await server.client.hset(lines, f"wrong{number}", line)
        assert await shelf.keys() == [PAGE.key]
        for wrong in (lines, f"{lines}:until"):
            await server.client.delete(wrong)
            await server.client.set(wrong, "x")
            await shelf.cached.renew(PAGE)
            assert await shelf.keys() == [PAGE.key]
        assert not shelf.store.state().faults
        await shelf.cached.close()
        await shelf.store.close()


def test_wrong_purges_of_another_backend() -> None:
    purges = Purges().with_([Purge("tag", "lamps")], time.time())
    assert parse_purges(dump_purges(purges)).records == purges.records
    for wrong in (None, "x", b"", b"\n\n", b"x all:hard:", b"5", b"%d all:hard:" % 2**70, b"1 x"):
        assert not parse_purges(wrong).records


# ---- aiocache's own


async def test_the_switch_in_the_environment_does_no_harm(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOCACHE_DISABLE", "1")
    async with a_miss(shelf):
        assert await shelf.cache.exists(PAGE.key)
        assert await shelf.cache.multi_get([PAGE.key, "x"]) != []
        await shelf.cache.delete(PAGE.key)
        assert not await shelf.cache.exists(PAGE.key)


async def test_plugins_see_hits_and_misses(shelf: Shelf) -> None:
    shelf.cache.plugins = [*shelf.cache.plugins, HitMissRatioPlugin()]
    await shelf.cached.snapshot(PAGE)
    await shelf.plant(OTHER.key, b"x")
    await shelf.cached.snapshot(PAGE)
    assert await shelf.store.get(OTHER.key) is None
    ratio = shelf.cache.hit_miss_ratio
    # Once before and once under the lease, then a hit; what is no entry is a miss. Where purges are a
    # value like others, they are a hit.
    assert ratio["total"] - ratio["hits"] == 3
    lookups = shelf.store.state().lookups
    assert (lookups["slow", "hit"], lookups["slow", "miss"]) == (1, 3)


async def test_memory_is_a_cache_of_aiocache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOCACHE_DISABLE", "1")
    cache = BoundedMemoryCache(10_000, plugins=[HitMissRatioPlugin()], namespace="a:")
    assert await cache.set("k", b"v")
    assert not await cache.set("zero", b"v", ttl=0)
    assert await cache.get("k") == b"v"
    assert await cache.get("zero") is None
    assert cache.hit_miss_ratio["hits"] == 1
    assert await cache.multi_set([("l", b"w"), ("m", b"x")])
    assert await cache.multi_get(["k", "l", "m", "n"]) == [b"v", b"w", b"x", None]
    with pytest.raises(ValueError, match="exists"):
        await cache.add("k", b"w")
    assert await cache.exists("k")
    assert await cache.expire("k", 0.001)
    async with asyncio.timeout(raw.SECONDS):
        while await cache.exists("k"):
            await asyncio.sleep(0.001)
    assert await cache.delete("l") == 1
    assert await cache.clear(namespace="a:")
    assert await cache.get("m") is None
    assert cache.values.used_bytes == 0
    await cache.set("large", b"x" * 2600)
    assert await cache.get("large") is None


async def test_another_backend_of_aiocache(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server:
        url = f"aiocache://aiocache.RedisCache?port={server.port}&endpoint=127.0.0.1"
        overrides = {"cache": {"url": url, "max_bytes": "0"}}
        with capture_logs() as logs:
            stores = [await open_store(settings_for("http://app:1", overrides)) for _ in range(2)]
        assert [line["event"] for line in logs] == ["store_limited"] * 2
        renders = Renders()
        one, other = (CachedSnapshots(renders, store, freshness_of(100.0), 5.0) for store in stores)
        assert (await one.snapshot(PAGE)).stored
        assert (await other.snapshot(PAGE)).how == "hit"
        assert stores[0].state().kind == "redis"
        assert await stores[0].purges.purge(Purge("all"))
        async with asyncio.timeout(raw.SECONDS):
            while (await other.snapshot(PAGE)).how == "hit":
                await asyncio.sleep(0.05)
        assert (await one.snapshot(PAGE)).how == "hit"
        assert (await Lists(stores[0]).find(Query())).rows == []
        await server.kill()
        assert (await one.snapshot(OTHER)).how == "miss"
        assert not stores[0].state().available
        for store in stores:
            await store.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("aiocache://nowhere.Cache", "there is no class nowhere.Cache"),
        ("aiocache://aiocache.NoCache", "there is no class aiocache.NoCache"),
        ("aiocache://json.JSONDecoder", "json.JSONDecoder is not an aiocache cache"),
        ("aiocache://aiocache.SimpleMemoryCache?port=1", "does not accept these options"),
        ("aiocache://aiocache.RedisCache?port=x", "does not accept these options"),
    ],
)
async def test_a_backend_that_cannot_be_had(url: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        await open_store(settings_for("http://app:1", {"cache": {"url": url}}))


def test_a_backend_keeps_its_own_ways() -> None:
    cache = named("aiocache://aiocache.SimpleMemoryCache", NAMESPACE, 2.0)
    assert isinstance(cache, SimpleMemoryCache)
    assert cache.build_key("k", NAMESPACE) == f"{NAMESPACE}k"
    assert cache.timeout == 2.0

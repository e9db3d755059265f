"""Lists of snapshots: in memory, in a file, in Redis."""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerender.errors import StoreError
from prerender.snapshots import snapshot_lists
from prerender.snapshots.entry import Entry
from prerender.snapshots.list_rows import PIECE, SORTS, Query, Row, Selection, parse
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.snapshot import Facts, Snapshot
from prerender.snapshots.snapshot_lists import Lists, line_of
from prerender.snapshots.stores.file import FileCache
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.redis import RedisCache
from prerender.snapshots.stores.store import Store
from tests.support import raw
from tests.support.redis_server import redis_server

NAMESPACE = "prerender:www.example.com:1:"


def entry(
    page: str, *, status: int = 200, age: float = 0, ttl: float = 10_000, **more: object
) -> Entry:
    key = str(more.get("key", "k"))
    body = f"<head><title>Page {page}</title></head>{'x' * int(str(more.get('size', 0)))}".encode(
        "utf-8", "surrogateescape"
    )
    facts = Facts(real_seconds=float(str(more.get("seconds", 0))))
    tags = ("lamps",) if "lamp" in page else ()
    snapshot = Snapshot(status, (), body, '"x"', 1, facts=facts, tags=tags)
    now = time.time()
    return Entry(key, page, snapshot, now - age, now - age + ttl)


def entries() -> dict[str, Entry]:
    """Five entries whose ages differ by more than a test may take."""
    return {
        "1": entry("/", key="1", size=30, seconds=0.3),
        "2": entry("/#!/lamp/1", key="2", age=5000, size=10, seconds=0.1),
        "3": entry("/#!/lamp/2", key="3", age=50_000, size=20, seconds=0.2),
        "4": entry("/gone", key="4", status=404, age=2000, size=40, seconds=0.4),
        "5": entry("/half", key="5", age=1000, size=50, seconds=0.5),
    }


@pytest.fixture(params=["memory", "file", "redis"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with AsyncExitStack() as stack:
        slow: FileCache | RedisCache | None = None
        if request.param == "file":
            slow = FileCache(tmp_path, NAMESPACE, 10**8, raw.SECONDS)
            slow.timeout = raw.SECONDS
            await slow.open()
        elif request.param == "redis":
            server = await stack.enter_async_context(redis_server(tmp_path))
            slow = RedisCache(server.url, NAMESPACE, raw.SECONDS)
        made = Store(BoundedMemoryCache(10**8), slow)
        Lists(made)
        stack.push_async_callback(made.close)
        for kept in entries().values():
            assert await made.set(kept, 1000)
        yield made


async def keys(store: Store, query: Query) -> str:
    return "".join(row.key for row in (await Lists(store).find(query)).rows)


async def test_lists_of_a_store(store: Store) -> None:
    wanted: list[tuple[Query, str]] = [
        (Query(), "15423"),
        (Query(descending=True), "32451"),
        (Query(sort="path"), "12345"),
        (Query(sort="size"), "23145"),
        (Query(sort="seconds", descending=True), "54132"),
        (Query(sort="status", descending=True), "45321"),
        (Query(search="LAMP"), "23"),
        (Query(search="page /g"), "4"),
        (Query(search="nothing"), ""),
        (Query(status=404), "4"),
        (Query(status=2), "1523"),
        (Query(state="fresh"), "1542"),
        (Query(state="stale"), "3"),
        (Query(least_age=1500), "423"),
        (Query(least_age=1500, most_age=6000), "42"),
    ]
    for query, expected in wanted:
        assert await keys(store, query) == expected, query
    found = await Lists(store).find(Query(search="half"))
    (row,) = found.rows
    assert (row.path, row.title, row.status) == ("/half", "Page /half", 200)
    assert found.count == 1
    assert found.size == row.size == len(entries()["5"].snapshot.body)
    assert 900 < row.until - time.time() < 1100


async def test_pages_of_a_list(store: Store) -> None:
    for sort in SORTS:
        for descending in (False, True):
            query = Query(sort=sort, descending=descending, limit=2)
            seen = []
            while True:
                found = await Lists(store).find(query)
                assert found.count == 5
                seen += [row.key for row in found.rows]
                if found.next is None:
                    break
                query = replace(query, after=found.next)
            whole = await keys(store, Query(sort=sort, descending=descending))
            assert "".join(seen) == whole


async def test_what_is_purged_or_deleted_or_replaced(store: Store) -> None:
    await store.purges.purge(Purge("tag", "lamps", soft=True))
    assert await keys(store, Query(state="stale", sort="path")) == "23"
    await store.purges.purge(Purge("url", "/gone"))
    assert await keys(store, Query(sort="path")) == "1235"
    await store.delete("5")
    assert await keys(store, Query(sort="path")) == "123"
    await store.set(entry("/", status=410, age=-5, key="1"), 1000)
    assert await keys(store, Query(status=410)) == "1"
    await store.purges.purge(Purge("all"))
    assert (await Lists(store).find(Query())).count == 0


async def test_what_has_expired_is_not_listed(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server, AsyncExitStack() as stack:
        file = FileCache(tmp_path, NAMESPACE, 10**8, raw.SECONDS)
        await file.open()
        for slow in (None, file, RedisCache(server.url, NAMESPACE, raw.SECONDS)):
            store = Store(BoundedMemoryCache(10**8), slow)
            Lists(store)
            stack.push_async_callback(store.close)
            await store.set(entry("/soon", key="6"), 0.1)
            await store.set(entry("/later", key="7"), 100)
            async with asyncio.timeout(raw.SECONDS):
                while await keys(store, Query(sort="path")) != "7":
                    await asyncio.sleep(0.02)


@pytest.mark.heavy
async def test_the_loop_goes_on_during_a_list(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_lists, "PIECE", 100)
    for number in range(1000):
        await store.set(entry(f"/{number}", key=f"k{number}"), 1000)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    assert (await Lists(store).find(Query())).count == 1005
    task.cancel()
    assert turns > 5


class CountedPath(str):
    """A path that counts how often it is compared, by thread."""

    compared: ClassVar[Counter[int]] = Counter()
    __slots__ = ()
    __hash__ = str.__hash__

    def __lt__(self, other: str) -> bool:
        self.compared[threading.get_ident()] += 1
        return str.__lt__(self, other)


@pytest.mark.parametrize("limit", [1000, 50_000])
def test_a_list_compares_each_row_a_few_times(limit: int) -> None:
    count = 20_000
    now = time.time()
    made = Row.of(entry("/"), now + 1000)
    paths = [f"/{number * 7919 % count}" for number in range(count)]
    selection = Selection(Query(sort="path", limit=limit), Purges(), now)
    CountedPath.compared.clear()
    for start in range(0, count, PIECE):
        piece = paths[start : start + PIECE]
        selection.add(made._replace(key=path, path=CountedPath(path)) for path in piece)
    found = selection.selected()
    assert [row.path for row in found.rows] == sorted(paths)[:limit]
    assert found.count == count
    # About log2(count) each.
    assert CountedPath.compared.total() < 18 * count


async def test_lists_are_made_in_threads() -> None:
    count = 6 * PIECE
    store = Store(BoundedMemoryCache(10**8))
    paths = [f"/{number * 7919 % count}" for number in range(count)]
    for path in paths:
        await store.set(replace(entry(path, key=path), path=CountedPath(path)), 1000)
    CountedPath.compared.clear()
    found = await Lists(store).find(Query(sort="path", limit=count))
    compared = CountedPath.compared.copy()
    assert [row.path for row in found.rows] == sorted(paths)
    assert compared.total() > count
    assert threading.get_ident() not in compared


async def test_a_list_that_takes_too_long(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_lists, "_SECONDS", -1)
    with pytest.raises(StoreError, match="took too long"):
        await Lists(store).find(Query())
    # A purge does not wait for it.
    assert await Lists(store).count([Purge("all")]) is None


async def test_a_redis_that_is_away(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server:
        store = Store(BoundedMemoryCache(10**8), RedisCache(server.url, NAMESPACE, raw.SECONDS))
        await store.set(entries()["1"], 1000)
    with pytest.raises(StoreError):
        await Lists(store).find(Query())
    await store.close()


async def test_the_lines_in_redis_are_bounded(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server:
        cache = RedisCache(server.url, NAMESPACE, raw.SECONDS)
        cache.line_of = line_of
        for number in range(50):
            await cache.set(f"old{number}", entry("/old", key=f"old{number}"), 0.001)
        await asyncio.sleep(0.01)
        for number in range(5):
            await cache.set(f"new{number}", entry("/new", key=f"new{number}"), 100)
        lines = [line async for piece in cache.lines() for line in piece]
        assert [row.path for row in parse(lines)] == ["/new"] * 5
        await cache.close()


TITLES: list[tuple[bytes, str]] = [
    (b"<title>a &amp; b</title>", "a & b"),
    (b"<TITLE lang=en>\n a  \t b \n</TITLE>", "a b"),
    (b"<title>\xff</title>", "\N{REPLACEMENT CHARACTER}"),
    (b"<title></title>", ""),
    (b"no title", ""),
    (b"<title>" + b"x" * 500, "x" * 120),
    (b"x" * 99999 + b"<title>late</title>", "late"),
    (b"<!-- <title>old</title> --><title>new</title>", "new"),
    (b"<script>'<title>old</title>'</script><title>new</title>", "new"),
    (b"<svg><title>Menu</title></svg>", ""),
    (b"<svg><svg></svg><title>icon</title></svg><title>page</title>", "page"),
    (b"<template><template></template><title>t</title></template><title>page</title>", "page"),
    (b"<svg/><script>'<title>'", ""),
    (b"<SCRIPT>'<title>'</script><svgs><title>new", "new"),
]


@pytest.mark.parametrize(("body", "title"), TITLES)
def test_titles(body: bytes, title: str) -> None:
    assert Snapshot(200, (), body, '""', 1).title == title


def test_lines_of_another_version_are_left_out() -> None:
    row = Row.of(entries()["2"], time.time())
    assert parse([row.dump(), b"[1,2,3]"]) == [row]


texts = st.text(st.characters(codec="utf-8"), max_size=20) | st.just("/\udcff\n\\")


@given(
    st.lists(texts, unique=True, max_size=30),
    st.sampled_from(SORTS),
    st.integers(1, 7),
    st.booleans(),
)
def test_every_row_is_on_one_page(
    pages: list[str], sort: Callable[[], None], limit: int, descending: bool
) -> None:
    now = time.time()
    rows = parse([Row.of(entry(page, key=str(n)), now + 9).dump() for n, page in enumerate(pages)])
    query = Query(sort=sort, limit=limit, descending=descending)  # type: ignore[arg-type]
    seen: list[str] = []
    while True:
        selection = Selection(query, Purges(), now)
        for start in range(0, len(rows), 3):
            selection.add(rows[start : start + 3])
        found = selection.selected()
        seen += [row.path for row in found.rows]
        if found.next is None:
            break
        query = replace(query, after=found.next)
    assert sorted(seen) == sorted(pages)

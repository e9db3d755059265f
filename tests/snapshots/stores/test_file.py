"""The store in a file: restarts, kill -9, limits, corruption, and a read-only disk."""

import asyncio
import os
import re
import resource
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from aiocache.serializers import NullSerializer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from prerender.errors import ConfigError, StoreError
from prerender.snapshots.list_rows import Query
from prerender.snapshots.purges import MOST_RECORDS, Purge
from prerender.snapshots.snapshot_cache import CachedSnapshots
from prerender.snapshots.snapshot_lists import Lists
from prerender.snapshots.stores.file import FILE_NAME, FileCache
from prerender.snapshots.stores.from_settings import open_store
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.store import Store
from tests.conftest import StartOrigin, StartProxy, pages, settings_for
from tests.snapshots.stores.entries import entry
from tests.support.renders import Clock, Renders, freshness_of, target

NO_MEMORY = 0


@asynccontextmanager
async def opened(
    folder: Path, max_bytes: int = 10**8, namespace: str = "a:", *, raw: bool = False
) -> AsyncIterator[FileCache]:
    # The disk of a busy machine can take seconds for a write.
    file = FileCache(folder, namespace, max_bytes, 20.0)
    if raw:
        file.serializer = NullSerializer(encoding=None)
    await file.open()
    try:
        yield file
    finally:
        await file.close()


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


async def test_it_is_a_cache_of_aiocache(tmp_path: Path) -> None:
    async with opened(tmp_path / "new", raw=True) as file:
        assert await file.get("k") is None
        assert await file.set("k", b"v", 60)
        assert await file.get("k") == b"v"
        assert await file.exists("k")
        assert await file.set("k", b"w" * 100_000, 60)
        assert await file.get("k") == b"w" * 100_000
        assert await file.delete("k") == 1
        assert await file.delete("k") == 0
        assert not await file.exists("k")
        assert file.database.used_bytes == 0
        for ttl in (0, -1):
            assert not await file.set("k", b"v", ttl)
        assert await file.set("k", b"v", 0.02)
        async with asyncio.timeout(10):
            while await file.get("k") is not None:
                pass
        assert await file.set("k", b"v", 60)
        await file.clear(namespace="other:")
        assert await file.get("k") == b"v"
        await file.clear(namespace="a:")
        assert await file.get("k") is None


async def test_two_sites_in_one_file(tmp_path: Path) -> None:
    async with (
        opened(tmp_path, raw=True) as one,
        opened(tmp_path, namespace="b:", raw=True) as other,
    ):
        await one.set("k", b"one", 60)
        await other.set("k", b"other", 60)
        await one.purge(Purge("all"))
        assert (await one.get("k"), await other.get("k")) == (b"one", b"other")
        assert len(await one.purges(0) or ()) == 1
        assert await other.purges(0) is None


async def test_what_is_replaced_while_it_is_read_is_not_shown_again(tmp_path: Path) -> None:
    older, newer = entry(page="older"), entry(page="newer")
    async with opened(tmp_path) as file:
        store = Store(BoundedMemoryCache(10**6), file)
        assert await file.set("k", older, 60)
        assert await store.get("another") is None
        with closing(sqlite3.connect(tmp_path / FILE_NAME)) as writer:
            writer.execute("BEGIN IMMEDIATE")  # the file cannot be written to
            reading = asyncio.create_task(store.get("k"))
            writing = asyncio.create_task(store.set(newer, 60))
            await reading
        assert await writing
        assert await store.get("k") == newer


async def test_a_file_of_a_terabyte(tmp_path: Path) -> None:
    async with opened(tmp_path, max_bytes=10**12, raw=True) as file:
        await file.set("a", b"1", 60)
        assert await file.get("a") == b"1"


@pytest.mark.heavy
async def test_it_stays_within_its_bytes_and_drops_what_was_used_longest_ago(
    tmp_path: Path,
) -> None:
    bound = 20_000_000
    async with opened(tmp_path, bound, raw=True) as file:
        await file.set("hot", b"h" * 1000, 60)
        for number in range(800):
            await file.set(f"{number}", os.urandom(50_000), 60)
            if number % 20 == 0:
                assert await file.get("hot") is not None
        assert file.database.used_bytes <= bound
        kept = [number for number in range(800) if await file.exists(f"{number}")]
        assert 200 < len(kept) < 400
        assert kept == list(range(800 - len(kept), 800))
        assert not await file.set("large", b"x" * (bound // 4 + 1), 60)
    assert size_of(tmp_path) < bound * 1.3
    async with opened(tmp_path, bound // 4, raw=True) as file:
        await file.set("one more", b"x", 60)
        assert file.database.used_bytes <= bound // 4


@pytest.mark.heavy
async def test_the_event_loop_does_not_wait(tmp_path: Path) -> None:
    async with opened(tmp_path, raw=True) as file:
        other = sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            writing = asyncio.create_task(file.set("k", b"v", 60))
            turns = 0
            while not writing.done():
                assert await file.get("other") is None
                turns += 1
            assert turns > 10
            with pytest.raises(StoreError, match="locked"):
                await writing
        finally:
            other.execute("ROLLBACK")
            other.close()
        assert await file.set("k", b"v", 60)


async def test_snapshots_and_purges_survive_a_restart(tmp_path: Path) -> None:
    clock = Clock(time.time())
    renders = Renders()
    page = target()
    for expected in ("miss", "hit", "hit"):
        async with opened(tmp_path) as file:
            store = Store(BoundedMemoryCache(10**6), file, clock)
            cached = CachedSnapshots(renders, store, freshness_of(100.0), 5.0, clock=clock)
            answer = await cached.snapshot(page)
            assert answer.how == expected
            assert answer.snapshot.last_modified == 1
    async with opened(tmp_path) as file:
        await Store(BoundedMemoryCache(10**6), file, clock).purges.purge(Purge("all"))
    async with opened(tmp_path) as file:
        store = Store(BoundedMemoryCache(10**6), file, clock)
        cached = CachedSnapshots(renders, store, freshness_of(100.0), 5.0, clock=clock)
        assert (await cached.snapshot(page)).how == "miss"


@pytest.mark.parametrize("away", ["at the start", "later"])
async def test_a_purge_is_written_when_the_file_is_back(tmp_path: Path, away: str) -> None:
    disk = tmp_path / "disk"
    purge = Purge("url", "/a")
    file = FileCache(disk / "cache", "a:", 10**8)
    file.timeout = 20.0
    store = Store(BoundedMemoryCache(10**6), file)
    if away == "at the start":
        assert not await store.purges.purge(purge)
        disk.mkdir()
    else:
        disk.mkdir()
        await store.get("k")
        with closing(sqlite3.connect(disk / "cache" / FILE_NAME)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert not await store.purges.purge(purge)
    async with asyncio.timeout(20):
        while purge not in (await opened_purges(disk / "cache")):
            await store.get("k")
            await asyncio.sleep(0.02)
    assert purge in store.purges.purges.records
    assert store.purges.known(time.time())
    await store.close()


async def opened_purges(folder: Path) -> set[Purge]:
    """The purges that another process reads in a file."""
    async with opened(folder) as file:
        purges = await file.purges(-1)
        return set(purges.records) if purges else set()


async def test_purges_are_bounded(tmp_path: Path) -> None:
    async with opened(tmp_path) as file:
        await file.purge(*(Purge("tag", str(number)) for number in range(3)))
        found = await file.purges(0)
        assert found is not None
        assert len(found) == 3
        with sqlite3.connect(tmp_path / FILE_NAME) as other:
            other.executemany(
                "INSERT INTO purges VALUES (?, ?, ?)",
                [("a:", Purge("url", f"/{n}").dump(), n) for n in range(MOST_RECORDS)],
            )
        other.close()
        assert len(await file.purge(Purge("tag", "last"))) <= MOST_RECORDS


async def test_a_purge_writes_itself_only(tmp_path: Path) -> None:
    async with opened(tmp_path) as file:
        purges = await file.purge(*(Purge("tag", str(number)) for number in range(1000)))
        assert set(purges.records.values()) == {purges.generation}
        with sqlite3.connect(tmp_path / FILE_NAME) as other:
            row = ("a:", b"of another version", 1)
            other.execute("INSERT INTO purges VALUES (?, ?, ?)", row)
        other.close()
        connection = file.database._writer
        assert connection is not None
        before = connection.total_changes
        again = await file.purge(Purge("tag", "0"), Purge("tag", "new"))
        # One is new, one and the generation are replaced, and what is none is deleted.
        assert connection.total_changes - before == 6
        assert again.records[Purge("tag", "0")] == again.generation > purges.generation
        found = await file.purges(-1)
        assert found is not None
        assert (found.records, found.generation) == (again.records, again.generation)


@pytest.mark.parametrize("damage", ["garbage", "truncated", "another version", "middle"])
async def test_a_damaged_file_is_put_aside(tmp_path: Path, damage: str) -> None:
    path = tmp_path / FILE_NAME
    async with opened(tmp_path, raw=True) as file:
        for number in range(50):
            await file.set(f"{number}", os.urandom(20_000), 60)
    whole = path.read_bytes()
    if damage == "garbage":
        path.write_bytes(b"not a database, " * 1000)
    elif damage == "truncated":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "middle":
        path.write_bytes(whole[:8192] + os.urandom(len(whole) - 8192))
    else:
        with sqlite3.connect(path) as other:
            other.execute("PRAGMA user_version = 99")
        other.close()
    async with opened(tmp_path) as file:
        store = Store(BoundedMemoryCache(NO_MEMORY), file)
        for number in range(50):
            assert await store.get(f"{number}") is None
        async with asyncio.timeout(30):
            while not await store.set(entry(key="k"), 60):
                await asyncio.sleep(0.05)
        assert await store.get("k") is not None


async def test_a_whole_file_is_not_set_aside(tmp_path: Path) -> None:
    async with opened(tmp_path, raw=True) as file:
        await file.set("k", b"v", 60)
        with no_file_descriptors(), pytest.raises(sqlite3.OperationalError) as caught:
            file.database.read(["k"])
        assert caught.value.sqlite_errorname == "SQLITE_CANTOPEN"
        assert not file.database.is_to_blame(caught.value)
        writer = file.database._writer
        assert writer is not None
        writer.execute("PRAGMA query_only = 1")
        with pytest.raises(StoreError, match="readonly"):
            await file.set("k", b"w", 60)
        writer.execute("PRAGMA query_only = 0")
        assert await file.get("k") == b"v"
        assert await file.set("k", b"w", 60)
        assert await file.get("k") == b"w"


@contextmanager
def no_file_descriptors() -> Iterator[None]:
    """Nothing can be opened in this process meanwhile."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_a_lower_limit_costs_only_the_snapshots_above_it(tmp_path: Path) -> None:
    async with opened(tmp_path, 64 * 2**20, raw=True) as file:
        await file.set("large", bytes(4 * 2**20), 60)
        await file.set("small", b"v", 60)
    async with opened(tmp_path, 8 * 2**20, raw=True) as file:
        assert await file.multi_get(["large", "small"]) == [None, b"v"]
        assert await file.set("large", b"smaller", 60)
        assert await file.get("large") == b"smaller"


@pytest.mark.parametrize("removed", ["folder", "file", "another file in its place"])
async def test_a_file_that_is_removed_is_begun_anew(tmp_path: Path, removed: str) -> None:
    folder, other = tmp_path / "removed", tmp_path / "other"
    async with opened(other, raw=True) as file:
        await file.set("k", b"other", 60)
    async with opened(folder, raw=True) as file:
        await file.set("k", b"v", 60)
        assert await file.get("k") == b"v"
        if removed == "folder":
            shutil.rmtree(folder)
        elif removed == "file":
            (folder / FILE_NAME).unlink()
        else:
            (other / FILE_NAME).replace(folder / FILE_NAME)
        with capture_logs() as logs:
            for key in ("l", "m"):
                assert await file.set(key, b"w", 60)
        assert [line["event"] for line in logs] == ["store_file_removed"]
        expected = b"other" if removed.startswith("another") else None
        assert await file.multi_get(["k", "l", "m"]) == [expected, b"w", b"w"]
        async with opened(folder, raw=True) as another:
            assert await another.multi_get(["k", "l", "m"]) == [expected, b"w", b"w"]
    assert not list(folder.glob("*.damaged"))


async def test_a_bad_entry_is_a_miss_and_is_overwritten(tmp_path: Path) -> None:
    async with opened(tmp_path) as file:
        renders = Renders()
        store = Store(BoundedMemoryCache(NO_MEMORY), file)
        cached = CachedSnapshots(renders, store, freshness_of(100.0), 5.0)
        page = target()
        await cached.snapshot(page)
        whole = await file.get(page.key, loads_fn=lambda data: data)
        assert whole is not None
        for count, bad in enumerate((b"", b"PRS0" + whole[4:], whole[:-1], b"\x80\x04.", b"{}"), 2):
            await file.set(page.key, bad, 60, dumps_fn=bytes)
            assert (await cached.snapshot(page)).how == "miss"
            assert store.state().faults["bad entries"] == count - 1
            assert (await cached.snapshot(page)).how == "hit"
            assert renders.count == count


@given(bad=st.binary(max_size=100))
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=30, deadline=None
)
def test_any_bytes_in_the_file_are_at_most_a_miss(tmp_path: Path, bad: bytes) -> None:
    async def check() -> None:
        async with opened(tmp_path) as file:
            await file.set("k", bad, 60, dumps_fn=bytes)
            store = Store(BoundedMemoryCache(10**6), file)
            assert await store.get("k") is None

    asyncio.run(check())


async def test_entries_from_the_future_are_stale(tmp_path: Path) -> None:
    async with opened(tmp_path) as file:
        clock = Clock(time.time() + 86400)
        renders = Renders()
        ahead = Store(BoundedMemoryCache(NO_MEMORY), file, clock)
        await CachedSnapshots(renders, ahead, freshness_of(100.0), 5.0, clock=clock).snapshot(
            target()
        )
        here = Store(BoundedMemoryCache(NO_MEMORY), file)
        assert (
            await CachedSnapshots(renders, here, freshness_of(100.0), 5.0).snapshot(target())
        ).how == ("miss")


@pytest.mark.parametrize(
    ("place", "reason"),
    [
        ("missing/folder", "No such file or directory"),
        ("occupied", "File exists"),
        ("/proc/prerender", "No such file or directory"),
    ],
)
async def test_a_folder_that_cannot_be_used_stops_the_start(
    tmp_path: Path, place: str, reason: str
) -> None:
    (tmp_path / "occupied").write_text("x")
    url = f"file://{tmp_path / place}"
    with pytest.raises(ConfigError) as caught:
        await open_store(settings_for("http://app:1", {"cache": {"url": url}}))
    assert caught.value.problems == [f"[cache] url: {url}: cannot be written to: {reason}"]


@asynccontextmanager
async def store_at(folder: Path) -> AsyncIterator[Store]:
    """The store of a proxy that was started with a folder. Nothing is kept in memory."""
    cache = {"url": f"file://{folder}", "max_bytes": "0", "file_max_bytes": "64MiB"}
    store = await open_store(settings_for("http://app:1", {"cache": cache}))
    try:
        yield store
    finally:
        await store.close()


def damaged(random: Random, data: bytes) -> bytes:
    """The bytes of a corrupt file: anywhere, in its header, its schema or its pages."""
    start = random.randrange(len(data))
    end = min(len(data), start + random.randrange(1, 20_000))
    page, other = (random.randrange(len(data) // 8192 + 1) * 8192 for _ in range(2))
    found = data.find(b"CREATE")
    text = found + random.randrange(200) if 0 <= found < len(data) - 200 else start
    few = [random.randrange(min(100, len(data))) for _ in range(3)]
    changed = bytearray(data)
    match random.randrange(7):
        case 0:
            return data[:start]
        case 1:
            changed[start:end] = random.randbytes(end - start)
        case 2:
            changed[start:end] = bytes(end - start)
        case 3:
            changed[page : page + 8192] = data[other : other + 8192]
        case 4:
            changed[text] = random.randrange(128, 256)  # no UTF-8
        case 5:
            for place in few:
                changed[place] = random.randrange(256)
        case 6:
            for _ in range(200):
                changed[random.randrange(len(data))] = random.randrange(256)
    return bytes(changed)


async def damaged_copies(folder: Path) -> list[dict[str, bytes]]:
    """The files of a store by name: of a closed one, and of a killed one."""
    async with store_at(folder) as store:
        for number in range(30):
            key = f"{number:032}"
            assert await store.set(entry(3000, key=key), 600)
            await store.notes.set(key, b"x" * 100, 600)
        await store.purges.purge(Purge("tag", "lamps"))
        killed = contents(folder)
    return [contents(folder), killed]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


async def try_all(store: Store) -> None:
    """All operations of a store. Only lists may be unavailable."""
    for number in range(40):
        key = f"{number:032}"
        found = await store.get(key)
        assert found is None or found.snapshot.body == entry(3000).snapshot.body
        await store.set(entry(3000, key=key), 600)
        await store.notes.get(key)
    await store.purges.purge(Purge("tag", "chairs"))
    with suppress(StoreError):
        await Lists(store).find(Query())


@pytest.mark.ci_only
@pytest.mark.heavy
@pytest.mark.parametrize("times", [16, pytest.param(300, marks=pytest.mark.long)])
async def test_whatever_is_damaged_the_store_serves_on(tmp_path: Path, times: int) -> None:
    random = Random(16)
    before, folder = tmp_path / "before", tmp_path / "damaged"
    before.mkdir()
    copies = await damaged_copies(before)
    for number in range(times):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        files = copies[number % 2]
        changed = random.choice(sorted(files))
        for name, data in files.items():
            (folder / name).write_bytes(damaged(random, data) if name == changed else data)
        with capture_logs() as logs:
            async with store_at(folder) as store:
                Lists(store)
                await try_all(store)
                assert await store.set(entry(key="k"), 600)
                assert await store.get("k") is not None
                assert (await Lists(store).find(Query(search="/"))).count
        told = [line for line in logs if line["event"] == "store_file_replaced"]
        assert len(told) <= 1
        assert bool(told) == (folder / f"{FILE_NAME}.damaged").exists()


@pytest.mark.parametrize("what", ["a folder", "a folder, again", "no database", "a socket"])
async def test_something_else_in_the_place_of_the_file_is_set_aside(
    tmp_path: Path, what: str
) -> None:
    file = tmp_path / FILE_NAME
    if what == "no database":
        file.write_bytes(b"GIF89a" + os.urandom(10_000))
    elif what == "a socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(file))
    else:
        (file / "something").mkdir(parents=True)
    if what == "a folder, again":
        (tmp_path / f"{FILE_NAME}.damaged" / "something").mkdir(parents=True)
    with capture_logs() as logs:
        async with store_at(tmp_path) as store:
            assert await store.set(entry(key="k"), 60)
            assert await store.get("k") is not None
    assert [line["event"] for line in logs] == ["store_file_replaced"]
    assert len(os.listdir(tmp_path)) == 2 + (what == "a folder, again")


@asynccontextmanager
async def small_disk(folder: Path) -> AsyncIterator[Path]:
    """A disk of 1 MiB, if it can be mounted."""
    os.mkdir(folder)
    mount = ("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder))
    if os.geteuid() or await run(*mount):
        pytest.skip("nothing can be mounted here")
    try:
        yield folder
    finally:
        await run("umount", "--lazy", str(folder))


async def run(*command: str) -> int:
    process = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
    return await process.wait()


@pytest.mark.parametrize(
    ("fault", "when"),
    # A disk with files that are open for writing cannot be made read-only.
    [("full", "at the start"), ("full", "later"), ("read-only", "at the start")],
)
async def test_a_disk_that_cannot_be_written_to(tmp_path: Path, fault: str, when: str) -> None:
    async with small_disk(tmp_path / "disk") as disk:

        async def begin() -> None:
            if fault == "full":
                with suppress(OSError):
                    (disk / "filling").write_bytes(bytes(2**20))
            else:
                assert not await run("mount", "-o", "remount,ro", str(disk))

        async def end() -> None:
            if fault == "read-only":
                assert not await run("mount", "-o", "remount,rw", str(disk))
            (disk / "filling").unlink(missing_ok=True)

        if when == "at the start":
            await begin()
        with capture_logs() as logs:
            async with store_at(disk) as store:
                if when == "later":
                    assert await store.set(entry(key="before"), 60)
                    await begin()
                for number in range(5):
                    assert not await store.set(entry(20_000, key=f"{number}"), 60)
                    await store.get(f"{number}")
                if when == "later":
                    assert await store.get("before") is not None
                warnings = [line for line in logs if line["log_level"] == "warning"]
                assert len(warnings) == 1, logs
                await end()
                async with asyncio.timeout(30):  # it is left alone for up to five seconds
                    while not await store.set(entry(key="after"), 60):
                        await asyncio.sleep(0.05)
                assert await store.get("after") is not None
        assert not (disk / f"{FILE_NAME}.damaged").exists()


_AS_NOBODY = """
import asyncio, os, sys
from pathlib import Path
from prerender.config import load
from prerender.snapshots.stores import file
from prerender.snapshots.stores.from_settings import open_store
from tests.snapshots.stores.entries import entry

async def main():
    os.setgid(65534)
    os.setuid(65534)
    for folder in sys.argv[1:]:
        cache = {"url": f"file://{folder}", "max_bytes": "0"}
        store = await open_store(load(None, {}, {"origin": {"url": "http://a"}, "cache": cache}))
        print(await store.set(entry(key="k"), 60), await store.get("k") is not None, flush=True)
        await store.close()

asyncio.run(main())
"""
# Those of the folder and of its file, and whether another user can use them.
_PERMISSIONS = [
    (0o777, 0o000, True),
    (0o777, 0o444, True),
    (0o555, 0o644, False),
    (0o000, 0o666, False),
]


@pytest.mark.ci_only
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
async def test_permissions() -> None:
    with TemporaryDirectory(dir="/tmp") as name:  # tmp_path is in a folder of root's
        os.chmod(name, 0o755)
        folders = [Path(name) / f"{number}" for number in range(len(_PERMISSIONS))]
        for folder, (folder_mode, file_mode, _) in zip(folders, _PERMISSIONS, strict=True):
            async with opened(folder, raw=True) as file:
                await file.set("k", b"v", 60)
            (folder / FILE_NAME).chmod(file_mode)
            folder.chmod(folder_mode)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _AS_NOBODY, *map(str, folders)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        output = (await process.communicate())[0].decode()
        told = re.findall(r"^(?:True|False) .*", output, re.MULTILINE)
        assert told == [f"{works} {works}" for _, _, works in _PERMISSIONS], output
        assert output.count("warning") == len(_PERMISSIONS)


async def test_a_full_disk_costs_no_answer(tmp_path: Path) -> None:
    async with opened(tmp_path) as file:
        renders = Renders("x" * 100_000)
        store = Store(BoundedMemoryCache(NO_MEMORY), file)
        cached = CachedSnapshots(renders, store, freshness_of(100.0), 5.0)
        await cached.snapshot(target("/before"))
        # What SQLite says when the disk is full, at the same place.
        pages_now = file.database._writer.execute("PRAGMA page_count").fetchone()[0]  # type: ignore[union-attr]
        file.database._writer.execute(f"PRAGMA max_page_count = {pages_now}")  # type: ignore[union-attr]
        answers = [await cached.snapshot(target(f"/{number}")) for number in range(5)]
        assert [answer.how for answer in answers] == ["miss"] * 5
        assert store.state().faults["set"] > 0
        assert (await cached.snapshot(target("/before"))).how == "hit"
        file.database._writer.execute("PRAGMA max_page_count = 1000000")  # type: ignore[union-attr]
        await cached.snapshot(target("/after"))
        assert (await cached.snapshot(target("/after"))).how == "hit"


_WRITER = """
import asyncio, os, sys
from pathlib import Path
from prerender.snapshots.stores.file import FileCache
from tests.snapshots.stores.entries import entry

async def main():
    file = FileCache(Path(sys.argv[1]), "a:", 5_000_000, 20.0)
    await file.open()
    print("open", flush=True)
    number = 0
    while True:
        number += 1
        await file.set(str(number % 97), entry(1000 + number * 977 % 90_000, f"/{number}"), 600)
        print(number, flush=True)

asyncio.run(main())
"""


@pytest.mark.ci_only
@pytest.mark.parametrize("times", [2, pytest.param(50, marks=pytest.mark.long)])
async def test_kill_9_during_writes(tmp_path: Path, times: int) -> None:
    read = 0
    for number in range(times):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _WRITER, tmp_path), stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"open\n"
            for _ in range(2 + number % 7):
                await process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        await process.wait()
        async with opened(tmp_path, 5_000_000) as file:
            for key in range(97):
                found = await file.get(str(key))
                if found is not None:
                    body = found.snapshot.body
                    assert body == entry(len(body), found.path).snapshot.body
                    read += 1
            assert file.database.used_bytes <= 5_000_000
    assert read > times


async def test_the_whole_proxy_on_a_file(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    origin = await pages(start_origin, {"/": f"<p>{'kept ' * 300}"})
    cache = {"cache": {"url": f"file://{tmp_path}"}, "site": {"url": "https://www.example.com"}}
    first = await start_proxy(origin.url, cache)
    made = await first.crawl("/", headers={"Accept-Encoding": "br"})
    second = await start_proxy(origin.url, cache)
    found = await second.crawl("/", headers={"Accept-Encoding": "br"})
    assert found.headers["Cache-Status"].startswith("prerender; hit;")
    assert found.body == made.body
    assert found.headers["ETag"] == made.headers["ETag"]
    assert origin.count("/") == 1
    other = await start_proxy(origin.url, cache | {"snapshot": {"add_canonical": True}})
    assert (await other.crawl("/")).headers["Cache-Status"].startswith("prerender; fwd=miss")

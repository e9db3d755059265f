"""Snapshots in one SQLite file, behind aiocache's interface. They survive restarts and ``kill -9``.

SQLite's write-ahead log makes a write whole or not there, and lets reading go on beside it. Reading
and writing have a thread each, so that neither a slow disk nor the other one holds up the event loop.
What was used longest ago goes first; that is written down with the next write, not at each read.
"""

import asyncio
import contextlib
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import structlog
from aiocache.base import BaseCache
from aiocache.serializers import NullSerializer

from prerender.errors import StoreError
from prerender.snapshots.purges import Purge, Purges

FILE_NAME = "snapshots.sqlite3"
_VERSION = 1
_PAGE_BYTES = 8192
_BUSY_SECONDS = 1.0
# Another process may write to the file while we are replaced: our sum is checked now and then.
_WRITES_BETWEEN_COUNTS = 256
_EVICTED_AT_ONCE = 32
_SCHEMA = f"""
    BEGIN IMMEDIATE;
    CREATE TABLE entries (key TEXT PRIMARY KEY, used REAL, size INTEGER, expires REAL, value BLOB);
    CREATE INDEX recency ON entries (used, size);
    CREATE TABLE purges (namespace TEXT, purge BLOB, number INTEGER, PRIMARY KEY (namespace, purge));
    PRAGMA user_version = {_VERSION};
    COMMIT;
"""

T = TypeVar("T")
log = structlog.get_logger(__name__)


class FileCache(BaseCache):  # type: ignore[misc]
    """Keeps bytes in ``folder``, of which the file takes about ``max_bytes``.

    Keys begin with ``namespace``. To be opened before use; faults are StoreErrors.
    """

    NAME = "file"
    shared = False
    timeout_seconds = 2.0

    def __init__(self, folder: Path, namespace: str, max_bytes: int) -> None:
        super().__init__(
            serializer=NullSerializer(encoding=None), namespace=namespace, timeout=None
        )
        self._namespace = namespace
        self._file = folder / FILE_NAME
        self._max_bytes = max_bytes
        self._reading = ThreadPoolExecutor(1, "store-reading")
        self._writing = ThreadPoolExecutor(1, "store-writing")
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._touched: dict[str, float] = {}
        self._writes = 0
        self._mending = asyncio.Lock()
        self.used_bytes = 0

    async def open(self) -> None:
        """Make the folder and the file if need be. Raises OSError or sqlite3.Error if that fails."""
        await self._in(self._writing, self._open)

    async def _get(self, key: str, encoding: str | None = None, _conn: Any = None) -> bytes | None:
        return await self._run(self._reading, self._read, key)

    async def _set(
        self,
        key: str,
        value: bytes,
        ttl: float | None = None,
        _cas_token: Any = None,
        _conn: Any = None,
    ) -> bool:
        seconds = 365 * 86400.0 if ttl is None else ttl
        if seconds <= 0 or len(value) > self._max_bytes / 4:
            return False
        return await self._run(self._writing, self._write, key, value, time.time() + seconds)

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return await self._get(key) is not None

    async def _delete(self, key: str, _conn: Any = None) -> int:
        return await self._run(self._writing, self._remove, key)

    async def _clear(self, namespace: str | None = None, _conn: Any = None) -> bool:
        await self._run(self._writing, self._remove_all, namespace or "")
        return True

    async def purge(self, purge: Purge) -> Purges:
        """Write a purge down; all that are remembered."""
        return await self._run(self._writing, self._purge, purge)

    async def purges(self, generation: int) -> Purges | None:
        """All purges; None if the last one has this number."""
        found = await self._run(self._reading, self._purges)
        return None if found.generation == generation else found

    async def acquire(self, key: str) -> int:
        """0: nobody else renders for this file."""
        return 0

    async def extend(self, key: str, fence: int) -> None:
        """Nothing: there are no leases."""

    async def release(self, key: str, fence: int) -> None:
        """Nothing: there are no leases."""

    async def _close(self, *_: Any, **__: Any) -> None:
        await self._in(self._reading, self._close_reader)
        await self._in(self._writing, self._close_writer)
        self._reading.shutdown(wait=False)
        self._writing.shutdown(wait=False)

    async def _in(self, thread: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, work, *arguments)

    async def _run(self, thread: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any) -> T:
        try:
            return await self._in(thread, work, *arguments)
        except (sqlite3.OperationalError, OSError) as error:
            raise StoreError(f"{self._file}: {error}") from error
        except sqlite3.DatabaseError as error:
            await self._mend(error)
            raise StoreError(f"{self._file}: {error}") from error

    async def _mend(self, error: sqlite3.DatabaseError) -> None:
        """Put a damaged file aside and begin a new one."""
        broken = self._writer
        async with self._mending:
            if broken is not self._writer:
                return
            log.warning("the store's file is damaged; a new one is begun", reason=str(error))
            with contextlib.suppress(OSError, sqlite3.Error):
                await self._in(self._reading, self._close_reader)
                await self._in(self._writing, self._begin_anew)

    # What follows runs in one of the two threads.

    def _open(self) -> None:
        self._file.parent.mkdir(exist_ok=True)
        try:
            self._open_writer()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            log.warning("the store's file is damaged; a new one is begun", reason=str(error))
            self._begin_anew()

    def _begin_anew(self) -> None:
        self._close_writer()
        for file in (self._file, *(Path(f"{self._file}{end}") for end in ("-wal", "-shm"))):
            with contextlib.suppress(FileNotFoundError):
                file.replace(f"{file}.damaged")
        self._open_writer()

    def _open_writer(self) -> None:
        connection = self._connect()
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
            if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                for table in ("entries", "purges"):
                    connection.execute(f"DROP TABLE IF EXISTS {table}")
                connection.executescript(_SCHEMA)
            # Fails now, and not at the first snapshot, where nothing can be written.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("COMMIT")
            self.used_bytes = _used(connection)
        except BaseException:
            connection.close()
            raise
        self._writer = connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        # A power cut may undo the last writes; it does not damage the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def _read(self, key: str) -> bytes | None:
        row = (
            self._for_reading()
            .execute("SELECT value, expires FROM entries WHERE key = ?", (key,))
            .fetchone()
        )
        if row is None or row[1] <= time.time():
            return None
        self._touched[key] = time.time()
        return bytes(row[0])

    def _purges(self) -> Purges:
        return self._purges_in(self._for_reading())

    def _purges_in(self, connection: sqlite3.Connection) -> Purges:
        query = "SELECT purge, number FROM purges WHERE namespace = ?"
        return Purges.parse(connection.execute(query, (self._namespace,)))

    def _for_reading(self) -> sqlite3.Connection:
        if self._reader is None:
            self._reader = self._connect()
        return self._reader

    def _write(self, key: str, value: bytes, expires: float) -> bool:
        with self._transaction() as connection:
            self._note_use(connection)
            freed = self._removed(connection, key)
            # SQLite fills whole pages; the row's own part and the indexes take about one.
            size = (len(value) // _PAGE_BYTES + 2) * _PAGE_BYTES
            connection.execute(
                "INSERT INTO entries VALUES (?, ?, ?, ?, ?)",
                (key, time.time(), size, expires, value),
            )
            used = self.used_bytes + size - freed
            self._writes += 1
            if self._writes % _WRITES_BETWEEN_COUNTS == 0:
                used = _used(connection)
            while used > self._max_bytes:
                used -= self._evict(connection)
        self.used_bytes = used
        return True

    def _note_use(self, connection: sqlite3.Connection) -> None:
        touched, self._touched = self._touched, {}
        connection.executemany(
            "UPDATE entries SET used = ? WHERE key = ?",
            [(used, key) for key, used in touched.items()],
        )

    def _evict(self, connection: sqlite3.Connection) -> int:
        rows = connection.execute(
            "SELECT key, size FROM entries ORDER BY used LIMIT ?", (_EVICTED_AT_ONCE,)
        ).fetchall()
        connection.executemany("DELETE FROM entries WHERE key = ?", [row[:1] for row in rows])
        return sum(row[1] for row in rows)

    def _remove(self, key: str) -> int:
        with self._transaction() as connection:
            freed = self._removed(connection, key)
        self.used_bytes -= freed
        return int(freed > 0)

    def _removed(self, connection: sqlite3.Connection, key: str) -> int:
        row = connection.execute("SELECT size FROM entries WHERE key = ?", (key,)).fetchone()
        if row is None:
            return 0
        connection.execute("DELETE FROM entries WHERE key = ?", (key,))
        return int(row[0])

    def _remove_all(self, prefix: str) -> None:
        with self._transaction() as connection:
            connection.execute(
                "DELETE FROM entries WHERE substr(key, 1, ?) = ?", (len(prefix), prefix)
            )
            self.used_bytes = _used(connection)

    def _purge(self, purge: Purge) -> Purges:
        with self._transaction() as connection:
            purges = self._purges_in(connection).with_(purge, time.time())
            connection.execute("DELETE FROM purges WHERE namespace = ?", (self._namespace,))
            connection.executemany(
                "INSERT INTO purges VALUES (?, ?, ?)",
                [(self._namespace, known.dump(), n) for known, n in purges.records.items()],
            )
        return purges

    @contextlib.contextmanager
    def _transaction(self) -> Any:
        if self._writer is None:
            self._open_writer()
        connection = self._writer
        assert connection is not None
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise

    def _close_reader(self) -> None:
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._writer = None


def _used(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT total(size) FROM entries").fetchone()[0])

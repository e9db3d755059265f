"""The SQLite file of the store: its tables, what is evicted, a damaged file put aside.

Nothing here is asynchronous: reading and writing are for a thread each (file.py). SQLite's write-ahead
log makes a write whole or not there, also when the process is killed, and lets reading go on beside it.
What was used longest ago goes first; that is written down with the next write, not at each read.
"""

import json
import sqlite3
import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import structlog

from prerender.snapshots.listing import PIECE
from prerender.snapshots.purges import Purge, Purges

_VERSION = 2
_PAGE_BYTES = 8192
_BUSY_SECONDS = 1.0
# Another process may write to the file while we are replaced: our sum is checked now and then.
_WRITES_BETWEEN_COUNTS = 256
_EVICTED_AT_ONCE = 32
_SCHEMA = (
    "DROP TABLE IF EXISTS entries",
    "DROP TABLE IF EXISTS lines",
    "DROP TABLE IF EXISTS purges",
    "CREATE TABLE entries (key TEXT PRIMARY KEY, used REAL, size INTEGER, expires REAL, value BLOB)",
    "CREATE INDEX recency ON entries (used, size)",
    "CREATE TABLE lines (key TEXT PRIMARY KEY, expires REAL, line BLOB)",
    "CREATE TRIGGER unlisted AFTER DELETE ON entries BEGIN DELETE FROM lines WHERE key = old.key; END",
    "CREATE TABLE purges (namespace TEXT, purge BLOB, number INTEGER, PRIMARY KEY (namespace, purge))",
)

log = structlog.get_logger(__name__)


class Database:
    """Bytes by key in about ``max_bytes`` of a file, and the purges of each namespace.

    ``read``, ``purges`` and ``close_reader`` are for one thread, all else is for another one; ``lines``
    may be gone through in a third one.
    Raises OSError and sqlite3.Error.
    """

    def __init__(self, file: Path, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._touched: dict[str, float] = {}
        self._writes = 0
        self.used_bytes = 0

    def open(self) -> None:
        """Make the folder and the file if need be; fails if nothing can be written there."""
        self._file.parent.mkdir(exist_ok=True)
        try:
            self._open_writer()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            log.warning("the store's file is damaged; a new one is begun", reason=str(error))
            self.begin_anew()

    def begin_anew(self) -> None:
        """Put the file aside, and begin a new one. The reader has to be closed."""
        self.close_writer()
        for file in (self._file, *(Path(f"{self._file}{end}") for end in ("-wal", "-shm"))):
            with suppress(FileNotFoundError):
                file.replace(f"{file}.damaged")
        self._open_writer()

    def read(self, keys: list[str]) -> list[bytes | None]:
        """The bytes of each key."""
        query = (
            "SELECT key, value FROM entries"
            " WHERE key IN (SELECT value FROM json_each(?)) AND expires > ?"
        )
        now = time.time()
        found = dict(self._for_reading().execute(query, (json.dumps(keys), now)).fetchall())
        self._touched.update(dict.fromkeys(found, now))
        return [found.get(key) for key in keys]

    def write(self, key: str, value: bytes, expires: float) -> None:
        """Keep bytes until some Unix time, and drop others to make room."""
        with self._transaction() as connection:
            self._note_use(connection)
            freed = _remove(connection, key)
            # SQLite fills whole pages; the row's own part and the indexes take about one.
            size = (len(value) // _PAGE_BYTES + 2) * _PAGE_BYTES
            row = (key, time.time(), size, expires, value)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", row)
            used = self.used_bytes + size - freed
            self._writes += 1
            if self._writes % _WRITES_BETWEEN_COUNTS == 0:
                used = _sum(connection)
            while used > self._max_bytes:
                evicted = _evict(connection)
                used = used - evicted if evicted else 0
        self.used_bytes = used

    def enlist(self, key: str, line: bytes, expires: float) -> None:
        """Keep the line of a list for a key that is kept; it goes with the key."""
        with self._transaction() as connection:
            query = (
                "INSERT OR REPLACE INTO lines SELECT key, ?, ? FROM entries WHERE key = ? LIMIT 1"
            )
            connection.execute(query, (expires, line, key))

    def lines(self, prefix: str) -> Generator[list[bytes]]:
        """The lines of all keys with a prefix, by a connection of its own, in pieces."""
        with closing(self._connect()) as connection:
            query = "SELECT line FROM lines WHERE key >= ? AND key < ? AND expires > ?"
            # The first key behind all those with the prefix.
            end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
            found = connection.execute(query, (prefix, end, time.time()))
            while piece := found.fetchmany(PIECE):
                yield [line for (line,) in piece]

    def remove(self, key: str) -> bool:
        """Drop a key; whether there was one."""
        with self._transaction() as connection:
            freed = _remove(connection, key)
        self.used_bytes -= freed
        return freed > 0

    def remove_all(self, prefix: str) -> None:
        """Drop all keys with a prefix."""
        with self._transaction() as connection:
            query = "DELETE FROM entries WHERE substr(key, 1, ?) = ?"
            connection.execute(query, (len(prefix), prefix))
            self.used_bytes = _sum(connection)

    def purge(self, namespace: str, purge: Purge) -> Purges:
        """Write a purge down; all of the namespace."""
        with self._transaction() as connection:
            purges = _purges(connection, namespace).with_(purge, time.time())
            connection.execute("DELETE FROM purges WHERE namespace = ?", (namespace,))
            rows = [(namespace, known.dump(), number) for known, number in purges.records.items()]
            connection.executemany("INSERT INTO purges VALUES (?, ?, ?)", rows)
        return purges

    def purges(self, namespace: str) -> Purges:
        """All purges of a namespace."""
        return _purges(self._for_reading(), namespace)

    def close_reader(self) -> None:
        """Close what was opened for reading; the next one opens it again."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def close_writer(self) -> None:
        """Close what was opened for writing; the next one opens it again."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _open_writer(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            if connection.execute("PRAGMA user_version").fetchone()[0] != _VERSION:
                for statement in _SCHEMA:
                    connection.execute(statement)
            # Fails now, and not at the first snapshot, where nothing can be written.
            connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("COMMIT")
            self.used_bytes = _sum(connection)
        except BaseException:
            connection.close()
            raise
        self._writer = connection
        return connection

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        # A power cut may undo the last writes; it does not damage the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def _for_reading(self) -> sqlite3.Connection:
        if self._reader is None:
            self._reader = self._connect()
        return self._reader

    def _note_use(self, connection: sqlite3.Connection) -> None:
        touched, self._touched = self._touched, {}
        # One step, in which the reading thread cannot add to it.
        rows = list(touched.items())
        query = "UPDATE entries SET used = ? WHERE key = ?"
        connection.executemany(query, [(used, key) for key, used in rows])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._writer or self._open_writer()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise


def _remove(connection: sqlite3.Connection, key: str) -> int:
    """How many bytes that freed."""
    row = connection.execute("SELECT size FROM entries WHERE key = ?", (key,)).fetchone()
    if row is None:
        return 0
    connection.execute("DELETE FROM entries WHERE key = ?", (key,))
    return int(row[0])


def _evict(connection: sqlite3.Connection) -> int:
    """Drop some that were used longest ago; how many bytes that freed."""
    query = "SELECT key, size FROM entries ORDER BY used LIMIT ?"
    rows = connection.execute(query, (_EVICTED_AT_ONCE,)).fetchall()
    connection.executemany("DELETE FROM entries WHERE key = ?", [row[:1] for row in rows])
    return sum(row[1] for row in rows)


def _sum(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT total(size) FROM entries").fetchone()[0])


def _purges(connection: sqlite3.Connection, namespace: str) -> Purges:
    query = "SELECT purge, number FROM purges WHERE namespace = ?"
    return Purges.parse(connection.execute(query, (namespace,)))

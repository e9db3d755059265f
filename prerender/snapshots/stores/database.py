"""The SQLite file of the store: its tables, eviction, and replacing a damaged file.

Nothing here is asynchronous: file.py has one thread for reads and one for writes. SQLite's write-ahead
log makes every write atomic, even when the process is killed, and allows reads during a write. The
least recently used snapshots are evicted first; their times of use are saved with the next write, not
with each read.

Values are cast when they are read: in a damaged file a column may contain any type.
"""

import json
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import structlog

from prerender.snapshots.entry import FORMAT
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.backing_store import PIECE

_VERSION = 2
# The format of entries, as SQLite's application_id. The first releases did not set it.
_FORMAT = int.from_bytes(FORMAT, "big")
_FIRST_FORMAT = int.from_bytes(b"PRS4", "big")
_PAGE_BYTES = 8192
_BUSY_SECONDS = 1.0
# SQLite's limit is a C int.
_MOST_LENGTH = 2**31 - 1
# During a restart another process may write to the file, so our total is recomputed from time to time.
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
# Exceptions of sqlite3 for an unusable file. The message may quote the file; if the quote is not UTF-8,
# sqlite3 raises UnicodeDecodeError.
FAULTS = (sqlite3.Error, OSError, ValueError, TypeError, OverflowError, MemoryError)
# What proves damage; a missing table or column is SQLITE_ERROR. Anything else, such as too few file
# descriptors or a failing disk, may pass.
_DAMAGE = (
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_CONSTRAINT,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_TOOBIG,
)

log = structlog.get_logger(__name__)


class Database:
    """Stores bytes by key in a file of about ``max_bytes``, and the purges of each namespace.

    A file of another version, or with entries in another format, is emptied when it is opened;
    ``removed_format`` is what it had.

    ``read``, ``purges`` and ``close_reader`` belong to one thread, everything else to another one;
    ``lines`` may be iterated in a third one. Raises FAULTS.
    """

    def __init__(self, file: Path, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes
        # A damaged value may claim a length of up to a gigabyte.
        self._longest = min(max_bytes // 4 + 2**20, _MOST_LENGTH)
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        # Of the file and its logs: those that the writer has open, and those that the reader has.
        self._inodes: list[int] = []
        self._read_inodes: list[int] = []
        self._touched: dict[str, float] = {}
        self._writes = 0
        self.used_bytes = 0
        self.removed_format: bytes | None = None

    @property
    def is_open(self) -> bool:
        """Whether the last attempt to write to the file succeeded."""
        return self._writer is not None

    def open(self) -> None:
        """Create the folder and the file if needed. Fails if the file is not writable."""
        self._file.parent.mkdir(exist_ok=True)
        self._open_writer()

    def is_to_blame(self, error: BaseException) -> bool:
        """Whether the file itself causes an error, and a new file in the same folder works."""
        if not (_proves_damage(error) or any(map(_is_unusable, _with_its_logs(self._file)))):
            return False
        trial = Path(f"{self._file}.trial")
        database = Database(trial, self._max_bytes)
        try:
            database.open()
        except FAULTS:
            return False
        finally:
            database.close_writer()
            for file in _with_its_logs(trial):
                with suppress(OSError):
                    file.unlink()
        return True

    def replace_file(self) -> None:
        """Rename the damaged file and create a new one. The reader must be closed."""
        with suppress(*FAULTS):
            self.close_writer()
        for file in _with_its_logs(self._file):
            _set_aside(file)
        self._open_writer()

    def read(self, keys: list[str]) -> list[bytes | None]:
        """The bytes of the keys."""
        query = (
            "SELECT key, CAST(value AS BLOB) FROM entries"
            " WHERE key IN (SELECT value FROM json_each(?)) AND expires > ? AND length(value) <= ?"
        )
        now = time.time()
        # Larger ones were stored when ``max_bytes`` was larger.
        row = (json.dumps(keys), now, self._longest)
        by_key = dict(self._for_reading().execute(query, row).fetchall())
        self._touched.update(dict.fromkeys(by_key, now))
        return [by_key.get(key) for key in keys]

    def write(self, key: str, value: bytes, expires: float, line: bytes | None = None) -> None:
        """Store bytes and their line in lists until a Unix time, and evict others if needed."""
        with self._transaction() as connection:
            self._note_use(connection)
            freed = _remove(connection, key)
            # SQLite allocates whole pages; the row overhead and the indexes take about one.
            size = (len(value) // _PAGE_BYTES + 2) * _PAGE_BYTES
            row = (key, time.time(), size, expires, value)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", row)
            if line is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO lines VALUES (?, ?, ?)", (key, expires, line)
                )
            used = self.used_bytes + size - freed
            self._writes += 1
            if self._writes % _WRITES_BETWEEN_COUNTS == 0:
                used = _sum(connection)
            while used > self._max_bytes:
                evicted = _evict(connection)
                used = used - evicted if evicted else 0
        self.used_bytes = used

    def lines(self, prefix: str) -> Generator[list[bytes]]:
        """The lines of all keys with a prefix, in pieces, read over a separate connection."""
        with closing(self._connect()) as connection:
            query = (
                "SELECT CAST(line AS BLOB) FROM lines WHERE key >= ? AND key < ? AND expires > ?"
            )
            # The first key after all keys with the prefix.
            end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
            rows = connection.execute(query, (prefix, end, time.time()))
            while piece := rows.fetchmany(PIECE):
                yield [line for (line,) in piece]

    def remove(self, key: str) -> bool:
        """Delete a key. Returns whether it existed."""
        with self._transaction() as connection:
            freed = _remove(connection, key)
        self.used_bytes -= freed
        return freed > 0

    def remove_all(self, prefix: str) -> None:
        """Delete all keys with a prefix."""
        with self._transaction() as connection:
            query = "DELETE FROM entries WHERE substr(key, 1, ?) = ?"
            connection.execute(query, (len(prefix), prefix))
            self.used_bytes = _sum(connection)

    def purge(self, namespace: str, *purges: Purge) -> Purges:
        """Add purges. Returns all purges of the namespace."""
        return self._change(namespace, lambda known: known.with_(purges, time.time()))

    def restore(self, namespace: str, purges: Purges) -> Purges:
        """Add purges with their numbers. Returns all purges of the namespace."""
        return self._change(namespace, lambda known: known.restored(purges))

    def purges(self, namespace: str) -> Purges:
        """All purges of a namespace."""
        return Purges.parse(_purge_rows(self._for_reading(), namespace), time.time())

    def close_reader(self) -> None:
        """Close the connection for reads; the next read opens a new one."""
        if self._reader is not None:
            self._reader.close()
        self._reader = None

    def close_writer(self) -> None:
        """Close the connection for writes; the next write opens a new one."""
        if self._writer is not None:
            self._writer.close()
        self._writer = None

    def _open_writer(self) -> sqlite3.Connection:
        connection = self._connect()
        try:
            connection.execute(f"PRAGMA page_size = {_PAGE_BYTES}")
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            if before := _other_format(connection):
                self.removed_format = before
            if before is not None:
                for statement in _SCHEMA:
                    connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_FORMAT}")
            # An unwritable file fails here, and not at the first snapshot.
            connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("COMMIT")
            self.used_bytes = _sum(connection)
        except BaseException:
            connection.close()
            raise
        self._writer = connection
        self._inodes = [_inode(file) for file in _with_its_logs(self._file)]
        return connection

    def _for_writing(self) -> sqlite3.Connection:
        if self._writer is not None and _inode(self._file) != self._inodes[0]:
            log.warning("store_file_removed", file=str(self._file))
            self.close_writer()
            # The reader has the log's index mapped: a new file with the same one would truncate it.
            for file, inode in zip(_with_its_logs(self._file), self._inodes, strict=True):
                if _inode(file) == inode:
                    file.unlink(missing_ok=True)
            self.open()
        return self._writer or self._open_writer()

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._file, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, self._longest)
        # A power failure may lose the last writes, but does not damage the file.
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    def _for_reading(self) -> sqlite3.Connection:
        if self._reader is None or self._read_inodes is not self._inodes:
            self.close_reader()
            self._read_inodes = self._inodes
            self._reader = self._connect()
        return self._reader

    def _change(self, namespace: str, change: Callable[[Purges], Purges]) -> Purges:
        with self._transaction() as connection:
            before = set(_purge_rows(connection, namespace))
            purges = change(Purges.parse(before, time.time()))
            # Only what differs: there may be thousands.
            after = set(purges.dump())
            delete = "DELETE FROM purges WHERE namespace = ? AND purge = ? AND number = ?"
            insert = "INSERT OR REPLACE INTO purges VALUES (?, ?, ?)"
            for query, rows in ((delete, before - after), (insert, after - before)):
                connection.executemany(query, [(namespace, *row) for row in rows])
        return purges

    def _note_use(self, connection: sqlite3.Connection) -> None:
        touched, self._touched = self._touched, {}
        # A single operation, so the reading thread cannot add to it in between.
        rows = list(touched.items())
        query = "UPDATE entries SET used = ? WHERE key = ?"
        connection.executemany(query, [(used, key) for key, used in rows])

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        connection = self._for_writing()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            with suppress(*FAULTS):
                connection.execute("ROLLBACK")
            raise


def _other_format(connection: sqlite3.Connection) -> bytes | None:
    """The format of a file that this release cannot use, b"" for a new file, None if it can be used."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'entries'").fetchone():
        return b""
    version, application = (
        connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("user_version", "application_id")
    )
    known = (application or _FIRST_FORMAT).to_bytes(4, "big", signed=True)
    if version != _VERSION:
        return b"%b, version %d" % (known, version)
    return None if known == FORMAT else known


def _proves_damage(error: BaseException) -> bool:
    if isinstance(error, OSError | MemoryError):
        return False
    # An extended code has the primary one in its last byte (https://sqlite.org/rescode.html). Values
    # that cannot be converted have none.
    code = getattr(error, "sqlite_errorcode", None)
    return code is None or code & 0xFF in _DAMAGE


def _is_unusable(file: Path) -> bool:
    """Whether it is something else than a file, or another user's."""
    usable = os.path.isfile(file) and os.access(file, os.R_OK | os.W_OK)
    return os.path.lexists(file) and not usable


def _with_its_logs(file: Path) -> tuple[Path, ...]:
    return (file, *(Path(f"{file}{end}") for end in ("-wal", "-shm")))


def _inode(file: Path) -> int:
    """0: it does not exist."""
    try:
        return file.stat().st_ino
    except OSError:
        return 0


def _set_aside(file: Path) -> None:
    aside = Path(f"{file}.damaged")
    try:
        file.replace(aside)
    except FileNotFoundError:
        pass
    except OSError:  # one of the two is a folder
        file.replace(f"{aside}-{time.time_ns()}")


def _remove(connection: sqlite3.Connection, key: str) -> int:
    """Returns the number of bytes freed."""
    query = "SELECT max(0, CAST(size AS INTEGER)) FROM entries WHERE key = ?"
    row = connection.execute(query, (key,)).fetchone()
    if row is None:
        return 0
    connection.execute("DELETE FROM entries WHERE key = ?", (key,))
    return int(row[0])


def _evict(connection: sqlite3.Connection) -> int:
    """Evict some of the least recently used. Returns the number of bytes freed."""
    query = "SELECT rowid, max(0, CAST(size AS INTEGER)) FROM entries ORDER BY used LIMIT ?"
    rows = connection.execute(query, (_EVICTED_AT_ONCE,)).fetchall()
    connection.executemany("DELETE FROM entries WHERE rowid = ?", [row[:1] for row in rows])
    return sum(row[1] for row in rows)


def _sum(connection: sqlite3.Connection) -> int:
    query = "SELECT total(max(0, CAST(size AS INTEGER))) FROM entries"
    return int(connection.execute(query).fetchone()[0])


def _purge_rows(connection: sqlite3.Connection, namespace: str) -> list[tuple[bytes, int]]:
    query = "SELECT CAST(purge AS BLOB), CAST(number AS INTEGER) FROM purges WHERE namespace = ?"
    return connection.execute(query, (namespace,)).fetchall()

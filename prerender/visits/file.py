"""Visits in an SQLite file next to the snapshots. Processes may share it."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import structlog
import xxhash

from prerender.errors import StoreError
from prerender.visits.figures import (
    MOST_PAGES,
    Cell,
    Key,
    Page,
    add_day,
    bounded,
    decode_page,
    encode,
    encode_page,
    merge_page,
)
from prerender.visits.storage import Days, Pages, decoded

# Of the tables. A file of a later version is set aside, not changed.
_VERSION = 1
_BUSY_SECONDS = 1.0
_DROPPED_AT_ONCE = 5000
_SCHEMA = (
    "CREATE TABLE days (day INTEGER PRIMARY KEY, cells BLOB)",
    # By a hash of the path, which saves an index of paths. ``last``: the last visit.
    "CREATE TABLE pages (hash INTEGER PRIMARY KEY, last INTEGER, path TEXT, visits TEXT)",
)

T = TypeVar("T")
log = structlog.get_logger(__name__)


class FileVisits:
    """Keeps visits in ``file``, whose folder exists. Works in other threads."""

    kind = "file"

    def __init__(self, file: Path) -> None:
        self._file = file
        self._one = asyncio.Lock()

    async def add_day(self, day: int, cells: Mapping[Key, Cell]) -> None:
        """Add cells to a day."""

        def add(connection: sqlite3.Connection) -> None:
            found = connection.execute("SELECT cells FROM days WHERE day = ?", (day,)).fetchone()
            known = decoded(found[0], day) if found else {}
            add_day(known, cells)
            row = (day, encode(bounded(known)))
            connection.execute("INSERT OR REPLACE INTO days VALUES (?, ?)", row)

        await self._do(add)

    async def add_pages(self, pages: Mapping[str, Page]) -> None:
        """Add visits of pages."""

        def add(connection: sqlite3.Connection) -> None:
            new = sum(_add_page(connection, path, page) for path, page in pages.items())
            if new and _count(connection) > MOST_PAGES:
                connection.execute(
                    "DELETE FROM pages WHERE hash IN (SELECT hash FROM pages ORDER BY last LIMIT ?)",
                    (_DROPPED_AT_ONCE,),
                )

        await self._do(add)

    async def drop_before(self, day: int) -> None:
        """Forget all days before this one."""
        await self._do(lambda database: database.execute("DELETE FROM days WHERE day < ?", (day,)))

    async def days(self, first: int, last: int) -> Days:
        """The days from ``first`` to ``last``."""
        query = "SELECT day, cells FROM days WHERE day BETWEEN ? AND ?"

        def read(connection: sqlite3.Connection) -> Days:
            rows = connection.execute(query, (first, last))
            return {int(day): decoded(cells, day) for day, cells in rows}

        return await self._do(read)

    async def since(self) -> int | None:
        """The first known day."""
        (day,) = await self._do(lambda one: one.execute("SELECT min(day) FROM days").fetchone())
        return None if day is None else int(day)

    async def pages(self) -> Pages:
        """All pages by path."""

        def read(connection: sqlite3.Connection) -> Pages:
            rows = connection.execute("SELECT path, visits FROM pages")
            return {str(path): decode_page(visits) for path, visits in rows}

        return await self._do(read)

    async def close(self) -> None:
        """No connection is kept."""

    async def _do(self, work: Callable[[sqlite3.Connection], T]) -> T:
        def do() -> T:
            try:
                with _transaction(self._file) as connection:
                    return work(connection)
            except (sqlite3.Error, OSError, ValueError, TypeError) as error:
                # Busy and full files are OperationalError.
                if type(error) is sqlite3.DatabaseError:
                    _set_aside(self._file, str(error))
                raise StoreError(str(error)) from error

        async with self._one:
            return await asyncio.to_thread(do)


@contextmanager
def _transaction(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection for each: that takes less than a millisecond, every few seconds."""
    with closing(sqlite3.connect(file, timeout=_BUSY_SECONDS, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise sqlite3.DatabaseError(f"version {version} is newer than {_VERSION}")
        if version < 1:
            for statement in _SCHEMA:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {_VERSION}")
        yield connection
        connection.execute("COMMIT")  # closing it without that is a rollback


def _set_aside(file: Path, reason: str) -> None:
    aside = f"{file}.{time.time_ns()}"
    for end in ("", "-wal", "-shm"):
        with suppress(OSError):
            Path(f"{file}{end}").replace(f"{aside}{end}")
    log.warning("visits_file_replaced", reason=reason, kept_as=aside)


def _add_page(connection: sqlite3.Connection, path: str, page: Page) -> bool:
    """Returns whether the page is new."""
    hashed = xxhash.xxh3_64_intdigest(path.encode()) - 2**63
    query = "SELECT visits FROM pages WHERE hash = ? AND path = ?"
    found = connection.execute(query, (hashed, path)).fetchone()
    known = decode_page(found[0]) if found else {}
    merge_page(known, page)
    last = max(int(value[0]) for value in known.values())
    row = (hashed, last, path, encode_page(known))
    connection.execute("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?)", row)
    return found is None


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM pages").fetchone()[0])

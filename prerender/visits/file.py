"""Visits in an SQLite file next to the snapshots, which processes may share, or in memory."""

import sqlite3
from collections.abc import Collection, Mapping
from pathlib import Path

import xxhash

from prerender.snapshots.stores.sqlite_file import SQLiteFile
from prerender.visits.figures import (
    MOST_PAGES,
    Cell,
    CellKey,
    LastVisits,
    add_day,
    bounded,
    decode_page,
    encode,
    encode_page,
    merge_page,
)
from prerender.visits.storage import Days, Pages, Span, decoded

_DROPPED_AT_ONCE = 5000
_SCHEMA = (
    "CREATE TABLE days (day INTEGER PRIMARY KEY, cells BLOB)",
    # By a hash of the path, which saves an index of paths. ``last``: the last visit.
    "CREATE TABLE pages (hash INTEGER PRIMARY KEY, last INTEGER, path TEXT, visits TEXT)",
)
# Later than version 1, whose releases do not look at it.
_HOURS = "CREATE TABLE IF NOT EXISTS hours (hour INTEGER PRIMARY KEY, cells BLOB)"


class FileVisits:
    """Keeps visits in ``file``, whose folder exists; None: in memory. Works in other threads."""

    def __init__(self, file: Path | None) -> None:
        self.kind = "file" if file else "memory"
        self._file = SQLiteFile(file, _SCHEMA, more=(_HOURS,))

    async def add(self, span: Span, number: int, cells: Mapping[CellKey, Cell]) -> None:
        """Add cells to a day or an hour."""
        query = f"SELECT cells FROM {span} WHERE rowid = ?"  # noqa: S608

        def add(connection: sqlite3.Connection) -> None:
            row = connection.execute(query, (number,)).fetchone()
            known = decoded(row[0], span, number) if row else {}
            add_day(known, cells)
            new = (number, encode(bounded(known)))
            connection.execute(f"INSERT OR REPLACE INTO {span} VALUES (?, ?)", new)  # noqa: S608

        await self._file.run(add)

    async def add_pages(self, pages: Mapping[str, LastVisits]) -> None:
        """Add visits of pages."""

        def add(connection: sqlite3.Connection) -> None:
            new = sum(_add_page(connection, path, page) for path, page in pages.items())
            if new and _count(connection) > MOST_PAGES:
                connection.execute(
                    "DELETE FROM pages WHERE hash IN (SELECT hash FROM pages ORDER BY last LIMIT ?)",
                    (_DROPPED_AT_ONCE,),
                )

        await self._file.run(add)

    async def drop_before(self, span: Span, number: int) -> None:
        """Forget all days or hours before this one."""
        query = f"DELETE FROM {span} WHERE rowid < ?"  # noqa: S608
        await self._file.run(lambda database: database.execute(query, (number,)))

    async def read(self, span: Span, first: int, last: int) -> Days:
        """The days or hours from ``first`` to ``last``."""
        query = f"SELECT * FROM {span} WHERE rowid BETWEEN ? AND ?"  # noqa: S608

        def read(connection: sqlite3.Connection) -> Days:
            rows = connection.execute(query, (first, last))
            return {int(number): decoded(cells, span, number) for number, cells in rows}

        return await self._file.run(read)

    async def since(self) -> int | None:
        """The first known day."""
        (day,) = await self._file.run(
            lambda one: one.execute("SELECT min(day) FROM days").fetchone()
        )
        return None if day is None else int(day)

    async def pages(self, paths: Collection[str] | None = None) -> Pages:
        """All pages by path, or the known ones of ``paths``."""

        def read(connection: sqlite3.Connection) -> Pages:
            if paths is not None:
                return {path: page for path in paths if (page := _page(connection, path))}
            rows = connection.execute("SELECT path, visits FROM pages")
            return {str(path): decode_page(visits) for path, visits in rows}

        return await self._file.run(read)

    async def close(self) -> None:
        """Forget visits in memory."""
        self._file.close()


def _hash(path: str) -> int:
    return xxhash.xxh3_64_intdigest(path.encode()) - 2**63


def _page(connection: sqlite3.Connection, path: str) -> LastVisits | None:
    query = "SELECT visits FROM pages WHERE hash = ? AND path = ?"
    row = connection.execute(query, (_hash(path), path)).fetchone()
    return None if row is None else decode_page(row[0])


def _add_page(connection: sqlite3.Connection, path: str, page: LastVisits) -> bool:
    """Returns whether the page is new."""
    before = _page(connection, path)
    known = before or {}
    merge_page(known, page)
    last = max(int(value[0]) for value in known.values())
    row = (_hash(path), last, path, encode_page(known))
    connection.execute("INSERT OR REPLACE INTO pages VALUES (?, ?, ?, ?)", row)
    return before is None


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM pages").fetchone()[0])

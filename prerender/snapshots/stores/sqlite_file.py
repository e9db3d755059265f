"""SQLite files in which extensions keep data of their own, next to the snapshots."""

import asyncio
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import structlog

from prerender.errors import StoreError

_BUSY_SECONDS = 1.0

T = TypeVar("T")
log = structlog.get_logger(__name__)


class SQLiteFile:
    """The database in ``file``, whose folder exists; None: in memory. Processes may share it.

    ``schema``: statements that create it. ``version``: of the tables; a file of a later version is set
    aside, not changed. ``more``: statements for each transaction, for tables that were added without a
    new version.
    """

    def __init__(
        self, file: Path | None, schema: Sequence[str], version: int = 1, more: Sequence[str] = ()
    ) -> None:
        self.file = file
        self._schema = schema
        self._version = version
        self._more = more
        self._one = asyncio.Lock()
        self._memory = None if file else self._connected(":memory:")

    @staticmethod
    def _connected(name: Path | str) -> sqlite3.Connection:
        # Only one thread at a time uses it.
        return sqlite3.connect(
            name, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """The result of ``work``, a transaction in another thread. Raises StoreError."""

        def do() -> T:
            try:
                with self._transaction() as connection:
                    return work(connection)
            except (sqlite3.Error, OSError, ValueError, TypeError) as error:
                # Busy and full files are OperationalError.
                if type(error) is sqlite3.DatabaseError and self.file:
                    _set_aside(self.file, str(error))
                name = f"{self.file.name}: " if self.file else ""
                raise StoreError(f"{name}{error}") from error

        async with self._one:
            return await asyncio.to_thread(do)

    def close(self) -> None:
        """Forget a database in memory; a file is not kept open."""
        if self._memory is not None:
            self._memory.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        if self._memory is not None:
            with self._begun(self._memory) as connection:
                yield connection
            return
        assert self.file is not None
        # A connection for each: that takes less than a millisecond.
        with closing(self._connected(self.file)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = NORMAL")
            with self._begun(connection):
                yield connection

    @contextmanager
    def _begun(self, connection: sqlite3.Connection) -> Iterator[sqlite3.Connection]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version > self._version:
                raise sqlite3.DatabaseError(f"version {version} is newer than {self._version}")
            if version < 1:
                for statement in self._schema:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {self._version}")
            for statement in self._more:
                connection.execute(statement)
            yield connection
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")
            raise


def _set_aside(file: Path, reason: str) -> None:
    aside = f"{file}.{time.time_ns()}"
    for end in ("", "-wal", "-shm"):
        with suppress(OSError):
            Path(f"{file}{end}").replace(f"{aside}{end}")
    log.warning("database_replaced", file=file.name, reason=reason, kept_as=aside)

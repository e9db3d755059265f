"""Snapshots in a file, with aiocache's interface. They survive restarts and ``kill -9``.

Reads and writes have a thread each, so that a slow disk does not block the event loop and writes do not
delay reads. The format of the file is in database.py.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import structlog

from prerender.errors import StoreError, StoreGone
from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.aiocache_commands import timed
from prerender.snapshots.stores.backing_store import LONGEST_SECONDS, BackingCache
from prerender.snapshots.stores.database import FAULTS, Database

FILE_NAME = "snapshots.sqlite3"
TIMEOUT_SECONDS = 2.0

T = TypeVar("T")
log = structlog.get_logger(__name__)


class FileCache(BackingCache):
    """Stores bytes in a file of about ``max_bytes`` in ``folder``.

    Keys start with ``namespace``. ``timeout``: maximum seconds of an operation. Raises StoreError for
    faults.
    """

    NAME = "file"
    shared = False
    reads_at_once = 1  # there is one thread for them

    def __init__(
        self, folder: Path, namespace: str, max_bytes: int, timeout: float = TIMEOUT_SECONDS
    ) -> None:
        super().__init__(namespace=namespace, timeout=timeout)
        self._max_bytes = max_bytes
        self._reading = ThreadPoolExecutor(1, "store-reading")
        self._writing = ThreadPoolExecutor(1, "store-writing")
        self._replaced = 0
        self._replacing = asyncio.Lock()
        self.database = Database(folder / FILE_NAME, max_bytes)

    @timed
    async def open(self) -> None:
        """Create the folder and the file if needed. Raises StoreError if that fails."""
        replaced = self._replaced
        try:
            await self._run(self._writing, lambda: None)
        except StoreError:
            if replaced == self._replaced:
                raise

    async def _get(self, key: str, encoding: str | None = None, _conn: Any = None) -> bytes | None:
        (value,) = await self._multi_get([key])
        return value

    async def _multi_get(
        self, keys: list[str], encoding: str | None = None, _conn: Any = None
    ) -> list[bytes | None]:
        return await self._run(self._reading, self.database.read, keys)

    async def _set(
        self,
        key: str,
        value: bytes,
        ttl: float | None = None,
        _cas_token: Any = None,
        _conn: Any = None,
    ) -> bool:
        seconds = LONGEST_SECONDS if ttl is None else ttl
        if seconds <= 0 or len(value) > self._max_bytes / 4:
            return False
        expires = time.time() + seconds
        line = self.line(value, expires)
        await self._run(self._writing, self.database.write, key, value, expires, line)
        return True

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return await self._get(key) is not None

    async def _delete(self, key: str, _conn: Any = None) -> int:
        return int(await self._run(self._writing, self.database.remove, key))

    async def _clear(self, namespace: str | None = None, _conn: Any = None) -> bool:
        prefix = self.namespace if namespace is None else namespace
        await self._run(self._writing, self.database.remove_all, prefix)
        return True

    async def mark_format(self) -> bytes | None:
        """The file has its format. Returns that of the entries that were removed when it was opened, or
        None."""
        return self.database.removed_format

    async def lines(self) -> AsyncGenerator[list[bytes]]:
        """The lines of all snapshots, in chunks; reads and writes may happen in between."""
        with ThreadPoolExecutor(1, "store-listing") as thread:
            pieces = self.database.lines(self.namespace)
            try:
                while piece := await self._run(thread, next, pieces, None):
                    yield piece
            finally:
                # The connection belongs to its thread.
                await self._in(thread, pieces.close)

    @timed
    async def purge(self, *purges: Purge) -> Purges:
        """Add purges. Returns all purges."""
        return await self._run(self._writing, self.database.purge, self.namespace, *purges)

    @timed
    async def restore(self, purges: Purges) -> Purges:
        """Add purges that were made while the file was unavailable. Returns all purges."""
        return await self._run(self._writing, self.database.restore, self.namespace, purges)

    @timed
    async def purges(self, generation: int) -> Purges | None:
        """All purges; None if the last of them has the number ``generation``."""
        purges = await self._run(self._reading, self.database.purges, self.namespace)
        return None if purges.generation == generation else purges

    async def _close(self, *_: Any, **__: Any) -> None:
        await self._in(self._reading, self.database.close_reader)
        await self._in(self._writing, self.database.close_writer)
        self._reading.shutdown(wait=False)
        self._writing.shutdown(wait=False)

    async def _in(self, thread: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(thread, work, *arguments)

    async def _run(self, thread: ThreadPoolExecutor, work: Callable[..., T], *arguments: Any) -> T:
        replaced = self._replaced
        try:
            if not self.database.is_open:
                await self._in(self._writing, self.database.open)
            return await self._in(thread, work, *arguments)
        except FAULTS as error:
            await self._replace_if_damaged(replaced, error)
            kind = StoreError if self.database.is_open else StoreGone
            raise kind(str(error)) from error

    async def _replace_if_damaged(self, replaced: int, error: Exception) -> None:
        """Replace a damaged file, once for all concurrent calls that met the damage."""
        async with self._replacing:
            if replaced != self._replaced:
                return
            with suppress(*FAULTS):
                if await self._in(self._writing, self.database.is_to_blame, error):
                    await self._in(self._reading, self.database.close_reader)
                    await self._in(self._writing, self.database.replace_file)
                    self._replaced += 1
                    log.warning("store_file_replaced", reason=str(error))

"""Snapshots in Redis or Valkey, with aiocache's interface, for any number of replicas.

``url`` names one server, a cluster or Sentinels (redis_client.py).

aiocache's own Redis backend is not used: it ignores user names, does not decode passwords, does not
support TLS, and its pool fails where ours waits. Stored data is never unpickled; see entry.py.

Keys, each with the namespace as its prefix: the target's key for its snapshot, ``lease:`` and that key
for the lease, ``purges`` for a hash of purges with their numbers, with the last number under the empty
name, and ``unsaved`` for notes of snapshots that the bucket behind it may lack (missed_by_bucket.py).
The two keys of lists, ``lines`` and ``until:{...lines}``, share a hash slot by the braces.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any, TypeVar, cast

from redis.exceptions import NoScriptError, ResponseError

from prerender.errors import StoreError, StoreGone
from prerender.snapshots.purges import MOST_RECORDS, Purge, Purges
from prerender.snapshots.stores import redis_scripts
from prerender.snapshots.stores.aiocache_commands import timed
from prerender.snapshots.stores.backing_store import LONGEST_SECONDS, BackingCache
from prerender.snapshots.stores.redis_client import FAULTS, connect

# Connections are held for one round trip only: more would not be faster, and each has to be opened.
_AT_ONCE = 16
_LEASE_MILLISECONDS = 5000

T = TypeVar("T")


class RedisCache(BackingCache):
    """Stores bytes in the Redis at ``url``; keys start with ``namespace``. Raises StoreError.

    ``timeout_seconds`` applies to each operation and to opening a connection.
    """

    NAME = "redis"
    shared = True
    reads_at_once = 2  # a single reply may be long, or late

    def __init__(self, url: str, namespace: str, timeout_seconds: float) -> None:
        super().__init__(namespace=namespace, timeout=timeout_seconds)
        self._client = connect(url, timeout_seconds)
        self._redis = self._client.commands
        self._room = asyncio.Semaphore(_AT_ONCE)

    @timed
    async def open(self) -> None:
        """Check that the server is reachable and accepts the credentials."""
        await self._result(self._redis.ping())

    @timed
    async def eviction(self) -> str:
        """The server's maxmemory-policy; '' if it is unknown."""
        try:
            info_by_name = await self._result(self._redis.config_get("maxmemory-policy"))
        except StoreGone:
            raise
        except StoreError:
            return ""  # the user may lack the permission for CONFIG
        return str(info_by_name.get("maxmemory-policy", ""))

    async def _get(self, key: str, encoding: str | None = None, _conn: Any = None) -> bytes | None:
        (value,) = await self._multi_get([key])
        return value

    async def _multi_get(
        self, keys: list[str], encoding: str | None = None, _conn: Any = None
    ) -> list[bytes | None]:
        # A foreign value of another type counts as missing, and is overwritten.
        return cast("list[bytes | None]", await self._result(self._client.mget(keys)))

    async def _set(
        self,
        key: str,
        value: bytes,
        ttl: float | None = None,
        _cas_token: Any = None,
        _conn: Any = None,
    ) -> bool:
        milliseconds = round((LONGEST_SECONDS if ttl is None else ttl) * 1000)
        if milliseconds <= 0:
            return False
        stored = bool(await self._call(redis_scripts.SET, [key], value, milliseconds))
        now = time.time()
        until = now + milliseconds / 1000
        if stored and (line := self.line(value, until)) is not None:
            short = key.removeprefix(self.namespace)
            with suppress(StoreError):  # the snapshot is stored all the same
                await self._call(redis_scripts.LIST, self._lists, short, line, until, now)
        return stored

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return bool(await self._result(self._redis.exists(key)))

    async def _delete(self, key: str, _conn: Any = None) -> int:
        removed = int(await self._result(self._redis.unlink(key)))
        await self._call(redis_scripts.UNLIST, self._lists, key.removeprefix(self.namespace))
        return removed

    async def lines(self) -> AsyncGenerator[list[bytes]]:
        """The lines of all snapshots, including evicted ones, a thousand per command."""
        cursor = b"0"
        while True:
            cursor, data = await self._call(redis_scripts.LINES, self._lists[:1], cursor)
            if data:
                yield data.split(b"\n")
            if cursor == b"0":
                return

    @timed
    async def purge(self, *purges: Purge) -> Purges:
        """Add purges for all replicas. Returns all purges."""
        key = f"{self.namespace}purges"
        dumps = [purge.dump() for purge in purges]
        together = _purges_of(await self._call(redis_scripts.PURGE, [key], *dumps))
        if len(together) > MOST_RECORDS:
            await self._merge(key, together)
        return together

    async def _merge(self, key: str, purges: Purges) -> None:
        merged = purges.merged().records
        new = {purge: number for purge, number in merged.items() if purge.kind == "all"}
        gone = {purge: number for purge, number in purges.records.items() if purge not in merged}
        # In this order a purge is always present, by itself or in the combined one.
        await self._call(redis_scripts.RESTORE, [key], *_fields_of(new))
        await self._call(redis_scripts.FORGET, [key], *_fields_of(gone))

    @timed
    async def restore(self, purges: Purges) -> Purges:
        """Add purges that Redis has lost, for all replicas. Returns all purges."""
        key, fields = f"{self.namespace}purges", _fields_of(purges.records)
        return _purges_of(await self._call(redis_scripts.RESTORE, [key], *fields))

    @timed
    async def purges(self, generation: int) -> Purges | None:
        """All purges; None if the last of them has the number ``generation``."""
        fields = await self._call(redis_scripts.PURGES, [f"{self.namespace}purges"], generation)
        return None if fields is None else _purges_of(fields)

    @timed
    async def identity(self) -> str:
        """Changes when the server restarts, and in a failover. '' if it is unknown."""
        try:
            info_by_name = await self._result(self._client.server_info())
        except StoreGone:
            raise
        except StoreError:
            return ""  # the user may lack the permission for INFO
        ids = sorted(str(info["run_id"]) for info in info_by_name if "run_id" in info)
        return blake2b(repr(ids).encode(), digest_size=8).hexdigest() if ids else ""

    @timed
    async def with_ttl(self, key: str) -> tuple[bytes, float] | None:
        """A value, and the seconds until it expires."""
        (value,) = await self._multi_get([key])
        milliseconds = await self._result(self._redis.pttl(key))
        return None if value is None or milliseconds <= 0 else (value, milliseconds / 1000)

    @timed
    async def note_unsaved(self, key: str, fence: int, seconds: float) -> None:
        """Note that the bucket may lack a snapshot; due in ``seconds``."""
        due = round(seconds * 1_000_000)
        note = self._note(key, fence)
        await self._call(redis_scripts.NOTE_UNSAVED, [self._unsaved], note, due)

    @timed
    async def take_unsaved(self, seconds: float, most: int) -> list[tuple[str, int]]:
        """The keys and fences of snapshots that are due. They are due again in ``seconds``."""
        due = round(seconds * 1_000_000)
        notes = await self._call(redis_scripts.TAKE_UNSAVED, [self._unsaved], due, most)
        return [(self.namespace + key.decode(errors="replace"), int(fence)) for fence, key in notes]

    @timed
    async def forget_unsaved(self, key: str, fence: int) -> None:
        """Remove a note."""
        await self._result(self._redis.zrem(self._unsaved, self._note(key, fence)))

    @timed
    async def acquire(self, key: str) -> int | None:
        """Acquire the lease of a key. Returns its fence, or None if another process has it."""
        fence = await self._call(redis_scripts.ACQUIRE, [self._lease(key)], _LEASE_MILLISECONDS)
        return None if fence is None else int(fence)

    @timed
    async def extend(self, key: str, fence: int) -> None:
        """Extend a lease by some seconds."""
        await self._call(redis_scripts.EXTEND, [self._lease(key)], fence, _LEASE_MILLISECONDS)

    @timed
    async def release(self, key: str, fence: int) -> None:
        """Release a lease, if it is still held."""
        await self._call(redis_scripts.RELEASE, [self._lease(key)], fence)

    async def _close(self, *_: Any, **__: Any) -> None:
        await self._client.close()

    @property
    def _unsaved(self) -> str:
        return f"{self.namespace}unsaved"

    def _note(self, key: str, fence: int) -> str:
        return f"{fence} {key.removeprefix(self.namespace)}"

    @property
    def _lists(self) -> list[str]:
        lines = f"{self.namespace}lines"
        return [lines, f"{self.namespace}until:{{{lines}}}"]

    def _lease(self, key: str) -> str:
        return f"{self.namespace}lease:{key}"

    async def _call(self, script: str, keys: list[str], *arguments: Any) -> Any:
        return await self._result(self._evaluated(script, (len(keys), *keys, *arguments)))

    async def _evaluated(self, script: str, arguments: tuple[Any, ...]) -> Any:
        """The result of a script. A server that does not know it yet keeps it."""
        try:
            return await self._redis.evalsha(redis_scripts.sha1(script), *arguments)
        except NoScriptError:
            return await self._redis.eval(script, *arguments)

    async def _result(self, command: Awaitable[T]) -> T:
        try:
            async with self._room:
                return await command
        except ResponseError as error:
            raise StoreError(str(error)) from error
        except FAULTS as error:
            raise StoreGone(str(error) or type(error).__name__) from error


def _fields_of(records: Mapping[Purge, int]) -> list[bytes | int]:
    """The alternating names and values of purges in the hash."""
    return [part for purge, number in records.items() for part in (purge.dump(), number)]


def _purges_of(fields: list[bytes]) -> Purges:
    """The purges of the alternating names and values of the hash."""
    pairs = zip(fields[::2], fields[1::2], strict=True)
    records = ((name, int(number)) for name, number in pairs if number.isdigit())
    return Purges.parse(records, time.time())

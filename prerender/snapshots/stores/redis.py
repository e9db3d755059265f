"""Snapshots in Redis or Valkey, with aiocache's interface, for any number of replicas.

aiocache's own Redis backend is not used: it ignores user names, does not decode passwords, does not
support TLS, and its pool fails where ours waits. Stored data is never unpickled; see entry.py.

Keys, each with the namespace as its prefix: the target's key for its snapshot, ``lease:`` and that key
for the lease, ``lines`` and ``lines:until`` for lists, ``purges`` for a hash of purges with their
numbers, with the last number under the empty name. Numbers are microseconds of Redis's clock, the only
one that all replicas share. A counter could be evicted, and would then restart.
"""

import ssl
import time
from collections.abc import AsyncGenerator, Awaitable
from typing import Any, TypeVar, cast

from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from prerender.errors import StoreError, StoreGone
from prerender.snapshots.listing import Row
from prerender.snapshots.purges import MOST_RECORDS, Purge, Purges
from prerender.snapshots.stores.backing import LONGEST_SECONDS, BackingCache
from prerender.snapshots.stores.commands import timed
from prerender.snapshots.stores.serializer import EncodedEntry

# Connections are held for one round trip only: more would not be faster, and each has to be opened.
_CONNECTIONS = 16
_LEASE_MILLISECONDS = 5000

_NOW = """
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
"""
# A snapshot does not replace one that was rendered under a later lease. The first twelve bytes are the
# format and the fence (entry.py). A value of another format or type is replaced, and so is one with a
# fence in the future, which was never issued.
#
# The lines of lists are in a hash, and their expiry in a sorted set, by which old ones are found. Redis
# may evict the snapshots without them, so they have limits of their own.
_SET = f"""{_NOW}
local old = redis.pcall('GETRANGE', KEYS[1], 0, 11)
if type(old) == 'string' and #old == 12 and old:sub(1, 4) == ARGV[1]:sub(1, 4)
    and old:sub(5, 12) > ARGV[1]:sub(5, 12)
    and struct.unpack('>I8', old:sub(5, 12)) <= tonumber(now) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
if not KEYS[2] then return 1 end
local lines, times = KEYS[2], KEYS[2] .. ':until'
if redis.call('TYPE', lines).ok ~= 'hash' then redis.call('DEL', lines) end
if redis.call('TYPE', times).ok ~= 'zset' then redis.call('DEL', times) end
redis.call('HSET', lines, ARGV[3], ARGV[4])
redis.call('ZADD', times, ARGV[5], ARGV[3])
local old = redis.call('ZRANGEBYSCORE', times, '-inf', ARGV[6], 'LIMIT', 0, 20)
local above = redis.call('ZCARD', times) - 200000
if #old == 0 and above > 0 then old = redis.call('ZRANGE', times, 0, math.min(above, 20) - 1) end
if #old > 0 then
    redis.call('HDEL', lines, unpack(old))
    redis.call('ZREM', times, unpack(old))
end
redis.call('EXPIRE', lines, 31536000)
redis.call('EXPIRE', times, 31536000)
return 1
"""
# A value without an expiry, or with a late one, is not a valid lease.
_ACQUIRE = f"""{_NOW}
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left <= tonumber(ARGV[1]) then return false end
redis.call('SET', KEYS[1], now, 'PX', ARGV[1])
return now
"""
_EXTEND = """
if redis.pcall('GET', KEYS[1]) == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
"""
_RELEASE = """
if redis.pcall('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""
# An invalid last number, or one more than a day in the future, is not continued.
_PURGE = f"""{_NOW}
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then redis.call('DEL', KEYS[1]) end
local last = tonumber(redis.call('HGET', KEYS[1], '') or '0') or 0
if last >= tonumber(now) and last < tonumber(now) + 86400000000 then
    now = string.format('%.0f', last + 1)
end
redis.call('HSET', KEYS[1], '', now, ARGV[1], now)
return redis.call('HGETALL', KEYS[1])
"""
_PURGES = """
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then return {} end
if redis.call('HGET', KEYS[1], '') == ARGV[1] then return false end
return redis.call('HGETALL', KEYS[1])
"""
_UNLIST = """
redis.pcall('HDEL', KEYS[1], ARGV[1])
redis.pcall('ZREM', KEYS[1] .. ':until', ARGV[1])
"""
# Joined to one string: many small ones are slow for a client.
_LINES = """
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then return {'0', ''} end
local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', 1000)
local lines = {}
for i = 2, #found[2], 2 do lines[#lines + 1] = found[2][i] end
return {found[1], table.concat(lines, '\\n')}
"""

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
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=_CONNECTIONS,
            # Each operation has a timeout of its own; these would add overhead to each of them.
            timeout=None,
            socket_timeout=None,
            socket_connect_timeout=timeout_seconds,
            protocol=2,
            # The one retry is for a connection that was closed while it was idle.
            retry=Retry(NoBackoff(), 1),
        )
        self._redis = Redis.from_pool(pool)
        scripts = (_SET, _ACQUIRE, _EXTEND, _RELEASE, _PURGE, _PURGES, _UNLIST, _LINES)
        self._scripts = {script: self._redis.register_script(script) for script in scripts}

    @timed
    async def open(self) -> None:
        """Check that the server is reachable and accepts the credentials."""
        await self._result(self._redis.ping())

    @timed
    async def eviction(self) -> str:
        """The server's maxmemory-policy; '' if it is unknown."""
        try:
            told = await self._result(self._redis.config_get("maxmemory-policy"))
        except StoreGone:
            raise
        except StoreError:
            return ""  # the user may lack the permission for CONFIG
        return str(told.get("maxmemory-policy", ""))

    async def _get(self, key: str, encoding: str | None = None, _conn: Any = None) -> bytes | None:
        (found,) = await self._multi_get([key])
        return found

    async def _multi_get(
        self, keys: list[str], encoding: str | None = None, _conn: Any = None
    ) -> list[bytes | None]:
        # A foreign value of another type counts as missing, and is overwritten.
        return cast("list[bytes | None]", await self._result(self._redis.mget(keys)))

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
        if not isinstance(value, EncodedEntry):
            return bool(await self._call(_SET, [key], value, milliseconds))
        now = time.time()
        until = now + milliseconds / 1000
        line = Row.of(value.entry, until).dump()
        more = (value.entry.key, line, until, now)
        return bool(await self._call(_SET, [key, self._lines], value, milliseconds, *more))

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return bool(await self._result(self._redis.exists(key)))

    async def _delete(self, key: str, _conn: Any = None) -> int:
        await self._call(_UNLIST, [self._lines], key.removeprefix(self.namespace))
        return int(await self._result(self._redis.unlink(key)))

    async def lines(self) -> AsyncGenerator[list[bytes]]:
        """The lines of all snapshots, including evicted ones, a thousand per command."""
        cursor = b"0"
        while True:
            cursor, found = await self._call(_LINES, [self._lines], cursor)
            if found:
                yield found.split(b"\n")
            if cursor == b"0":
                return

    @timed
    async def purge(self, purge: Purge) -> Purges:
        """Add a purge for all replicas. Returns all purges."""
        key = f"{self.namespace}purges"
        found = await self._call(_PURGE, [key], purge.dump())
        purges = _purges_of(found)
        if len(purges) > MOST_RECORDS:
            await self._merge(key, purges)
        return purges

    async def _merge(self, key: str, purges: Purges) -> None:
        merged = purges.merged()
        new: dict[Any, Any] = {
            purge.dump(): n for purge, n in merged.records.items() if purge.kind == "all"
        }
        gone = [purge.dump() for purge in purges.records if purge not in merged.records]
        # In this order a purge is always present, by itself or in the combined one.
        await self._result(self._redis.hset(key, mapping=new))
        await self._result(self._redis.hdel(key, *gone))

    @timed
    async def purges(self, generation: int) -> Purges | None:
        """All purges; None if the last of them has the number ``generation``."""
        found = await self._call(_PURGES, [f"{self.namespace}purges"], generation)
        return None if found is None else _purges_of(found)

    @timed
    async def acquire(self, key: str) -> int | None:
        """Acquire the lease of a key. Returns its fence, or None if another process has it."""
        fence = await self._call(_ACQUIRE, [self._lease(key)], _LEASE_MILLISECONDS)
        return None if fence is None else int(fence)

    @timed
    async def extend(self, key: str, fence: int) -> None:
        """Extend a lease by some seconds."""
        await self._call(_EXTEND, [self._lease(key)], fence, _LEASE_MILLISECONDS)

    @timed
    async def release(self, key: str, fence: int) -> None:
        """Release a lease, if it is still held."""
        await self._call(_RELEASE, [self._lease(key)], fence)

    async def _close(self, *_: Any, **__: Any) -> None:
        await self._redis.aclose()
        await self._redis.connection_pool.aclose()

    @property
    def _lines(self) -> str:
        return f"{self.namespace}lines"

    def _lease(self, key: str) -> str:
        return f"{self.namespace}lease:{key}"

    async def _call(self, script: str, keys: list[str], *arguments: Any) -> Any:
        return await self._result(self._scripts[script](keys=keys, args=list(arguments)))

    @staticmethod
    async def _result(command: Awaitable[T]) -> T:
        try:
            return await command
        except ResponseError as error:
            raise StoreError(str(error)) from error
        except (RedisError, RedisConnectionError, OSError, ssl.SSLError, EOFError) as error:
            raise StoreGone(str(error) or type(error).__name__) from error


def _purges_of(found: list[bytes]) -> Purges:
    """The purges of the alternating names and values of the hash."""
    pairs = zip(found[::2], found[1::2], strict=True)
    records = ((name, int(number)) for name, number in pairs if name and number.isdigit())
    return Purges.parse(records, time.time())

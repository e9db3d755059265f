"""Visits in Redis or Valkey, for any number of replicas: a hash of days and a hash of pages.

A day is replaced only if it is what was read, so that no replica overwrites what another one added.
"""

import asyncio
import hashlib
import random
import ssl
from collections.abc import Awaitable, Mapping
from typing import Any, TypeVar

from redis.exceptions import RedisClusterException, RedisError

from prerender.errors import StoreError
from prerender.snapshots.stores.redis_client import connect
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
)
from prerender.visits.storage import Days, Pages, decoded

_TIMEOUT_SECONDS = 2.0
_TRIES = 20
_RETRY_SECONDS = 0.05
_DAYS_AT_ONCE = 50
_PAGES_AT_ONCE = 200
_REPLACE = """
local old = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if redis.sha1hex(old) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""
# The rule of figures.merge_page. If there are too many pages, the longest unvisited of some is dropped,
# as Redis itself evicts keys.
_ADD_PAGES = """
local most = tonumber(ARGV[1])
local function decoded(text)
  local ok, found = pcall(cjson.decode, text)
  return ok and type(found) == 'table' and found or {}
end
local function last(page)
  local found = 0
  for _, value in pairs(page) do
    if type(value) == 'table' then found = math.max(found, tonumber(value[1]) or 0) end
  end
  return found
end
for i = 2, #ARGV, 2 do
  local old = redis.call('HGET', KEYS[1], ARGV[i])
  local known = old and decoded(old) or {}
  if not old and redis.call('HLEN', KEYS[1]) >= most then
    local some = redis.call('HRANDFIELD', KEYS[1], 16, 'WITHVALUES')
    local oldest, at = nil, math.huge
    for j = 1, #some, 2 do
      local then_ = last(decoded(some[j + 1]))
      if then_ < at then oldest, at = some[j], then_ end
    end
    if oldest then redis.call('HDEL', KEYS[1], oldest) end
  end
  for name, value in pairs(decoded(ARGV[i + 1])) do
    local had = type(known[name]) == 'table' and tonumber(known[name][1])
    if not had or had <= value[1] then known[name] = value end
  end
  redis.call('HSET', KEYS[1], ARGV[i], cjson.encode(known))
end
"""
# redis-py raises IndexError for a cluster without slots.
_FAULTS = (RedisError, RedisClusterException, OSError, ssl.SSLError, EOFError, IndexError)

T = TypeVar("T")


class RedisVisits:
    """Keeps visits in the Redis at ``url``; keys start with ``prefix``."""

    kind = "redis"

    def __init__(self, url: str, prefix: str) -> None:
        self._client = connect(url, _TIMEOUT_SECONDS)
        self._redis = self._client.commands
        self._days, self._pages = f"{prefix}days", f"{prefix}pages"

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def add_day(self, day: int, cells: Mapping[Key, Cell]) -> None:
        """Add cells to a day. Other replicas may do so at the same time."""
        for turn in range(_TRIES):
            old = await self._result(self._redis.hget(self._days, day)) or b""
            new = await asyncio.to_thread(_added, old, day, cells)
            digest = hashlib.sha1(old, usedforsecurity=False).hexdigest()
            if await self._result(self._redis.eval(_REPLACE, 1, self._days, day, digest, new)):
                return
            await asyncio.sleep(random.uniform(0, _RETRY_SECONDS * (turn + 1)))  # noqa: S311
        raise StoreError("other replicas replaced the day of visits again and again")

    async def add_pages(self, pages: Mapping[str, Page]) -> None:
        """Add visits of pages."""
        items = list(pages.items())
        for start in range(0, len(items), _PAGES_AT_ONCE):
            some = items[start : start + _PAGES_AT_ONCE]
            flat = [text for path, page in some for text in (path, encode_page(page))]
            await self._result(self._redis.eval(_ADD_PAGES, 1, self._pages, MOST_PAGES, *flat))

    async def drop_before(self, day: int) -> None:
        """Forget all days before this one."""
        if gone := [one for one in await self._known_days() if one < day]:
            await self._result(self._redis.hdel(self._days, *gone))

    async def days(self, first: int, last: int) -> Days:
        """The days from ``first`` to ``last``."""
        known = [day for day in await self._known_days() if first <= day <= last]
        found: Days = {}
        for start in range(0, len(known), _DAYS_AT_ONCE):
            some = known[start : start + _DAYS_AT_ONCE]
            values = await self._result(self._redis.hmget(self._days, some))
            found |= await asyncio.to_thread(_decoded_all, some, values)
        return found

    async def since(self) -> int | None:
        """The first known day."""
        return min(await self._known_days(), default=None)

    async def pages(self) -> Pages:
        """All pages by path."""
        found: Pages = {}
        cursor = 0
        while True:
            cursor, some = await self._result(self._redis.hscan(self._pages, cursor, count=1000))
            for path, text in some.items():
                found[path.decode("utf-8", "replace")] = decode_page(text)
            if not cursor:
                return found

    async def _known_days(self) -> list[int]:
        keys = await self._result(self._redis.hkeys(self._days))
        return [int(key) for key in keys if key.isdigit()]

    async def _result(self, command: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                return await command
        except TimeoutError as error:
            raise StoreError("Redis did not respond in time") from error
        except _FAULTS as error:
            raise StoreError(str(error) or type(error).__name__) from error


def _added(old: bytes, day: int, cells: Mapping[Key, Cell]) -> bytes:
    known = decoded(old, day)
    add_day(known, cells)
    return encode(bounded(known))


def _decoded_all(days: list[int], values: list[Any]) -> Days:
    pairs = zip(days, values, strict=True)
    return {day: decoded(data, day) for day, data in pairs if data is not None}

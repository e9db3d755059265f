"""Visits in Redis or Valkey, for any number of replicas: hashes of days, hours and pages.

A day is replaced only if it is what was read, so that no replica overwrites what another one added.
"""

import asyncio
import hashlib
import random
from collections.abc import Collection, Mapping
from typing import Any

from prerender.errors import StoreError
from prerender.snapshots.stores.redis_client import EXTENSION_SECONDS, connect, result_of
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
)
from prerender.visits.storage import Days, Pages, Span, decoded

_TRIES = 20
_RETRY_SECONDS = 0.05
_DAYS_AT_ONCE = 50
_PAGES_AT_ONCE = 200
# A foreign value of another type is overwritten.
_OWN = "if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then redis.call('DEL', KEYS[1]) end"
_GET = f"{_OWN} return redis.call('HGET', KEYS[1], ARGV[1])"
_REPLACE = """
local old = redis.call('HGET', KEYS[1], ARGV[1]) or ''
if redis.sha1hex(old) ~= ARGV[2] then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""
# The rule of figures.merge_page. If there are too many pages, the longest unvisited of some is dropped,
# as Redis itself evicts keys.
_ADD_PAGES = (
    _OWN
    + """
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
)


class RedisVisits:
    """Keeps visits in the Redis at ``url``; keys start with ``prefix``."""

    kind = "redis"

    def __init__(self, url: str, prefix: str) -> None:
        self._client = connect(url, EXTENSION_SECONDS)
        self._redis = self._client.commands
        self._pages = f"{prefix}pages"
        self._keys: dict[Span, str] = {"days": f"{prefix}days", "hours": f"{prefix}hours"}

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def add(self, span: Span, number: int, cells: Mapping[CellKey, Cell]) -> None:
        """Add cells to a day or an hour. Other replicas may do so at the same time."""
        key = self._keys[span]
        for turn in range(_TRIES):
            old = await result_of(self._redis.eval(_GET, 1, key, number)) or b""
            new = await asyncio.to_thread(_added, old, span, number, cells)
            digest = hashlib.sha1(old, usedforsecurity=False).hexdigest()
            if await result_of(self._redis.eval(_REPLACE, 1, key, number, digest, new)):
                return
            await asyncio.sleep(random.uniform(0, _RETRY_SECONDS * (turn + 1)))  # noqa: S311
        raise StoreError("other replicas replaced the visits again and again")

    async def add_pages(self, pages: Mapping[str, LastVisits]) -> None:
        """Add visits of pages."""
        items = list(pages.items())
        for start in range(0, len(items), _PAGES_AT_ONCE):
            some = items[start : start + _PAGES_AT_ONCE]
            flat = [text for path, page in some for text in (path, encode_page(page))]
            await result_of(self._redis.eval(_ADD_PAGES, 1, self._pages, MOST_PAGES, *flat))

    async def drop_before(self, span: Span, number: int) -> None:
        """Forget all days or hours before this one."""
        if gone := [one for one in await self._known(span) if one < number]:
            await result_of(self._redis.hdel(self._keys[span], *gone))

    async def read(self, span: Span, first: int, last: int) -> Days:
        """The days or hours from ``first`` to ``last``."""
        known = [one for one in await self._known(span) if first <= one <= last]
        days: Days = {}
        for start in range(0, len(known), _DAYS_AT_ONCE):
            some = known[start : start + _DAYS_AT_ONCE]
            values = await result_of(self._redis.hmget(self._keys[span], some))
            days |= await asyncio.to_thread(_decoded_all, span, some, values)
        return days

    async def since(self) -> int | None:
        """The first known day."""
        return min(await self._known("days"), default=None)

    async def pages(self, paths: Collection[str] | None = None) -> Pages:
        """All pages by path, or the known ones of ``paths``."""
        if paths is not None:
            names = list(paths)
            texts = await result_of(self._redis.hmget(self._pages, names)) if names else ()
            pairs = zip(names, texts, strict=True)
            return {path: decode_page(text) for path, text in pairs if text is not None}
        pages: Pages = {}
        cursor = 0
        while True:
            cursor, some = await result_of(self._redis.hscan(self._pages, cursor, count=1000))
            for path, text in some.items():
                pages[path.decode("utf-8", "replace")] = decode_page(text)
            if not cursor:
                return pages

    async def _known(self, span: Span) -> list[int]:
        keys = await result_of(self._redis.hkeys(self._keys[span]))
        return [int(key) for key in keys if key.isdigit()]


def _added(old: bytes, span: Span, number: int, cells: Mapping[CellKey, Cell]) -> bytes:
    known = decoded(old, span, number)
    add_day(known, cells)
    return encode(bounded(known))


def _decoded_all(span: Span, numbers: list[int], values: list[Any]) -> Days:
    pairs = zip(numbers, values, strict=True)
    return {one: decoded(data, span, one) for one, data in pairs if data is not None}

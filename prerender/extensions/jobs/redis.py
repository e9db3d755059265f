"""Jobs in Redis or Valkey, which replicas share.

Keys, with the prefix ``base``, whose braces put all of them into one hash slot: ``base`` has the ids
by time, ``base:ID`` the job and what is counted, ``base:ID:todo`` the pages to do by the time when they
are due (the first times are the order of the list), and ``base:ID:pages`` the result of each, or
"since tries". Redis's clock is the only one that replicas share.
"""

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from prerender.extensions.jobs.job import (
    OUTCOMES,
    RETENTION_SECONDS,
    Job,
    JobProgress,
    PageResult,
    PageRow,
    WaitingPage,
    parse_job,
    parse_result,
)
from prerender.snapshots.stores.redis_client import EXTENSION_SECONDS, connect, result_of

_AT_ONCE = 500
_KEY_SECONDS = round(RETENTION_SECONDS) + 86400
_NOW = """
local time = redis.call('TIME')
local now = time[1] + time[2] / 1000000
local job, todo, pages = KEYS[1], KEYS[1] .. ':todo', KEYS[1] .. ':pages'
local state = redis.call('HGET', job, 'state')
local function close()
  if redis.call('HGET', job, 'state') == 'running' and redis.call('ZCARD', todo) == 0 then
    redis.call('HSET', job, 'state', 'done', 'ended', now)
  end
end
"""
# A foreign value of another type counts as missing.
_OWN = """
local function own(key, kind)
  if redis.call('TYPE', key).ok ~= kind then redis.call('DEL', key) end
end
own(KEYS[1], 'zset')
"""
# A slow job outlives the time for which ended ones are kept.
_LIST = f"""{_OWN}
local found = {{}}
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  local key = KEYS[1] .. ':' .. id
  own(key, 'hash')
  own(key .. ':todo', 'zset')
  own(key .. ':pages', 'hash')
  local state = redis.call('HGET', key, 'state')
  if state == 'reading' or state == 'running' then
    for _, one in ipairs({{KEYS[1], key, key .. ':todo', key .. ':pages'}}) do
      redis.call('EXPIRE', one, {_KEY_SECONDS})
    end
  end
  found[#found + 1] = {{redis.call('HGETALL', key), redis.call('ZCARD', key .. ':todo')}}
end
return found
"""
_ADD = f"""{_OWN}
redis.call('ZADD', KEYS[1], ARGV[1], ARGV[2])
redis.call('HSET', KEYS[1] .. ':' .. ARGV[2], 'job', ARGV[3], 'state', 'reading')
redis.call('EXPIRE', KEYS[1] .. ':' .. ARGV[2], {_KEY_SECONDS})
redis.call('EXPIRE', KEYS[1], {_KEY_SECONDS})
"""
# Pairs of a path and a result, or "since tries".
_ADD_PAGES = f"""{_NOW}
if state ~= 'reading' and state ~= 'running' then return 0 end
local place, new = redis.call('HLEN', pages), 0
for i = 1, #ARGV, 2 do
  if redis.call('HSETNX', pages, ARGV[i], ARGV[i + 1]) == 1 then
    local outcome = ARGV[i + 1]:match('^%["([a-z_]+)"')
    if outcome then redis.call('HINCRBY', job, outcome, 1)
    else redis.call('ZADD', todo, (place + new) / 1000000, ARGV[i]) end
    new = new + 1
  end
end
redis.call('HINCRBY', job, 'duplicates', #ARGV / 2 - new)
for _, key in ipairs({{job, todo, pages}}) do redis.call('EXPIRE', key, {_KEY_SECONDS}) end
return new
"""
_LISTED = f"""{_NOW}
if state == 'reading' then redis.call('HSET', job, 'state', 'running', 'note', ARGV[1]) end
close()
"""
_CANCEL = f"""{_NOW}
if state ~= 'reading' and state ~= 'running' then return 0 end
redis.call('HSET', job, 'state', 'cancelled', 'ended', now)
return 1
"""
_TAKE = f"""{_NOW}
if state ~= 'reading' and state ~= 'running' then return false end
local after = tonumber(redis.call('HGET', job, 'next') or 0)
if after > now then return false end
local path = redis.call('ZRANGEBYSCORE', todo, '-inf', now, 'LIMIT', 0, 1)[1]
if not path then close() return false end
redis.call('ZADD', todo, now + ARGV[2], path)
local rate = tonumber(ARGV[1])
if rate > 0 then redis.call('HSET', job, 'next', math.max(after, now - 1) + 1 / rate) end
return {{path, redis.call('HGET', pages, path) or ''}}
"""
_PUT_BACK = f"""{_NOW}
if redis.call('ZSCORE', todo, ARGV[1]) then
  redis.call('ZADD', todo, now + ARGV[2], ARGV[1])
  redis.call('HSET', pages, ARGV[1], ARGV[3])
end
"""
_FINISH = f"""{_NOW}
if state == 'cancelled' or redis.call('ZREM', todo, ARGV[1]) == 0 then return end
redis.call('HSET', pages, ARGV[1], ARGV[2])
redis.call('HINCRBY', job, ARGV[3], 1)
close()
"""


class RedisJobs:
    """Keeps jobs in the Redis at ``url``, in keys that begin with ``base``."""

    kind = "redis"

    def __init__(self, url: str, base: str) -> None:
        self._client = connect(url, EXTENSION_SECONDS)
        self._redis = self._client.commands
        self._base = base

    async def close(self) -> None:
        """Close all connections."""
        await self._client.close()

    async def _call(self, script: str, key: str, *arguments: Any) -> Any:
        return await result_of(self._redis.eval(script, 1, key, *arguments))

    def _key(self, job: str) -> str:
        return f"{self._base}:{job}"

    async def jobs(self) -> list[JobProgress]:
        """All jobs, the oldest first."""
        jobs = []
        for flat, waiting in await self._call(_LIST, self._base):
            pairs = zip(flat[::2], flat[1::2], strict=True)
            fields = {name.decode(): value.decode() for name, value in pairs}
            # It may have been evicted.
            if (job := parse_job(fields.get("job", ""))) is not None:
                jobs.append(_progress(job, fields, waiting))
        return jobs

    async def add(self, job: Job) -> None:
        """Add a job without pages."""
        await self._call(_ADD, self._base, job.created, job.id, json.dumps(asdict(job)))

    async def add_pages(self, job: str, pages: Sequence[tuple[str, float | PageResult]]) -> int:
        """Add pages to an unfinished job."""
        new = 0
        for start in range(0, len(pages), _AT_ONCE):
            flat = [
                text
                for path, page in pages[start : start + _AT_ONCE]
                for text in (path, page.dump() if isinstance(page, PageResult) else f"{page} 0")
            ]
            new += await self._call(_ADD_PAGES, self._key(job), *flat)
        return new

    async def listed(self, job: str, note: str) -> None:
        """The list of a job is complete."""
        await self._call(_LISTED, self._key(job), note)

    async def cancel(self, job: str) -> bool:
        """Cancel a job."""
        return bool(await self._call(_CANCEL, self._key(job)))

    async def drop(self, job: str) -> None:
        """Forget a job."""
        await result_of(self._redis.zrem(self._base, job))
        key = self._key(job)
        await result_of(self._redis.unlink(key, f"{key}:todo", f"{key}:pages"))

    async def take(self, job: str, rate: float, seconds: float) -> WaitingPage | None:
        """The next page of a job."""
        taken = await self._call(_TAKE, self._key(job), rate, seconds)
        if not taken:
            return None
        since, _, tries = taken[1].decode().partition(" ")
        return WaitingPage(taken[0].decode(), float(since or 0), int(tries or 0))

    async def put_back(self, job: str, page: WaitingPage, seconds: float) -> None:
        """Do a page in so many seconds."""
        text = f"{page.since} {page.tries}"
        await self._call(_PUT_BACK, self._key(job), page.path, seconds, text)

    async def finish(self, job: str, path: str, result: PageResult) -> None:
        """A page is done."""
        await self._call(_FINISH, self._key(job), path, result.dump(), result.outcome)

    async def rows(
        self, job: str, outcome: str, cursor: str, most: int
    ) -> tuple[list[PageRow], str | None]:
        """Pages in no order; the cursor is that of HSCAN. Raises ValueError for another one."""
        if len(cursor) > 20 or not f"0{cursor}".isdecimal() or int(f"0{cursor}") >= 2**64:
            raise ValueError("cursor: invalid for this list")
        rows: list[PageRow] = []
        place = int(cursor or 0)
        until = time.monotonic() + EXTENSION_SECONDS
        while True:
            command = self._redis.hscan(f"{self._key(job)}:pages", place, count=most)
            place, some = await result_of(command)
            rows += await asyncio.to_thread(_rows, some, outcome)
            if not place or len(rows) >= most or time.monotonic() > until:
                return rows, str(place) if place else None


def _rows(results: Mapping[bytes, bytes], outcome: str) -> list[PageRow]:
    """Those with this outcome, or all with ""."""
    rows = ((path.decode(), parse_result(text.decode())) for path, text in results.items())
    return [row for row in rows if outcome in ("", row[1].outcome if row[1] else "waiting")]


def _progress(job: Job, fields: dict[str, str], waiting: int) -> JobProgress:
    return JobProgress(
        job,
        fields["state"],  # type: ignore[arg-type]
        float(fields.get("ended", 0)),
        fields.get("note", ""),
        int(fields.get("duplicates", 0)),
        waiting,
        {name: int(fields[name]) for name in OUTCOMES if name in fields},
    )

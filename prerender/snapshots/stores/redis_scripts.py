"""The Lua scripts of the store in Redis (redis.py).

All keys of a script are in KEYS and in one hash slot, as Redis Cluster requires. Numbers are
microseconds of Redis's clock, the only one that all replicas share. A counter would not do: it may be
evicted, and would then start again.
"""

import hashlib
from functools import cache
from typing import Final

_NOW = """
local time = redis.call('TIME')
local now = string.format('%.0f', time[1] * 1000000 + time[2])
"""
# A snapshot does not replace one that was rendered under a later lease. The first twelve bytes are the
# format and the fence (entry.py); values of another format or type are replaced, and so are
# those with a fence in the future, which no lease had.
SET: Final = f"""{_NOW}
local old = redis.pcall('GETRANGE', KEYS[1], 0, 11)
if type(old) == 'string' and #old == 12 and old:sub(1, 4) == ARGV[1]:sub(1, 4)
    and old:sub(5, 12) > ARGV[1]:sub(5, 12)
    and struct.unpack('>I8', old:sub(5, 12)) <= tonumber(now) then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
# The lines of lists are in a hash; next to it the time until each is kept, by which old ones are found.
# Neither is bound to the snapshots, which Redis may evict, so there are bounds of their own. Both go a
# day after the last snapshot: those of another release or of other settings are not continued.
LIST: Final = """
local lines, times = KEYS[1], KEYS[2]
if redis.call('TYPE', lines).ok ~= 'hash' then redis.call('DEL', lines) end
if redis.call('TYPE', times).ok ~= 'zset' then redis.call('DEL', times) end
redis.call('HSET', lines, ARGV[1], ARGV[2])
redis.call('ZADD', times, ARGV[3], ARGV[1])
local old = redis.call('ZRANGEBYSCORE', times, '-inf', ARGV[4], 'LIMIT', 0, 20)
local above = redis.call('ZCARD', times) - 200000
if #old == 0 and above > 0 then old = redis.call('ZRANGE', times, 0, math.min(above, 20) - 1) end
if #old > 0 then
    redis.call('HDEL', lines, unpack(old))
    redis.call('ZREM', times, unpack(old))
end
local last = redis.call('ZRANGE', times, -1, -1, 'WITHSCORES')[2]
for _, key in ipairs(KEYS) do redis.call('EXPIREAT', key, math.ceil(tonumber(last)) + 86400) end
"""
UNLIST: Final = """
redis.pcall('HDEL', KEYS[1], ARGV[1])
redis.pcall('ZREM', KEYS[2], ARGV[1])
"""
# Joined to one: a client takes long for many small ones.
LINES: Final = """
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then return {'0', ''} end
local found = redis.call('HSCAN', KEYS[1], ARGV[1], 'COUNT', 1000)
local lines = {}
for i = 2, #found[2], 2 do lines[#lines + 1] = found[2][i] end
return {found[1], table.concat(lines, '\\n')}
"""
# A key without a TTL, or with a longer one, is not a lease.
ACQUIRE: Final = f"""{_NOW}
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left <= tonumber(ARGV[1]) then return false end
redis.call('SET', KEYS[1], now, 'PX', ARGV[1])
return now
"""
EXTEND: Final = """
if redis.pcall('GET', KEYS[1]) == ARGV[1] then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
"""
RELEASE: Final = """
if redis.pcall('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
"""
# A last number that is none, or lies more than a day ahead, is not continued.
PURGE: Final = f"""{_NOW}
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then redis.call('DEL', KEYS[1]) end
local last = tonumber(redis.call('HGET', KEYS[1], '') or '0') or 0
if last >= tonumber(now) and last < tonumber(now) + 86400000000 then
    now = string.format('%.0f', last + 1)
end
redis.call('HSET', KEYS[1], '', now)
for _, purge in ipairs(ARGV) do redis.call('HSET', KEYS[1], purge, now) end
return redis.call('HGETALL', KEYS[1])
"""
# Purges with their numbers. The name of the last number is '', as in PURGE. It grows in any case:
# replicas read the purges only if it has changed.
RESTORE: Final = """
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then redis.call('DEL', KEYS[1]) end
local before = tonumber(redis.call('HGET', KEYS[1], '') or '0') or 0
local last = before
for i = 1, #ARGV, 2 do
    local number = tonumber(ARGV[i + 1])
    if (tonumber(redis.call('HGET', KEYS[1], ARGV[i]) or '0') or 0) < number then
        redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
        last = math.max(last, number, before + 1)
    end
end
if last > before then redis.call('HSET', KEYS[1], '', string.format('%.0f', last)) end
return redis.call('HGETALL', KEYS[1])
"""
# Merged purges, unless they were purged again since they were read.
FORGET: Final = """
for i = 1, #ARGV, 2 do
    if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
        redis.call('HDEL', KEYS[1], ARGV[i])
    end
end
"""
PURGES: Final = """
if redis.call('TYPE', KEYS[1]).ok ~= 'hash' then return {} end
if redis.call('HGET', KEYS[1], '') == ARGV[1] then return false end
return redis.call('HGETALL', KEYS[1])
"""
# The fences and keys of snapshots that the bucket may lack (missed_by_bucket.py), by the time when they
# are due.
NOTE_UNSAVED: Final = f"""{_NOW}
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then redis.call('DEL', KEYS[1]) end
local due = string.format('%.0f', tonumber(now) + tonumber(ARGV[2]))
redis.call('ZADD', KEYS[1], due, ARGV[1])
local above = redis.call('ZCARD', KEYS[1]) - 200000
if above > 0 then redis.call('ZREMRANGEBYRANK', KEYS[1], 0, above - 1) end
redis.call('EXPIRE', KEYS[1], 31536000)
"""
# Those that are due, for one replica: for the others they are due later. What is no note is removed.
TAKE_UNSAVED: Final = f"""{_NOW}
local due = string.format('%.0f', tonumber(now) + tonumber(ARGV[1]))
local notes = {{}}
if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then return notes end
local found = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, ARGV[2])
for _, note in ipairs(found) do
    local fence, key = note:match('^(%d+) (.*)$')
    if fence then
        redis.call('ZADD', KEYS[1], due, note)
        notes[#notes + 1] = {{fence, key}}
    else
        redis.call('ZREM', KEYS[1], note)
    end
end
return notes
"""


@cache
def sha1(script: str) -> str:
    """What EVALSHA names a script by."""
    return hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()

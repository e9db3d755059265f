"""Whether Redis may lack writes that the bucket has, because it failed, or lost its last writes.

A mark in the bucket says so for all replicas: snapshots in Redis with a fence before ``until`` may be
outdated, and are compared with those in the bucket when they are read (tiers.py). A replica writes the
mark before it writes to the bucket what Redis missed, and when Redis is another process than before:
one that was restarted may have loaded old data, and one that was promoted may lack the last writes.
"""

import time
from dataclasses import dataclass

from prerender.extensions.object_store.object_store import (
    CLOCK_SKEW_MICROSECONDS,
    ObjectCache,
    fence_of,
)
from prerender.snapshots.stores.guarded import Failed, Guarded
from prerender.snapshots.stores.redis import RedisCache

# After a failed write a mark is this far ahead, so that one is enough for all writes until then.
_AHEAD_MICROSECONDS = 10 * 1_000_000
# Clocks of replicas may differ by this much: until then a snapshot is compared each time it is read.
_MARGIN_MICROSECONDS = 10 * 1_000_000
# Each takes about 60 bytes.
_MOST_COMPARED = 200_000


@dataclass(frozen=True, slots=True)
class Mark:
    """``until``: a fence, in microseconds. ``server``: the identity of Redis; '' if unknown."""

    until: int = 0
    server: str = ""

    def dump(self) -> bytes:
        """The stored form."""
        return f"{self.until} {self.server}".encode()

    @classmethod
    def parse(cls, data: bytes | None, now: int) -> "Mark | None":
        """Parse a dump. None if it is invalid, or too far ahead of ``now``: by a wrong clock."""
        until, _, server = (data or b"").decode("ascii", "replace").partition(" ")
        latest = now + _AHEAD_MICROSECONDS + CLOCK_SKEW_MICROSECONDS
        if not (until.isascii() and until.isdigit() and len(until) < 20) or int(until) > latest:
            return None
        return cls(int(until), server)


class MissedByRedis:
    """The mark in ``cold`` (the bucket), and the keys that were compared since it was written."""

    def __init__(
        self, hot: Guarded, cold: Guarded, redis: RedisCache, objects: ObjectCache
    ) -> None:
        self._hot, self._cold = hot, cold
        self._redis, self._objects = redis, objects
        self._mark = Mark()
        self._unwritten = False
        self._compared: set[int] = set()  # hashes of keys

    async def note(self, fence: int) -> None:
        """Mark that Redis has missed a write, unless the mark covers it.

        To be called before the write to the bucket, because this process may be killed after it, and
        after it, because it may have taken longer than the mark is ahead.
        """
        now = _now()
        at_least = max(now, min(fence, now + CLOCK_SKEW_MICROSECONDS))
        if self._mark.until <= at_least:
            await self._advance(at_least, _AHEAD_MICROSECONDS)

    async def poll(self) -> None:
        """Read the mark. Advance it if there is none, or if Redis is another process."""
        # The mark is read first, so it is never overwritten with the identity of an older process.
        data = await self._cold.ask("mark", self._objects.read_mark)
        if isinstance(data, Failed):
            return
        mark = Mark.parse(data, _now())
        if mark is not None:
            self._know(mark)
        server = await self._hot.ask("identity", self._redis.identity)
        known = "" if isinstance(server, Failed) else server
        if mark is None or self._unwritten or (known and known != mark.server):
            await self._advance(_now(), 0, known)

    def doubts(self, key: str, value: object) -> bool:
        """Whether a value in Redis is a snapshot that may be outdated, and was not compared yet."""
        fence = fence_of(value) if isinstance(value, bytes) else None
        return fence is not None and fence < self._mark.until and hash(key) not in self._compared

    def compared(self, key: str, began: float) -> None:
        """Remember that a key was compared, unless that ``began`` (Unix seconds) while Redis might
        still miss writes under this mark.
        """
        if began * 1_000_000 < self._mark.until + _MARGIN_MICROSECONDS:
            return
        if len(self._compared) >= _MOST_COMPARED:
            self._compared.clear()
        self._compared.add(hash(key))

    async def _advance(self, at_least: int, ahead: int, server: str = "") -> None:
        def change(data: bytes | None) -> bytes | None:
            mark = Mark.parse(data, _now()) or Mark()
            if mark.until > at_least and server in ("", mark.server):
                return data
            until = max(mark.until, at_least + ahead)
            return Mark(until, server or mark.server).dump()

        data = await self._cold.ask("mark", lambda: self._objects.change_mark(change))
        self._unwritten = isinstance(data, Failed)
        if not isinstance(data, Failed):
            self._know(Mark.parse(data, _now()) or Mark())

    def _know(self, mark: Mark) -> None:
        if mark.until != self._mark.until:
            self._compared.clear()
        self._mark = mark


def _now() -> int:
    return int(time.time() * 1_000_000)

"""aiocache's interface over a dictionary that is bounded in bytes.

aiocache's own memory backend grows without limit, takes ``ttl=0`` for "for ever", and leaves timers
behind that delete later entries. Here the entry that was used longest ago goes first, and time is
looked at when an entry is asked for.
"""

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Protocol

from aiocache.base import BaseCache
from aiocache.serializers import NullSerializer


class Sized(Protocol):
    """A value that knows what it takes in memory."""

    @property
    def size_bytes(self) -> int: ...


class BoundedMemoryCache(BaseCache):  # type: ignore[misc]
    """Keeps values of at most ``max_bytes`` in all; a value above a quarter of that is not kept.

    ``ttl`` in seconds, None for no end, 0 or less stores nothing. Values are handed out as they are,
    so they must be immutable.
    """

    NAME = "bounded-memory"

    def __init__(
        self, max_bytes: int, clock: Callable[[], float] = time.monotonic, **options: Any
    ) -> None:
        super().__init__(serializer=NullSerializer(), timeout=None, **options)
        self.max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[str, tuple[Sized, float]] = OrderedDict()
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def peek(self, key: str) -> Sized | None:
        """The value of a key, or None, without the cost of a coroutine."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, expires = entry
        if expires <= self._clock():
            self._remove(key)
            return None
        self._entries.move_to_end(key)
        return value

    async def _get(self, key: str, encoding: str = "utf-8", _conn: Any = None) -> Sized | None:
        return self.peek(key)

    async def _gets(self, key: str, encoding: str = "utf-8", _conn: Any = None) -> Sized | None:
        return self.peek(key)

    async def _multi_get(
        self, keys: list[str], encoding: str = "utf-8", _conn: Any = None
    ) -> list[Sized | None]:
        return [self.peek(key) for key in keys]

    def put(self, key: str, value: Sized, ttl: float | None) -> bool:
        """Keep a value, without the cost of a coroutine; whether it is kept."""
        self._remove(key)
        if (ttl is not None and ttl <= 0) or value.size_bytes > self.max_bytes / 4:
            return False
        expires = float("inf") if ttl is None else self._clock() + ttl
        self._entries[key] = (value, expires)
        self.used_bytes += value.size_bytes
        while self.used_bytes > self.max_bytes:
            self._remove(next(iter(self._entries)))
        return True

    async def _set(
        self,
        key: str,
        value: Sized,
        ttl: float | None = None,
        _cas_token: Any = None,
        _conn: Any = None,
    ) -> bool:
        return self.put(key, value, ttl)

    async def _multi_set(
        self, pairs: list[tuple[str, Sized]], ttl: float | None = None, _conn: Any = None
    ) -> bool:
        return all([await self._set(key, value, ttl) for key, value in pairs])

    async def _add(
        self, key: str, value: Sized, ttl: float | None = None, _conn: Any = None
    ) -> bool:
        if self.peek(key) is not None:
            raise ValueError(f"{key} exists already")
        return await self._set(key, value, ttl)

    async def _exists(self, key: str, _conn: Any = None) -> bool:
        return self.peek(key) is not None

    async def _expire(self, key: str, ttl: float, _conn: Any = None) -> bool:
        value = self.peek(key)
        return value is not None and await self._set(key, value, ttl)

    async def _delete(self, key: str, _conn: Any = None) -> int:
        return self._remove(key)

    async def _clear(self, namespace: str | None = None, _conn: Any = None) -> bool:
        for key in [key for key in self._entries if key.startswith(namespace or "")]:
            self._remove(key)
        return True

    def items(self) -> list[tuple[str, Sized, float]]:
        """All keys with their values and the seconds that they have left."""
        now = self._clock()
        return [(key, value, expires - now) for key, (value, expires) in self._entries.items()]

    def _remove(self, key: str) -> int:
        entry = self._entries.pop(key, None)
        if entry is None:
            return 0
        self.used_bytes -= entry[0].size_bytes
        return 1

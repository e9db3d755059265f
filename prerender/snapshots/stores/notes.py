"""Additional data of snapshots, such as histories, stored separately so that hits do not carry it."""

from typing import Any

from prerender.errors import StoreError
from prerender.snapshots.stores.guarded import Failed, Guarded
from prerender.snapshots.stores.memory import BoundedMemoryCache

_PREFIX = "note:"


class Notes:
    """Bytes by the key of a snapshot: in ``store``, or in ``memory`` without a backing store."""

    def __init__(self, store: Guarded | None, memory: BoundedMemoryCache) -> None:
        self._store = store
        self._memory = memory

    @property
    def in_memory(self) -> bool:
        """Whether a restart, or other notes, can remove them."""
        return self._store is None

    async def get(self, key: str) -> bytes | None:
        """The note of a key, if there is one, and the store responds."""
        try:
            return await self.read(key)
        except StoreError:
            return None

    async def read(self, key: str) -> bytes | None:
        """The note of a key, if there is one; for changing it. Raises StoreError if that is unknown."""
        name = f"{_PREFIX}{key}"
        if self._store is None:
            note = self._memory.peek(name)
        else:
            cache = self._store.cache
            note = await self._store.ask("note", lambda: cache.get(name, loads_fn=_as_it_is))
            if isinstance(note, Failed):
                raise StoreError("the store did not respond")
        return _bytes_of(note)

    async def set(self, key: str, data: bytes, ttl: float) -> bool:
        """Store a note for ``ttl`` seconds. Returns whether it is stored."""
        name = f"{_PREFIX}{key}"
        if self._store is None:
            return self._memory.put(name, data, ttl)
        cache = self._store.cache
        stored = await self._store.ask(
            "note", lambda: cache.set(name, data, ttl, dumps_fn=_as_it_is)
        )
        return not isinstance(stored, Failed)


def _as_it_is(value: Any) -> Any:
    return value


def _bytes_of(value: Any) -> bytes | None:
    return value if isinstance(value, bytes) else None

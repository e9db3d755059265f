"""What the stores behind the memory have in common: bytes by key, purges, and perhaps leases."""

from collections.abc import AsyncGenerator
from typing import Protocol

from prerender.snapshots.purges import Purge, Purges

# Nothing is kept for ever.
LONGEST_SECONDS = 365 * 86400.0


class SlowCache(Protocol):
    """aiocache's interface for bytes, and a little more. Faults are StoreErrors.

    ``shared``: others write to it too, so that a copy of what it holds may be out of date.
    ``timeout_seconds`` is how long an operation may take, ``reads_at_once`` how many calls to read are
    worth making beside each other.
    """

    NAME: str
    shared: bool
    timeout_seconds: float
    reads_at_once: int

    async def open(self) -> None:
        """Do what is needed before first use. Raises StoreError."""
        ...

    async def get(self, key: str) -> bytes | None: ...

    async def multi_get(self, keys: list[str]) -> list[bytes | None]: ...

    async def set(self, key: str, value: bytes, ttl: float) -> bool: ...

    async def delete(self, key: str) -> int: ...

    async def close(self) -> None: ...

    async def enlist(self, key: str, row: bytes, ttl: float) -> None:
        """Keep the line of a list (listing.py) for what is kept under ``key``."""
        ...

    def lines(self) -> AsyncGenerator[list[bytes]]:
        """The lines of all that is kept, and perhaps of some that is not any more, in pieces."""
        ...

    async def purge(self, purge: Purge) -> Purges:
        """Remember a purge; all that are remembered, this one with a number above all others."""
        ...

    async def purges(self, generation: int) -> Purges | None:
        """All purges; None if the last of them has the number ``generation``."""
        ...

    async def acquire(self, key: str) -> int | None:
        """A fence if nobody else holds the lease of a key; None if somebody does."""
        ...

    async def extend(self, key: str, fence: int) -> None:
        """Hold a lease for some seconds more."""
        ...

    async def release(self, key: str, fence: int) -> None:
        """Give a lease back, if it is still held."""
        ...

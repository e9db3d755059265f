"""Calls to a backing store that may fail: they return FAILED instead of raising.

An unavailable store is not called for a while (breaker.py).
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from enum import Enum
from math import inf
from typing import Final, TypeVar

import structlog

from prerender.errors import StoreError, StoreGone
from prerender.snapshots.stores.backing_store import BackingCache
from prerender.snapshots.stores.breaker import Breaker

T = TypeVar("T")
_LOG_SECONDS = 60.0
log = structlog.get_logger(__name__)


class Failed(Enum):
    """The result of a failed call."""

    FAILED = "failed"


FAILED: Final = Failed.FAILED


class Guarded:
    """Wraps a ``cache``. ``counts``: errors by operation."""

    def __init__(self, cache: BackingCache) -> None:
        self.cache = cache
        self.counts: Counter[str] = Counter()
        self._logged: dict[str, float] = {}
        self._breaker = Breaker()

    @property
    def available(self) -> bool:
        """Whether the store responds, as far as known."""
        return self._breaker.closed

    async def ask(self, what: str, call: Callable[[], Awaitable[T]]) -> T | Failed:
        """Make a call. Returns its result or FAILED."""
        if not self._breaker.admits():
            return FAILED
        cancelled = _cancellations()
        result = await self._ask(what, call)
        if _cancellations() > cancelled:
            # asyncio.wait_for of Python 3.11 (in aiocache) loses a cancellation that arrives together
            # with its result (gh-86296): a heartbeat that is to end would never end.
            raise asyncio.CancelledError
        return result

    async def _ask(self, what: str, call: Callable[[], Awaitable[T]]) -> T | Failed:
        try:
            result = await call()
        except Exception as error:
            self.counts[what] += 1
            if isinstance(error, StoreError) and not isinstance(error, StoreGone):
                # A full store may give and refuse notes in turns.
                now = time.monotonic()
                if now - self._logged.get(what, -inf) >= _LOG_SECONDS:
                    self._logged[what] = now
                    log.warning("store_operation_failed", operation=what, reason=str(error))
                self._answered()
            else:
                self._gone(error)
            return FAILED
        self._answered()
        return result

    def _answered(self) -> None:
        if not self._breaker.closed:
            self._breaker.succeeded()
            log.info("store_available", store=self.cache.NAME)

    def _gone(self, error: Exception) -> None:
        if self._breaker.closed:
            # Something other than Redis may cause unexpected exceptions.
            unexpected = not isinstance(error, StoreGone | OSError)
            reason = str(error) or "timeout"
            log.warning(
                "store_unavailable", store=self.cache.NAME, reason=reason, exc_info=unexpected
            )
        self._breaker.failed()


def _cancellations() -> int:
    """How often the current task was cancelled."""
    task = asyncio.current_task()
    return task.cancelling() if task else 0

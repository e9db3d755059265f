"""Calls to a store that may fail: no fault of it gets out of here.

What cannot be asked gives FAILED, and who asked does without. A store that cannot be reached is left
alone for a while (breaker.py).
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final, TypeVar

import structlog

from prerender.errors import StoreError, StoreGone
from prerender.snapshots.stores.backing import BackingCache
from prerender.snapshots.stores.breaker import Breaker

T = TypeVar("T")
log = structlog.get_logger(__name__)


class Failed(Enum):
    """In place of a result: the store could not be asked."""

    FAILED = "failed"


FAILED: Final = Failed.FAILED


class Guarded:
    """A ``cache`` whose faults are counted by operation in ``counts``."""

    def __init__(self, cache: BackingCache) -> None:
        self.cache = cache
        self.counts: Counter[str] = Counter()
        self._breaker = Breaker()

    @property
    def available(self) -> bool:
        """Whether it answers, as far as is known."""
        return self._breaker.closed

    async def ask(self, what: str, call: Callable[[], Awaitable[T]]) -> T | Failed:
        """The result of a call to the cache."""
        if not self._breaker.admits():
            return FAILED
        try:
            result = await call()
        except Exception as error:
            self.counts[what] += 1
            if isinstance(error, StoreError) and not isinstance(error, StoreGone):
                if self.counts[what] == 1:
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
            # What is there may be no Redis at all, and answer what no library expects.
            unexpected = not isinstance(error, StoreGone | OSError)
            reason = str(error) or "timeout"
            log.warning(
                "store_unavailable", store=self.cache.NAME, reason=reason, exc_info=unexpected
            )
        self._breaker.failed()

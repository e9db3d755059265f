"""Memory of the lists and caches that hold texts of clients and pages: URLs, headers, errors.

Each is bounded; this metric shows what they hold.
"""

import asyncio
import dataclasses
import functools
import gc
import queue
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager

from cachetools import Cache
from prometheus_client.core import Metric

from prerender.background import repeating
from prerender.telemetry.scraped_metrics import gauge

# A proxy that starts has more urgent things to do.
FIRST_SECONDS = 5.0
_EVERY_SECONDS = 60.0
_PACKAGE = "prerender."
# From an object through the objects in its attributes.
_MOST_LEVELS = 12
_CONTAINERS = (dict, list, tuple, set, frozenset, deque, Cache, queue.Queue)


class Remembered:
    """Measures ``holders``, objects with such lists, by name, and each ``lru_cache`` of the package.

    ``users``: other objects that use such caches.
    """

    def __init__(
        self,
        holders: Mapping[str, object],
        users: Iterable[object] = (),
        every_seconds: float = _EVERY_SECONDS,
    ) -> None:
        self._holders = dict(holders)
        self._users = tuple(users)
        self._every_seconds = every_seconds
        self._sizes: dict[str, float] = {}

    def collect(self) -> Iterable[Metric]:
        """The last measurement, at most a minute old."""
        yield gauge(
            "prerender_remembered_bytes",
            "Memory of lists and caches with texts of clients and pages, measured once a minute.",
            self._sizes,
            "of",
        )

    @asynccontextmanager
    async def measuring(self) -> AsyncIterator[None]:
        """Measure while the context is open."""
        caches: list[object] = []

        async def measure() -> None:
            if not caches:
                await asyncio.sleep(FIRST_SECONDS)
                # All of them exist once the proxy is built.
                caches.extend(_lru_caches((*self._holders.values(), *self._users)))
            self._sizes = await asyncio.to_thread(self._measured, caches)

        async with repeating(measure, "remembered bytes", self._every_seconds):
            yield

    def _measured(self, caches: Iterable[object]) -> dict[str, float]:
        sizes: dict[str, float] = {
            name: size_bytes(holder) for name, holder in self._holders.items()
        }
        for cache in caches:
            name = str(getattr(cache, "__module__", "")).removeprefix(_PACKAGE)
            sizes[name] = sizes.get(name, 0) + size_bytes(cache)
        return sizes


def _lru_caches(users: Iterable[object]) -> list[object]:
    """Each ``lru_cache`` of the package: in its modules, in ``users``, and in objects that these use.

    Not by gc.get_objects, whose references to unfinished tuples break code in other threads.
    """
    modules = [module for name, module in sys.modules.items() if name.startswith(_PACKAGE)]
    level = [value for module in modules for value in list(vars(module).values())]
    level += users
    seen, caches = set[int](), []
    for _ in range(_MOST_LEVELS):
        following: list[object] = []
        for value in level:
            if id(value) in seen or isinstance(value, type):
                continue
            seen.add(id(value))
            if isinstance(value, functools._lru_cache_wrapper):
                caches.append(value)
            elif isinstance(value, dict | list) or type(value).__module__.startswith(_PACKAGE):
                following += gc.get_referents(value)
        level = following
    return [one for one in caches if str(getattr(one, "__module__", "")).startswith(_PACKAGE)]


def size_bytes(holder: object) -> int:
    """The memory of the values in the attributes of ``holder``, or in an ``lru_cache``.

    Values are texts, numbers, containers and dataclasses, not objects with a behavior of their own.
    Another thread may change them meanwhile.
    """
    values = gc.get_referents(holder)
    seen, total = set[int](), 0
    while values:
        value = values.pop()
        if id(value) in seen or isinstance(value, type):
            continue
        seen.add(id(value))
        if isinstance(value, _CONTAINERS) or dataclasses.is_dataclass(value):
            values.extend(gc.get_referents(value))
        elif not isinstance(value, (str, bytes, int, float)):
            continue
        total += sys.getsizeof(value)
    return total

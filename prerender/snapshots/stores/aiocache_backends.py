"""Any other aiocache backend by the name of its class: ``aiocache://package.Class?option=value``.

It supports only aiocache's commands: no leases, no lists, and purges in a single value, so that
concurrent purges of two replicas may overwrite each other.
"""

import time
from importlib import import_module
from math import ceil
from typing import Any, cast
from urllib.parse import parse_qsl, urlsplit

from aiocache.base import BaseCache

from prerender.snapshots.purges import Purge, Purges
from prerender.snapshots.stores.backing_store import BackingCache

# memcached interprets larger values as Unix times.
_LONGEST_SECONDS = 30 * 86400
_PURGES = "purges"
LACKS = (
    "no leases: each replica renders for itself; no lists: the dashboard shows what is in memory; "
    "two replicas that purge at the same moment may miss each other's purge"
)


class NamedCache(BackingCache):
    """A mixin for a backend (see ``named``)."""

    lists = False

    async def purge(self, *purges: Purge) -> Purges:
        """Add purges, with the highest number. Returns all purges."""
        together = (await self._purges()).with_(purges, time.time())
        await self.set(_PURGES, together, _LONGEST_SECONDS, dumps_fn=dump_purges)
        return together

    async def restore(self, purges: Purges) -> Purges:
        """Remember purges that were lost, each with its number; all that are remembered."""
        together = (await self._purges()).restored(purges)
        await self.set(_PURGES, together, _LONGEST_SECONDS, dumps_fn=dump_purges)
        return together

    async def purges(self, generation: int) -> Purges | None:
        """All purges; None if the last of them has the number ``generation``."""
        purges = await self._purges()
        return None if purges.generation == generation else purges

    def _get_ttl(self, ttl: Any) -> int:
        """Whole seconds, because not every backend accepts fractions."""
        seconds = super()._get_ttl(ttl)
        return ceil(min(_LONGEST_SECONDS if seconds is None else seconds, _LONGEST_SECONDS))

    async def _purges(self) -> Purges:
        return cast("Purges", await self.get(_PURGES, loads_fn=parse_purges))


def named(url: str, namespace: str, timeout_seconds: float) -> NamedCache:
    """Create the cache of a URL, with the options of its query. Raises ValueError."""
    parts = urlsplit(url)
    backend = _class(parts.netloc)
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    kind = type(backend.__name__, (NamedCache, backend), {})
    try:
        return cast("NamedCache", kind(namespace=namespace, timeout=timeout_seconds, **options))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{parts.netloc} does not accept these options: {error}") from error


def _class(path: str) -> type[Any]:
    module, _, name = path.rpartition(".")
    try:
        backend = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"there is no class {path}: {error}") from error
    if not (isinstance(backend, type) and issubclass(backend, BaseCache)):
        raise ValueError(f"{path} is not an aiocache cache")
    return backend


def dump_purges(purges: Purges) -> bytes:
    """Purges with their numbers, as one value."""
    return b"\n".join(b"%d %s" % (number, dump) for dump, number in purges.dump())


def parse_purges(data: Any) -> Purges:
    """The purges of a value that dump_purges() has made."""
    lines = data.split(b"\n") if isinstance(data, bytes) else []
    pairs = (line.partition(b" ") for line in lines)
    records = [(dump, int(number)) for number, _, dump in pairs if number.isdigit()]
    return Purges.parse(records, time.time())

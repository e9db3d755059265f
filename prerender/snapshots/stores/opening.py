"""The store that the settings ask for."""

import errno
import sqlite3
from hashlib import blake2b
from pathlib import Path
from urllib.parse import unquote, urlsplit

import structlog

from prerender.config import Settings
from prerender.errors import ConfigError, StoreError
from prerender.http import headers
from prerender.snapshots.entry import FORMAT
from prerender.snapshots.stores.backing import SlowCache
from prerender.snapshots.stores.file import FileCache
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.redis import RedisCache
from prerender.snapshots.stores.store import Store

log = structlog.get_logger(__name__)


async def open_store(settings: Settings) -> Store:
    """The store of the site. Raises ConfigError when its folder cannot be used.

    A Redis that is away, and a disk that is full, are no reason not to start: the proxy does its work
    without, and a Redis that comes back is used again.
    """
    cache = settings.cache
    scheme = cache.url.partition(":")[0]
    slow: SlowCache | None = None
    if scheme == "file":
        slow = await _file(settings)
    elif scheme != "memory":
        redis = RedisCache(cache.url, namespace(settings), cache.timeout)
        try:
            await redis.check()
        except StoreError as error:
            log.warning("the store is away", store="redis", reason=str(error))
        slow = redis
    return Store(BoundedMemoryCache(cache.max_bytes), slow)


async def _file(settings: Settings) -> SlowCache | None:
    cache = settings.cache
    folder = Path(unquote(urlsplit(cache.url).path))
    file = FileCache(folder, namespace(settings), cache.file_max_bytes)
    try:
        await file.open()
    except (OSError, sqlite3.Error) as error:
        await file.close()
        if _is_full(error):
            log.warning("the disk is full: snapshots are kept in memory only", folder=str(folder))
            return None
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError([f"[cache] url: {cache.url}: cannot be written to: {reason}"]) from error
    return file


def _is_full(error: OSError | sqlite3.Error) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL


def namespace(settings: Settings) -> str:
    """What the keys of this site begin with, so that sites may share a store.

    What other settings or another version have made is not found, instead of being fought over.
    """
    made_by = repr((FORMAT, str(settings.public_url), settings.snapshot.model_dump()))
    digest = blake2b(made_by.encode(), digest_size=4).hexdigest()
    return f"prerender:{headers.authority(settings.public_url)}:{digest}:"

"""Opens the store of [cache] url."""

import asyncio
import errno
from hashlib import blake2b
from pathlib import Path
from urllib.parse import unquote, urlsplit

import structlog

from prerender.config import Settings
from prerender.config.store_urls import OBJECT_STORES
from prerender.errors import ConfigError
from prerender.extensions.object_store.object_store import TIMEOUT_SECONDS, ObjectCache
from prerender.extensions.object_store.tiers import TieredCache
from prerender.http.forwarding_headers import authority
from prerender.snapshots.entry import FORMAT
from prerender.snapshots.stores.aiocache_backends import LACKS, named
from prerender.snapshots.stores.backing_store import BackingCache
from prerender.snapshots.stores.file import FileCache
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.redis import RedisCache
from prerender.snapshots.stores.store import Store

# Settings that earlier releases do not have. At their defaults, both share their snapshots.
_LATER = ("remove", "add")

log = structlog.get_logger(__name__)


async def open_store(settings: Settings) -> Store:
    """Open the store. Raises ConfigError if its folder cannot exist.

    The proxy also starts with an unavailable store (Redis is down, the disk is full or read-only):
    pages are rendered without it, and it is used as soon as it works.
    """
    cache = settings.cache
    scheme = cache.url.partition(":")[0]
    slow: BackingCache | None = None
    if scheme == "file":
        folder = await asyncio.to_thread(_folder, cache.url)
        slow = FileCache(folder, namespace(settings), cache.file_max_bytes)
    elif scheme == "aiocache":
        slow = _named(settings)
    elif scheme in OBJECT_STORES:
        slow = _tiers(settings)
    elif scheme != "memory":
        slow = RedisCache(cache.url, namespace(settings), cache.timeout)
    store = Store(BoundedMemoryCache(cache.max_bytes), slow)
    await store.open()
    await store.tell_of_another_format()
    return store


def _tiers(settings: Settings) -> BackingCache:
    """An object store, behind a Redis if there is one."""
    cache, name = settings.cache, namespace(settings)
    cold = object_store(settings)
    if not cache.hot_url:
        return cold
    return TieredCache(RedisCache(cache.hot_url, name, cache.timeout), cold, name)


def object_store(settings: Settings) -> ObjectCache:
    """The object store of the settings. Raises ConfigError for one that cannot be."""
    try:
        from prerender.extensions.object_store.bucket import Bucket  # noqa: PLC0415 (optional)
    except ImportError as error:
        raise ConfigError(
            [f"[cache] url: {error}: install it with pip install 'prerender-proxy[s3]'"]
        ) from error
    try:
        return ObjectCache(Bucket(settings.cache.url, TIMEOUT_SECONDS), namespace(settings))
    except ValueError as error:
        raise ConfigError([f"[cache] url: {error}"]) from error


def _named(settings: Settings) -> BackingCache:
    cache = settings.cache
    try:
        found = named(cache.url, namespace(settings), cache.timeout)
    except ValueError as error:
        raise ConfigError([f"[cache] url: {cache.url}: {error}"]) from error
    log.warning("store_limited", store=found.NAME, lacks=LACKS)
    return found


def _folder(url: str) -> Path:
    """The folder of a URL. Raises ConfigError if it cannot exist."""
    folder = Path(unquote(urlsplit(url).path))
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
            raise ConfigError(
                [f"[cache] url: {url}: cannot be written to: {error.strerror}"]
            ) from error
    return folder


def namespace(settings: Settings) -> str:
    """The key prefix of the site, so that sites may share a store.

    Depends on the version and the settings of snapshots, so entries of others are not found.
    """
    snapshot = settings.snapshot.model_dump()
    for name in _LATER:
        if not snapshot[name]:
            del snapshot[name]
    made_by = repr((FORMAT, str(settings.public_url), snapshot))
    digest = blake2b(made_by.encode(), digest_size=4).hexdigest()
    return f"prerender:{authority(settings.public_url)}:{digest}:"

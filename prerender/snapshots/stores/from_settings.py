"""Opens the store of [cache] url."""

from hashlib import blake2b
from pathlib import Path
from urllib.parse import unquote, urlsplit

from prerender.config import Settings
from prerender.config.store_urls import kind_of
from prerender.http.forwarding_headers import authority
from prerender.snapshots.entry import FORMAT
from prerender.snapshots.stores.memory import BoundedMemoryCache
from prerender.snapshots.stores.store import Store

# Settings that earlier releases do not have. At their defaults, both share their snapshots.
_LATER = ("remove", "add")


async def open_store(settings: Settings) -> Store:
    """Open the store. Raises ConfigError if its folder cannot exist.

    The proxy also starts with an unavailable store (Redis is down, the disk is full or read-only):
    pages are rendered without it, and it is used as soon as it works.
    """
    kind = kind_of(settings.cache.url)
    assert kind is not None, "the settings are valid"
    slow = await kind.open(settings, namespace(settings))
    store = Store(BoundedMemoryCache(settings.cache.max_bytes), slow)
    await store.open()
    await store.log_other_format()
    return store


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


def beside(settings: Settings) -> Path | str | None:
    """Where extensions keep data of their own: the folder of the file store, or the URL of its Redis;
    None: in memory."""
    url = settings.cache.hot_url or settings.cache.url
    scheme = url.partition(":")[0].partition("+")[0]
    if scheme == "file":
        return Path(unquote(urlsplit(url).path))
    return url if scheme in ("redis", "rediss", "unix") else None

"""Object stores: S3, Google Cloud Storage and Azure, alone or behind Redis."""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import SplitResult

from prerender.config.store_urls import Diagnosis, StoreKind, unknown_option
from prerender.errors import ConfigError, StoreError
from prerender.snapshots.store_kinds import diagnose_redis, unavailable

if TYPE_CHECKING:  # they take long to import, and only those who open a store need them
    from prerender.config.settings import Settings
    from prerender.extensions.object_store.object_store import ObjectCache
    from prerender.snapshots.stores.backing_store import BackingCache

# Options of obstore by scheme. Credentials come from the environment or from roles.
_OPTIONS = {
    "s3": frozenset({"endpoint", "region", "virtual_hosted_style_request"}),
    "gs": frozenset({"base_url"}),
    "az": frozenset({"account_name", "endpoint", "use_emulator"}),
}
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{2,221}", re.ASCII)


class _Objects(StoreKind):
    schemes = tuple(_OPTIONS)
    forms = ("s3://bucket/prefix", "gs://bucket/prefix", "az://container/prefix?account_name=NAME")
    may_have_redis = True

    def problem(self, url: SplitResult, options: Mapping[str, str]) -> str:
        if "@" in url.netloc:
            return f"{url.scheme}:// takes no credentials: they come from the environment or from roles"
        if not _BUCKET.fullmatch(url.netloc):
            return f"the name of the bucket after {url.scheme}:// is invalid"
        return unknown_option(url, options, _OPTIONS[url.scheme])

    async def open(self, settings: "Settings", namespace: str) -> "BackingCache":
        from prerender.extensions.object_store.tiers import TieredCache  # noqa: PLC0415
        from prerender.snapshots.stores.redis import RedisCache  # noqa: PLC0415

        cache = settings.cache
        cold = object_store(settings, namespace)
        if not cache.hot_url:
            return cold
        return TieredCache(RedisCache(cache.hot_url, namespace, cache.timeout), cold, namespace)

    async def diagnose(self, settings: "Settings", namespace: str) -> Diagnosis:
        """The object store, then the Redis in front of it."""
        scheme, hot = settings.cache.url.partition(":")[0], settings.cache.hot_url
        try:
            await object_store(settings, namespace).open()
        except ConfigError as error:
            return Diagnosis("problem", f"{scheme}: {error}", "correct [cache] url")
        except (StoreError, TimeoutError) as error:
            return unavailable(scheme, error, "url")
        if hot:
            return await diagnose_redis(settings, namespace, hot, "hot_url")
        return Diagnosis("ok", f"{scheme}: responds; each replica renders for itself")


KINDS = (_Objects(),)


def object_store(settings: "Settings", namespace: str) -> "ObjectCache":
    """The object store of the settings. Raises ConfigError for one that cannot be."""
    from prerender.extensions.object_store.object_store import (  # noqa: PLC0415
        TIMEOUT_SECONDS,
        ObjectCache,
    )

    try:
        from prerender.extensions.object_store.bucket import Bucket  # noqa: PLC0415 (optional)
    except ImportError as error:
        raise ConfigError(
            [f"[cache] url: {error}: install it with pip install 'prerender-proxy[s3]'"]
        ) from error
    try:
        timeout = max(settings.cache.timeout, TIMEOUT_SECONDS)
        return ObjectCache(Bucket(settings.cache.url, timeout), namespace, timeout)
    except ValueError as error:
        raise ConfigError([f"[cache] url: {error}"]) from error

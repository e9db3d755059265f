"""The kinds of stores of the core: memory, a file, Redis, and any other backend of aiocache."""

import asyncio
import errno
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

import structlog

from prerender.config.store_urls import Diagnosis, StoreKind, unknown_option
from prerender.errors import ConfigError, StoreError
from prerender.urls.hosts import servers

if TYPE_CHECKING:  # they take long to import, and only those who open a store need them
    from prerender.config.settings import Settings
    from prerender.snapshots.stores.backing_store import BackingCache

_DATABASE = "[0-9]{1,5}"
# What comes after the servers, by what the scheme has after its "+".
_REDIS_PATHS = {
    "": (re.compile(rf"/?|/{_DATABASE}", re.ASCII), "the number of a database, such as /0"),
    "cluster": (re.compile("/?"), "nothing"),
    "sentinel": (
        re.compile(rf"/[^/]+(/|/{_DATABASE})?", re.ASCII),
        "the name of the primary, such as /primary",
    ),
}
# Options of redis-py. Others would break assumptions of the code, or expose a password.
_TLS_OPTIONS = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)
_MIB = 1024**2

log = structlog.get_logger(__name__)


class _Memory(StoreKind):
    schemes = ("memory",)
    forms = ("memory://",)

    def problem(self, url: SplitResult, _: Mapping[str, str]) -> str:
        is_alone = url.geturl() in ("memory:", "memory://")
        return "" if is_alone else "give memory:// alone"

    async def open(self, _: "Settings", __: str) -> None:
        return None

    async def diagnose(self, _: "Settings", __: str) -> Diagnosis:
        return Diagnosis("ok", "memory: snapshots are lost on restart")


class _File(StoreKind):
    schemes = ("file",)
    forms = ("file:///var/cache/prerender",)

    def problem(self, url: SplitResult, options: Mapping[str, str]) -> str:
        if url.netloc or len(url.path) < 2:
            return "give the path of a folder after file://, such as file:///var/cache/prerender"
        return unknown_option(url, options, frozenset())

    async def open(self, settings: "Settings", namespace: str) -> "BackingCache":
        from prerender.snapshots.stores.file import TIMEOUT_SECONDS, FileCache  # noqa: PLC0415

        folder = await asyncio.to_thread(self._made, settings.cache.url)
        timeout = max(settings.cache.timeout, TIMEOUT_SECONDS)
        return FileCache(folder, namespace, settings.cache.file_max_bytes, timeout)

    def _made(self, url: str) -> Path:
        folder = _folder(url)
        try:
            folder.mkdir(exist_ok=True)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST):
                raise ConfigError(
                    [f"[cache] url: {url}: cannot be written to: {error.strerror}"]
                ) from error
        return folder

    async def diagnose(self, settings: "Settings", _: str) -> Diagnosis:
        folder = _folder(settings.cache.url)
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not os.access(there, os.W_OK | os.X_OK) or not there.is_dir():
            remedy = f"let user {os.geteuid()} write there, or change [cache] url"
            return Diagnosis("problem", f"{folder}: not writable", remedy)
        free = shutil.disk_usage(there).free
        return Diagnosis("ok", f"file: {folder} is writable, {free // _MIB} MiB free")


class _Redis(StoreKind):
    schemes = (
        *("unix", "redis", "redis+cluster", "redis+sentinel"),
        *("rediss", "rediss+cluster", "rediss+sentinel"),
    )
    forms = (
        "redis://user:password@host:6379/0",
        "rediss://...",
        "unix:///run/redis.sock?db=0",
        "redis+cluster://host:6379,host:6379",
        "redis+sentinel://host:26379,host:26379/primary",
    )

    def problem(self, url: SplitResult, options: Mapping[str, str]) -> str:
        if url.scheme == "unix":
            if len(url.path) < 2:
                return "give the path of a socket after unix://, such as unix:///run/redis.sock"
            if not re.fullmatch(_DATABASE, options.get("db", "0"), re.ASCII):
                return "db must be the number of a database"
            return unknown_option(url, options, {"db"})
        scheme, _, kind = url.scheme.partition("+")
        try:
            addresses = servers(url.netloc, 1)
        except ValueError:
            return f"a host or port after {url.scheme}:// is invalid"
        if len(addresses) > 1 and not kind:
            return f"{scheme}:// takes one host, {scheme}+cluster:// several"
        path, what = _REDIS_PATHS[kind]
        if not path.fullmatch(url.path):
            return f"after the host of {url.scheme}://, give {what}"
        return unknown_option(url, options, _TLS_OPTIONS if scheme == "rediss" else frozenset())

    async def open(self, settings: "Settings", namespace: str) -> "BackingCache":
        from prerender.snapshots.stores.redis import RedisCache  # noqa: PLC0415

        return RedisCache(settings.cache.url, namespace, settings.cache.timeout)

    async def diagnose(self, settings: "Settings", namespace: str) -> Diagnosis:
        return await diagnose_redis(settings, namespace, settings.cache.url, "url")


class _Named(StoreKind):
    schemes = ("aiocache",)
    forms = ("aiocache://aiocache.MemcachedCache?endpoint=127.0.0.1",)

    def problem(self, url: SplitResult, _: Mapping[str, str]) -> str:
        name = re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", url.netloc, re.ASCII)
        is_named = not url.path and name is not None
        return "" if is_named else f"give the name of a class, such as {self.forms[0]}"

    async def open(self, settings: "Settings", namespace: str) -> "BackingCache":
        from prerender.snapshots.stores.aiocache_backends import LACKS, named  # noqa: PLC0415

        url = settings.cache.url
        try:
            backend = named(url, namespace, settings.cache.timeout)
        except ValueError as error:
            raise ConfigError([f"[cache] url: {url}: {error}"]) from error
        log.warning("store_limited", store=backend.NAME, lacks=LACKS)
        return backend

    async def diagnose(self, settings: "Settings", namespace: str) -> Diagnosis:
        """Check that the class exists. The needs of a backend are unknown."""
        from prerender.snapshots.stores.aiocache_backends import LACKS, named  # noqa: PLC0415

        try:
            backend = named(settings.cache.url, namespace, settings.cache.timeout)
        except ValueError as error:
            return Diagnosis("problem", f"aiocache: {error}", "correct [cache] url")
        return Diagnosis("ok", f"aiocache: {type(backend).__name__}; it has {LACKS}")


KINDS = (_Memory(), _File(), _Redis(), _Named())


async def diagnose_redis(settings: "Settings", namespace: str, url: str, setting: str) -> Diagnosis:
    """Whether a Redis responds, and evicts as it should. ``setting``: that of ``url``."""
    from prerender.snapshots.stores.redis import RedisCache  # noqa: PLC0415

    scheme = url.partition(":")[0]
    redis = RedisCache(url, namespace, max(settings.cache.timeout, 2.0))
    try:
        await redis.open()
        policy = await redis.eviction()
    except (StoreError, TimeoutError) as error:
        return unavailable(scheme, error, setting)
    finally:
        await redis.close()
    if policy not in ("", "volatile-lru"):
        text = f"{scheme}: responds; maxmemory-policy is {policy}"
        return Diagnosis("warning", text, "set maxmemory-policy to volatile-lru")
    return Diagnosis("ok", f"{scheme}: responds")


def unavailable(scheme: str, error: Exception, setting: str) -> Diagnosis:
    """A store that does not respond."""
    remedy = (
        f"start it, or correct [cache] {setting}; until then snapshots are stored in memory only"
    )
    return Diagnosis("problem", f"{scheme}: {str(error) or 'timeout'}", remedy)


def _folder(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))

"""Clients of Redis and Valkey: of one server, of a cluster, and of the primary that Sentinel names.

Each operation has a timeout as a whole (redis.py), so the sockets have none: that would cost time at
each of them.
"""

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from redis.asyncio import ConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import SSLConnection, parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException, RedisError

from prerender.errors import StoreError
from prerender.urls.hosts import servers

_PORT = 6379
_SENTINEL_PORT = 26379
_REDIRECTIONS = 3
# Of extensions, which no response waits for.
EXTENSION_SECONDS = 2.0
# redis-py raises IndexError for a cluster without slots.
FAULTS = (RedisError, RedisClusterException, OSError, ssl.SSLError, EOFError, IndexError)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RedisClient:
    """What redis-py offers for all three, as ``commands``, and what differs between them."""

    commands: Any
    mget: Callable[[list[str]], Awaitable[Any]]
    server_info: Callable[[], Awaitable[list[dict[str, Any]]]]
    others: tuple[Redis, ...] = ()

    async def close(self) -> None:
        """Close all connections."""
        for client in (self.commands, *self.others):
            await client.aclose()


async def result_of(command: Awaitable[T]) -> T:
    """The result of a command of an extension. Raises StoreError."""
    try:
        async with asyncio.timeout(EXTENSION_SECONDS):
            return await command
    except TimeoutError as error:
        raise StoreError("Redis did not respond in time") from error
    except FAULTS as error:
        raise StoreError(str(error) or type(error).__name__) from error


def connect(url: str, timeout_seconds: float) -> RedisClient:
    """A client of what ``url`` names. Connections are made when they are needed, within the time."""
    parts = urlsplit(url)
    kind = parts.scheme.partition("+")[2]
    if kind == "cluster":
        return _cluster(parts, timeout_seconds)
    if kind == "sentinel":
        return _sentinel(parts, timeout_seconds)
    pool = ConnectionPool.from_url(url, **_options(timeout_seconds))
    redis = Redis.from_pool(pool)
    return RedisClient(redis, redis.mget, partial(_server_info, redis))


def _cluster(parts: SplitResult, timeout_seconds: float) -> RedisClient:
    options = _options_of(parts, "") | _options(timeout_seconds)
    # They follow slots that move, and primaries.
    options["retry"] = Retry(NoBackoff(), _REDIRECTIONS)
    nodes = [ClusterNode(host, port) for host, port in servers(parts.netloc, _PORT)]
    cluster = RedisCluster(
        startup_nodes=nodes,
        # What was configured, such as a name in the DNS, outlives the addresses that it stands for.
        dynamic_startup_nodes=False,
        # Without a shard, the others go on.
        require_full_coverage=False,
        **options,
    )
    return RedisClient(cluster, cluster.mget_nonatomic, partial(_server_infos, cluster))


def _sentinel(parts: SplitResult, timeout_seconds: float) -> RedisClient:
    service, _, database = parts.path.lstrip("/").partition("/")
    sentinels = servers(parts.netloc, _SENTINEL_PORT)
    # They are asked one after the other: one that does not answer must leave time for the next.
    share = timeout_seconds / (len(sentinels) + 1)
    options = _options_of(parts, database) | _options(timeout_seconds)
    manager = Sentinel(  # type: ignore[no-untyped-call]
        sentinels,
        sentinel_kwargs={
            "socket_timeout": share,
            "socket_connect_timeout": share,
            "retry": Retry(NoBackoff(), 0),
        },
        **options,
    )
    redis = manager.master_for(unquote(service))
    info = partial(_server_info, redis)
    return RedisClient(redis, redis.mget, info, tuple(manager.sentinels))


async def _server_info(redis: Redis) -> list[dict[str, Any]]:
    return [await redis.info(section="server")]


async def _server_infos(cluster: RedisCluster) -> list[dict[str, Any]]:
    """Of all primaries."""
    info = await cluster.info(section="server", target_nodes=RedisCluster.PRIMARIES)
    return [info] if "run_id" in info else list(info.values())


def _options_of(parts: SplitResult, database: str) -> dict[str, Any]:
    """User, password, database and TLS options, as redis-py names them."""
    user = parts.netloc.rpartition("@")[0]
    scheme = parts.scheme.partition("+")[0]
    alone = parts._replace(scheme=scheme, netloc=f"{user}@host", path=f"/{database}")
    options = dict(parse_url(alone.geturl()))
    del options["host"]
    if options.pop("connection_class", None) is SSLConnection:
        options["ssl"] = True
    return options


def _options(timeout_seconds: float) -> dict[str, Any]:
    return {
        "socket_timeout": None,
        "socket_connect_timeout": timeout_seconds,
        "protocol": 2,
        # The one retry is for a connection that was closed while it was idle.
        "retry": Retry(NoBackoff(), 1),
    }

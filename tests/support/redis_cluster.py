"""A Redis Cluster, and a primary with a replica and Sentinels; all real processes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from redis.crc import key_slot
from redis.exceptions import ResponseError

from tests.support import raw
from tests.support.redis_server import RedisServer, redis_server

SECONDS = 60.0
# Longer than any test takes.
_NEVER_MS = 600_000
_SLOTS = 16384


@dataclass(frozen=True, slots=True)
class Cluster:
    """``primaries`` share the slots equally; each has the replica with the same index."""

    primaries: Sequence[RedisServer]
    replicas: Sequence[RedisServer]

    @property
    def nodes(self) -> list[RedisServer]:
        return [*self.primaries, *self.replicas]

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def place(self, key: str) -> int:
        """The index of the primary that has a key, unless its slot was moved."""
        return min(key_slot(key.encode()) * len(self.primaries) // _SLOTS, len(self.primaries) - 1)

    async def fail_over(self, place: int) -> None:
        """Kill a primary, and promote its replica at once."""
        await self.primaries[place].kill()
        await self.replicas[place].client.execute_command("CLUSTER FAILOVER", "TAKEOVER")

    async def begin_to_move(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """From now on, new keys of a slot belong to ``target``, and old ones move one by one."""
        ids = [(await node.client.execute_command("CLUSTER MYID")) for node in (source, target)]
        await target.client.execute_command("CLUSTER SETSLOT", slot, "IMPORTING", ids[0])
        await source.client.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", ids[1])

    async def finish_moving(self, slot: int, source: RedisServer, target: RedisServer) -> None:
        """Move the keys of a slot, then the slot."""
        async with asyncio.timeout(SECONDS):
            while keys := await source.client.execute_command("CLUSTER GETKEYSINSLOT", slot, 100):
                for key in keys:
                    await self._move(key, source, target)
        identity = await target.client.execute_command("CLUSTER MYID")
        for node in (target, source):
            await node.client.execute_command("CLUSTER SETSLOT", slot, "NODE", identity)

    @staticmethod
    async def _move(key: bytes, source: RedisServer, target: RedisServer) -> None:
        try:
            await source.client.migrate("127.0.0.1", target.port, key, 0, 10_000, replace=True)
        except ResponseError as error:
            # On a busy machine a node may be taken for dead for a moment. The key is tried again.
            if "CLUSTERDOWN" not in str(error):
                raise
            await asyncio.sleep(0.05)


@asynccontextmanager
async def redis_cluster(folder: Path, *options: str) -> AsyncIterator[Cluster]:
    """Three primaries and three replicas; they are killed at the end."""
    async with AsyncExitStack() as stack:
        folders = _folders(folder, *(f"node{n}" for n in range(6)))
        running = (stack.enter_async_context(_node(path, options)) for path in folders)
        nodes = await asyncio.gather(*running)
        cluster = Cluster(nodes[:3], nodes[3:])
        await _introduce(nodes)
        await asyncio.gather(*(_give_slots(cluster, place) for place in range(3)))
        await _until_all(nodes, "cluster_state", "ok")
        # A node that imports a slot does not learn any more whose it is.
        await _until_all(nodes, "cluster_slots_assigned", str(_SLOTS))
        yield cluster


@asynccontextmanager
async def _node(folder: Path, options: Sequence[str]) -> AsyncIterator[RedisServer]:
    bus = raw.free_port()
    async with redis_server(
        folder, "--cluster-enabled", "yes", "--cluster-port", str(bus),
        "--cluster-require-full-coverage", "no", *options,
    ) as server:  # fmt: skip
        yield server


async def _introduce(nodes: Sequence[RedisServer]) -> None:
    for node in nodes[1:]:
        bus = (await node.client.config_get("cluster-port"))["cluster-port"]
        await nodes[0].client.execute_command("CLUSTER MEET", "127.0.0.1", node.port, bus)
    await _until_all(nodes, "cluster_known_nodes", str(len(nodes)))


async def _give_slots(cluster: Cluster, place: int) -> None:
    primary, count = cluster.primaries[place], len(cluster.primaries)
    first, last = -(-_SLOTS * place // count), -(-_SLOTS * (place + 1) // count) - 1
    await primary.client.execute_command("CLUSTER ADDSLOTSRANGE", first, last)
    identity = await primary.client.execute_command("CLUSTER MYID")
    await cluster.replicas[place].client.execute_command("CLUSTER REPLICATE", identity)
    await until_linked(cluster.replicas[place])


async def until_linked(server: RedisServer) -> None:
    """Wait until it is a replica that is in sync with its primary."""
    await _until_replication(server, "master_link_status", "up")


async def until_primary(server: RedisServer) -> None:
    """Wait until it is a primary."""
    await _until_replication(server, "role", "master")


async def _until_replication(server: RedisServer, name: str, value: str) -> None:
    async with asyncio.timeout(SECONDS):
        while (await server.client.info("replication")).get(name) != value:
            await asyncio.sleep(0.02)


async def _until_all(nodes: Sequence[RedisServer], name: str, value: str) -> None:
    async with asyncio.timeout(SECONDS):
        for node in nodes:
            while (await node.client.execute_command("CLUSTER INFO"))[name] != value:
                await asyncio.sleep(0.02)


@dataclass(frozen=True, slots=True)
class Watched:
    """A ``primary`` with a ``replica``, and ``sentinels`` that agree which is which."""

    primary: RedisServer
    replica: RedisServer
    sentinels: Sequence[RedisServer]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/the-primary/0"

    async def fail_over(self) -> None:
        """Kill the primary and a Sentinel, and wait until the others have made the replica primary.

        Only meanwhile do the Sentinels take a slow server for a dead one.
        """
        await self.sentinels[0].kill()
        await self._take_for_dead_after(500)
        await self.primary.kill()
        await until_primary(self.replica)
        await self._take_for_dead_after(_NEVER_MS)
        for sentinel in self.sentinels[1:]:
            await _until_told(sentinel, {b"port": b"%d" % self.replica.port, b"flags": b"master"})

    async def _take_for_dead_after(self, milliseconds: int) -> None:
        for sentinel in self.sentinels[1:]:
            await sentinel.client.execute_command(
                "SENTINEL SET", "the-primary", "down-after-milliseconds", milliseconds
            )


@asynccontextmanager
async def redis_with_sentinels(folder: Path, count: int = 3) -> AsyncIterator[Watched]:
    """All of them running, with Sentinels that know each other; killed at the end."""
    names = ("primary", "replica", *(f"sentinel{n}" for n in range(count)))
    first, second, *others = _folders(folder, *names)
    async with AsyncExitStack() as stack:
        primary = await stack.enter_async_context(redis_server(first))
        replica = await stack.enter_async_context(
            redis_server(second, "--replicaof", "127.0.0.1", str(primary.port))
        )
        sentinels = [
            await stack.enter_async_context(_sentinel(path, primary, count)) for path in others
        ]
        watched = Watched(primary, replica, sentinels)
        await _until_known(watched)
        yield watched


@asynccontextmanager
async def _sentinel(folder: Path, primary: RedisServer, count: int) -> AsyncIterator[RedisServer]:
    file = folder / "sentinel.conf"
    file.write_text(
        f"sentinel monitor the-primary 127.0.0.1 {primary.port} {count // 2 + 1}\n"
        f"sentinel down-after-milliseconds the-primary {_NEVER_MS}\n"
        "sentinel failover-timeout the-primary 2000\n"
    )
    async with redis_server(folder, "--sentinel", file=file) as server:
        yield server


async def _until_known(watched: Watched) -> None:
    others = len(watched.sentinels) - 1
    for sentinel in watched.sentinels:
        await _until_told(sentinel, {b"num-slaves": b"1", b"num-other-sentinels": b"%d" % others})


async def _until_told(sentinel: RedisServer, expected: dict[bytes, bytes]) -> None:
    """Wait until a Sentinel says this of the primary."""
    async with asyncio.timeout(SECONDS):
        while True:
            try:
                told = await sentinel.client.execute_command("SENTINEL MASTER", "the-primary")
            except ResponseError:
                told = {}
            if _pairs(told).items() >= expected.items():
                break
            await asyncio.sleep(0.02)


def _pairs(told: object) -> dict[bytes, bytes]:
    """A reply of Sentinel, which redis-py may have converted to a dictionary."""
    if isinstance(told, dict):
        return {_bytes(name): _bytes(value) for name, value in told.items()}
    assert isinstance(told, list)
    return dict(zip(told[::2], told[1::2], strict=True))


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _folders(folder: Path, *names: str) -> list[Path]:
    folders = [folder / name for name in names]
    for path in folders:
        path.mkdir()
    return folders

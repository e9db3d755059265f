"""A Redis on a free port and a socket, which can be stopped and started again."""

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from tests.support import raw
from tests.support.processes import ServerProcess

SECONDS = 20.0


class RedisServer(ServerProcess):
    """``client`` accesses it directly."""

    def __init__(self, folder: Path, *options: str, file: Path | None = None) -> None:
        self.port = raw.free_port()
        self.socket = folder / "redis.sock"
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._file = [] if file is None else [str(file)]
        self._options = options
        self._folder = folder
        self.client: Any = Redis(unix_socket_path=str(self.socket))

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(
                "redis-server",
                *self._file,
                "--port",
                str(self.port),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
            ),
            *("--unixsocket", str(self.socket), "--dir", str(self._folder), *self._options),
            stdout=subprocess.DEVNULL,
        )
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    await self.client.ping()
                except (RedisError, OSError):
                    await asyncio.sleep(0.01)
                else:
                    return

    async def kill(self) -> None:
        await super().kill()
        await self.client.connection_pool.disconnect()


@asynccontextmanager
async def redis_server(
    folder: Path, *options: str, file: Path | None = None
) -> AsyncIterator[RedisServer]:
    """A running server with the options of a ``file`` and others; killed at the end."""
    server = RedisServer(folder, *options, file=file)
    await server.start()
    try:
        yield server
    finally:
        await server.kill()
        await server.client.aclose()

"""Helpers for benchmarks of several proxies: the site, the stores, the proxies, and nginx in front.

Each part can be killed or stopped, and comes back at the same address. The stores are Redis in
front of an S3-compatible server.
"""

import asyncio
import os
import re
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import aiohttp
from aiohttp import web
from measuring import serving

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.support import nginx_server, raw
from tests.support.processes import ServerProcess
from tests.support.redis_server import RedisServer
from tests.support.s3_server import S3Server, s3_server, url_of

__all__ = ["Part", "Replicas", "Site", "replicas", "s3_server", "shown_in"]

START_SECONDS = 60.0
_PAGE = """<!DOCTYPE html><title>Light</title><p id="out"></p><script>
  document.getElementById("out").textContent = "page {number}, render {render}";
</script>"""
_SHOWN = re.compile(r'<p id="out">page (\d+), render (\d+)</p>')


@dataclass
class Site:
    """A small site in this process. ``renders``: the number of requests for each page's document."""

    renders: Counter[int] = field(default_factory=Counter)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Serve it. Yields its URL."""

        async def page(request: web.BaseRequest) -> web.StreamResponse:
            number = int(request.path[1:] or 0)
            self.renders[number] += 1
            text = _PAGE.format(number=number, render=self.renders[number])
            return web.Response(text=text, content_type="text/html")

        async with serving(web.ServerRunner(web.Server(page, access_log=None))) as url:
            yield url


def shown_in(text: str) -> tuple[int, int] | None:
    """The number of the page and the number of its render, from a snapshot."""
    found = _SHOWN.search(text)
    return (int(found[1]), int(found[2])) if found else None


class Part(Protocol):
    """A part that can fail."""

    def stop(self) -> None:
        """Stop responding, with all connections open."""

    def resume(self) -> None:
        """Go on after ``stop``."""

    async def kill(self) -> None:
        """End at once."""

    async def start(self) -> None:
        """Start, also after ``kill``, and wait until it responds."""


class Proxy(ServerProcess):
    """A proxy on its own ports. Its browser ends with it."""

    def __init__(self, origin: str, log: Path, settings: dict[str, str]) -> None:
        self.port, self.admin_port = raw.free_ports(2)
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = log
        own = {
            "ORIGIN_URL": origin,
            "SITE_URL": "https://www.example.com",
            "SERVER_PORT": str(self.port),
            "ADMIN_PORT": str(self.admin_port),
            "BROWSER_PAGES": "2",
            "LOG_ACCESS": "none",
        }
        self._settings = {f"PRERENDER_{name}": value for name, value in own.items()} | settings

    async def start(self) -> None:
        """Start it, and wait until it can render."""
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "prerender", "serve"),
                env=os.environ | self._settings,
                stdout=log,
                stderr=log,
            )
        async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as client:
            while True:
                with suppress(aiohttp.ClientError):
                    url = f"http://127.0.0.1:{self.admin_port}/readyz"
                    async with client.get(url) as answer:
                        if answer.status == 200:
                            return
                await asyncio.sleep(0.05)

    def stop(self) -> None:
        """SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)

    @property
    def pid(self) -> int:
        """Its process id."""
        assert self._process is not None
        return self._process.pid


class Redis(RedisServer):
    """A Redis. ``saves``: it has its data again after ``kill``, as with a volume in production."""

    def __init__(self, folder: Path, *, saves: bool = True) -> None:
        super().__init__(folder, "--appendonly", "yes" if saves else "no")

    async def unsaved(self) -> int:
        """How many snapshots are noted because the bucket may lack them."""
        names = [name async for name in self.client.scan_iter(match="prerender:*:unsaved")]
        return sum([await self.client.zcard(name) for name in names])

    async def empty(self) -> None:
        """Delete all data."""
        await self.client.flushall()

    def stop(self) -> None:
        """SIGSTOP."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.signal(signal.SIGCONT)


class Bucket:
    """An S3-compatible server behind a relay. Killing it kills only the relay, so its objects are
    kept.
    """

    def __init__(self) -> None:
        self._server = S3Server()
        self._port = raw.free_port()
        self.url = url_of(f"http://127.0.0.1:{self._port}")
        self._relay: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Start the server if it is not running, and the relay."""
        if self._server._process is None:
            await self._server.start()
        self._relay = await asyncio.start_server(self._connected, "127.0.0.1", self._port)

    async def kill(self) -> None:
        """Abort all connections, and refuse new ones."""
        if self._relay is not None:
            self._relay.close()
        for writer in tuple(self._open):
            writer.transport.abort()

    async def close(self) -> None:
        """Stop the server, too."""
        await self.kill()
        self._server.signal(signal.SIGCONT)
        await self._server.kill()

    def stop(self) -> None:
        """SIGSTOP."""
        self._server.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._server.signal(signal.SIGCONT)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            upstream, to_server = await asyncio.open_connection("127.0.0.1", self._server.port)
            self._open.add(to_server)
            await asyncio.gather(_pass(reader, to_server), _pass(upstream, writer))
        except OSError:
            writer.transport.abort()
        finally:
            self._open.discard(writer)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


@dataclass
class Replicas:
    """All parts. ``url``: nginx."""

    url: str
    site: Site
    proxies: list[Proxy]
    redis: Redis
    bucket: Bucket

    def parts(self) -> dict[str, list[Part]]:
        """The parts by kind."""
        return {"a proxy": [*self.proxies], "Redis": [self.redis], "the bucket": [self.bucket]}


@asynccontextmanager
async def replicas(
    folder: Path, count: int, *, redis_saves: bool = True, **settings: str
) -> AsyncIterator[Replicas]:
    """Start ``count`` proxies (at most three) with ``settings``, their stores and nginx."""
    folder.chmod(0o755)
    async with AsyncExitStack() as stack:
        site = Site()
        origin = await stack.enter_async_context(site.running())
        redis = Redis(folder, saves=redis_saves)
        await redis.start()
        stack.push_async_callback(redis.kill)
        bucket = Bucket()
        await bucket.start()
        stack.push_async_callback(bucket.close)
        given = {
            "PRERENDER_CACHE_URL": bucket.url,
            "PRERENDER_CACHE_HOT_URL": redis.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        } | settings
        proxies = [Proxy(origin, folder / f"proxy-{n}.log", given) for n in range(count)]
        for proxy in proxies:
            stack.push_async_callback(proxy.kill)
        await asyncio.gather(*(proxy.start() for proxy in proxies))
        port = raw.free_port()
        ports = [proxy.port for proxy in proxies]
        config = nginx_server.deployed("replicas.conf", folder, port, ports)
        await stack.enter_async_context(nginx_server.running(folder, config, port, errors="crit"))
        yield Replicas(f"http://127.0.0.1:{port}", site, proxies, redis, bucket)

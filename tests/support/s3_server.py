"""An S3-compatible server: moto, which honours If-Match and If-None-Match."""

import asyncio
import os
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
from aiohttp import web
from obstore.store import S3Store
from yarl import URL

from tests.support import raw
from tests.support.prestarted import fork
from tests.support.processes import ServerProcess

SECONDS = 60.0
BUCKET = "snapshots"
PREFIX = "site"
_FORWARDED = ("Authorization", "If-Match", "If-None-Match", "Range", "x-amz-content-sha256")
_KEPT = ("Content-Range", "Content-Type", "ETag", "Last-Modified")


class S3Server(ServerProcess):
    """A server on a free port. Its objects are in memory."""

    def __init__(self) -> None:
        self.port = raw.free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.url = url_of(self.endpoint)

    async def start(self) -> None:
        environ = dict(os.environ) | {"MOTO_S3_CUSTOM_ENDPOINTS": self.endpoint}
        arguments = ("-H", "127.0.0.1", "-p", str(self.port))
        self._process = await fork(arguments, environ, (DEVNULL,) * 3, program="moto.server")
        async with asyncio.timeout(SECONDS), aiohttp.ClientSession() as client:
            while True:
                try:
                    async with client.put(f"{self.endpoint}/{BUCKET}") as answer:
                        assert answer.status in (200, 409)
                        return
                except aiohttp.ClientError:
                    await asyncio.sleep(0.02)

    def names(self) -> list[str]:
        """The names of all objects with the prefix."""
        return [found["path"] for found in self._store().list().collect()]

    def put(self, name: str, data: bytes) -> None:
        """Write an object, whatever is there."""
        self._store().put(name, data)

    def _store(self) -> S3Store:
        return S3Store(
            BUCKET,
            prefix=PREFIX,
            endpoint=self.endpoint,
            region="us-east-1",
            access_key_id="test",
            secret_access_key="test",
            client_options={"allow_http": True},
        )


def url_of(endpoint: str) -> str:
    """The ``[cache] url`` of a server's bucket; credentials are in the environment."""
    return f"s3://{BUCKET}/{PREFIX}?endpoint={endpoint}&region=us-east-1"


def forwarding(server: S3Server, client: aiohttp.ClientSession) -> web.Application:
    """An application that forwards all requests to a server, so that a test can count them."""

    async def forward(request: web.Request) -> web.Response:
        to = URL(f"{server.endpoint}{request.raw_path}", encoded=True)
        headers = {name: request.headers[name] for name in _FORWARDED if name in request.headers}
        body = await request.read()
        async with client.request(request.method, to, headers=headers, data=body) as answer:
            kept = {name: answer.headers[name] for name in _KEPT if name in answer.headers}
            return web.Response(status=answer.status, headers=kept, body=await answer.read())

    application = web.Application(client_max_size=2**24)
    application.router.add_route("*", "/{path:.*}", forward)
    return application


@asynccontextmanager
async def s3_server() -> AsyncIterator[S3Server]:
    """A running server with a bucket; killed at the end."""
    server = S3Server()
    await server.start()
    try:
        yield server
    finally:
        await server.kill()

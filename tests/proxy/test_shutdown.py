"""At shutdown, running requests finish, and no client is left waiting."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from prerender import app
from prerender.config.settings import ServerSettings
from prerender.http.connection import Sweeper
from prerender.http.message_head import Request
from prerender.proxy.client_connection import RequestHandler
from prerender.proxy.client_stream import ClientStream
from prerender.proxy.responses import whole
from prerender.proxy.server import Server
from tests.conftest import settings_for
from tests.support import raw
from tests.support.limits import limits

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
LIMITS = limits(5)


class Site:
    """Responds on command."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()

    async def __call__(self, _: Request, client: ClientStream) -> None:
        self.asked.set()
        await self.go_on.wait()
        await client.respond(whole(200, b"X: y\r\n", b"ok"))


@asynccontextmanager
async def serving(site: RequestHandler, timeouts: ServerSettings = LIMITS) -> AsyncIterator[Server]:
    with Sweeper() as sweeper:
        server = Server(site, timeouts, sweeper)
        await server.listen("127.0.0.1", 0, 100)
        yield server
        await server.close(0)
        assert server.clients == set()


async def test_what_is_under_way_is_finished() -> None:
    site = Site()
    async with serving(site) as server, raw.client(server.port) as client:
        await client.send(GET + GET)
        await site.asked.wait()
        closing = asyncio.create_task(server.close(5))
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", server.port)
        site.go_on.set()
        answer = await client.rest()
        assert answer.count(b"HTTP/1.1 200 ") == 1
        assert answer.endswith(b"Connection: close\r\n\r\nok")
        await asyncio.wait_for(closing, 2)


async def test_a_kept_connection_is_closed_at_once() -> None:
    site = Site()
    site.go_on.set()
    async with serving(site) as server, raw.client(server.port) as client:
        await client.send(GET)
        assert (await client.answer()).endswith(b"ok")
        await asyncio.wait_for(server.close(5), 0.4)
        assert await client.rest() == b""


async def test_a_response_that_has_begun_ends_the_connection() -> None:
    """Its head, without Connection: close, was sent before the shutdown."""
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def answer(_: Request, client: ClientStream) -> None:
        client.begin(200, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n", b"")
        begun.set()
        await go_on.wait()
        client.write(b"ok")

    unlimited = limits(100 * raw.SECONDS)
    async with serving(answer, unlimited) as server, raw.client(server.port) as client:
        await client.send(GET)
        await begun.wait()
        closing = asyncio.create_task(server.close(10 * raw.SECONDS))
        await asyncio.sleep(0)
        go_on.set()
        assert (await client.rest()).endswith(b"\r\n\r\nok")
        await asyncio.wait_for(closing, raw.SECONDS)


async def test_a_request_that_is_on_its_way_is_answered() -> None:
    site = Site()
    site.go_on.set()
    async with serving(site) as server, raw.client(server.port) as client:
        while not server.clients:
            await asyncio.sleep(0)
        closing = asyncio.create_task(server.close(5))
        await asyncio.sleep(0)
        await client.send(GET)
        assert (await client.rest()).endswith(b"Connection: close\r\n\r\nok")
        await asyncio.wait_for(closing, 2)


async def test_the_grace_has_an_end() -> None:
    site = Site()
    async with serving(site) as server, raw.client(server.port) as client:
        await client.send(GET)
        await site.asked.wait()
        await asyncio.wait_for(server.close(0.2), 2)
        with pytest.raises(ConnectionError):
            await client.rest()


async def test_an_unfinished_admin_request_does_not_delay_it() -> None:
    request = (
        b"POST /api/v1/purge HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
    )
    settings = settings_for("http://127.0.0.1:9", {"browser": {"path": "/nonexistent/chromium"}})
    async with (
        asyncio.timeout(raw.SECONDS),
        AsyncExitStack() as clients,
        app.serving(settings) as running,
    ):
        client = await clients.enter_async_context(raw.client(running.admin_port))
        await client.send(request)
        assert await client.answer() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(b"{")

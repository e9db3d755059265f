"""Real things to test with: an origin, the proxy in front of it, a client. No mocks.

``origin`` starts an aiohttp application of the test; ``proxy`` starts the whole proxy in this process,
with a real Chromium, on free ports of the loopback interface.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import uvloop
from aiohttp import ClientSession, DummyCookieJar, web
from multidict import CIMultiDictProxy
from yarl import URL

from prerender import app
from prerender.config import Settings, load
from prerender.config.settings import Log
from prerender.telemetry import logs
from prerender.urls.ajax_crawling import pretty_to_ugly

Overrides = Mapping[str, Mapping[str, object]]
LONGEST_LINE = 2 * 1024**2


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the loop that the proxy has in production."""
    return {"uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def _logging() -> None:
    logs.configure(Log(level="info"))


@dataclass
class Site:
    """An origin under test. ``requests`` holds all that it was asked, oldest first."""

    url: str
    requests: list[web.BaseRequest]

    def count(self, path: str) -> int:
        """How often a path (without its query) was asked for."""
        return sum(request.path == path for request in self.requests)


StartOrigin = Callable[[web.Application], Awaitable[Site]]


@pytest.fixture
async def start_origin() -> AsyncIterator[StartOrigin]:
    """Starts an application on a free port and records its requests."""
    async with AsyncExitStack() as stack:

        async def start(application: web.Application) -> Site:
            requests: list[web.BaseRequest] = []

            async def record(request: web.Request, _: web.StreamResponse) -> None:
                requests.append(request)

            application.on_response_prepare.append(record)
            runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            return Site(f"http://127.0.0.1:{runner.addresses[0][1]}", requests)

        yield start


async def pages(start_origin: StartOrigin, content: Mapping[str, str | web.Response]) -> Site:
    """An origin of fixed pages: HTML by path, or any response."""
    application = web.Application()

    async def page(request: web.Request) -> web.StreamResponse:
        found = content.get(request.path)
        if found is None:
            return web.Response(status=404, text="no such page", content_type="text/plain")
        if isinstance(found, web.Response):
            return web.Response(status=found.status, headers=found.headers, body=found.body)
        return web.Response(text=found, content_type=_type(request.path))

    application.router.add_route("*", "/{path:.*}", page)
    return await start_origin(application)


def _type(path: str) -> str:
    types = {"js": "text/javascript", "css": "text/css", "json": "application/json"}
    return types.get(path.rpartition(".")[2], "text/html")


@dataclass(frozen=True)
class Reply:
    """An answer that has been read."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Proxy:
    """The running proxy and a client of it."""

    url: str
    admin_url: str
    running: app.Running
    client: ClientSession

    async def get(self, path: str, **options: Any) -> Reply:
        """GET a path, byte for byte."""
        return await self.request("GET", path, **options)

    async def request(self, method: str, path: str, **options: Any) -> Reply:
        """Any request; redirects are not followed."""
        url = URL(self.url + path, encoded=True)
        options = {"allow_redirects": False} | options
        # Ours would be aiohttp's own, and the bodies compressed.
        options["headers"] = {"Accept-Encoding": "identity"} | dict(options.get("headers") or {})
        async with self.client.request(method, url, **options) as response:
            return Reply(response.status, response.headers, await response.read())

    async def crawl(self, pretty: str, **options: Any) -> Reply:
        """Ask for the snapshot of a pretty URL as a crawler does, by its ugly URL."""
        ugly = pretty_to_ugly(pretty, opted_in=True)
        assert ugly is not None
        return await self.get(ugly, **options)


StartProxy = Callable[..., Awaitable[Proxy]]
StartForwarding = Callable[..., Awaitable[int]]


def settings_for(origin_url: str, overrides: Overrides | None = None) -> Settings:
    """Settings for a test: free ports, two pages, short waits, and what the test asks for."""
    values: dict[str, dict[str, object]] = {
        "origin": {"url": origin_url},
        "server": {"port": 0, "grace": 2},
        "admin": {"port": 0},
        "browser": {"pages": 2},
        "log": {"level": "warning", "access": "none"},
    }
    for section, keys in (overrides or {}).items():
        values.setdefault(section, {}).update(keys)
    return load(None, {}, values)


@pytest.fixture
async def start_proxy() -> AsyncIterator[StartProxy]:
    """Starts the whole proxy in front of an origin URL, with settings of the test."""
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            ClientSession(cookie_jar=DummyCookieJar(), auto_decompress=False)
        )

        async def start(origin_url: str, overrides: Overrides | None = None) -> Proxy:
            running = await stack.enter_async_context(
                app.serving(settings_for(origin_url, overrides))
            )
            return Proxy(
                f"http://127.0.0.1:{running.public_port}",
                f"http://127.0.0.1:{running.admin_port}",
                running,
                client,
            )

        yield start


@pytest.fixture
def start_forwarding(start_proxy: StartProxy) -> StartForwarding:
    """Starts the whole proxy but for its browser, which only forwards then; returns its port."""

    async def start(origin_url: str, **server: object) -> int:
        browser = {"path": "/nonexistent/chromium"}
        proxy = await start_proxy(
            origin_url, {"browser": browser, "server": server, "origin": {"timeout": 2}}
        )
        return proxy.running.public_port

    return start


@asynccontextmanager
async def proxied(application: web.Application, overrides: Overrides) -> AsyncIterator[Proxy]:
    """An origin and the proxy in front of it for all tests of a module: starting takes long."""
    async with AsyncExitStack() as stack:
        # Whatever reaches the origin is answered: limits are the proxy's.
        runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=0.1,
            max_line_size=LONGEST_LINE,
            max_field_size=LONGEST_LINE,
        )
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        origin_url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        running = await stack.enter_async_context(app.serving(settings_for(origin_url, overrides)))
        client = await stack.enter_async_context(
            ClientSession(cookie_jar=DummyCookieJar(), auto_decompress=False)
        )
        yield Proxy(
            f"http://127.0.0.1:{running.public_port}",
            f"http://127.0.0.1:{running.admin_port}",
            running,
            client,
        )

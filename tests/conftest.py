"""Fixtures: a real origin, the proxy in front of it, and a client. No mocks.

``start_origin`` starts an aiohttp application, ``start_proxy`` the whole proxy in this process with
a real Chromium, on free loopback ports. All tests of a process run on one event loop and share
browsers (support/browsers.py).
"""

import asyncio
import gc
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import uvloop
from aiohttp import ClientSession, DummyCookieJar, web
from aiohttp.test_utils import TestServer
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from multidict import CIMultiDictProxy
from pytest_aiohttp import AiohttpServer
from yarl import URL

from prerender import app
from prerender.config import Settings, load
from prerender.config.settings import LogSettings
from prerender.telemetry import logs
from prerender.urls.ajax_crawling import pretty_to_ugly
from tests.support import no_programs, raw
from tests.support.browsers import Browsers
from tests.support.serve_command import StartCommand, starting

# What a test finds today it finds tomorrow, and on a slow machine; make test-long looks further.
hypothesis_settings.register_profile(
    "ordinary",
    derandomize=True,
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
hypothesis_settings.register_profile(
    "long", hypothesis_settings.get_profile("ordinary"), derandomize=False, max_examples=1000
)

Overrides = Mapping[str, Mapping[str, object]]
_LONGEST_LINE = 2 * 1024**2
_RENDER_SECONDS = 60.0
_ORIGIN: dict[str, Any] = {
    "access_log": None,
    "shutdown_timeout": 0.1,
    "max_line_size": _LONGEST_LINE,
    "max_field_size": _LONGEST_LINE,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --fast."""
    parser.addoption(
        "--fast", action="store_true", help="skip heavy tests and those that start a program"
    )


def pytest_asyncio_loop_factories(
    config: pytest.Config,
) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Tests run on the event loop that is used in production."""
    return {"uvloop": no_programs.Loop if config.getoption("fast") else uvloop.new_event_loop}


def pytest_configure(config: pytest.Config) -> None:
    """Search for more counterexamples if property tests are selected by their marker."""
    wanted = config.getoption("markexpr")
    hypothesis_settings.load_profile("long" if "hypothesis" in wanted.split() else "ordinary")


def pytest_collection_finish() -> None:
    """Take the modules and tests out of what is searched for garbage: that is a fifth of the CPU time
    of tests without a browser.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _logging() -> None:
    logs.configure(LogSettings(level="info"))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """With --fast, skip heavy tests and those that start a program. The test runner itself may start
    some before.
    """
    if item.config.getoption("fast"):
        no_programs.refuse()
        if item.get_closest_marker("heavy"):
            pytest.skip("heavy")


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown() -> Generator[None]:
    """Show the log of a test with it, if it fails."""
    try:
        return (yield)
    finally:
        logs.flush()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Do not send the output of tests that pass to the process that reports: nothing shows it."""
    report = yield
    if report.passed and hasattr(item.config, "workerinput"):
        report.sections.clear()
    return report


@dataclass
class Site:
    """An origin. ``requests``: all requests it received, oldest first."""

    url: str
    requests: list[web.BaseRequest]

    def count(self, path: str) -> int:
        """The number of requests for a path, whatever their query."""
        return sum(request.path == path for request in self.requests)


StartOrigin = Callable[[web.Application], Awaitable[Site]]


@pytest.fixture(scope="session")
def shared_ports() -> list[int]:
    """The ports of the first origins of each test, so that the tests can share browsers."""
    return raw.reserved_ports()


@pytest.fixture
def start_origin(aiohttp_server: AiohttpServer, shared_ports: list[int]) -> StartOrigin:
    """Starts an application with pytest-aiohttp's ``aiohttp_server``, and records its requests.

    It accepts long request lines and headers: limits are the proxy's.
    """
    ports = itertools.chain(shared_ports, itertools.repeat(None))

    async def start(application: web.Application) -> Site:
        requests: list[web.BaseRequest] = []

        async def record(request: web.Request, _: web.StreamResponse) -> None:
            requests.append(request)

        application.on_response_prepare.append(record)
        server = await aiohttp_server(application, port=next(ports), **_ORIGIN)
        return Site(f"http://127.0.0.1:{server.port}", requests)

    return start


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
    """A response with its body."""

    status: int
    headers: CIMultiDictProxy[str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


@dataclass
class Proxy:
    """A running proxy and a client."""

    url: str
    admin_url: str
    running: app.Running
    client: ClientSession

    async def get(self, path: str, **options: Any) -> Reply:
        """GET a path, byte for byte."""
        return await self.request("GET", path, **options)

    async def request(self, method: str, path: str, **options: Any) -> Reply:
        """Send any request; redirects are not followed."""
        url = URL(self.url + path, encoded=True)
        options = {"allow_redirects": False} | options
        async with self.client.request(method, url, **options) as response:
            return Reply(response.status, response.headers, await response.read())

    async def crawl(self, pretty: str, **options: Any) -> Reply:
        """Request the snapshot of a pretty URL as a crawler does, by its ugly URL."""
        ugly = pretty_to_ugly(pretty, opted_in=True)
        assert ugly is not None
        return await self.get(ugly, **options)

    async def all_pages_idle(self) -> None:
        """Wait until the browser has started and no page renders or is replaced."""
        pool = self.running.pool
        async with asyncio.timeout(60):
            while pool.state.idle < pool.state.size:
                await asyncio.sleep(0.01)


StartProxy = Callable[..., Awaitable[Proxy]]
StartForwarding = Callable[..., Awaitable[int]]


def settings_for(origin_url: str, overrides: Overrides | None = None) -> Settings:
    """Settings for a test: free ports, one page, and ``overrides``.

    The timeouts of renders and of Redis are long, for busy machines. With much memory, a guardian
    checks it less often.
    """
    values: dict[str, dict[str, object]] = {
        "origin": {"url": origin_url},
        "server": {"port": 0, "grace": 2},
        "admin": {"port": 0},
        "browser": {"pages": 1, "max_memory": "4 GiB"},
        "render": {"timeout": _RENDER_SECONDS},
        "cache": {"timeout": 20},
        "log": {"level": "warning", "access": "none"},
    }
    for section, keys in (overrides or {}).items():
        values.setdefault(section, {}).update(keys)
    return load(None, {}, values)


def _check(settings: Settings) -> None:
    if not settings.browser.path:
        no_programs.check()


@pytest.fixture(scope="session")
async def browsers() -> AsyncIterator[Browsers]:
    """The browsers that the tests of this process share."""
    shared = Browsers()
    yield shared
    await shared.close()


@pytest.fixture
async def no_shared_browser(browsers: Browsers) -> None:
    """For tests that count the processes or the tasks of this process."""
    await browsers.close()


@asynccontextmanager
async def _open_client() -> AsyncIterator[ClientSession]:
    async with ClientSession(
        cookie_jar=DummyCookieJar(),
        auto_decompress=False,
        headers={"Accept-Encoding": "identity"},
    ) as session:
        yield session


@pytest.fixture
async def client() -> AsyncIterator[ClientSession]:
    """A client for any URL, without cookies. It does not accept or decompress compressed bodies.

    pytest-aiohttp's ``aiohttp_client`` connects only to aiohttp's test servers, and the proxy is not
    one. It also normalizes paths, while tests of a proxy need each byte as written.
    """
    async with _open_client() as session:
        yield session


@pytest.fixture
async def start_proxy(
    client: ClientSession, browsers: Browsers, shared_ports: list[int]
) -> AsyncIterator[StartProxy]:
    """Starts a proxy in front of an origin URL, with the test's settings.

    Its browser may have served other tests before; ``start_own_proxy`` starts a new one.
    """
    async with AsyncExitStack() as stack:

        async def start(origin_url: str, overrides: Overrides | None = None) -> Proxy:
            settings = settings_for(origin_url, overrides)
            _check(settings)
            if settings.origin_url.port not in shared_ports or settings.browser.path:
                return await _start(stack, app.serving(settings), settings, client)
            parts = await stack.enter_async_context(browsers.lend(settings))
            return await _start(stack, app.proxying(settings, parts), settings, client)

        yield start


@pytest.fixture
async def start_own_proxy(client: ClientSession) -> AsyncIterator[StartProxy]:
    """Starts a proxy with its own browser, for tests that kill or count browsers."""
    async with AsyncExitStack() as stack:

        async def start(origin_url: str, overrides: Overrides | None = None) -> Proxy:
            settings = settings_for(origin_url, overrides)
            _check(settings)
            return await _start(stack, app.serving(settings), settings, client)

        yield start


async def _start(
    stack: AsyncExitStack,
    serving: AbstractAsyncContextManager[app.Running],
    settings: Settings,
    client: ClientSession,
) -> Proxy:
    running = await stack.enter_async_context(serving)
    proxy = Proxy(
        f"http://127.0.0.1:{running.public_port}",
        f"http://127.0.0.1:{running.admin_port}",
        running,
        client,
    )
    if settings.render.timeout < _RENDER_SECONDS and not settings.browser.path:
        await proxy.all_pages_idle()  # a busy machine needs more for the start of a browser
    return proxy


@pytest.fixture
def start_forwarding(start_proxy: StartProxy) -> StartForwarding:
    """Starts a proxy without a browser, which only forwards. Returns its port.

    ``origin_timeout`` in seconds: long, because a busy machine can delay any response.
    """

    async def start(origin_url: str, *, origin_timeout: float = 20, **server: object) -> int:
        settings: dict[str, dict[str, object]] = {
            "browser": {"path": "/nonexistent/chromium"},
            "server": server,
            "origin": {"timeout": origin_timeout},
        }
        proxy = await start_proxy(origin_url, settings)
        return proxy.running.public_port

    return start


@pytest.fixture
async def start_command(tmp_path: Path) -> AsyncIterator[StartCommand]:
    """Starts ``prerender serve`` as a process."""
    async with starting(tmp_path) as start:
        yield start


@asynccontextmanager
async def proxied(application: web.Application, overrides: Overrides) -> AsyncIterator[Proxy]:
    """An origin and a proxy in front of it, for fixtures of a module: starting a browser is slow.

    pytest-aiohttp's ``aiohttp_server`` closes its servers after each test.
    """
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(_open_client())
        origin = TestServer(application)
        await origin.start_server(**_ORIGIN)
        stack.push_async_callback(origin.close)
        settings = settings_for(f"http://127.0.0.1:{origin.port}", overrides)
        _check(settings)
        yield await _start(stack, app.serving(settings), settings, client)

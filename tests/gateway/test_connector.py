"""The browser's sessions connect only to allowed addresses, whatever names or redirects lead to."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientError, ClientSession, WSServerHandshakeError, web
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from prerender.gateway.address_policy import AddressPolicy, Forbidden
from prerender.gateway.upstream import open_session
from prerender.urls.hosts import Hosts
from tests.conftest import Site, StartOrigin
from tests.support.canary import Canary
from tests.support.plain_client import USER_AGENT, PlainClient

REDIRECTS = (301, 302, 303, 307, 308)


class Names(AbstractResolver):
    """A name server with a different response each time."""

    def __init__(self, *answers: list[str]) -> None:
        self._answers = iter(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=family, proto=0, flags=0)
            for address in next(self._answers)
        ]

    async def close(self) -> None: ...


async def refusal(session: ClientSession, url: str) -> str:
    """Why the policy refused a GET, or ''."""
    try:
        async with session.get(URL(url), allow_redirects=False):
            return ""
    except (Forbidden, ClientError) as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, Forbidden):
            cause = cause.__cause__
        return str(cause or "")


async def redirecting(start_origin: StartOrigin) -> Site:
    """A server that redirects from ``/CODE`` to its query string."""
    application = web.Application()

    async def redirect(request: web.Request) -> web.Response:
        status = int(request.match_info["code"])
        return web.Response(status=status, headers={"Location": request.query_string})

    application.router.add_get(r"/{code:\d+}", redirect)
    return await start_origin(application)


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "0.0.0.0", "0x7f.1", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]"],
)
async def test_no_notation_of_this_host_is_connected_to(host: str) -> None:
    async with Canary.open() as canary, open_session(AddressPolicy(), 1, 5) as session:
        assert await refusal(session, f"http://{host}:{canary.port}/")
        assert canary.touched == []


async def test_a_name_that_changes_its_address() -> None:
    """Each connection is checked: earlier lookups of the name do not count."""
    names = Names(["127.0.0.1"], ["127.0.0.1", "::1"], ["::ffff:127.0.0.1", "10.0.0.1"])
    async with Canary.open() as canary, open_session(AddressPolicy(), 1, 5, names) as session:
        for number in range(3):
            url = f"http://{number}.example:{canary.port}/"
            reason = f"{number}.example has no address that pages may reach at port {canary.port}"
            assert reason in await refusal(session, url)
        assert canary.touched == []


async def test_only_the_addresses_that_are_allowed_are_used() -> None:
    names = Names(["127.0.0.2", "127.0.0.1"])
    async with Canary.open() as canary:
        url = f"http://a.example:{canary.port}"
        policy = AddressPolicy(Hosts([url]), Hosts(["127.0.0.2"]))
        async with open_session(policy, 1, 5, names) as session:
            await refusal(session, f"{url}/one")
        assert set(canary.touched) == {"GET /one HTTP/1.1"}


async def test_the_origins_session_reaches_the_origin_only() -> None:
    async with Canary.open() as canary, Canary.open() as origin:
        policy = AddressPolicy.only(URL(f"http://LOCALHOST.:{origin.port}/"))
        async with open_session(policy, 1, 5) as session:
            for url in (f"127.0.0.1:{origin.port}", f"localhost:{canary.port}", "localhost"):
                assert (await refusal(session, f"http://{url}/")).strip()
            await refusal(session, f"http://localhost:{origin.port}/there")
        assert canary.touched == []
        assert set(origin.touched) == {"GET /there HTTP/1.1"}


async def test_a_proxy_is_no_way_around() -> None:
    async with Canary.open() as canary, open_session(AddressPolicy(), 1, 5) as session:
        with pytest.raises((Forbidden, ClientError), match="would bypass the address policy"):
            await session.get("http://8.8.8.8/", proxy=f"http://127.0.0.1:{canary.port}")
        assert canary.touched == []


@pytest.mark.parametrize("code", REDIRECTS)
async def test_no_redirect_is_followed(start_origin: StartOrigin, code: int) -> None:
    """Even if a caller forgets to disable redirects, and the policy would allow the target."""
    site = await redirecting(start_origin)
    async with Canary.open() as canary:
        canary_url = f"http://127.0.0.1:{canary.port}"
        policies: tuple[AddressPolicy, ...] = (
            AddressPolicy.only(URL(site.url)),
            AddressPolicy(Hosts([site.url, canary_url])),
        )
        for policy in policies:
            async with open_session(policy, 1, 5) as session:
                url = f"{site.url}/{code}?{canary_url}/"
                for action in (session.get, session.ws_connect):
                    with pytest.raises(WSServerHandshakeError, match=str(code)):
                        await action(url)
        assert canary.touched == []


@asynccontextmanager
async def _pages_socket(browser: PlainClient, host: str, path: str) -> AsyncIterator[int]:
    """The response status of a page's WebSocket."""
    headers = {"Host": host, "User-Agent": USER_AGENT.format(1)}
    async with asyncio.timeout(10):
        with browser.visit(1, None):
            try:
                async with browser.client.ws_connect(browser.socket_url(path), headers=headers):
                    yield 101
            except WSServerHandshakeError as refused:
                yield refused.status


@pytest.mark.parametrize("code", REDIRECTS)
async def test_a_pages_websocket_is_not_led_on(start_origin: StartOrigin, code: int) -> None:
    """Neither a third party nor an open redirect of the site leads it to another service."""
    site = await redirecting(start_origin)
    async with Canary.open() as canary, PlainClient.open(site.url) as browser:
        for scheme in ("http", "ws"):
            path = f"/{code}?{scheme}://127.0.0.1:{canary.port}/secret"
            async with _pages_socket(browser, "www.example.com", path) as status:
                assert status == code
        assert canary.touched == []
    assert [request.path for request in site.requests] == [f"/{code}"] * 2

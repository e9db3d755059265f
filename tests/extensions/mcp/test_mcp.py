"""``prerender mcp``, by the client of the official SDK."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from prerender.admin.client import AdminClient
from tests.conftest import Proxy, StartOrigin, StartProxy, pages

# The SDK takes a second to import, which only the process that runs these tests shall take.
if TYPE_CHECKING:
    from mcp import Client

TOKEN = "0123456789abcdef"
PAGE = """<!DOCTYPE html><title>Lamp</title><p id=out></p>
  <script>out.textContent = "A lamp of steel"; fetch("/missing.json")</script>"""


@pytest.fixture
async def proxy(start_origin: StartOrigin, start_proxy: StartProxy) -> Proxy:
    origin = await pages(start_origin, {"/": PAGE, "/b": PAGE})
    proxy: Proxy = await start_proxy(origin.url, {"admin": {"token": TOKEN}})
    return proxy


@asynccontextmanager
async def client_of(proxy: Proxy, token: str = TOKEN) -> AsyncIterator["Client"]:
    """A client, connected to the server in memory."""
    from mcp import Client

    from prerender.extensions.mcp.server import server_of

    admin = AdminClient(proxy.admin_url, token, "--admin")
    async with Client(server_of(admin, 60.0)) as client:
        yield client


async def called(client: "Client", tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    found: dict[str, Any] = result.structured_content or {}
    return found


async def test_an_agent_operates_a_proxy(proxy: Proxy) -> None:
    async with client_of(proxy) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == {"explain", "render", "report", "purge", "problems"}
        for name, tool in tools.items():
            assert tool.description
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is (name not in ("render", "purge"))
            if not tool.annotations.read_only_hint:
                assert tool.annotations.destructive_hint is (name == "purge")
        told = await called(client, "explain", url="/", user_agent="Googlebot")
        assert (told["crawler"], told["decision"]) == ("search", "forward")
        rendered = await called(client, "render", url="/")
        assert (rendered["status"], rendered["stored"]) == (200, True)
        told = await called(client, "explain", url="/?_escaped_fragment_=")
        assert told["snapshot"]["status"] == 200
        assert (await called(client, "purge", prefix=["/b"]))["snapshots"] == 0
        assert (await called(client, "purge", url=["/"], soft=True))["snapshots"] == 1
        assert (await called(client, "purge", all_pages=True))["snapshots"] == 1
        report = await called(client, "report", by="crawler,day")
        assert report["items"] == []
        for table in ("errors", "pages", "snapshots"):
            assert "items" in await called(client, "report", table=table)
        assert await called(client, "problems")


async def test_errors_are_said(proxy: Proxy) -> None:
    async with client_of(proxy) as client:
        for tool, arguments, reason in (
            ("explain", {"url": "https://other.example/"}, "give a URL of"),
            ("report", {"table": "change"}, "date"),
            ("purge", {}, "purges"),
        ):
            result = await client.call_tool(tool, arguments)
            assert result.is_error, tool
            assert reason in str(result.content[0])
    async with client_of(proxy, "not-the-token-of-it") as client:
        result = await client.call_tool("problems", {})
        assert result.is_error
        assert "--admin" in str(result.content[0])


@pytest.mark.ci_only
async def test_the_command(proxy: Proxy) -> None:
    from mcp import Client
    from mcp.client.stdio import StdioServerParameters

    program = StdioServerParameters(
        command=sys.executable,
        args=["-m", "prerender", "mcp", "--admin", proxy.admin_url],
        env={"PRERENDER_ADMIN_TOKEN": TOKEN},
    )
    async with Client(program) as client:
        assert client.server_info is not None
        assert client.server_info.name == "prerender-proxy"
        assert "explain" in (client.instructions or "")
        assert (await called(client, "explain", url="/b"))["decision"] == "forward"

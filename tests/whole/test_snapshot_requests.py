"""Requests for snapshots that the scheme does not mention, as in docs/limits.md."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web

from tests.conftest import Proxy, proxied
from tests.support import raw

ASKED: list[str] = []
PERSONAL = ("Cookie", "Authorization", "X-Forwarded-For", "X-Real-IP", "Forwarded")


@pytest_asyncio.fixture(scope="module")
async def proxy() -> AsyncIterator[Proxy]:
    application = web.Application()

    async def page(request: web.Request) -> web.Response:
        if "X-Prerender" not in request.headers:
            ASKED.append(request.raw_path)
        personal = " ".join(request.headers.get(name, "") for name in PERSONAL)
        script = f"<script>document.write('<p>made {personal}</p>')</script>"
        return web.Response(text=f"<h1>Page</h1>{script}", content_type="text/html")

    application.router.add_route("*", "/{path:.*}", page)
    async with proxied(application, {"site": {"url": "https://www.example.com"}}) as proxy:
        yield proxy


@pytest.mark.parametrize(
    "target",
    [
        "/a/../b?_escaped_fragment_=x",
        "/a/%2e%2E/b?_escaped_fragment_=x",
        "/./b?_escaped_fragment_=x",
        "/a\\b?_escaped_fragment_=x",
        "/b?_escaped_fragment_=x&c=1",
        "/b?_escaped_fragment_=x&_escaped_fragment_=y",
        "/b?%5Fescaped_fragment_=x",
    ],
)
async def test_what_is_forwarded(target: str, proxy: Proxy) -> None:
    ASKED.clear()
    answer = await proxy.get(target)
    assert [target] == ASKED
    assert "<script>" in answer.text


async def test_other_methods_are_forwarded(proxy: Proxy) -> None:
    assert "<script>" in (await proxy.request("POST", "/post?_escaped_fragment_=x")).text


async def test_head_without_a_snapshot_renders_and_stores(proxy: Proxy) -> None:
    head = await proxy.request("HEAD", "/head?_escaped_fragment_=x")
    get = await proxy.get("/head?_escaped_fragment_=x")
    assert head.headers["Cache-Status"].startswith("prerender; fwd=miss; stored")
    assert get.headers["Cache-Status"].startswith("prerender; hit")
    assert head.headers["ETag"] == get.headers["ETag"]
    assert (head.body, head.headers["Content-Length"]) == (b"", str(len(get.body)))


async def test_conditions_without_a_snapshot_are_judged_by_a_new_one(proxy: Proxy) -> None:
    ugly = "/conditions?_escaped_fragment_=x"
    first = await proxy.get(ugly, headers={"If-None-Match": '"another"'})
    assert first.status == 200
    assert first.headers["Cache-Status"].startswith("prerender; fwd=miss; stored")
    again = await proxy.get(ugly, headers={"If-None-Match": first.headers["ETag"]})
    assert again.status == 304
    other = await proxy.get("/conditions?_escaped_fragment_=y", headers={"If-None-Match": "*"})
    assert other.status == 304
    assert other.headers["Cache-Status"].startswith("prerender; fwd=miss; stored")


async def test_no_cache_keeps_that_a_condition_does_not_hold(proxy: Proxy) -> None:
    ugly = "/conditions?_escaped_fragment_=z"
    for _ in range(2):
        failed = await proxy.get(ugly, headers={"If-Match": '"another"'})
        assert (failed.status, failed.body) == (412, b"")
        assert failed.headers.getall("Cache-Control") == ["no-store"]
    assert (await proxy.get(ugly)).headers["Cache-Control"].startswith("max-age=")


@pytest.mark.parametrize(
    "headers",
    [
        {"Cache-Control": "no-cache"},
        {"Cache-Control": "max-age=0", "Pragma": "no-cache"},
        {"Host": "www.example.com:8080"},
        {"Range": "bytes=0-3"},
        {"Cookie": "user=mine"},
        {"Authorization": "Basic bWluZTptaW5l"},
        {"X-Forwarded-For": "192.0.2.77"},
        # curl --http2 sends this by itself.
        {"Upgrade": "h2c", "Connection": "Upgrade, HTTP2-Settings", "HTTP2-Settings": "AAMAAABk"},
        {"Upgrade": "websocket"},
    ],
    ids=lambda headers: next(iter(headers)),
)
async def test_what_changes_nothing(headers: dict[str, str], proxy: Proxy) -> None:
    path = f"/same-{'-'.join(headers)}?_escaped_fragment_=x"
    first = await proxy.get(path, headers=headers)
    plain = await proxy.get(path)
    again = await proxy.get(path, headers=headers)
    assert not re.search(r"mine|bWlu|192\.0\.2", first.text)
    assert [answer.status for answer in (first, plain, again)] == [200, 200, 200]
    assert first.body == plain.body == again.body
    for answer in (plain, again):
        assert answer.headers["Cache-Status"].startswith("prerender; hit")


async def test_octets_that_a_browser_escapes(proxy: Proxy) -> None:
    """nginx passes targets with raw UTF-8 as clients send them."""
    request = (
        "GET /é?ö=\xff&_escaped_fragment_=ü HTTP/1.1\r\nHost: www.example.com\r\n"
        "Connection: close\r\n\r\n"
    )
    answer = await raw.ask(proxy.running.public_port, request.encode())
    assert b"200 OK" in answer
    assert b"fwd=miss; stored" in answer
    assert b"<p>made" in answer
    again = await proxy.get("/%C3%A9?%C3%B6=%C3%BF&_escaped_fragment_=%C3%BC")
    assert again.headers["Cache-Status"].startswith("prerender; hit")

"""nginx's cache in front keeps a snapshot no longer than the proxy does, and gives it to no others."""

import asyncio
import itertools
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from tests.conftest import Proxy, Reply, StartOrigin, StartProxy, pages
from tests.support import nginx_server, raw

TTL_SECONDS = 6
# Without a browser.
FORWARDING: dict[str, dict[str, object]] = {
    "browser": {"path": "/nonexistent/chromium"},
    "triggers": {"preset": "all"},
}
CONFIG = """
  proxy_cache_path {folder}/cache keys_zone=pages:1m;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{proxy_port};
      proxy_cache pages;
      add_header X-Cache $upstream_cache_status;
    }}
  }}
"""


@asynccontextmanager
async def cached(proxy: Proxy, folder: Path) -> AsyncIterator[Proxy]:
    """The proxy behind the cache of nginx, which says what it did in X-Cache."""
    port = raw.free_port()
    config = CONFIG.format(folder=folder, port=port, proxy_port=proxy.running.public_port)
    async with nginx_server.running(folder, config, port):
        yield replace(proxy, url=f"http://127.0.0.1:{port}")


def age_of(answer: Reply) -> int:
    found = re.search(r"; age=(\d+)$", answer.headers["Cache-Status"])
    return int(found[1]) if found else 0


@pytest.mark.ci_only
async def test_a_cache_keeps_a_snapshot_no_longer_than_the_proxy(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    count = itertools.count(1)

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=f"<p>version {next(count)}", content_type="text/html")

    application = web.Application()
    application.router.add_get("/", page)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, {"cache": {"ttl": TTL_SECONDS, "stale_if_error": 0}})
    ugly = "/?_escaped_fragment_="
    async with cached(proxy, tmp_path) as nginx, asyncio.timeout(60):

        async def behind_nginx() -> tuple[str, str]:
            answer = await nginx.get(ugly)
            assert "Age" not in answer.headers
            return answer.text, answer.headers["X-Cache"]

        while age_of(await proxy.get(ugly)) < TTL_SECONDS - 3:
            await asyncio.sleep(0.1)
        text, cache = await behind_nginx()
        while cache != "HIT":
            text, cache = await behind_nginx()
        while (now := await proxy.get(ugly)).text == text:
            await asyncio.sleep(0.1)
        # nginx counts in whole seconds.
        while (await behind_nginx())[0] == text:
            assert age_of(now) <= 1
            await asyncio.sleep(0.1)
            now = await proxy.get(ugly)


async def test_a_cache_gives_a_snapshot_to_those_who_can_read_it(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    """nginx before 1.23 heeds only the last line of Vary."""
    origin = await pages(start_origin, {"/": f"<p>{'text ' * 500}"})
    proxy = await start_proxy(origin.url, {"triggers": {"ai_training": "refuse"}})
    ugly = "/?_escaped_fragment_="
    async with cached(proxy, tmp_path) as nginx:
        for coding in ("br", "identity"):
            for how in ("MISS", "HIT"):
                answer = await nginx.get(ugly, headers={"Accept-Encoding": coding})
                assert answer.headers.get("Content-Encoding", "identity") == coding
                assert answer.headers["X-Cache"] == how
                assert answer.headers.getall("Vary") == ["Accept-Encoding, User-Agent"]


async def test_a_cache_gives_a_page_to_those_for_whom_the_origin_made_it(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    async def page(request: web.Request) -> web.Response:
        headers = {"Cache-Control": "max-age=600", "Vary": "accept-language, user-agent"}
        language = request.headers["Accept-Language"]
        return web.Response(text=language, content_type="text/html", headers=headers)

    application = web.Application()
    application.router.add_get("/", page)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, FORWARDING)
    async with cached(proxy, tmp_path) as nginx:
        for language in ("de", "fr"):
            answer = await nginx.get("/", headers={"Accept-Language": language})
            assert (answer.text, answer.headers["X-Cache"]) == (language, "MISS")
    own, last = answer.headers.getall("Vary")
    assert own == "accept-language, user-agent"
    assert last == "accept-language, User-Agent"


async def test_what_varies_by_everything_is_in_no_cache(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    headers = {"Cache-Control": "max-age=600", "Vary": "*", "Content-Type": "text/html"}
    origin = await pages(start_origin, {"/": web.Response(text="page", headers=headers)})
    proxy = await start_proxy(origin.url, FORWARDING)
    async with cached(proxy, tmp_path) as nginx:
        for _ in range(2):
            assert (await nginx.get("/")).headers["X-Cache"] == "MISS"
    assert origin.count("/") == 2


async def test_no_cache_keeps_a_page_for_crawlers_that_would_get_its_snapshot(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    """Any client can send the mark of a renderer."""
    shell = "<p id=out>shell</p><script>out.textContent = 'rendered'</script>"
    headers = {"Cache-Control": "max-age=600", "Content-Type": "text/html"}
    origin = await pages(start_origin, {"/": web.Response(text=shell, headers=headers)})
    proxy = await start_proxy(origin.url, {"triggers": {"preset": "all"}})
    crawler = {"User-Agent": "Googlebot/2.1"}
    async with cached(proxy, tmp_path) as nginx:
        for target in ("/?_escaped_fragment_=", "/"):
            marked = await nginx.get(target, headers=crawler | {"X-Prerender": "1"})
            assert ">shell<" in marked.text
            answer = await nginx.get(target, headers=crawler)
            assert ">rendered<" in answer.text
            assert marked.headers.getall("Vary") == ["*"]
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket"}
    assert (await proxy.get("/", headers=crawler | upgrade)).headers.getall("Vary") == ["*"]
    # What everybody gets may be stored.
    visitor = await proxy.get("/", headers={"X-Prerender": "1", "User-Agent": "Firefox/145.0"})
    assert visitor.headers.getall("Vary") == ["User-Agent"]


@pytest.mark.parametrize(
    ("head", "path", "vary"),
    [
        (b'304 Not Modified\r\nETag: "1"\r\n', "/", ["User-Agent"]),
        (
            b"304 Not Modified\r\nVary: Accept-Language\r\n",
            "/",
            ["Accept-Language", "Accept-Language, User-Agent"],
        ),
        (b"302 Found\r\nLocation: /b\r\nContent-Type: text/plain\r\n", "/a", ["User-Agent"]),
        (b'304 Not Modified\r\nETag: "1"\r\n', "/a.png", []),
        (b"204 No Content\r\n", "/", []),
    ],
)
async def test_a_304_and_a_redirect_vary_as_their_page(
    start_proxy: StartProxy, head: bytes, path: str, vary: list[str]
) -> None:
    answer = b"HTTP/1.1 " + head + b"Content-Length: 0\r\n\r\n"
    async with raw.origin(raw.answering(answer)) as origin:
        proxy = await start_proxy(origin.url, FORWARDING)
        got = await proxy.get(path, headers={"If-None-Match": '"1"'})
    assert got.headers.getall("Vary", []) == vary

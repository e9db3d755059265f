"""Replacing Prerender and Rendertron, including for prerender-node in front of an Express site."""

import asyncio
import gzip
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, UnixConnector
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from prerender.proxy.drop_in import page_url
from prerender.urls.ajax_crawling import pretty_to_ugly
from tests.conftest import Proxy, Site, StartOrigin, StartProxy, pages
from tests.support import nginx_server, no_programs
from tests.support.commands import SITES
from tests.support.raw import SECONDS

FOLDER = SITES / "drop_in"
TOKEN = "0123456789abcdefghij"
GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
BROWSER = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 Chrome/156.0.0.0 Safari/537.36"


@pytest.mark.parametrize(
    ("target", "url"),
    [
        # Byte for byte behind the host.
        ("/https://h/a?b=c&d=%26", "https://h/a?b=c&d=%26"),
        ("/http://h:8080/", "http://h:8080/"),
        ("/https://h", "https://h"),
        ("/HTTPS://h/A", "https://h/A"),
        ("/https:/h/a?b=c", "https://h/a?b=c"),
        ("/https://h/a%2Fb%20c", "https://h/a%2Fb%20c"),
        ("/https://h/100%25", "https://h/100%25"),
        ("/https://h/a?b=100%2525", "https://h/a?b=100%2525"),
        ("/https://h/?_escaped_fragment_=/x%26y", "https://h/?_escaped_fragment_=/x%26y"),
        ("/https://h/a?u=https://i/", "https://h/a?u=https://i/"),
        # As nginx sends them after the rewrite of Prerender's snippet.
        ("/https://h/a%3Fb=c", "https://h/a?b=c"),
        ("/https://h/a%2520b%3Fx=%2526%252Fy", "https://h/a%20b?x=%26%2Fy"),
        ("/https://h/a%252Fb", "https://h/a%2Fb"),
        ("/https://h/%25E3%2583%2586%3Fq=%C3%A9", "https://h/%E3%83%86?q=é"),
        (
            "/https://h/%3F_escaped_fragment_=/items/3%2526a",
            "https://h/?_escaped_fragment_=/items/3%26a",
        ),
        # Escaped as a whole.
        ("/https%3A%2F%2Fh%2Fa%3Fb%3D%2526", "https://h/a?b=%26"),
        ("/https%3a%2f%2fh%2f%23!%2Fitems", "https://h/#!/items"),
        ("/render/https%3A%2F%2Fh%2Fa%3Fb%3Dc?wc-inject-shadydom=true", "https://h/a?b=c"),
        ("/render/https://h/a?b=c", "https://h/a?b=c"),
        ("/render?url=https%3A%2F%2Fh%2Fa%3Fb%3Dc%26d%3D%252B", "https://h/a?b=c&d=%2B"),
        ("/render?width=9&url=https%3A%2F%2Fh%2F%23!%2Fx&renderType=html", "https://h/#!/x"),
        ("/render/?url=https://h/a+b", "https://h/a+b"),
        # The site's own.
        ("/", None),
        ("/render", None),
        ("/render?url=/a", None),
        ("/render?url=ftp://h/", None),
        ("/render?hurl=https://h/", None),
        ("/render/page", None),
        ("/a/https://h/", None),
        ("/https", None),
        ("/https://", "https://"),
        ("/httpsx://h/", None),
        ("/?u=https://h/", None),
    ],
)
def test_the_forms(target: str, url: str | None) -> None:
    assert page_url(target) == url


_VISIBLE = st.characters(min_codepoint=0x21, max_codepoint=0x7E)


@given(st.text(_VISIBLE))
def test_any_target_can_be_read(text: str) -> None:
    for beginning in ("/", "/render/", "/render?url=", "/https://", "/https%3A"):
        url = page_url(beginning + text)
        assert url is None or url.startswith(("http://", "https://"))


PAGE = """<!DOCTYPE html><title>t</title><p id=out>shell</p><script>
  out.textContent = "rendered " + (location.hash || location.pathname + location.search);
</script>"""
SETTINGS: dict[str, dict[str, object]] = {
    "site": {"url": "https://www.example.com"},
    "drop_in": {"enabled": True, "token": TOKEN, "hosts": ["old.example", "*.shop.example"]},
    "triggers": {"ai_training": "refuse", "exclude": ["/account*"], "markdown": True},
    "browser": {"pages": 1},
}
WITH_TOKEN = {"X-Prerender-Token": TOKEN, "User-Agent": GOOGLEBOT}


async def _both(start_origin: StartOrigin, start_proxy: StartProxy) -> tuple[Site, Proxy]:
    content = dict.fromkeys(("/", "/a", "/account", "/render"), PAGE)
    origin = await pages(start_origin, content)
    return origin, await start_proxy(origin.url, SETTINGS)


async def test_pages_by_their_whole_urls(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin, proxy = await _both(start_origin, start_proxy)
    for target in (
        "/https://www.example.com/a?b=c",
        "/http://www.example.com/a?b=c",
        "/https:/www.example.com/a?b=c",
        "/https://www.example.com/a%3Fb=c",
        "/https%3A%2F%2Fwww.example.com%2Fa%3Fb%3Dc",
        "/render/https%3A%2F%2Fold.example%2Fa%3Fb%3Dc",
        "/render?url=https%3A%2F%2Feu.shop.example%2Fa%3Fb%3Dc",
        "/https://www.example.com/a?b=c&_escaped_fragment_=",
        "/https://www.example.com/a?utm_source=x&b=c",
    ):
        answer = await proxy.get(target, headers=WITH_TOKEN)
        assert answer.status == 200
        assert "rendered /a?b=c" in answer.text
    # They are all one page.
    assert origin.count("/a") == 1
    assert origin.requests[0].headers["Host"] == "www.example.com"
    assert answer.headers["Cache-Status"].startswith("prerender; hit")
    plain = await proxy.get("/https://www.example.com/a?b=c", headers=WITH_TOKEN)
    # Its answer goes to a crawler, from a site that gives something else to people.
    assert "User-Agent" in ", ".join(plain.headers.getall("Vary"))
    fresh = await proxy.get(
        "/https://www.example.com/a?b=c",
        headers=WITH_TOKEN | {"If-None-Match": plain.headers["ETag"]},
    )
    assert fresh.status == 304
    markdown = await proxy.get(
        "/https://www.example.com/a?b=c", headers=WITH_TOKEN | {"Accept": "text/markdown"}
    )
    assert markdown.headers["Content-Type"].startswith("text/markdown")


async def test_pages_with_fragments(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    _, proxy = await _both(start_origin, start_proxy)
    for target in (
        "/https://www.example.com/?_escaped_fragment_=/x%26y",
        "/https://www.example.com/%3F_escaped_fragment_=/x%2526y",
        "/https%3A%2F%2Fwww.example.com%2F%23!%2Fx%26y",
        "/render?url=https%3A%2F%2Fwww.example.com%2F%3F_escaped_fragment_%3D%2Fx%2526y",
    ):
        answer = await proxy.get(target, headers=WITH_TOKEN)
        assert "rendered #!/x&amp;y<" in answer.text
    assert answer.headers["Cache-Status"].startswith("prerender; hit")


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("/https://evil.example/", 403),
        ("/https://www.example.com.evil.example/", 403),
        ("/https://www.example.com:8443/", 403),
        ("/render?url=http%3A%2F%2F169.254.169.254%2Flatest", 403),
        ("/render/http://127.0.0.1/", 403),
        ("/https://www.example.com@evil.example/", 400),
        ("/https://evil.example\\@www.example.com/", 400),
        ("/https%3A%2F%2Fwww.example.com%2F%0D%0AHost%3A%20x", 400),
        ("/https://[/", 400),
        ("/https://www.example.com[::1]x@/", 400),
    ],
)
async def test_it_is_no_open_proxy(
    start_origin: StartOrigin, start_proxy: StartProxy, target: str, status: int
) -> None:
    origin = await pages(start_origin, {})
    proxy = await start_proxy(origin.url, SETTINGS | {"browser": {"path": "/nonexistent"}})
    answer = await proxy.get(target, headers=WITH_TOKEN)
    assert answer.status == status
    assert status != 400 or answer.text == "The requested URL is not the URL of a page.\n"
    assert answer.headers["Cache-Control"] == "no-store"
    assert origin.requests == []


async def test_tokens_and_what_is_forwarded(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin, proxy = await _both(start_origin, start_proxy)
    page = "/https://www.example.com/a"
    assert (await proxy.get(page)).status == 403
    wrong = await proxy.get(page, headers={"X-Prerender-Token": TOKEN[:-1]})
    assert wrong.status == 401
    assert "WWW-Authenticate" in wrong.headers
    refused = await proxy.get(page, headers=WITH_TOKEN | {"User-Agent": "GPTBot/1.3"})
    assert refused.status == 403
    assert origin.requests == []

    # The site's own middleware must not ask again, and never sees the token.
    async def forwarded(target: str, method: str = "GET", **headers: str) -> Any:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = await proxy.request(method, target, headers=WITH_TOKEN | named)
        assert "Cache-Status" not in answer.headers
        request = origin.requests[-1]
        assert "X-Prerender-Token" not in request.headers
        return request

    for path in ("/account", "/style.css", "/nothing", "/a/../b"):
        request = await forwarded(f"/https://old.example{path}")
        assert request.path_qs == path
        assert request.headers["Host"] == "www.example.com"
        assert request.headers["X-Prerender"] == "1"
    request = await forwarded("/https://www.example.com/a?b", X_Prerender="1")
    assert request.path_qs == "/a?b"
    assert request.headers.getall("X-Prerender") == ["1", "1"]
    # What only looks so, and what is no reading, is the site's own.
    for method, path in (("GET", "/render?url=x"), ("POST", page), ("GET", "/")):
        request = await forwarded(path, method)
        assert request.raw_path == path
        assert "X-Prerender" not in request.headers


async def test_it_is_off_by_default(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(start_origin, {})
    proxy = await start_proxy(origin.url, {"browser": {"path": "/nonexistent"}})
    await proxy.get("/https://www.example.com/", headers=WITH_TOKEN)
    assert origin.requests[-1].raw_path == "/https://www.example.com/"
    assert origin.requests[-1].headers["X-Prerender-Token"] == TOKEN


# ---- prerender-node


class ExpressSite:
    """The running site of tests/sites/drop_in."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process = process
        self.url = f"http://127.0.0.1:{port}"

    async def use(self, service: str) -> None:
        """Set the URL of the service in its middleware."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{service}\n".encode())
        async with asyncio.timeout(SECONDS):
            assert await self._process.stdout.readline() == b"ready\n"


@asynccontextmanager
async def _express() -> AsyncIterator[ExpressSite]:
    no_programs.check()
    assert (FOLDER / "node_modules").is_dir(), (
        "make test installs it: cd tests/sites/drop_in && npm ci"
    )
    process = await asyncio.create_subprocess_exec(
        "node",
        str(FOLDER / "site.js"),
        env={"TOKEN": TOKEN, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(SECONDS):
            yield ExpressSite(process, int(await process.stdout.readline()))
    finally:
        process.kill()
        await process.wait()


@pytest.mark.ci_only
async def test_prerender_node_before_an_express_site(start_proxy: StartProxy) -> None:
    async with _express() as site:
        proxy = await start_proxy(site.url, SETTINGS)
        await site.use(proxy.url)
        express = Proxy(site.url, "", proxy.running, proxy.client)
        as_crawler = {
            "User-Agent": GOOGLEBOT,
            "Host": "www.example.com",
            "X-Forwarded-Proto": "https",
        }
        for path in ("/lamps?sort=price%26up", "/a%20b/%E3%83%86", "/what%3Fever?x=1"):
            answer = await express.get(path, headers=as_crawler)
            assert answer.status == 200
            assert f"rendered {path.replace('&', '&amp;')}<" in answer.text
            assert "<script" not in answer.text
            assert answer.headers["Cache-Status"].startswith("prerender; fwd=miss; stored")
            assert "User-Agent" in ", ".join(answer.headers.getall("Vary"))
        again = await express.get("/lamps?sort=price%26up", headers=as_crawler)
        assert "hit" in again.headers["Cache-Status"]
        # The AJAX crawling scheme, for any client.
        ugly = pretty_to_ugly("/#!/lamps/3 & more")
        assert ugly is not None
        answer = await express.get(ugly, headers=as_crawler | {"User-Agent": BROWSER})
        assert "rendered /lamps/3%20&amp;%20more<" in answer.text
        # A status, a redirect and what is no page, as the site says.
        assert (await express.get("/gone/1", headers=as_crawler)).status == 404
        moved = await express.get("/moved", headers=as_crawler)
        assert (moved.status, moved.headers["Location"]) == (301, "/there")
        report = await express.get("/report", headers=as_crawler)
        assert report.headers["Content-Type"].startswith("application/pdf")
        assert report.body == b"%PDF"
        # People get the site.
        person = await express.get("/lamps", headers=as_crawler | {"User-Agent": BROWSER})
        assert ">shell<" in person.text

        asked = json.loads((await express.get("/asked")).body)
        ours = [request for request in asked if "x-prerender" in request["headers"]]
        # Each request was a crawler's, a visitor's, or the proxy's for one of them: there was no loop.
        assert len(ours) >= 8
        assert not [request for request in asked if "x-prerender-token" in request["headers"]]
        for request in ours:
            assert request["headers"]["host"] == "www.example.com"
            assert "_escaped_fragment_" not in request["url"]


async def test_prerender_node_is_given_gzip(start_proxy: StartProxy) -> None:
    """The middleware decompresses the coding that it requests by Accept-Encoding."""
    async with _express() as site:
        proxy = await start_proxy(site.url, SETTINGS)
        target = "/https://www.example.com/" + "long/" * 200
        packed = await proxy.get(target, headers=WITH_TOKEN | {"Accept-Encoding": "gzip"})
        assert packed.headers["Content-Encoding"] == "gzip"
        assert b"rendered /long/" in gzip.decompress(packed.body)
        await site.use(proxy.url)
        express = Proxy(site.url, "", proxy.running, proxy.client)
        answer = await express.get(
            str(URL(target[1:]).path), headers={"User-Agent": GOOGLEBOT, "Host": "www.example.com"}
        )
        assert "rendered /long/" in answer.text
        assert "Content-Encoding" not in answer.headers


# ---- nginx

NGINX = """
  # As in Prerender's documentation.
  server {{
    listen unix:{folder}/rewriting.sock;
    location / {{
      proxy_set_header X-Prerender-Token {token};
      set $prerender 0;
      if ($http_user_agent ~* "googlebot|bingbot") {{ set $prerender 1; }}
      if ($args ~ "_escaped_fragment_") {{ set $prerender 1; }}
      if ($http_user_agent ~ "Prerender") {{ set $prerender 0; }}
      if ($prerender = 1) {{
        set $prerender "{service}";
        rewrite .* /$scheme://www.example.com$request_uri? break;
        proxy_pass http://$prerender;
      }}
      if ($prerender = 0) {{ proxy_pass {origin}; }}
    }}
  }}
  # Without the rewrite, whose escapes can be mistaken.
  server {{
    listen unix:{folder}/passing.sock;
    location / {{
      proxy_set_header X-Prerender-Token {token};
      set $service "{service}";
      if ($http_user_agent ~* "googlebot|bingbot") {{
        proxy_pass http://$service/$scheme://www.example.com$request_uri;
      }}
      proxy_pass {origin};
    }}
  }}
"""


@asynccontextmanager
async def _nginx(folder: Path, service: str, origin: str) -> AsyncIterator[None]:
    service = service.removeprefix("http://")
    http = NGINX.format(folder=folder, service=service, origin=origin, token=TOKEN)
    async with nginx_server.running(folder, http, folder / "passing.sock"):
        yield


@pytest.mark.parametrize("form", ["rewriting", "passing"])
async def test_nginx(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path, form: str
) -> None:
    paths = ["/a%2Fb/c%20d?x=%26&y=a+b", "/%E3%83%86?q=100%25", "/list?u=https://h/%3Fa"]
    origin = await pages(start_origin, {URL(path, encoded=True).path: PAGE for path in paths})
    proxy = await start_proxy(origin.url, SETTINGS)
    async with (
        _nginx(tmp_path, proxy.url, origin.url),
        ClientSession(connector=UnixConnector(f"{tmp_path}/{form}.sock")) as client,
    ):
        for path in paths:
            url = URL(f"http://site{path}", encoded=True)
            async with client.get(url, headers={"User-Agent": GOOGLEBOT}) as answer:
                assert f"rendered {path.replace('&', '&amp;')}<" in await answer.text()
            assert origin.requests[-1].raw_path == path
            async with client.get(url, headers={"User-Agent": BROWSER}) as answer:
                assert ">shell<" in await answer.text()

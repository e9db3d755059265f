"""Markdown that clients find: its URLs, and the headers that lead to it."""

import asyncio
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

from prerender.config import load
from prerender.errors import ConfigError
from prerender.extensions.markdown.discovery import _redirected
from prerender.snapshots.snapshot import Snapshot, SnapshotResult
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import Proxy, Reply, Site, StartForwarding, StartOrigin, StartProxy, pages
from tests.support import nginx_server, raw

SHELL = """<!DOCTYPE html><title>Lamp</title><main id=out></main><script>
  out.innerHTML = "<h1>Lamp " + location.pathname + location.search + location.hash + "</h1>" +
    "<p>It <a href='#!/more'>shines</a>.</p>".repeat(9);
</script>"""
GONE = """<!DOCTYPE html><title>Gone</title><meta name="prerender-status-code" content="404">
  <main>No such lamp</main>"""
LLMS = ', </llms.txt>; rel="describedby"; type="text/plain"'
SIGNAL = "search=yes, ai-train=no"
ON: dict[str, dict[str, object]] = {
    "site": {"url": "https://www.example.com"},
    "markdown": {"enabled": True, "content_signal": SIGNAL},
    "triggers": {"exclude": ["/cart*"], "ai_training": "refuse"},
}


def _typed(text: str, kind: str, **headers: str) -> web.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return web.Response(text=text, content_type=kind, headers=named)


async def _site(start_origin: StartOrigin) -> Site:
    content: dict[str, str | web.Response] = {
        "/": SHELL,
        "/list": SHELL,
        "/docs/": SHELL,
        "/cart": SHELL,
        "/cart.md": SHELL,
        "/gone": GONE,
        "/shell.md": SHELL,  # as of an application, which responds to any URL
        "/shell": SHELL,
        "/moved": web.Response(status=301, headers={"Location": "/list?a=1"}),
        "/away": web.Response(status=302, headers={"Location": "https://other.example/x"}),
        "/nowhere": web.Response(status=302, headers={"Location": "http://[/"}),
        "/to-file": web.Response(status=302, headers={"Location": "/manual.pdf"}),
        "/own": SHELL,
        "/own.md": _typed("# Own", "text/markdown"),
        "/data": _typed("{}", "application/json"),
        "/mine": _typed(SHELL, "text/html", Cache_Control='private="set-cookie", max-age=0'),
        "/said": _typed(SHELL, "text/html", Content_Signal="search=no"),
    }
    return await pages(start_origin, content)


def _links(answer: Reply) -> list[str]:
    return answer.headers.getall("Link", [])


def _alternate(url: str) -> str:
    return f'<{url}>; rel="alternate"; type="text/markdown"{LLMS}'


async def test_each_page_has_a_markdown_url(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await _site(start_origin)
    proxy = await start_proxy(origin.url, ON)
    for url, page in (
        ("/index.md", "/"),
        ("/docs/index.md", "/docs/"),
        ("/list.md?a=1", "/list?a=1"),
        ("/shell.md", "/shell"),
        ("/index.md?_escaped_fragment_=/items/3", "/#!/items/3"),
    ):
        answer = await proxy.get(url)
        assert answer.status == 200
        assert answer.headers["Content-Type"] == "text/markdown; charset=utf-8"
        assert f"# Lamp {page}\n" in answer.text
        assert _links(answer) == [f'<https://www.example.com{page}>; rel="canonical"{LLMS}']
        assert answer.headers["Content-Signal"] == SIGNAL
        # Only because a class of crawlers is refused.
        assert answer.headers.getall("Vary") == ["Accept-Encoding, User-Agent"]
        assert (
            len(answer.text) / 5 < int(answer.headers["X-Markdown-Tokens"]) < len(answer.text) / 3
        )
        # It is made of the page's snapshot, which names it.
        html = await proxy.crawl(page)
        assert html.headers["Cache-Status"].startswith("prerender; hit")
        assert _links(html) == [_alternate(url)]
        assert "Content-Signal" not in html.headers
        again = await proxy.get(url, headers={"If-None-Match": answer.headers["ETag"]})
        assert (again.status, again.body) == (304, b"")
        assert _links(again) == _links(answer)
    assert origin.count("/list.md") == 1  # whether it is a file of the origin


async def test_what_has_no_markdown(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await _site(start_origin)
    proxy = await start_proxy(origin.url, ON)
    own = await proxy.get("/own.md")
    assert (own.text, own.headers["Content-Type"]) == ("# Own", "text/markdown; charset=utf-8")
    assert "Content-Signal" not in own.headers
    assert (await proxy.get("/data.md")).status == 404
    assert (await proxy.get("/a.png.md")).status == 404
    assert (
        "<script" in (await proxy.get("/cart.md")).text
    )  # excluded, so it is the origin's response
    assert (await proxy.get("/list.md", headers={"X-Prerender": "1"})).status == 404
    assert (await proxy.get("/list.md", headers={"Host": "other.example"})).status == 404
    assert (await proxy.request("POST", "/list.md")).status == 404
    assert (await proxy.get("/list.md", headers={"User-Agent": "GPTBot/1.3"})).status == 403
    gone = await proxy.get("/gone.md")
    assert (gone.status, "No such lamp" in gone.text) == (404, True)
    assert not _links(await proxy.crawl("/gone"))
    for page, location in (
        ("/moved", "/list.md?a=1"),
        ("/away", "https://other.example/x"),
        ("/to-file", "/manual.pdf"),
        ("/nowhere", "http://[/"),
    ):
        answer = await proxy.get(f"{page}.md")
        assert 300 < answer.status < 303
        assert answer.headers["Location"] == location


def test_redirects_lead_to_markdown_as_far_as_they_are_urls() -> None:
    headers = (("Location", "/b"), ("Location", "http://[bad/"), ("X-Other", "http://[bad/"))
    result = SnapshotResult(Snapshot(301, headers, b"", '"1"', 0))
    target = Target.of(URL("https://www.example.com"), PrettyURL("/a", ""))
    assert _redirected(target, result).snapshot.headers == (("Location", "/b.md"), *headers[1:])


async def test_what_the_page_says_of_its_use_counts(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await _site(start_origin)
    proxy = await start_proxy(origin.url, ON)
    for answer in (await proxy.get("/said.md"), await proxy.crawl("/said")):
        assert answer.headers.getall("Content-Signal") == ["search=no"]


async def test_forwarded_pages_name_their_markdown(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await _site(start_origin)
    proxy = await start_proxy(origin.url, ON | {"browser": {"path": "/nonexistent/chromium"}})
    assert _links(await proxy.get("/list?a=1")) == [_alternate("/list.md?a=1")]
    assert _links(await proxy.request("HEAD", "/")) == [_alternate("/index.md")]
    for path in ("/mine", "/data", "/cart", "/nothing", "/moved", "/own.md"):
        assert not _links(await proxy.get(path)), path
    assert not _links(await proxy.get("/", headers={"Host": "other.example"}))
    assert not _links(await proxy.request("POST", "/"))


@pytest.mark.parametrize(
    ("kind", "is_page"),
    [
        ("Text/HTML; charset=utf-8", True),
        ("application/xhtml+xml", True),
        ("text/html-template", False),
        ("", False),
    ],
)
async def test_pages_by_their_content_type(
    start_proxy: StartProxy, kind: str, is_page: bool
) -> None:
    """What is rendered for crawlers says so to caches in front, and names its Markdown."""
    field = f"Content-Type: {kind}\r\n".encode() if kind else b""
    answering = b"HTTP/1.1 200 OK\r\n%bContent-Length: 2\r\n\r\nok" % field
    settings = ON | {"browser": {"path": "/nonexistent"}, "triggers": {"ai_search": "render"}}
    async with raw.origin(raw.answering(answering)) as origin:
        proxy = await start_proxy(origin.url, settings)
        answer = await proxy.get("/list")
    assert _links(answer) == [_alternate("/list.md")] * is_page
    assert answer.headers.getall("Vary", []) == ["User-Agent"] * is_page


async def test_off_by_default(start_origin: StartOrigin, start_forwarding: StartForwarding) -> None:
    origin = await _site(start_origin)
    port = await start_forwarding(origin.url)
    for path, status in ((b"/", b"200"), (b"/list.md", b"404")):
        request = b"GET %b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % path
        answer = await raw.ask(port, request)
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert b"\r\nLink:" not in answer


CDN = """
  proxy_cache_path {folder}/cache keys_zone=pages:1m;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{proxy_port};
      proxy_cache pages;
      proxy_cache_revalidate on;
      add_header X-Cache $upstream_cache_status;
    }}
  }}
"""


async def test_a_cache_keeps_both_forms_apart(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    origin = await _site(start_origin)
    triggers = {"markdown": True, "ai_user": "markdown"}
    proxy: Proxy = await start_proxy(origin.url, ON | {"triggers": triggers})
    port = raw.free_port()
    config = CDN.format(folder=tmp_path, port=port, proxy_port=proxy.running.public_port)

    async def get(path: str, **headers: str) -> tuple[str, str, str]:
        url = f"http://127.0.0.1:{port}{path}"
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        async with proxy.client.get(url, headers=named) as answer:
            kind = answer.headers["Content-Type"].partition(";")[0]
            return kind, answer.headers["X-Cache"], answer.headers["ETag"]

    async with nginx_server.running(tmp_path, config, port), asyncio.timeout(60):
        kind, cache, etag = await get("/list.md")
        assert (kind, cache) == ("text/markdown", "MISS")
        # From here on whoever asks, and for whatever, gets the same from the cache.
        assert await get("/list.md", Accept="text/html", User_Agent="Claude-User/1.0") == (
            "text/markdown",
            "HIT",
            etag,
        )
        async with proxy.client.get(
            f"http://127.0.0.1:{port}/list.md", headers={"If-None-Match": etag}
        ) as answer:
            assert (answer.status, answer.headers["X-Cache"]) == (304, "HIT")
        # At the page's own URL, Vary decides.
        ugly = "/list?_escaped_fragment_="
        assert (await get(ugly, Accept="text/markdown"))[:2] == ("text/markdown", "MISS")
        assert (await get(ugly, Accept="text/html"))[:2] == ("text/html", "MISS")
        assert (await get(ugly, Accept="text/markdown"))[:2] == ("text/markdown", "HIT")
        assert (await get(ugly, Accept="text/html"))[:2] == ("text/html", "HIT")


@pytest.mark.parametrize("signal", ["ai_train=no", "ai-train", "ai-train=maybe", "train=no,", "x"])
def test_signals_that_are_unknown(signal: str) -> None:
    values = {"origin": {"url": "http://app"}, "markdown": {"content_signal": signal}}
    with pytest.raises(ConfigError, match=r"\[markdown\] content_signal.*ai-train"):
        load(None, {}, values)

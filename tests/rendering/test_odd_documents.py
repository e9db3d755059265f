"""Documents as servers in the wild send them, and how they are requested: as by the browser that
renders."""

import asyncio
import gzip
import html
import json
import re
import zlib
from contextlib import suppress

import pytest
from aiohttp import web

from tests.conftest import StartOrigin, StartProxy
from tests.support import raw
from tests.support.sampling import sampled

PUBLIC = "https://www.example.com"
_PAGE = (
    b"<!DOCTYPE html><title>t</title><p id=out></p><script>out.textContent = 'rendered'</script>"
)
_ZIPPED = gzip.compress(_PAGE, mtime=0)
_BARE = zlib.compress(_PAGE)[2:-4]


# Header lines and body of documents that are rendered, and of some that are not.
_READ = [
    ("Content-Type: text/html\r\nContent-Encoding: utf-8", _PAGE),
    ("Content-Type: text/html\r\nContent-Encoding: none", _PAGE),
    ("Content-Type: text/html\r\nContent-Encoding: aws-chunked", _PAGE),
    ("Content-Type: text/html\r\nContent-Encoding: ", _PAGE),
    (
        "Content-Type: text/html\r\nContent-Encoding: gzip, gzip",
        gzip.compress(_ZIPPED, mtime=0),
    ),
    (
        "Content-Type: text/html\r\nContent-Encoding: gzip\r\nContent-Encoding: identity",
        _ZIPPED,
    ),
    ("Content-Type: text/html\r\nContent-Encoding: deflate", zlib.compress(_PAGE)),
    ("Content-Type: text/html\r\nContent-Encoding: deflate", _BARE),
    ("Content-Type: text/html\r\nContent-Encoding: gzip", _ZIPPED[:-8]),
    ("Content-Type: text/html\r\nContent-Encoding: gzip", _ZIPPED + bytes(100)),
    ("Content-Type: text/html, text/html; charset=utf-8", _PAGE),
    ("Content-Type: \r\nContent-Type: text/html", _PAGE),
    ("X: no type", b" \n" + _PAGE),
    ("Content-Type: ", _PAGE.replace(b"<!DOCTYPE html>", b"<!-- x --><HTML>")),
]
_NO_PAGES = [
    ("Content-Type: application/json", b"{}"),
    ("X: no type", b"just text <p>"),
    ("X: no type", b"\xef\xbb\xbf" + _PAGE),
    ("X-Content-Type-Options: nosniff", _PAGE),
]


@pytest.mark.ci_only
@pytest.mark.parametrize("every", [2, pytest.param(1, marks=pytest.mark.long)])
async def test_what_browsers_read_as_a_page_is_rendered_and_nothing_else(
    start_proxy: StartProxy, every: int
) -> None:
    """And what is forwarded stays as it is."""
    read, documents = _READ[::every], [*_READ[::every], *_NO_PAGES]

    async def serve(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        with suppress(asyncio.IncompleteReadError):
            while found := re.match(rb"GET /(\d+)", (await raw.receive(reader)).line):
                headers, body = documents[int(found[1])]
                head = f"HTTP/1.1 200 OK\r\n{headers}\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(head.encode() + body)

    async with raw.origin(serve) as origin:
        proxy = await start_proxy(origin.url, {"site": {"url": PUBLIC}})
        for number, (headers, body) in enumerate(documents):
            crawled = await proxy.crawl(f"/{number}")
            if number >= len(read):
                assert crawled.body == body, headers
                continue
            assert '<p id="out">rendered</p>' in crawled.text, headers
            async with raw.client(proxy.running.public_port) as client:
                await client.send(
                    f"GET /{number} HTTP/1.1\r\nHost: www.example.com\r\n\r\n".encode()
                )
                answer = await client.answer()
            assert answer.endswith(body), headers
            assert headers.split("\r\n", maxsplit=1)[0].strip().encode() in answer


@pytest.mark.parametrize("script", ["<script src=/a.js></script>", "<script>1</script>", ""])
async def test_an_application_may_be_the_document_of_a_forbidden_file(
    start_origin: StartOrigin, start_proxy: StartProxy, script: str
) -> None:
    """Object stores say 403 for paths that are no files; firewalls for requests that they refuse."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/a.js":
            return web.Response(text="document.write('rendered')", content_type="text/javascript")
        return web.Response(text=f"<p>{script}", status=403, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    proxy = await start_proxy((await start_origin(application)).url, {"site": {"url": PUBLIC}})
    reply = await proxy.crawl("/no/file")
    assert reply.status == 403
    assert ("rendered" in reply.text) is ("src" in script)
    assert ("ttl=60" in reply.headers.get("Cache-Status", "")) is ("src" in script)


async def test_a_redirect_to_itself_with_a_cookie_is_followed(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    async def answer(request: web.Request) -> web.Response:
        if "seen" not in request.cookies:
            bounce = web.Response(status=302, headers={"Location": request.path_qs})
            bounce.headers["Set-Cookie"] = "seen=1; Secure; Partitioned"
            bounce.headers.add("Set-Cookie", "over=1; Max-Age=0")
            return bounce
        assert request.headers["Cookie"] == "seen=1"
        page = "<p id=out></p><script>out.textContent = document.cookie</script>"
        return web.Response(text=page, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    proxy = await start_proxy((await start_origin(application)).url, {"site": {"url": PUBLIC}})
    reply = await proxy.crawl("/a?b=1")
    assert (reply.status, '<p id="out">seen=1</p>' in reply.text) == (200, True)


_LOOKS = """<p id="out"></p><script>
  fetch("/data").then(() => { out.textContent = JSON.stringify([
    navigator.userAgent, navigator.userAgentData?.brands[0].version, navigator.webdriver,
    navigator.languages,
  ]); });
</script>"""


@pytest.mark.parametrize(
    "public", sampled([PUBLIC, "https://www.example.com:8443", "http://127.0.0.1:81"], 2)
)
async def test_the_document_is_requested_as_by_the_browser(
    start_origin: StartOrigin, start_proxy: StartProxy, public: str
) -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=_LOOKS, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    site = await start_origin(application)
    proxy = await start_proxy(site.url, {"site": {"url": public}})
    await proxy.crawl("/first")  # now a browser has been started
    del site.requests[:]
    reply = await proxy.crawl("/")
    found = re.search(r'<p id="out">(.*?)</p>', reply.text)
    assert found
    user_agent, version, webdriver, languages = json.loads(html.unescape(found[1]))
    document, data = (request.headers for request in site.requests)
    own = re.sub(r"(Chrome/\d+\.0\.0\.)\d+", r"\g<1>0", user_agent)
    assert re.fullmatch(re.escape(own) + r" PrerenderProxy/\S+", document["User-Agent"])
    assert data["User-Agent"] == document["User-Agent"]
    assert (webdriver, languages) == (False, ["en-US", "en"])
    assert f"Chrome/{version}." in own
    assert f'v="{version}"' in document["Sec-CH-UA"]
    assert data["Sec-CH-UA"] == document["Sec-CH-UA"]
    assert data["Accept-Language"] == document["Accept-Language"] == "en-US,en;q=0.9"
    assert document["Upgrade-Insecure-Requests"] == "1"
    fetch = {name: value for name, value in document.items() if name.startswith("Sec-Fetch-")}
    assert fetch == {
        "Sec-Fetch-Site": "none",
        "Sec-Fetch-Mode": "navigate",
        "Sec-Fetch-User": "?1",
        "Sec-Fetch-Dest": "document",
    }


_LEFTOVERS = """<!DOCTYPE html><html{amp}><head><title>t</title><META NAME="FRAGMENT" CONTENT="!">
<META NAME="Prerender-Status-Code" CONTENT="404">
<script type=" Application/LD+JSON; charset=utf-8">{{"@type": "Thing"}}</script>
<script src="https://cdn.ampproject.org/v0.js"></script>
<noscript data-prerender-keep><style>p > b {{ color: red }}</style></noscript></head>
<body><noscript>n <b>&amp;lt;</b></noscript><p>text</html>"""


@pytest.mark.parametrize("amp", ["", " amp", " ⚡"])
async def test_names_and_types_in_any_case(
    start_origin: StartOrigin, start_proxy: StartProxy, amp: str
) -> None:
    """AMP pages keep what makes them valid."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=_LEFTOVERS.format(amp=amp), content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    proxy = await start_proxy((await start_origin(application)).url, {"site": {"url": PUBLIC}})
    reply = await proxy.crawl("/")
    assert reply.status == 404
    assert "fragment" not in reply.text.lower()
    assert '{"@type": "Thing"}' in reply.text
    assert ("cdn.ampproject.org" in reply.text) is bool(amp)
    assert ("<noscript>n <b>&amp;lt;</b></noscript>" in reply.text) is bool(amp)
    assert "<style>p > b { color: red }</style></noscript></head>" in reply.text


_WORKER = """onconnect = ({ports}) => fetch("/echo").then((answer) => answer.text())
  .then((text) => ports[0].postMessage(text));"""
_ASKS = """<p id="out"></p><script>
  const worker = new SharedWorker("/worker.js");
  worker.port.onmessage = async ({data}) => {
    out.textContent = JSON.stringify([await (await fetch("/echo")).text(), data]);
  };
</script>"""


@pytest.mark.parametrize("phone", sampled([True, False], 2))
async def test_workers_are_the_same_browser(
    start_origin: StartOrigin, start_proxy: StartProxy, phone: bool
) -> None:
    """Chromium does not emulate devices and languages in shared workers."""

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/echo":
            names = ("User-Agent", "Sec-CH-UA", "Sec-CH-UA-Mobile", "Accept-Language")
            return web.json_response({name: request.headers.get(name) for name in names})
        if request.path == "/worker.js":
            return web.Response(text=_WORKER, content_type="text/javascript")
        return web.Response(text=_ASKS, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    site = await start_origin(application)
    cache = {"vary": ["device", "language"], "languages": ["en", "de-CH"]}
    proxy = await start_proxy(site.url, {"site": {"url": PUBLIC}, "cache": cache})
    user_agent = "Mozilla/5.0 (iPhone) Mobile Safari" if phone else "Mozilla/5.0"
    headers = {"User-Agent": user_agent, "Accept-Language": "de-CH"}
    reply = await proxy.crawl("/", headers=headers)
    found = re.search(r'<p id="out">(.*?)</p>', reply.text)
    assert found
    of_page, of_worker = json.loads(html.unescape(found[1]))
    assert of_worker == of_page
    assert (" Mobile " in of_page) is phone
    assert "de-CH" in of_page


async def test_links_that_are_not_of_the_snapshot_are_not_in_headers(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    markdown = '</index.md>; rel="alternate"; type="text/markdown"'

    async def answer(_: web.Request) -> web.Response:
        links = f'</a.js>; rel=preload; as=script, </c>; rel="canonical", {markdown}'
        return web.Response(
            body=_PAGE,
            content_type="text/html",
            headers=[("Link", links), ("Link", "</b.mjs>; rel=modulepreload")],
        )

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    proxy = await start_proxy((await start_origin(application)).url, {"site": {"url": PUBLIC}})
    reply = await proxy.crawl("/")
    assert "rendered" in reply.text
    assert reply.headers.getall("Link") == [f'</c>; rel="canonical", {markdown}']
    # It is that of the page without a state.
    reply = await proxy.crawl("/#!/state")
    assert reply.headers.getall("Link") == ['</c>; rel="canonical"']


@pytest.mark.parametrize(
    ("query", "tracking", "state"),
    [
        ("_escaped_fragment_=a&fbclid=x", None, "#!a"),
        ("b=1&_escaped_fragment_=&utm_source=x&gclid=y", None, ""),
        ("_escaped_fragment_=a%26fbclid=x", None, "#!a&fbclid=x"),
        ("_escaped_fragment_=a&b=1", None, None),
        ("_escaped_fragment_=a&_escaped_fragment_=b&fbclid=x", None, None),
        ("_escaped_fragment_=a&fbclid=x", [], None),
    ],
)
async def test_tracking_parameters_behind_the_token(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    query: str,
    tracking: list[str] | None,
    state: str | None,
) -> None:
    async def answer(_: web.Request) -> web.Response:
        page = "<p id=out></p><script>out.textContent = `state: ${location.hash}`</script>"
        return web.Response(text=page, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    cache = {} if tracking is None else {"cache": {"tracking_parameters": tracking}}
    proxy = await start_proxy(
        (await start_origin(application)).url, {"site": {"url": PUBLIC}, **cache}
    )
    async with raw.client(proxy.running.public_port) as client:
        await client.send(f"GET /?{query} HTTP/1.1\r\nHost: www.example.com\r\n\r\n".encode())
        answer_text = (await client.answer()).decode()
    shown = re.search(r'<p id="out">state: (.*?)</p>', html.unescape(answer_text))
    assert (shown[1] if shown else None) == state

"""The main job, end to end, with a real Chromium: crawl, cache, revalidate, forward, fail."""

import asyncio
import re

from aiohttp import web

from tests.conftest import StartOrigin, StartProxy, pages
from tests.support import raw
from tests.support.renders import until

SHOP = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Shop</title>
<meta name="fragment" content="!"></head>
<body><h1 id="state">loading</h1>
<script>
  const show = async () => {
    const id = decodeURIComponent(location.hash.slice(2));
    const answer = await fetch("/data.json?id=" + encodeURIComponent(id));
    document.title = "Item " + id;
    document.getElementById("state").textContent = "item " + id + ": " + (await answer.json()).text;
  };
  show();
</script></body></html>"""


async def test_snapshot_then_cache_then_304(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": SHOP, "/data.json": '{"text": "a lamp"}'})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})

    first = await proxy.crawl("/#!/3")
    assert first.status == 200
    assert "item /3: a lamp" in first.text
    assert "<title>Item /3</title>" in first.text
    assert "<script" not in first.text
    assert 'name="fragment"' not in first.text
    assert first.headers["Content-Type"] == "text/html; charset=utf-8"
    assert first.headers["Cache-Status"].startswith("prerender; fwd=miss; stored; ttl=")
    assert [part.split(";")[0] for part in first.headers["Server-Timing"].split(", ")] == [
        "document",
        "queue",
        "settle",
        "serialize",
    ]
    assert origin.count("/") == 1

    second = await proxy.crawl("/#!/3")
    assert second.body == first.body
    assert re.fullmatch(r"prerender; hit; ttl=\d+; age=\d+", second.headers["Cache-Status"])
    assert "Age" not in second.headers
    assert origin.count("/") == 1

    for condition in (
        {"If-None-Match": first.headers["ETag"]},
        {"If-Modified-Since": first.headers["Last-Modified"]},
    ):
        third = await proxy.crawl("/#!/3", headers=condition)
        assert third.status == 304
        assert third.body == b""
        assert third.headers["ETag"] == first.headers["ETag"]
    assert origin.count("/") == 1


async def test_head_has_the_metadata_of_get(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": "<title>Hello</title><p>text"})
    proxy = await start_proxy(origin.url)
    get = await proxy.crawl("/")
    head = await proxy.request("HEAD", "/?_escaped_fragment_=")
    assert head.body == b""
    for name in ("ETag", "Last-Modified", "Content-Length", "Content-Type"):
        assert head.headers[name] == get.headers[name]
    assert origin.count("/") == 1


async def test_nothing_is_behind_a_304(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    """Pipelined with and without a condition: each response ends where the next one begins."""
    origin = await pages(start_origin, {"/": "<title>Hello</title><p>text"})
    proxy = await start_proxy(origin.url)
    first = await proxy.crawl("/")
    ugly = b"%s /?_escaped_fragment_= HTTP/1.1\r\nHost: a\r\n%s\r\n"
    condition = f"If-None-Match: {first.headers['ETag']}\r\n".encode()
    async with raw.client(proxy.running.public_port) as client:
        for method in (b"GET", b"HEAD"):
            await client.send(ugly % (method, condition) + ugly % (b"GET", b""))
            not_modified = await client.until(b"\r\n\r\n")
            assert not_modified.startswith(b"HTTP/1.1 304 ")
            for name in (b"Content-Length", b"Content-Type", b"Transfer-Encoding"):
                assert name not in not_modified
            assert (await client.answer()).endswith(b"\r\n\r\n" + first.body)


async def test_many_first_requests_are_one_render(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": SHOP, "/data.json": '{"text": "one"}'})
    proxy = await start_proxy(origin.url)
    answers = await asyncio.gather(*(proxy.crawl("/#!/9") for _ in range(50)))
    assert {answer.body for answer in answers} == {answers[0].body}
    assert origin.count("/") == 1
    assert origin.count("/data.json") == 1
    hows = [answer.headers["Cache-Status"] for answer in answers]
    assert sum("collapsed" in how and "detail=coalesced" in how for how in hows) == 49


async def test_one_leader_leaving_does_not_stop_the_render(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": SHOP, "/data.json": '{"text": "stays"}'})
    proxy = await start_proxy(origin.url)
    leader = asyncio.create_task(proxy.crawl("/#!/1"))
    follower = asyncio.create_task(proxy.crawl("/#!/1"))
    await until(lambda: origin.requests)
    leader.cancel()
    assert "stays" in (await follower).text
    assert origin.count("/") == 1


async def test_unchanged_content_keeps_its_date(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": "<p>the same"})
    proxy = await start_proxy(origin.url, {"cache": {"ttl": 0.05, "stale": 0}})
    first = await proxy.crawl("/")
    async with asyncio.timeout(10):
        while origin.count("/") < 3:
            last = await proxy.crawl("/")
    assert last.headers["Last-Modified"] == first.headers["Last-Modified"]
    assert last.headers["ETag"] == first.headers["ETag"]
    again = await proxy.crawl("/", headers={"If-None-Match": first.headers["ETag"]})
    assert again.status == 304


async def test_no_ttl_keeps_nothing(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await pages(start_origin, {"/": "<p>hello"})
    proxy = await start_proxy(origin.url, {"cache": {"ttl": 0}})
    for count in (1, 2):
        answer = await proxy.crawl("/")
        assert answer.headers["Cache-Status"] == "prerender; fwd=miss"
        assert origin.count("/") == count


async def test_requests_of_the_browser_are_marked_and_forwarded(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": SHOP, "/data.json": '{"text": "marked"}'})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    await proxy.crawl("/#!/1")
    assert len(origin.requests) == 2
    for request in origin.requests:
        assert request.headers["X-Prerender"] == "1"
        assert "PrerenderProxy/" in request.headers["User-Agent"]
        assert "Headless" not in request.headers["User-Agent"]
        assert request.headers["Host"] == "www.example.com"
        assert request.headers["X-Forwarded-Proto"] == "https"
    assert ".0.0.0 Safari" in origin.requests[1].headers["User-Agent"]
    looped = await proxy.crawl("/#!/1", headers={"X-Prerender": "1"})
    assert looped.text == SHOP


async def test_the_page_lives_at_its_public_url(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = """<p id="out"></p><a id="link" href="/x">x</a><script>
      out.textContent = [location.href, isSecureContext, link.href].join(" ");
    </script>"""
    origin = await pages(start_origin, {"/p": page})
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})
    text = (await proxy.crawl("/p?a=1&b=%2F#!key=value")).text
    assert (
        "https://www.example.com/p?a=1&amp;b=%2F#!key=value true https://www.example.com/x" in text
    )
    assert "127.0.0.1" not in text


async def test_the_origin_is_asked_first(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    moved = web.Response(status=301, headers={"Location": "/new#!state"})
    internal = web.Response(status=302)
    content: dict[str, str | web.Response] = {
        "/old": moved,
        "/internal": internal,
        "/missing": web.Response(status=404, body=b"<h1>gone", content_type="text/html"),
        "/broken": web.Response(status=500, body=b"<h1>oops", content_type="text/html"),
        "/logo.svg": web.Response(body=b"<svg/>", content_type="image/svg+xml"),
        "/private": web.Response(
            body=b"<p>mine", content_type="text/html", headers={"Cache-Control": "private"}
        ),
    }
    origin = await pages(start_origin, content)
    internal.headers["Location"] = f"{origin.url}/elsewhere?x=1"
    proxy = await start_proxy(origin.url, {"site": {"url": "https://www.example.com"}})

    redirect = await proxy.crawl("/old#!a")
    assert (redirect.status, redirect.headers["Location"]) == (301, "/new#!state")
    redirect = await proxy.crawl("/internal")
    assert redirect.headers["Location"] == "https://www.example.com/elsewhere?x=1"
    missing = await proxy.crawl("/missing")
    assert missing.status == 404
    assert "<h1>gone</h1>" in missing.text
    broken = await proxy.crawl("/broken")
    assert (broken.status, broken.text) == (500, "<h1>oops")
    image = await proxy.crawl("/logo.svg#!x")
    assert (image.headers["Content-Type"], image.text) == ("image/svg+xml", "<svg/>")
    assert origin.requests[-1].raw_path == "/logo.svg"
    private = await proxy.crawl("/private")
    assert private.headers["Cache-Status"] == "prerender; fwd=miss"
    assert private.headers["Cache-Control"] == "no-store"


async def test_a_page_says_its_status(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    page = """<head></head><body>nothing here<script>
      const meta = document.createElement("meta");
      meta.name = "prerender-status-code";
      meta.content = "404";
      document.head.append(meta);
    </script>"""
    origin = await pages(start_origin, {"/": page})
    proxy = await start_proxy(origin.url)
    for _ in range(2):
        answer = await proxy.crawl("/#!/unknown")
        assert answer.status == 404
        assert "nothing here" in answer.text
        assert "prerender-status-code" not in answer.text
    assert origin.count("/") == 1


async def test_empty_pages_are_no_snapshots(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    empty = "<html><head></head><body></body></html>"
    origin = await pages(start_origin, {"/": f"{empty}<script>1</script>", "/empty": empty})
    proxy = await start_proxy(origin.url)
    # Without a script it is what the origin wants it to be.
    assert (await proxy.crawl("/empty")).status == 200
    answer = await proxy.crawl("/")
    assert answer.status == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.headers["Cache-Control"] == "no-store"
    await proxy.crawl("/")
    assert origin.count("/") == 2


async def test_an_origin_that_fails(start_proxy: StartProxy) -> None:
    proxy = await start_proxy("http://127.0.0.1:9")
    for path in ("/", "/?_escaped_fragment_="):
        answer = await proxy.get(path)
        assert answer.status == 502
        assert "127.0.0.1" not in answer.text


async def test_proxying_needs_no_browser(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": "<p>plain"})
    proxy = await start_proxy(origin.url, {"browser": {"path": "/nonexistent/chromium"}})
    assert (await proxy.get("/")).text == "<p>plain"
    answer = await proxy.crawl("/")
    assert answer.status == 503
    assert "Retry-After" in answer.headers
    assert (await proxy.client.get(proxy.admin_url + "/healthz")).status == 200
    assert (await proxy.client.get(proxy.admin_url + "/readyz")).status == 503


async def test_renders_leave_nothing_behind(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = """<p id="out"></p><script>
      (async () => {
        const request = indexedDB.open("db", 1);
        const fresh = await new Promise((done) => {
          let created = false;
          request.onupgradeneeded = () => { created = true; };
          request.onsuccess = () => done(created);
        });
        out.textContent = [document.cookie, localStorage.seen, sessionStorage.seen, fresh,
          (await caches.keys()).length].join("|");
        document.cookie = "seen=1";
        localStorage.seen = sessionStorage.seen = 1;
        await caches.open("seen");
      })();
    </script>"""
    origin = await pages(start_origin, {"/": page})
    proxy = await start_proxy(
        origin.url, {"browser": {"pages": 1}, "site": {"url": "https://www.example.com"}}
    )
    for number in range(3):
        assert '<p id="out">|||true|0</p>' in (await proxy.crawl(f"/#!{number}")).text

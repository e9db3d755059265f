"""Purging a running proxy, through the admin listener and the command line."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from prerender.admin import client
from prerender.errors import AdminError
from tests.conftest import Proxy, Site, StartOrigin, StartProxy, pages
from tests.support import raw
from tests.support.programs import run
from tests.support.redis_server import redis_server

TOKEN = "a-token-of-enough-length"
SETTINGS = {
    "site": {"url": "https://www.example.com"},
    "admin": {"token": TOKEN},
    "cache": {"stale": "1h"},
}
HIT = "prerender; hit;"
SCRIPTS = ("eval", "evalsha")
TAGS = '<head><meta name="prerender-cache-tags" content="shop, lamps"></head>'


async def shop(start_origin: StartOrigin) -> Site:
    """Three pages; one has its own tags, one gets them from the server."""
    tagged = web.Response(
        body=b"<p>by the server", content_type="text/html", headers={"Cache-Tag": "shop,tables"}
    )
    return await pages(start_origin, {"/": "<p>home", "/a": f"{TAGS}<p>a", "/b": tagged})


async def purge(proxy: Proxy, what: object, token: str = TOKEN) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token}"}
    data = what if isinstance(what, bytes) else json.dumps(what)
    async with proxy.client.post(
        f"{proxy.admin_url}/api/v1/purge", data=data, headers=headers
    ) as answer:
        return answer.status, await answer.json()


async def hits(proxy: Proxy) -> set[str]:
    """Requests all pages. Returns those that are cache hits."""
    found = set()
    for page in ("/", "/a", "/b"):
        status = (await proxy.crawl(page)).headers["Cache-Status"]
        if status.startswith(HIT) and "stale" not in status:
            found.add(page)
    return found


@pytest.mark.parametrize("soft", [False, True])
async def test_purges_of_all_kinds(
    start_origin: StartOrigin, start_proxy: StartProxy, soft: bool
) -> None:
    proxy = await start_proxy((await shop(start_origin)).url, SETTINGS)
    everything = {"/", "/a", "/b"}
    await hits(proxy)
    assert await hits(proxy) == everything
    asked: list[tuple[dict[str, object], int, set[str]]] = [
        ({"url": "https://www.example.com/a"}, 1, {"/a"}),
        ({"url": "/a?utm_source=x"}, 1, {"/a"}),
        ({"url": "/a?_escaped_fragment_="}, 1, {"/a"}),
        ({"url": ["/a", "/b"]}, 2, {"/a", "/b"}),
        ({"url": "/a#!x"}, 1, set()),
        ({"prefix": "/a"}, 1, {"/a"}),
        ({"prefix": "https://www.example.com/"}, 1, everything),
        ({"pattern": "*b"}, 1, {"/b"}),
        ({"pattern": "/?"}, 1, set()),
        ({"tag": "shop"}, 1, {"/a", "/b"}),
        ({"tag": ["tables", "lamps"]}, 2, {"/a", "/b"}),
        ({"all": True}, 1, everything),
    ]
    # Those of a soft purge are found in the same way.
    for what, count, gone in asked[:: 5 if soft else 1]:
        assert await purge(proxy, what | {"soft": soft}) == (200, {"purged": count})
        assert await hits(proxy) == everything - gone
        async with asyncio.timeout(10):
            while await hits(proxy) != everything:
                pass


async def test_purges_of_names_with_escapes(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    site = await pages(start_origin, {"/café/": "<p>café"})
    proxy = await start_proxy(site.url, SETTINGS)
    for what in (
        {"prefix": "/café/"},
        {"prefix": "https://www.example.com/caf%c3%a9"},
        {"pattern": "*é/"},
        {"url": "/café/"},
    ):
        page = await proxy.crawl("/caf%C3%A9/")
        assert page.status == 200
        assert (await proxy.crawl("/caf%C3%A9/")).headers["Cache-Status"].startswith(HIT)
        assert await purge(proxy, what | {"count": True}) == (200, {"purged": 1, "snapshots": 1})
    ended = await proxy.crawl("/caf%C3%A9/")
    assert not ended.headers["Cache-Status"].startswith(HIT)


REFUSED: list[tuple[object, str]] = [
    (b"", "the body is not JSON"),
    (b"[" * 99999, "the body is not JSON"),
    ([], "give an object with url, prefix, pattern, tag, all, soft, count"),
    (
        {"urls": 1},
        "'urls' is unknown: give an object with url, prefix, pattern, tag, all, soft, count",
    ),
    ({}, "give from 1 to 1000 purges"),
    ({"all": False}, "give from 1 to 1000 purges"),
    ({"all": 1}, "all: 1: give true or false"),
    ({"all": True, "url": "/a"}, "all stands alone: it purges every page"),
    ({"all": True, "tag": ["a"], "soft": True}, "all stands alone: it purges every page"),
    ({"all": True, "soft": "yes"}, "soft: 'yes': give true or false"),
    ({"url": 1}, "url: 1: give a string or a list of strings"),
    ({"url": [1]}, "url: 1: give a string"),
    ({"url": [""]}, "url: '': must not be empty"),
    ({"url": ["/"] * 1001}, "give from 1 to 1000 purges"),
    (
        {"url": "https://other.example/"},
        "url: 'https://other.example/': give a URL of https://www.example.com, or a path",
    ),
    (
        {"prefix": "a"},
        "prefix: 'a': give a URL of https://www.example.com, or a path",
    ),
    (
        {"url": "https://www.example.com.evil/"},
        "url: 'https://www.example.com.evil/': give a URL of https://www.example.com, or a path",
    ),
    (
        {"prefix": "/?_escaped_fragment_=/items"},
        "prefix: '/?_escaped_fragment_=/items': give it as of pretty URLs, such as /#!/items/",
    ),
    (
        {"pattern": "https://www.example.com/a?b&_escaped_fragment_=*"},
        "pattern: 'https://www.example.com/a?b&_escaped_fragment_=*': give it as of pretty URLs, "
        "such as /#!/items/",
    ),
    ({"tag": "a b"}, "tag: 'a b': give 1 to 128 ASCII characters without commas and spaces"),
]


async def test_the_case_of_escapes_makes_no_other_page(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": "<p>home", "/café": "<p>one"})
    proxy = await start_proxy(origin.url, SETTINGS)
    spellings = ["/caf%C3%A9", "/caf%c3%a9"]
    for purged in spellings:
        for page in spellings:
            await proxy.crawl(page)
            assert (await proxy.crawl(page)).headers["Cache-Status"].startswith(HIT)
        assert (await purge(proxy, {"url": purged}))[0] == 200
        for page in spellings:
            assert not (await proxy.crawl(page)).headers["Cache-Status"].startswith(HIT)
    # The states of a page have the same document, so they are one in the cache, too.
    await proxy.crawl("/#!/caf%C3%A9")
    for state in ("/caf%c3%a9", "/caf%25c3%25a9"):
        answer = await proxy.get(f"/?_escaped_fragment_={state}")
        assert answer.headers["Cache-Status"].startswith(HIT)


async def test_what_cannot_be_purged_is_said(start_proxy: StartProxy) -> None:
    proxy = await start_proxy("http://127.0.0.1:9", SETTINGS)
    for what, said in REFUSED:
        status, problem = await purge(proxy, what)
        assert (status, problem["status"], problem["detail"]) == (400, 400, said)


async def test_who_may_purge(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await shop(start_origin)
    proxy = await start_proxy(origin.url, SETTINGS)
    for token in ("", "wrong", f"{TOKEN}x", TOKEN.upper(), "\udcff"):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with proxy.client.post(f"{proxy.admin_url}/api/v1/purge", headers=headers) as answer:
            assert answer.status == 401
            assert answer.headers["WWW-Authenticate"] == "Bearer"
    # Without a token, any user of this machine may purge.
    unlocked = await start_proxy(origin.url)
    async with unlocked.client.post(
        f"{unlocked.admin_url}/api/v1/purge", json={"all": True}, headers={"Authorization": ""}
    ) as answer:
        assert (answer.status, await answer.json()) == (200, {"purged": 1})
    # The public listener knows nothing of it.
    public = await proxy.request(
        "POST", "/api/v1/purge", headers={"Authorization": f"Bearer {TOKEN}"}
    )
    assert public.status == 404
    assert origin.count("/api/v1/purge") == 1


async def test_a_webhook_of_a_cms(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    """As in docs/recipes.md: from anywhere, with the site's host and a vendor media type."""
    proxy = await start_proxy((await shop(start_origin)).url, SETTINGS)
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Host": "www.example.com",
        "Content-Type": "application/vnd.contentful.management.v1+json",
        "X-Contentful-Topic": "ContentManagement.Entry.publish",
    }
    data = json.dumps({"url": "/a", "prefix": "/b", "soft": True})
    url = f"{proxy.admin_url}/api/v1/purge"
    async with proxy.client.post(url, data=data, headers=headers) as answer:
        assert (answer.status, await answer.json()) == (200, {"purged": 2})


async def command(*arguments: str) -> tuple[int, str, str]:
    ended = await run("purge", *arguments)
    return ended.status, ended.out.decode(), ended.err


@pytest.mark.ci_only
async def test_the_command_line(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    proxy = await start_proxy((await shop(start_origin)).url, SETTINGS)
    await hits(proxy)
    port = proxy.admin_url.rpartition(":")[2]
    file = tmp_path / "settings.toml"

    def configured(token: str, port: str) -> None:
        file.write_text(f'[admin]\nport = {port}\nhost = "0.0.0.0"\ntoken = "{token}"')

    configured(TOKEN, port)
    config = ("--config", str(file))
    assert await command(*config, "--tag", "shop", "--url", "/none") == (
        0,
        "2 snapshots purged (1 URL, 1 tag)\n",
        "",
    )
    assert await command(*config, "--url", "/a") == (
        0,
        "no snapshot purged: none is stored for 1 URL\n",
        "",
    )
    assert await hits(proxy) == {"/"}
    assert await command(*config, "--all", "--soft") == (0, "3 snapshots marked stale (all)\n", "")
    assert await hits(proxy) == set()
    at = f"prerender: http://127.0.0.1:{port} ([admin] host, port): "
    status, out, err = await command(*config, "--tag", "a", "--tag", "b", "--json")
    asked = {"tag": ["a", "b"], "all": False, "soft": False}
    assert (status, json.loads(out)) == (0, {**asked, "snapshots": 0})
    missing = "nothing to purge: give --url, --prefix, --pattern, --tag or --all"
    assert await command(*config) == (2, "", f"prerender purge: {missing}\n")
    configured("w" * 16, port)
    assert await command(*config, "--all") == (1, "", f"{at}the token is missing or wrong\n")
    configured(TOKEN, "1")
    status, out, err = await command(*config, "--all")
    assert (status, out) == (1, "")
    where = "cannot connect to http://127.0.0.1:1 ([admin] host, port): "
    assert err.startswith(f"prerender: {where}")
    assert "refused" in err
    configured(TOKEN, "1")
    done = await command(*config, "--all", "--admin", proxy.admin_url)
    assert done == (0, "3 snapshots purged (all)\n", "")


async def test_no_response_is_not_no_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_LONG_SECONDS", 0.25)

    async def slow(_: raw.Origin, reader: raw.Reader, __: raw.Writer) -> None:
        await reader.read()

    async def leaving(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await raw.receive(reader)
        writer.close()

    for script, problem in ((slow, "within 0.25 s; it may still be at work"), (leaving, ": ")):
        async with raw.origin(script) as site:
            admin = client.AdminClient(site.url, TOKEN, "--admin")
            with pytest.raises(AdminError) as failed:
                await asyncio.to_thread(admin.purge, {"all": True})
        said, _, what = str(failed.value).partition(" did not respond")
        assert said == f"{site.url} (--admin)"
        assert what.strip().startswith(problem.strip())


@pytest.mark.ci_only
async def test_purging_all_forgets_the_scripts_that_renders_share(
    start_origin: StartOrigin,
    start_proxy: StartProxy,
    start_own_proxy: StartProxy,
    tmp_path: Path,
) -> None:
    """A mended script is used at once, although the broken one may be stored for ten minutes; by the
    other replicas, too."""
    text = "broken"

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/app.js":
            script = f"document.body.append('{text}')"
            headers = {"Cache-Control": "public, max-age=600"}
            return web.Response(text=script, content_type="text/javascript", headers=headers)
        page = "<p>page</p><script src=/app.js></script>"
        return web.Response(text=page, content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    origin = await start_origin(application)
    async with redis_server(tmp_path) as redis:
        settings = {"cache": {"url": redis.url}}
        proxies = [await start(origin.url, settings) for start in (start_proxy, start_own_proxy)]
        for number, proxy in enumerate(proxies):
            assert "broken" in (await proxy.crawl(f"/{number}")).text
        text = "mended"
        url = f"{proxies[0].admin_url}/api/v1/purge"
        async with proxies[0].client.post(url, json={"all": True}) as done:
            assert done.status == 200
        for number, proxy in enumerate(proxies):
            async with asyncio.timeout(10):  # the other replica learns of it within a second
                while "mended" not in (await proxy.crawl(f"/{number}")).text:
                    pass


async def test_many_purges_are_one_operation_of_the_store(
    start_proxy: StartProxy, tmp_path: Path
) -> None:
    async with redis_server(tmp_path) as redis:
        more = {"cache": {"url": redis.url}, "browser": {"path": "/nonexistent/chromium"}}
        proxy = await start_proxy("http://127.0.0.1:9", SETTINGS | more)
        urls = [f"/{number}" for number in range(1000)]
        await redis.client.execute_command("CONFIG", "RESETSTAT")
        assert await purge(proxy, {"url": urls}) == (200, {"purged": 1000})
        stats = await redis.client.info("commandstats")
        calls = sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in SCRIPTS)
        assert 1 <= calls < 20
        purges = proxy.running.store.purges.purges
        assert {one.value for one in purges.records if one.kind == "url"} == set(urls)


async def test_a_store_that_cannot_count(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    cache = {"cache": {"url": "aiocache://aiocache.SimpleMemoryCache"}}
    proxy = await start_proxy((await shop(start_origin)).url, cache)
    await hits(proxy)
    async with proxy.client.get(f"{proxy.admin_url}/api/v1/snapshots") as response:
        assert (await response.json())["complete"] is False
    purged = await run("purge", "--url", "/a", "--tag", "x", "--admin", proxy.admin_url)
    said = "purged: 1 URL, 1 tag; this store cannot count its snapshots\n"
    assert (purged.status, purged.out.decode()) == (0, said)
    assert await hits(proxy) == {"/", "/b"}


@pytest.mark.parametrize("soft", [False, True])
async def test_no_cache_may_keep_what_was_purged_during_its_render(
    start_origin: StartOrigin, start_proxy: StartProxy, soft: bool
) -> None:
    asked, purged = asyncio.Event(), asyncio.Event()

    async def page(request: web.Request) -> web.Response:
        asked.set()
        await purged.wait()
        return web.Response(text="<p>page", content_type="text/html")

    application = web.Application()
    application.router.add_get("/a", page)
    proxy = await start_proxy((await start_origin(application)).url, SETTINGS)
    crawled = asyncio.create_task(proxy.crawl("/a"))
    async with asyncio.timeout(20):
        await asked.wait()
    assert (await purge(proxy, {"url": "/a", "soft": soft}))[0] == 200
    purged.set()
    response = await crawled
    assert (response.status, response.headers["Cache-Control"]) == (200, "no-cache")
    assert ("stored" in response.headers["Cache-Status"]) is soft

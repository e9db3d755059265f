"""IndexNow submits changed pages to search engines: once, in batches, retried, and no other pages."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from yarl import URL

from prerender.config.settings import IndexNowSettings
from prerender.extensions.indexnow.indexnow import IndexNow
from prerender.snapshots.snapshot import Snapshot, etag_of
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import Proxy, StartOrigin, StartProxy
from tests.support import raw

KEY = "0123456789abcdef"
TOKEN = "a-token-of-some-length"
PUBLIC = URL("https://shop.example")
SECONDS = 20.0


class SearchEngine:
    """Receives submissions, and responds with the next of ``answers``, or 200."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.times: list[float] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        assert request.headers["Content-Type"] == "application/json; charset=utf-8"
        self.times.append(asyncio.get_running_loop().time())
        self.messages.put_nowait(await request.json())
        status, headers = self.answers.pop(0) if self.answers else (200, {})
        return web.Response(status=status, headers=headers)

    async def message(self) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            return await self.messages.get()

    async def urls(self) -> list[str]:
        found: list[str] = (await self.message())["urlList"]
        return found


@pytest.fixture
async def engine(start_origin: StartOrigin) -> SearchEngine:
    engine = SearchEngine()
    application = web.Application()
    application.router.add_post("/indexnow", engine.answer)
    engine.url = f"{(await start_origin(application)).url}/indexnow"
    return engine


@asynccontextmanager
async def telling(
    engine: SearchEngine,
    interval: float = 0.05,
    same_page: float = 60.0,
    volatile: re.Pattern[str] = re.compile("build [0-9]"),
) -> AsyncIterator[IndexNow]:
    settings = IndexNowSettings(key=KEY, endpoint=engine.url, interval=interval)
    told = IndexNow(PUBLIC, settings, same_page=same_page, volatile=[volatile])
    async with told.submitting():
        yield told


def snapshot(text: str, more: str = "") -> Snapshot:
    body = f"<title>Page</title><p{more}>{text}".encode()
    return Snapshot(200, (), body, etag_of(200, (), body), 0)


ONE, TWO = snapshot("one"), snapshot("two")


def target(state: str) -> Target:
    return Target.of(PUBLIC, PrettyURL("/", state))


class Site:
    """A page whose text can be changed."""

    def __init__(self) -> None:
        self.text = "first"

    async def answer(self, request: web.Request) -> web.Response:
        assert not request.path.endswith(".txt")
        return web.Response(
            text=f"<p>{self.text} <script>document.write(location.hash)</script>",
            content_type="text/html",
        )


async def purge(proxy: Proxy, **what: object) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}"}
    url = f"{proxy.admin_url}/api/v1/purge"
    async with proxy.client.post(url, json=what, headers=headers) as answer:
        assert answer.status == 200


@pytest.mark.ci_only
async def test_what_has_changed_when_it_is_rendered_again_is_told(
    start_origin: StartOrigin, start_proxy: StartProxy, engine: SearchEngine
) -> None:
    site = Site()
    application = web.Application()
    application.router.add_get("/{path:.*}", site.answer)
    proxy = await start_proxy(
        (await start_origin(application)).url,
        {
            "site": {"url": str(PUBLIC)},
            "admin": {"token": TOKEN},
            "indexnow": {"key": KEY, "endpoint": engine.url, "interval": 0.2},
        },
    )
    for state in ("/a", "/ü b", "/same"):
        await proxy.crawl(f"/#!{state}")
    # The file by which the engine knows us; people's other files are the site's.
    key = await proxy.get(f"/{KEY}.txt")
    assert (key.status, key.text) == (200, KEY)
    assert key.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert (await proxy.request("HEAD", f"/{KEY}.txt")).status == 200

    # Rendered again with the same content, then with another one.
    await purge(proxy, all=True, soft=True)
    await proxy.crawl("/#!/same")
    site.text = "second"
    for state in ("/a", "/ü b", "/new"):
        await proxy.crawl(f"/#!{state}")
    message = await engine.message()
    urls = message.pop("urlList")
    assert message == {
        "host": "shop.example",
        "key": KEY,
        "keyLocation": f"https://shop.example/{KEY}.txt",
    }
    while len(urls) < 2:  # between the two renders more than the interval may have passed
        urls += await engine.urls()
    assert urls == ["https://shop.example/#!/a", "https://shop.example/#!/%C3%BC%20b"]
    # A purge that leaves nothing behind makes no difference.
    await purge(proxy, url="/#!/same")
    await proxy.crawl("/#!/same")
    assert await engine.urls() == ["https://shop.example/#!/same"]
    assert engine.messages.empty()


async def test_without_a_key_nothing_is_told_and_nothing_is_served(
    start_origin: StartOrigin, start_forwarding: Any
) -> None:
    application = web.Application()
    origin = await start_origin(application)
    port = await start_forwarding(origin.url)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /.txt HTTP/1.1\r\nHost: a\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 404")
    writer.close()


async def test_changes_are_told_together_and_not_too_often(engine: SearchEngine) -> None:
    async with telling(engine, interval=0.3) as told:
        began = asyncio.get_running_loop().time()
        for state in ("a", "b", "a", "c"):
            told.stored(target(state), ONE, TWO)
        told.stored(target("d"), None, ONE)
        told.stored(target("e"), ONE, ONE)
        assert await engine.urls() == [f"https://shop.example/#!{state}" for state in "abc"]
        told.stored(target("f"), ONE, TWO)
        assert await engine.urls() == ["https://shop.example/#!f"]
        assert engine.times[1] - began >= 0.29
        assert told.waiting == 0


async def test_only_what_is_read_counts(engine: SearchEngine) -> None:
    async with telling(engine) as told:
        told.stored(target("a"), ONE, snapshot("one", " class=x9f3"))
        told.stored(target("b"), snapshot("build 7: one two"), snapshot("build 8:  one<br>two"))
        told.stored(target("c"), ONE, snapshot("one", ">more<p"))
        assert await engine.urls() == ["https://shop.example/#!c"]
    assert engine.messages.empty()


async def test_what_cannot_be_compared_counts_as_changed(engine: SearchEngine) -> None:
    of_bytes: Any = re.compile(b"fails for text")
    async with telling(engine, volatile=of_bytes) as told:
        for state in ("/a", "/b"):
            told.stored(target(state), ONE, TWO)
            assert await engine.urls() == [f"{PUBLIC}/#!{state}"]


async def test_a_page_that_changes_all_the_time_is_told_of_now_and_then(
    engine: SearchEngine,
) -> None:
    async with telling(engine, same_page=0.5) as told:
        began = asyncio.get_running_loop().time()
        told.stored(target("a"), ONE, TWO)
        await engine.urls()
        for number in range(20):
            told.stored(target("a"), snapshot(str(number)), TWO)
        assert await engine.urls() == ["https://shop.example/#!a"]
        assert engine.times[1] - began >= 0.49
        assert engine.messages.empty()


@pytest.mark.parametrize("answer", [(429, {"Retry-After": "1"}), (503, {}), (500, {})])
async def test_what_was_not_taken_is_told_again(
    engine: SearchEngine, answer: tuple[int, dict[str, str]]
) -> None:
    engine.answers = [answer]
    async with telling(engine) as told:
        began = asyncio.get_running_loop().time()
        told.stored(target("a"), ONE, TWO)
        await engine.urls()
        told.stored(target("b"), ONE, TWO)
        urls = await engine.urls()
        if len(urls) < 2:  # it was told again before the other change was noted
            urls += await engine.urls()
        assert urls == ["https://shop.example/#!a", "https://shop.example/#!b"]
        assert engine.times[1] - began >= (0.99 if answer[1] else 0.09)


@pytest.mark.parametrize("status", [400, 403, 422])
async def test_what_was_refused_is_not_told_again(engine: SearchEngine, status: int) -> None:
    engine.answers = [(status, {})]
    async with telling(engine) as told:
        told.stored(target("a"), ONE, TWO)
        await engine.urls()
        told.stored(target("b"), ONE, TWO)
        assert await engine.urls() == ["https://shop.example/#!b"]


async def test_an_engine_that_is_away_for_a_while(start_origin: StartOrigin) -> None:
    application = web.Application()
    engine = SearchEngine()

    async def cut(request: web.Request) -> web.Response:
        if not engine.times:
            engine.times.append(0.0)
            assert request.transport is not None
            request.transport.abort()
        return await engine.answer(request)

    application.router.add_post("/indexnow", cut)
    engine.url = f"{(await start_origin(application)).url}/indexnow"
    async with telling(engine) as told:
        told.stored(target("a"), ONE, TWO)
        assert await engine.urls() == ["https://shop.example/#!a"]


async def test_what_waits_at_the_end_is_told(engine: SearchEngine) -> None:
    async with telling(engine, interval=3600) as told:
        told.stored(target("a"), ONE, TWO)
    assert await engine.urls() == ["https://shop.example/#!a"]


async def test_an_engine_that_hangs_holds_up_no_shutdown() -> None:
    async def hang(_: raw.Origin, reader: raw.Reader, __: raw.Writer) -> None:
        await reader.read()

    engine = SearchEngine()
    async with raw.origin(hang) as origin:
        engine.url = f"{origin.url}/indexnow"
        # The request itself has 30 seconds.
        async with asyncio.timeout(SECONDS), telling(engine, interval=3600) as told:
            told.stored(target("a"), ONE, TWO)


async def test_large_batches_are_cut(engine: SearchEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prerender.extensions.indexnow.indexnow.MOST_AT_ONCE", 3)
    async with telling(engine) as told:
        for number in range(7):
            told.stored(target(str(number)), ONE, TWO)
        sizes = [len(await engine.urls()) for _ in range(3)]
        assert sizes == [3, 3, 1]

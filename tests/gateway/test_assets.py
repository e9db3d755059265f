"""The cache between pages and the origin, by the number of requests that reach the origin."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from prerender.config.settings import NetworkSettings
from prerender.gateway.address_policy import AddressPolicy
from prerender.gateway.assets import AssetStore
from prerender.gateway.gateway import NetworkRules
from prerender.gateway.resource_kind import ResponseFault
from prerender.http.caching import Terms, stored
from prerender.urls.hosts import Hosts
from tests.conftest import Reply, StartOrigin, StartProxy
from tests.support import raw
from tests.support.plain_client import Elsewhere, PlainClient
from tests.support.sampling import sampled

FRESH = {"Cache-Control": "max-age=600"}
TAGGED = {"ETag": '"1"'}
CORS = {"Sec-Fetch-Dest": "empty", "Sec-Fetch-Mode": "cors"}
SCRIPT = {"Sec-Fetch-Dest": "script", "Accept": "*/*"}


@dataclass
class Origin:
    """An origin with one response for all paths, held back until ``open`` is set."""

    headers: dict[str, str]
    body: str = "code"
    status: int = 200
    content_type: str = "text/javascript"
    asked: list[web.Request] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.open.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request)
        await self.open.wait()
        headers = self.headers | {"Content-Type": self.content_type}
        tag = self.headers.get("ETag")
        if tag and request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers=headers)
        return web.Response(status=self.status, text=self.body, headers=headers)

    @asynccontextmanager
    async def elsewhere(self, start_origin: StartOrigin) -> AsyncIterator[PlainClient]:
        """It has the hosts below the site's."""
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.answer)
        site = await start_origin(application)
        rules = NetworkRules(
            AddressPolicy(Hosts(["*.example.com"])), NetworkSettings(cache_bytes=10**6)
        )
        resolver = Elsewhere(URL(site.url).port or 0)
        async with PlainClient.open("http://127.0.0.1:9", resolver, rules=rules) as client:
            yield client

    @asynccontextmanager
    async def behind(
        self,
        start_origin: StartOrigin,
        *,
        max_bytes: int = 10**6,
        limits: NetworkSettings | None = None,
    ) -> AsyncIterator["Pages"]:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", self.answer)
        site = await start_origin(application)
        rules = NetworkRules(network=limits or NetworkSettings(cache_bytes=max_bytes))
        async with PlainClient.open(site.url, rules=rules) as client:
            yield Pages(client)


@dataclass
class Pages:
    """Pages that request the site's files from the gateway."""

    client: PlainClient

    async def get(self, path: str = "/app.js", *, method: str = "GET", **headers: str) -> Reply:
        sent = SCRIPT | {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.client.request("www.example.com", path, headers=sent, method=method)

    @property
    def under_way(self) -> int:
        """The number of requests without a response yet."""
        visit = self.client.proxy()._visit
        return sum(not one.finished for one in visit.requests.exchanges) if visit else 0

    @property
    def store(self) -> AssetStore:
        return self.client.gateway.assets.store


async def test_what_is_fresh_is_asked_for_once(start_origin: StartOrigin) -> None:
    origin = Origin(FRESH | {"X-Mine": "1"})
    async with origin.behind(start_origin) as pages:
        first, second = await pages.get(), await pages.get()
        await pages.get("/app.js?v=2")
    assert len(origin.asked) == 2
    assert first.body == second.body == b"code"
    assert (second.status, second.headers["X-Mine"]) == (200, "1")
    assert second.headers["Cache-Control"] == "max-age=600, no-store"
    assert 0 <= int(second.headers["Age"]) < 60
    assert second.headers["Content-Length"] == "4"


async def test_a_fetch_from_before_a_purge_is_not_shared_after_it(
    start_origin: StartOrigin,
) -> None:
    origin = Origin(FRESH)
    async with origin.behind(start_origin) as pages, asyncio.timeout(raw.SECONDS):
        origin.open.clear()
        first = asyncio.create_task(pages.get())
        while not origin.asked:
            await asyncio.sleep(0.001)
        pages.store.clear()
        later = asyncio.create_task(pages.get())
        while len(origin.asked) < 2:
            await asyncio.sleep(0.001)
        origin.open.set()
        assert [(await one).body for one in (first, later)] == [b"code"] * 2
        await pages.get()
    assert len(origin.asked) == 2


async def test_what_arrives_after_a_purge_is_not_stored(start_origin: StartOrigin) -> None:
    origin = Origin(FRESH, body="broken")
    async with origin.behind(start_origin) as pages, asyncio.timeout(raw.SECONDS):
        origin.open.clear()
        first = asyncio.create_task(pages.get())
        while not origin.asked:
            await asyncio.sleep(0.001)
        pages.store.clear()
        origin.open.set()
        await first
        origin.body = "mended"
        assert (await pages.get()).body == b"mended"
        assert (await pages.get()).body == b"mended"
    assert len(origin.asked) == 2


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Cache-Control": "public, max-age=600"},
        {"Cache-Control": "public, no-cache"} | TAGGED,
    ],
)
async def test_what_the_page_may_not_read_is_a_fault(
    start_origin: StartOrigin, headers: dict[str, str]
) -> None:
    """Each time: of a response that is streamed, stored, used again or validated."""
    async with Origin(headers, content_type="application/json").elsewhere(start_origin) as client:
        with client.visit(1, None) as visit:
            for _ in range(2):
                sent = CORS | {"Origin": "http://www.example.com"}
                await client.request("api.example.com", "/data", headers=sent)
    faults = [(one.status, one.fault) for one in visit.requests.exchanges]
    assert faults == [(200, ResponseFault.UNREADABLE)] * 2


async def test_a_form_that_a_frame_sends_to_another_host(start_origin: StartOrigin) -> None:
    sent = {
        "Origin": "http://www.example.com",
        "Sec-Fetch-Dest": "iframe",
        "Sec-Fetch-Mode": "navigate",
    }
    async with Origin({}, content_type="text/html").elsewhere(start_origin) as client:
        with client.visit(1, None) as visit:
            await client.request("api.example.com", "/form", headers=sent, method="POST")
    (exchange,) = visit.requests.exchanges
    assert (exchange.judged, exchange.status, exchange.fault) == (True, 200, None)


async def test_what_is_not_fresh_is_asked_about(start_origin: StartOrigin) -> None:
    origin = Origin(TAGGED)
    async with origin.behind(start_origin) as pages:
        await pages.get()
        again = await pages.get()
        assert (again.status, again.body, again.headers["Cache-Control"]) == (
            200,
            b"code",
            "no-store",
        )
        origin.headers, origin.body = {"ETag": '"2"'}, "new code"
        assert (await pages.get()).body == b"new code"
        assert (await pages.get()).body == b"new code"
    asked = [request.headers.get("If-None-Match") for request in origin.asked]
    assert asked == [None, '"1"', '"1"', '"2"']


async def test_nothing_stale_is_shown(start_origin: StartOrigin) -> None:
    """If the origin fails, the page sees the failure, whatever the cache has."""
    origin = Origin({"Cache-Control": "max-age=10", "Age": "10", "ETag": '"1"'})
    async with origin.behind(start_origin) as pages:
        await pages.get()
        origin.status, origin.headers, origin.body = 500, {}, "broken"
        answer = await pages.get()
        assert (answer.status, answer.body) == (500, b"broken")


async def test_the_browsers_own_conditions(start_origin: StartOrigin) -> None:
    origin = Origin(FRESH | TAGGED)
    async with origin.behind(start_origin) as pages:
        # Nothing is kept yet, so the origin itself has the word.
        assert (await pages.get(If_None_Match='"1"')).status == 304
        assert (await pages.get(If_None_Match='"0"')).status == 200
        held = await pages.get(If_None_Match='"1"')
        assert (held.status, held.body, held.headers["ETag"]) == (304, b"", '"1"')
        assert (await pages.get(If_None_Match='"0"')).body == b"code"
        assert (await pages.get(If_Modified_Since="Sat, 01 Jan 2000 00:00:00 GMT")).status == 200
    assert len(origin.asked) == 2


@pytest.mark.parametrize(
    "request_headers",
    [
        {"Range": "bytes=0-1"},
        {"Authorization": "Basic x"},
        {"Cache-Control": "no-store"},
        {"X-Theme": "dark"},
        {"Content-Type": "x/y"},
    ],
)
async def test_requests_that_are_nobody_elses(
    start_origin: StartOrigin, request_headers: dict[str, str]
) -> None:
    """Private responses are neither stored nor served to others, here or in the browser."""
    origin = Origin(FRESH)
    async with origin.behind(start_origin) as pages:
        await pages.get(**request_headers)
        answer = await pages.get(**request_headers)
        assert answer.headers["Cache-Control"] == "max-age=600, no-store"
        assert len(origin.asked) == 2
        assert pages.store.size_bytes == 0
        await pages.get()
        await pages.get(**request_headers)
    assert len(origin.asked) == 4


@pytest.mark.parametrize("fields", [{"Cache-Control": "no-cache"}, {"Pragma": "no-cache"}])
async def test_pages_that_want_to_hear_it_from_the_origin(
    start_origin: StartOrigin, fields: dict[str, str]
) -> None:
    origin = Origin(FRESH | TAGGED)
    async with origin.behind(start_origin) as pages:
        await pages.get()
        assert (await pages.get(**fields)).body == b"code"
        origin.headers, origin.body = FRESH, "new code"
        assert (await pages.get(**fields)).body == b"new code"
        assert (await pages.get()).body == b"new code"
    assert [request.headers.get("If-None-Match") for request in origin.asked] == [
        None,
        '"1"',
        '"1"',
    ]


@pytest.mark.parametrize(
    ("response_headers", "seen_by_the_browser"),
    [
        ({"Cache-Control": "private, max-age=600"}, "private, max-age=600, no-store"),
        ({"Cache-Control": "no-store"}, "no-store"),
        (FRESH | {"Set-Cookie": "a=b"}, "max-age=600, no-store"),
        (FRESH | {"Vary": "*"}, "max-age=600, no-store"),
        ({"Last-Modified": "Sat, 01 Jan 2000 00:00:00 GMT"}, "no-store"),
        ({}, "no-store"),
    ],
)
async def test_answers_that_are_not_for_others(
    start_origin: StartOrigin, response_headers: dict[str, str], seen_by_the_browser: str
) -> None:
    origin = Origin(response_headers)
    async with origin.behind(start_origin) as pages:
        for _ in range(2):
            answer = await pages.get()
            assert answer.headers["Cache-Control"] == seen_by_the_browser
            assert answer.headers.get("Set-Cookie") == response_headers.get("Set-Cookie")
    assert len(origin.asked) == 2


async def test_the_browser_remembers_nothing_of_a_response(start_origin: StartOrigin) -> None:
    """The browser serves many visits, and none may see another's responses."""
    remembered = dict.fromkeys(("Accept-CH", "Strict-Transport-Security", "NEL", "Alt-Svc"), "x")
    for fields in (FRESH, {}):
        origin = Origin(fields | remembered)
        async with origin.behind(start_origin) as pages:
            for _ in range(2):
                answer = await pages.get()
                assert not remembered.keys() & answer.headers.keys()
                assert answer.headers["Cache-Control"].endswith("no-store")


async def test_documents_and_data_are_asked_for_each_time(start_origin: StartOrigin) -> None:
    for content_type in ("text/html", "application/json"):
        origin = Origin(FRESH, content_type=content_type)
        async with origin.behind(start_origin) as pages:
            for _ in range(2):
                answer = await pages.get("/api")
                assert answer.headers["Cache-Control"] == "max-age=600, no-store"
            assert len(origin.asked) == 2
            origin.headers = {"Cache-Control": "public, max-age=600"}
            for _ in range(2):
                await pages.get("/api")
            assert len(origin.asked) == 3


async def test_answers_that_vary(start_origin: StartOrigin) -> None:
    origin = Origin(FRESH | {"Vary": "Cookie"})
    async with origin.behind(start_origin) as pages:
        for cookie in ("a=1", "a=2", "a=1", "a=2", "a=1"):
            await pages.get(Cookie=cookie)
        assert len(origin.asked) == 2


@pytest.mark.parametrize(
    ("said", "asked"), [("max-age=600", 3), ("public, max-age=600", 1), ("s-maxage=600", 1)]
)
async def test_what_was_made_from_cookies_is_for_the_same_cookies(
    start_origin: StartOrigin, said: str, asked: int
) -> None:
    """Without Vary, too: a script may greet the user of one render."""
    origin = Origin({"Cache-Control": said})
    async with origin.behind(start_origin) as pages:
        for _ in range(2):
            for headers in ({}, {"Cookie": "name=A"}, {"Cookie": "name=B"}):
                await pages.get(**headers)
        assert len(origin.asked) == asked


async def test_scripts_cannot_put_others_answers_in(start_origin: StartOrigin) -> None:
    """Headers that scripts can set are part of the cache key, even without Vary."""
    origin = Origin(FRESH)
    async with origin.behind(start_origin) as pages:
        for fields in (
            {"Accept": "text/html"},
            {"Accept-Language": "xx"},
            {"Origin": "https://frame.example"},
        ):
            before = len(origin.asked)
            await pages.get(**fields)
            assert len(origin.asked) == before + 1
            await pages.get(**fields)
            assert len(origin.asked) == before + 1


async def test_changes_drop_what_is_kept(start_origin: StartOrigin) -> None:
    origin = Origin(FRESH)
    async with origin.behind(start_origin) as pages:
        await pages.get()
        origin.status = 500
        await pages.get(method="POST")
        await pages.get()
        assert len(origin.asked) == 2
        origin.status = 200
        await pages.get(method="POST")
        await pages.get()
    assert [request.method for request in origin.asked] == ["GET", "POST", "POST", "GET"]


async def test_many_at_once_ask_once(start_origin: StartOrigin) -> None:
    for headers in (FRESH, TAGGED):
        origin = Origin(headers)
        origin.open.clear()
        async with origin.behind(start_origin) as pages:
            asking = [asyncio.create_task(pages.get()) for _ in range(10)]
            async with asyncio.timeout(raw.SECONDS):
                while not (origin.asked and pages.under_way == len(asking)):
                    await asyncio.sleep(0)
            origin.open.set()
            answers = await asyncio.gather(*asking)
        assert {answer.body for answer in answers} == {b"code"}
        assert len(origin.asked) == 1


async def test_many_at_once_for_what_is_not_for_others(start_origin: StartOrigin) -> None:
    origin = Origin({"Cache-Control": "private"})
    async with origin.behind(start_origin) as pages:
        answers = await asyncio.gather(*(pages.get() for _ in range(10)))
        assert [answer.body for answer in answers] == [b"code"] * 10
        await asyncio.gather(*(pages.get(Sec_Fetch_Dest="empty") for _ in range(10)))
    assert len(origin.asked) == 20


async def test_many_at_once_whose_confirmation_is_personal(start_origin: StartOrigin) -> None:
    """Each asks for itself. What the 304 says of its connection is not of the response."""
    origin = Origin(TAGGED | {"Keep-Alive": "timeout=9", "Location": "http://internal/"})
    async with origin.behind(start_origin) as pages:
        await pages.get()
        origin.headers |= {"Set-Cookie": "sid=1"}
        origin.open.clear()
        asking = [asyncio.create_task(pages.get()) for _ in range(3)]
        async with asyncio.timeout(raw.SECONDS):
            while not (len(origin.asked) == 2 and pages.under_way == len(asking)):
                await asyncio.sleep(0)
        origin.open.set()
        answers = await asyncio.gather(*asking)
    assert [answer.body for answer in answers] == [b"code"] * 3
    assert not any("Keep-Alive" in answer.headers for answer in answers)
    assert len(origin.asked) == 4


async def test_the_first_one_may_leave(start_origin: StartOrigin) -> None:
    origin = Origin(FRESH)
    origin.open.clear()
    async with origin.behind(start_origin) as pages:
        first = asyncio.create_task(pages.get())
        async with asyncio.timeout(raw.SECONDS):
            while not origin.asked:
                await asyncio.sleep(0.001)
            second = asyncio.create_task(pages.get())
            first.cancel()
            while len(origin.asked) < 2:
                await asyncio.sleep(0.001)
        origin.open.set()
        assert (await second).body == b"code"
        assert (await pages.get()).body == b"code"
    assert len(origin.asked) == 2


async def test_bodies_that_are_cut_short_are_not_kept() -> None:
    heads = {
        b"/length": b"Content-Length: 100\r\n\r\nco",
        b"/chunks": b"Transfer-Encoding: chunked\r\n\r\n2\r\nco\r\n",
    }

    async def serve(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        path = (await raw.receive(reader)).line.split()[1]
        fields = b"Content-Type: text/css\r\nCache-Control: max-age=60\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\n" + fields + heads[path])

    rules = NetworkRules(network=NetworkSettings(cache_bytes=10**6))
    async with raw.origin(serve) as origin, PlainClient.open(origin.url, rules=rules) as client:
        for path in ("/length", "/chunks"):
            answer = await Pages(client).get(path)
            assert (answer.status, answer.body) == (502, b"")
        assert client.gateway.assets.store.size_bytes == 0


async def test_nothing_is_kept_without_room(start_origin: StartOrigin) -> None:
    origin = Origin(FRESH)
    async with origin.behind(start_origin, max_bytes=0) as pages:
        for _ in range(2):
            await pages.get()
        assert len(origin.asked) == 2


def test_the_least_recently_used_goes_first() -> None:
    request = CIMultiDict({"Accept": "*/*"})
    headers = CIMultiDict({"Content-Type": "text/css"})
    # Room for eight of the largest, each with what is around it.
    store = AssetStore(8 * 20_000)

    def put(url: str, size: int = 17_900) -> None:
        store.put(url, stored(request, headers, bytes(size), Terms(60, 0), 0))

    def kept() -> str:
        return "".join(url for url in "abcdefghij" if url in store)

    for url in "abcdefgh":
        put(url)
    assert kept() == "abcdefgh"
    assert store.find("a", request)
    put("i")
    assert kept() == "acdefghi"
    put("c", 100)
    put("j", 18_001)
    assert kept() == "acdefghi"
    assert repr(store) == "<AssetStore 8 URLs, 142048 of 160000 bytes>"
    put("j")
    put("b")
    assert kept() == "abcfghij"
    for url in "abcdefghij":
        store.forget(url)
    assert store.size_bytes == 0
    for number in range(100):
        variant = CIMultiDict({"Accept": str(number)})
        store.put("g", stored(variant, headers, b"x", Terms(60, 0), 0))
    assert store.size_bytes < 20_000


STATES = 3
STATES_PAGE = """<!DOCTYPE html><title>States</title><link rel="stylesheet" href="/style.css">
<p id="out">waiting</p><script src="/library.js"></script>
<script type="module" src="/app.mjs"></script>"""


@pytest.mark.ci_only
@pytest.mark.parametrize("scheme", sampled(["https", "http"], 2))
async def test_states_of_an_application(
    start_origin: StartOrigin, start_proxy: StartProxy, scheme: str
) -> None:
    """Its scripts are fetched once, by several pages at once and from the first moment."""
    counts: dict[str, int] = {}
    files = {
        "/": ("text/html", STATES_PAGE),
        "/style.css": ("text/css", "p { font-weight: bold }"),
        "/library.js": ("text/javascript", "window.library = fetch('/api').then((a) => a.text());"),
        "/app.mjs": (
            "text/javascript",
            "import {show} from './part.mjs'; library.then((text) => show(location.hash + text));",
        ),
        "/part.mjs": (
            "text/javascript",
            "export const show = (text) => { out.textContent = text; };",
        ),
        "/api": ("application/json", "answer"),
    }

    async def serve(request: web.Request) -> web.Response:
        if request.path not in files:
            return web.Response(status=404)
        counts[request.path] = counts.get(request.path, 0) + 1
        content_type, text = files[request.path]
        return web.Response(
            text=text, content_type=content_type, headers={"Cache-Control": "max-age=3600"}
        )

    application = web.Application()
    application.router.add_get("/{path:.*}", serve)
    origin = await start_origin(application)
    proxy = await start_proxy(
        origin.url, {"site": {"url": f"{scheme}://www.example.com"}, "browser": {"pages": 2}}
    )
    answers = await asyncio.gather(*(proxy.crawl(f"/#!/{number}") for number in range(STATES)))
    for number, answer in enumerate(answers):
        assert f'<p id="out">#!/{number}answer</p>' in answer.text
    assert counts == {
        "/": STATES,
        "/api": STATES,
        "/style.css": 1,
        "/library.js": 1,
        "/app.mjs": 1,
        "/part.mjs": 1,
    }


async def test_nothing_personal_is_left_in_the_browser(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """The next render on the same page sees what a new visitor sees."""
    renders = 0
    page = """<p id="out"></p><script>
      const text = async (path) => (await fetch(path)).text();
      Promise.all(["/private", "/heuristic", "/fresh"].map(text)).then((texts) => {
        out.textContent = texts.join("");
      });
    </script>"""
    headers = {
        "/private": {"Cache-Control": "private, max-age=3600"},
        "/heuristic": {"Last-Modified": "Sat, 01 Jan 2000 00:00:00 GMT"},
        "/fresh": {"Cache-Control": "max-age=3600"},
    }

    async def serve(request: web.Request) -> web.Response:
        nonlocal renders
        if request.path == "/":
            renders += 1
            return web.Response(text=page, content_type="text/html")
        return web.Response(text=f"[{renders}]", headers=headers.get(request.path, {}))

    application = web.Application()
    application.router.add_get("/{path:.*}", serve)
    origin = await start_origin(application)
    proxy = await start_proxy(
        origin.url, {"site": {"url": "https://www.example.com"}, "browser": {"pages": 1}}
    )
    for number in range(1, 4):
        answer = await proxy.crawl(f"/#!/{number}")
        assert f'<p id="out">{f"[{number}]" * 3}</p>' in answer.text

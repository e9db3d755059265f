"""Applications with third-party libraries: AngularJS 1.8 with its router, and Swagger UI.

For each state, the snapshot contains what a visitor reads, at the public URL, and nothing of other
states, however many are rendered at once.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from importlib.metadata import files
from pathlib import Path

import pytest
import pytest_asyncio
import swagger_ui_bundle
from aiohttp import web

from tests.conftest import Proxy, Reply, Site, StartOrigin, StartProxy, proxied
from tests.support.commands import SITES

APPLICATIONS = SITES / "applications"
SITE_URL = "https://shop.example"
PUBLIC: dict[str, dict[str, object]] = {"site": {"url": SITE_URL}}
ANSWER_SECONDS = 0.02

TOOLS = [
    {"id": 1, "name": "Tenon saw", "summary": "For straight cuts", "cents": 2500, "rating": 4},
    {"id": 2, "name": "Pipe wrench", "summary": "For pipes & taps", "cents": 0, "rating": 3},
    {"id": 3, "name": "Hammer drill", "summary": "For concrete", "cents": 9000, "rating": 5},
    {"id": 4, "name": "Spirit level", "summary": "For shelves", "cents": 500, "rating": 5},
    {"id": 5, "name": "Jig saw", "summary": "For curved cuts", "cents": 4000, "rating": 4},
    {"id": 6, "name": "Heat gun", "summary": "For old paint", "cents": 3000, "rating": 2},
    {"id": 7, "name": "Rivet pliers", "summary": "For <thin> sheet", "cents": 1000, "rating": 3},
    {"id": 8, "name": "Stud finder", "summary": "For old walls", "cents": 1500, "rating": 1},
]
NAMES = [str(tool["name"]) for tool in TOOLS]


class _Reader(HTMLParser):
    """Collects the visible contents of a document: text, title, and attributes by element.

    Elements that AngularJS hides by a class are skipped.
    """

    _VOID = frozenset({"meta", "link", "img", "input", "br", "hr"})
    _UNSEEN = frozenset({"style", "script", "template", "noscript"})

    def __init__(self, html: str) -> None:
        super().__init__()
        self.title = ""
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[tuple[str, bool]] = []
        self._words: list[str] = []
        self.feed(html)
        self.close()

    @property
    def text(self) -> str:
        """All visible text, with every run of white space as one space."""
        return re.sub(r"\s+", " ", "".join(self._words)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        self.elements.append((tag, attributes))
        if tag in self._VOID:
            return
        classes = (attributes.get("class") or "").split()
        hidden = tag in self._UNSEEN or "ng-hide" in classes or "ng-cloak" in classes
        self._open.append((tag, hidden))

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop()[0] != tag:
            pass

    def handle_data(self, data: str) -> None:
        names = [name for name, _ in self._open]
        if "title" in names and "svg" not in names:
            self.title += data
        elif not any(hidden for _, hidden in self._open):
            self._words.append(f" {data}")

    def values(self, tag: str, attribute: str) -> list[str]:
        """The values of an attribute on all elements of a kind."""
        return [a[attribute] or "" for t, a in self.elements if t == tag and attribute in a]

    def meta(self, name: str) -> list[str]:
        """The contents of the ``<meta>`` elements of a name."""
        return [
            a["content"] or "" for t, a in self.elements if t == "meta" and a.get("name") == name
        ]


def _angular_folder() -> Path:
    """The folder of XStatic-Angular with the library's files."""
    found = [file for file in files("XStatic-Angular") or () if file.name == "angular-route.js"]
    assert found, "XStatic-Angular has no angular-route.js"
    return Path(str(found[0].locate())).parent


def tool_library() -> web.Application:
    """The AngularJS application's origin: files and a slow JSON API."""
    application = web.Application()
    tools = {str(tool["id"]): tool for tool in TOOLS}
    folder = APPLICATIONS / "angularjs"

    async def index(_: web.Request) -> web.FileResponse:
        return web.FileResponse(folder / "index.html")

    async def all_tools(_: web.Request) -> web.Response:
        await asyncio.sleep(ANSWER_SECONDS)
        return web.json_response(TOOLS)

    async def one_tool(request: web.Request) -> web.Response:
        await asyncio.sleep(ANSWER_SECONDS)
        wanted = request.match_info["id"]
        if wanted not in tools:
            return web.json_response({"error": f"We have no tool {wanted}."}, status=404)
        more = {
            "html": f"<em>Number {wanted}</em> of our shelves",
            "grams": 1250,
            "since": 1262304000000,
        }
        return web.json_response(tools[wanted] | more)

    async def stock(request: web.Request) -> web.Response:
        await asyncio.sleep(ANSWER_SECONDS)
        number = int(request.query["id"])
        return web.json_response({"free": number - 1, "shelf": f"S{number:03}"})

    application.router.add_get("/", index)
    application.router.add_get("/api/items", all_tools)
    application.router.add_get("/api/items/{id}", one_tool)
    application.router.add_get("/api/stock", stock)
    application.router.add_static("/vendor", _angular_folder())
    application.router.add_static("/", folder)
    return application


def _api_documentation() -> web.Application:
    """Swagger UI with an API description."""
    application = web.Application()
    folder = APPLICATIONS / "swagger_ui"

    async def index(_: web.Request) -> web.FileResponse:
        return web.FileResponse(folder / "index.html")

    application.router.add_get("/docs/", index)
    application.router.add_static("/docs/vendor", swagger_ui_bundle.swagger_ui_path)
    application.router.add_static("/docs", folder)
    return application


@pytest.fixture
async def library(start_origin: StartOrigin) -> Site:
    return await start_origin(tool_library())


@pytest_asyncio.fixture(scope="module")
async def angular() -> AsyncIterator[Proxy]:
    """A proxy for tests that only read its pages."""
    async with proxied(tool_library(), PUBLIC) as proxy:
        yield proxy


def _reader(reply: Reply) -> _Reader:
    """A complete snapshot: no template text, and nothing internal."""
    assert "{{" not in reply.text
    assert "<script" not in reply.text
    assert "127.0.0.1" not in reply.text + str(reply.headers)
    reader = _Reader(reply.text)
    assert "ng-cloak" not in dict(reader.elements)["body"]
    return reader


async def test_angularjs_list(angular: Proxy) -> None:
    reply = await angular.crawl("/#!/items")
    assert reply.status == 200
    page = _reader(reply)
    assert page.title == "All tools | Tool Library"
    assert page.meta("description") == ["Tools to borrow."]
    assert page.meta("fragment") == []
    assert page.values("link", "href")[0] == f"{SITE_URL}/#!/items"
    places = [page.text.index(name) for name in sorted(NAMES)]
    assert places == sorted(places)
    assert "Pipe wrench For pipes & taps, no deposit ★ ★ ★ ☆ ☆" in page.text
    assert "Rivet pliers For <thin> sheet, €10.00 deposit" in page.text
    assert "8 tools." in page.text
    assert "ITEMS: borrowing is free for members. Open Tuesday to Saturday" in page.text
    for absent in ("Please wait", "Loading", "loading"):
        assert absent not in page.text
    assert {f"#!/items/{tool['id']}" for tool in TOOLS} <= set(page.values("a", "href"))


async def test_angularjs_search_in_the_fragment(angular: Proxy) -> None:
    page = _reader(await angular.crawl("/#!/items?q=saw&order=-rating"))
    assert page.title == "Tools for “saw” | Tool Library"
    assert page.text.index("Tenon saw") < page.text.index("Jig saw") < page.text.index("2 tools.")
    assert "Pipe wrench" not in page.text
    assert page.values("input", "value") == ["saw"]
    assert [a["value"] for _, a in page.elements if "selected" in a] == ["-rating"]
    canonical = f"{SITE_URL}/#!/items?q=saw&order=-rating"
    assert page.values("link", "href")[0] == canonical


async def test_angularjs_item(angular: Proxy) -> None:
    reply = await angular.crawl("/#!/items/3")
    page = _reader(reply)
    assert page.title == "Hammer drill | Tool Library"
    assert page.values("link", "href")[0] == f"{SITE_URL}/#!/items/3"
    assert "<em>Number 3</em> of our shelves" in reply.text
    assert "€90.00 deposit, 1,250 g, since 1 January 2010 2 on shelf S003" in page.text
    assert "★ ★ ★ ★ ★" in page.text
    assert [
        text for text in ("Tenon saw", "Please wait", "All are lent") if text in page.text
    ] == []
    last_one = _reader(await angular.crawl("/#!/items/1"))
    assert "All are lent" in last_one.text
    assert "on shelf" not in last_one.text


async def test_angularjs_about(angular: Proxy) -> None:
    page = _reader(await angular.crawl("/#!/about"))
    assert page.title == "About us | Tool Library"
    assert "since 2009. 410 members. 4 Workshop Yard, Exampleton ABOUT: borrow" in page.text


@pytest.mark.ci_only
async def test_angularjs_otherwise(angular: Proxy) -> None:
    for pretty in ("/", "/#!/", "/#!/nowhere"):
        reply = await angular.crawl(pretty)
        page = _reader(reply)
        assert (reply.status, page.title) == (200, "All tools | Tool Library")
        assert page.values("link", "href")[0] == f"{SITE_URL}/#!/items"


async def test_angularjs_says_404(angular: Proxy) -> None:
    reply = await angular.crawl("/#!/items/99")
    page = _reader(reply)
    assert (reply.status, page.title) == (404, "No such tool | Tool Library")
    assert "We have no tool 99." in page.text


async def test_second_request_is_a_hit_and_a_condition_a_304(
    library: Site, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(library.url, PUBLIC)
    first = await proxy.crawl("/#!/items/4")
    asked = len(library.requests)
    second = await proxy.crawl("/#!/items/4")
    assert second.body == first.body
    assert second.headers["Cache-Status"].startswith("prerender; hit")
    not_modified = await proxy.crawl(
        "/#!/items/4", headers={"If-None-Match": first.headers["ETag"]}
    )
    assert (not_modified.status, not_modified.body) == (304, b"")
    assert len(library.requests) == asked


async def _only_its_own(proxy: Proxy, number: int) -> Reply:
    """Render the state of one tool, and check that it contains nothing of another."""
    reply = await proxy.crawl(f"/#!/items/{number}")
    page = _reader(reply)
    name = NAMES[number - 1]
    assert page.title == f"{name} | Tool Library"
    assert page.values("link", "href")[0] == f"{SITE_URL}/#!/items/{number}"
    assert [other for other in NAMES if other in reply.text] == [name]
    shelf = f"{number - 1} on shelf S{number:03}" if number > 1 else "All are lent"
    assert shelf in page.text
    return reply


@pytest.mark.ci_only
async def test_states_one_after_another_on_one_page(library: Site, start_proxy: StartProxy) -> None:
    proxy = await start_proxy(library.url, PUBLIC | {"browser": {"pages": 1}, "cache": {"ttl": 0}})
    first = {number: await _only_its_own(proxy, number) for number in (1, 8)}
    assert "8 tools." in (await proxy.crawl("/#!/items")).text
    # Rendered again, on a page that has seen other states since, a state is the same.
    for number in (8, 1):
        again = await _only_its_own(proxy, number)
        assert again.body == first[number].body


@pytest.mark.ci_only
async def test_states_at_once_on_two_pages(library: Site, start_own_proxy: StartProxy) -> None:
    proxy = await start_own_proxy(
        library.url, PUBLIC | {"browser": {"pages": 2}, "cache": {"ttl": 0}}
    )
    await asyncio.gather(*(_only_its_own(proxy, tool) for tool in range(1, 4)))
    assert proxy.running.pool.browsers_started == 1


@pytest.mark.ci_only
async def test_swagger_ui(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    origin = await start_origin(_api_documentation())
    proxy = await start_proxy(origin.url, PUBLIC)
    reply = await proxy.get("/docs/?_escaped_fragment_=")
    assert reply.status == 200
    page = _reader(reply)
    assert page.title == "Tool Library API"
    assert page.meta("fragment") == []
    for shown in (
        "Tool Library API 2.7.1 OAS3 /docs/openapi.json Everything on our shelves, for machines",
        "Contact The librarians",
        "/api - The library itself",
        "tools What can be borrowed GET /tools List all tools In the order in which they were",
        "q string (query) Words that the name must contain",
        "200 The tools that were found",
        "GET /tools /{id} Look at one tool",
        "404 There is no such tool",
        "loans What is borrowed POST /loans Borrow a tool",
        "name * string example: Tenon saw As on its label",
        "until string ($date) Last day of the loan",
        "201 The tool is yours until the date",
        "Schemas Tool Loan",
    ):
        assert shown in page.text
    assert "Loading" not in page.text
    assert "Failed" not in page.text
    links = page.values("a", "href")
    assert {"/keys", "mailto:api@shop.example", "/docs/openapi.json"} <= set(links)
    assert {"#/tools/listTools", "#/tools/getTool", "#/loans/borrow"} <= set(links)

    again = await proxy.get("/docs/?_escaped_fragment_=")
    assert again.body == reply.body
    assert again.headers["Cache-Status"].startswith("prerender; hit")
    assert origin.count("/docs/") == 1


async def test_swagger_ui_is_forwarded_to_people(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await start_origin(_api_documentation())
    proxy = await start_proxy(origin.url, PUBLIC | {"browser": {"path": "/nonexistent/chromium"}})
    page = (APPLICATIONS / "swagger_ui" / "index.html").read_bytes()
    library = (Path(swagger_ui_bundle.swagger_ui_path) / "swagger-ui-bundle.js").read_bytes()
    assert (await proxy.get("/docs/")).body == page
    assert (await proxy.get("/docs/vendor/swagger-ui-bundle.js")).body == library

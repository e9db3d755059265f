"""``prerender check`` finds planted faults on real sites, and none on correct ones."""

import asyncio
import json
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.typedefs import Handler
from multidict import CIMultiDict, CIMultiDictProxy

from prerender.tools.check.alternation import Alternation
from prerender.tools.check.findings import LEVELS
from prerender.tools.crawler import Fetched
from tests.conftest import StartOrigin, StartProxy, pages
from tests.rendering.test_real_applications import tool_library
from tests.sites import faulty
from tests.sites.frameworks import origin as birds_origin
from tests.support import example
from tests.support.programs import Ended, run

MADE = "<body><script>document.body.append('All of it is made by a script, all.')</script>"
CLOAKED = "Buy cheap replica watches and free casino chips from our best friends"


async def checked(url: str, *more: str) -> tuple[Ended, dict[str, Any]]:
    """With one page of the browser: to start four takes a second."""
    ended = await run("check", url, "--json", "--concurrency", "1", *more)
    return ended, json.loads(ended.out)


def codes(page: Mapping[str, Any]) -> dict[str, str]:
    """The findings of a page, except notes."""
    return {
        finding["code"]: finding["text"]
        for finding in page["findings"]
        if finding["level"] != "note"
    }


def by_page(report: Mapping[str, Any], site: str) -> dict[str, Mapping[str, Any]]:
    return {page["url"].removeprefix(site): page for page in report["pages"]}


@pytest.mark.long
async def test_the_example_has_no_faults(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    shop = await start_origin(example.shop())
    proxy = await start_proxy(shop.url)
    # The site's public name is the origin's here, so the requests go by way of the proxy.
    ended, report = await checked(f"{shop.url}/", "--via", proxy.url)
    found = by_page(report, shop.url)
    assert {"/", "/#!/items", "/#!/items/3", "/#!/about", "/#!/search", "/contact"} <= found.keys()
    for page in found.values():
        assert (page["status"], page["kind"], codes(page)) == (200, "snapshot", {}), page
        assert page["similarity"] == 1.0, page
    assert report["findings"] == []
    assert (ended.status, report["errors"], report["warnings"]) == (0, 0, 0)


@pytest.mark.long
async def test_what_is_planted_in_the_example_is_found(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    folder = tmp_path / "shop"
    shutil.copytree(example.FOLDER, folder)
    application = folder / "site" / "app.js"
    text = application.read_text("utf-8")
    for old, new in (
        # A canonical of item 3 that is not there, and one of item 4 without its state.
        (
            'rel: "canonical", href: url }',
            'rel: "canonical", href: url.replace(/3$/, "999").replace(/#.*[/]4$/, "") }',
        ),
        ('element("h1", {}, "About us"),', 'element("h1", {}, "About us"), uglyLink(),'),
        (
            "function about() {",
            'const uglyLink = () => element("a", { href: "/?_escaped_fragment_=/items" }, "All");\n'
            "function about() {",
        ),
    ):
        assert text.count(old) == 1
        text = text.replace(old, new)
    application.write_text(text, "utf-8")

    @web.middleware
    async def cloak(request: web.Request, handler: Handler) -> web.StreamResponse:
        # Those who render get another description of item 5.
        if request.path == "/api/items/5" and "X-Prerender" in request.headers:
            item = next(item for item in example.ITEMS if item["id"] == 5)
            description = f"{item['description']} {CLOAKED}"
            return web.json_response({**item, "description": description, "related": []})
        return await handler(request)

    shop = example.shop(folder)
    shop.middlewares.append(cloak)
    origin = await start_origin(shop)
    proxy = await start_proxy(origin.url)
    ended, report = await checked(f"{origin.url}/sitemap.xml", "--via", proxy.url)
    assert ended.status == 1
    found = {url: codes(page) for url, page in by_page(report, origin.url).items()}
    assert f"{origin.url}/#!/items/999" in found.pop("/#!/items/3")["canonical-broken"]
    assert found.pop("/#!/items/4").keys() == {"canonical-state"}
    assert f"{origin.url}/?_escaped_fragment_=/items" in found.pop("/#!/about")["link-ugly"]
    item = found.pop("/#!/items/5")
    assert CLOAKED in item["cloaked"]
    assert len(found) > 10
    assert not any(found.values()), found


@pytest.mark.long
async def test_the_angularjs_application(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    library = await start_origin(tool_library())
    proxy = await start_proxy(library.url)
    _, report = await checked(f"{library.url}/#!/items", "--via", proxy.url, "--max-pages", "12")
    found = by_page(report, library.url)
    assert {"/#!/items", "/#!/items/1", "/#!/about"} <= found.keys()
    for page in found.values():
        assert page["kind"] == "snapshot", page
        assert page["similarity"] > 0.98, page
        assert not {"cloaked", "incomplete", "shell", "link-ugly"} & codes(page).keys(), page


async def test_an_application_without_a_proxy_gives_shells(start_origin: StartOrigin) -> None:
    library = await start_origin(tool_library())
    ended, report = await checked(f"{library.url}/#!/items", "--max-pages", "1", "--no-browser")
    (page,) = report["pages"]
    assert (ended.status, page["kind"]) == (1, "shell")
    assert {"shell", "meta-fragment"} <= codes(page).keys()
    assert [finding["code"] for finding in report["findings"]] == ["soft-404"]


# Found only with --readiness (test_readiness.py).
OF_READINESS = {
    "structured-data", "ai-robots", "headings", "language", "tokens", "markdown-missing",
    "content-signal", "llms-txt",
}  # fmt: skip
# On a machine that has too much to do any page may be slow.
BUSY = {"slow"}


# The faults of these pages are seen only, or seen to be none, beside the page of a visitor.
OF_LOOKS = (
    "no-opt-in", "needless-script", "cloaked", "incomplete", "made-link-ugly", "made-link-hash",
    "no-look", "without-labels", "throws", "refused-port", "refused", "hidden", "differs",
)  # fmt: skip


@pytest.mark.parametrize(
    ("names", "more"),
    [
        pytest.param(["plain", *OF_LOOKS], (), id="by looks", marks=pytest.mark.ci_only),
        pytest.param(
            [name for name in faulty.FAULTS if name not in OF_LOOKS],
            ("--no-browser", "--concurrency", "4"),
            id="others",
        ),
        pytest.param(
            [*faulty.FAULTS], ("--concurrency", "4"), id="all by looks", marks=pytest.mark.long
        ),
    ],
)
async def test_every_fault_is_found(
    start_origin: StartOrigin, names: list[str], more: tuple[str, ...]
) -> None:
    site = await start_origin(faulty.Site(faulty=True, names=names).application)
    ended, report = await checked(f"{site.url}/sitemap.xml", *more)
    assert ended.status == 1
    pages_found = by_page(report, site.url)
    of_site = [finding["code"] for finding in report["findings"]]
    found = {}
    for name in names:
        fault = faulty.FAULTS[name]
        page = pages_found[f"/{name}" + (f"#!{fault.state}" if fault.state else "")]
        found[name] = {finding["code"] for finding in page["findings"]}
        found[name] -= BUSY - fault.codes
        for finding in report["findings"]:
            if finding["level"] == "error" and f"/{name}" in finding["text"]:
                found[name].add(finding["code"])
            if "duplicate" in finding["code"] and name.startswith("same-"):
                found[name] |= fault.codes & {finding["code"]}
    assert found == {name: faulty.FAULTS[name].codes for name in names}
    assert "soft-404" in of_site


def test_each_fault_that_check_knows_is_on_the_faulty_site() -> None:
    known = set().union(*(fault.codes for fault in faulty.FAULTS.values()), {"soft-404"})
    # "changed" is no fault of the site: the owner has set [snapshot] remove or add.
    # "render-needless" needs a proxy (tests/extensions/dashboard/test_needless.py).
    # "sitemap-unreadable" has a test of its own.
    known |= {"changed", "render-needless", "sitemap-unreadable"}
    assert known == set(LEVELS) - OF_READINESS


@pytest.mark.parametrize(
    "names",
    [
        pytest.param([*faulty.FAULTS][::20], id="a few"),
        pytest.param([*faulty.FAULTS], id="all", marks=pytest.mark.long),
    ],
)
async def test_nothing_is_found_on_the_clean_twin(
    start_origin: StartOrigin, names: list[str]
) -> None:
    site = await start_origin(faulty.Site(faulty=False, names=names).application)
    ended, report = await checked(f"{site.url}/sitemap.xml")
    found = {
        page["url"]: [one for one in page["findings"] if one["code"] not in BUSY]
        for page in report["pages"]
    }
    assert {url: findings for url, findings in found.items() if findings} == {}
    assert (report["findings"], len(report["pages"])) == ([], len(names))
    assert ended.status == 0


HEAD = "<!DOCTYPE html><title>{0}</title><meta name=description content='About {0}'>"
TEXT = "<p>Some words that are the same for people and for crawlers.</p>"


def response(status: int, location: str = "") -> web.Response:
    headers = {"Location": location} if location else {}
    return web.Response(status=status, headers=headers, text="no", content_type="text/html")


async def test_what_only_all_pages_show(start_origin: StartOrigin) -> None:
    page = (
        HEAD.format("same") + TEXT + "<a href=/b>b</a> <a href=/c>c</a><a href='//x.example/'>x</a>"
    )
    robots = web.Response(text="User-agent: *\nDisallow: /c\n")
    site = await pages(
        start_origin, {"/": page, "/b": page, "/c": HEAD + TEXT, "/robots.txt": robots}
    )
    _, report = await checked(f"{site.url}/", "--no-browser")
    found = by_page(report, site.url)
    assert found.keys() == {"/", "/b", "/c"}
    assert codes(found["/c"]).keys() == {"robots"}
    assert [finding["code"] for finding in report["findings"]] == [
        "title-duplicate",
        "description-duplicate",
    ]


async def test_malformed_urls_are_findings(start_origin: StartOrigin) -> None:
    page = "<base href='http://[bad/'>" + HEAD + TEXT + "<a href=/b>b</a> <a href='//[bad/'>x</a>"
    site = await pages(start_origin, {"/": page, "/b": response(301, "http://[bad/")})
    _, report = await checked(f"{site.url}/", "--no-browser")
    found = by_page(report, site.url)
    assert codes(found["/b"]) == {"status": "status 301 without a Location that is a URL"}


async def test_the_pages_of_readable_sitemaps_are_checked(start_origin: StartOrigin) -> None:
    content: dict[str, str | web.Response] = {"/a": HEAD + TEXT}
    site = await pages(start_origin, content)
    sitemap = '<{0} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{1}</{0}>'
    index = "".join(
        f"<sitemap><loc>{site.url}/{n}.xml</loc></sitemap>" for n in ("missing", "good")
    )
    for path, text in {
        "/index.xml": sitemap.format("sitemapindex", index),
        "/good.xml": sitemap.format("urlset", f"<url><loc>{site.url}/a</loc></url>"),
    }.items():
        content[path] = web.Response(text=text, content_type="application/xml")
    ended, report = await checked(f"{site.url}/index.xml", "--no-browser")
    assert ended.status == 1
    assert list(by_page(report, site.url)) == ["/a"]
    (text,) = [one["text"] for one in report["findings"] if one["code"] == "sitemap-unreadable"]
    assert f"{site.url}/missing.xml" in text


async def test_no_more_pages_than_were_asked_for(start_origin: StartOrigin) -> None:
    links = "".join(f"<a href='#!/{number}'>{number}</a>" for number in range(50))
    site = await pages(start_origin, {"/": HEAD + TEXT + links})
    _, report = await checked(f"{site.url}/", "--no-browser", "--max-pages", "7")
    assert (len(report["pages"]), report["left_out"]) == (7, 44)


async def test_people_who_get_more_than_crawlers(start_origin: StartOrigin) -> None:
    more = "There is one more thing that only people see."
    application = web.Application()

    async def answer(request: web.Request) -> web.Response:
        person = "Chrome/" in request.headers["User-Agent"]
        assert "X-Prerender" not in request.headers
        text = HEAD + TEXT + (f"<p>{more}" if person else "")
        return web.Response(text=text, content_type="text/html")

    application.router.add_get("/", answer)
    _, report = await checked((await start_origin(application)).url)
    (page,) = report["pages"]
    assert more.removesuffix(".").lower() in codes(page)["incomplete"].lower()
    assert 0.5 < page["similarity"] < 1


@pytest.mark.ci_only
async def test_what_the_proxy_keeps_from_crawlers_and_what_the_origin_does(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """The visitor's browser reaches the API of the site, and the report names the setting. A page
    without a snapshot is reported with the cause.
    """
    api = web.Application()

    async def data(request: web.Request) -> web.Response:
        text = f"There is something more that only visitors see, by way of {request.path}."
        return web.Response(text=text, headers={"Access-Control-Allow-Origin": "*"})

    api.router.add_get("/{path}", data)
    other_port = (await start_origin(api)).url
    load = f"fetch('{other_port}/api').then(async (a) => {{ o.textContent = await a.text(); }})"
    caught = f"{load}.catch(() => {{ o.textContent = 'sorry'; }})"
    own = web.Application()

    async def page(request: web.Request) -> web.Response:
        script = {"/optional": caught, "/broken": "fetch('/failing')"}[request.path]
        text = f"{HEAD.format(request.path)}{TEXT}<meta name=fragment content='!'><p id=o></p>"
        return web.Response(text=f"{text}<script>{script}</script>", content_type="text/html")

    async def failing(_: web.Request) -> web.Response:
        raise web.HTTPBadGateway

    async def listed(_: web.Request) -> web.Response:
        return web.Response(text=f"{site.url}/optional\n{site.url}/broken#!a")

    own.router.add_get("/failing", failing)
    own.router.add_get("/list.txt", listed)
    own.router.add_get("/{path}", page)
    site = await start_origin(own)
    proxy = await start_proxy(site.url, {"render": {"optional": ["/api"]}})
    _, report = await checked(f"{site.url}/list.txt", "--via", proxy.url)
    found = {path: codes(one) for path, one in by_page(report, site.url).items()}
    assert found.keys() == {"/optional", "/broken#!a"}
    refused = found["/optional"]
    assert "something more" in refused["incomplete"]
    assert f"{other_port}/api: not a public address" in refused["request-refused"]
    allow = f"add {other_port.removeprefix('http://')} to [network] allow"
    assert allow in refused["request-refused"]
    failed = found["/broken#!a"]
    assert failed.keys() == {"status", "verdict", "request-failed"}
    assert failed["request-failed"] == f"{site.url}/failing: status 502"


@pytest.mark.ci_only
async def test_the_request_that_a_page_waits_for(start_origin: StartOrigin) -> None:
    own = web.Application()

    async def page(_: web.Request) -> web.Response:
        script = "fetch('/api')"
        return web.Response(text=f"{HEAD}{TEXT}<script>{script}</script>", content_type="text/html")

    async def hanging(_: web.Request) -> web.Response:
        await asyncio.Event().wait()
        raise AssertionError

    own.router.add_get("/", page)
    own.router.add_get("/api", hanging)
    site = await start_origin(own)
    shorter = {"PRERENDER_RENDER_TIMEOUT": "5s"}
    ended = await run("check", f"{site.url}/", "--json", "--concurrency", "1", environ=shorter)
    found = codes(json.loads(ended.out)["pages"][0])
    assert found["request-failed"] == f"{site.url}/api: no response"
    assert found["no-look"].endswith(f"{site.url}/: does not settle within 5 seconds")


async def test_what_search_engines_get_by_their_user_agent(start_origin: StartOrigin) -> None:
    application = web.Application()

    async def answer(request: web.Request) -> web.Response:
        known = "Googlebot" in request.headers["User-Agent"]
        if request.path != "/":
            return web.Response(status=404 if known else 200, text=MADE, content_type="text/html")
        text = HEAD.format("t") + TEXT if known else MADE
        return web.Response(text=text, content_type="text/html")

    application.router.add_get("/{path:.*}", answer)
    site = await start_origin(application)
    _, report = await checked(site.url, "--no-browser")
    assert (report["pages"][0]["kind"], report["findings"]) == ("snapshot", [])
    assert codes(report["pages"][0]) == {}
    _, report = await checked(site.url, "--user-agent", "Otherbot/1.0", "--no-browser")
    assert report["pages"][0]["kind"] == "page"
    assert [finding["code"] for finding in report["findings"]] == ["soft-404"]


@pytest.mark.ci_only
async def test_an_application_whose_proxy_needs_the_preset(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    birds = await start_origin(birds_origin.application())
    page = f"{birds.url}/react19/birds"
    proxy = await start_proxy(birds.url, {"site": {"url": birds.url}})
    ended, report = await checked(page, "--via", proxy.url, "--max-pages", "1")
    assert (ended.status, report["pages"][0]["kind"]) == (1, "shell")
    assert 'preset = "crawlers"' in codes(report["pages"][0])["no-snapshot"]
    overrides = {"site": {"url": birds.url}, "triggers": {"preset": "crawlers"}}
    proxy = await start_proxy(birds.url, overrides)
    ended, report = await checked(page, "--via", proxy.url, "--max-pages", "1")
    assert (ended.status, len(report["pages"])) == (0, 1)
    assert {(page["kind"], page["similarity"]) for page in report["pages"]} == {("snapshot", 1.0)}


async def test_what_is_no_url(start_origin: StartOrigin) -> None:
    page = "<!DOCTYPE html><title>t</title><base href='http://[/'><a href='/moved'>more</a>"
    for location, problem in (("http://[/", "status"), ("http://a[::1]@/", "redirect")):
        moved = web.Response(status=301, headers={"Location": location})
        origin = await pages(start_origin, {"/": page, "/moved": moved})
        _, report = await checked(f"{origin.url}/", "--no-browser")
        assert problem in codes(by_page(report, origin.url)["/moved"]), location


async def test_states_behind_redirects_are_followed(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    text = """<!DOCTYPE html><title>t</title><body><script>document.body.append(
      `The words of the state ${location.hash} of this page.`)</script>"""
    moved = web.Response(status=301, headers={"Location": "/app/"})
    listed = web.Response()
    origin = await pages(start_origin, {"/app": moved, "/app/": text, "/list.txt": listed})
    listed.text = f"{origin.url}/app#!/items/3"
    proxy = await start_proxy(origin.url, {"markdown": {"enabled": True}})
    end = f"{origin.url}/app/#!/items/3"
    _, report = await checked(f"{origin.url}/app#!/items/3", "--via", proxy.url, "--no-browser")
    found = by_page(report, origin.url)
    assert codes(found["/app#!/items/3"]).keys() == {"redirect"}
    # The Link to its Markdown is no fault.
    assert "link-ugly" not in codes(found["/app/#!/items/3"])
    assert (found["/app#!/items/3"]["location"], found["/app/#!/items/3"]["status"]) == (end, 200)
    ended = await run("sitemap", f"{origin.url}/app#!/items/3", "--via", proxy.url)
    assert f"<loc>{end}</loc>".encode() in ended.out
    ended = await run("warm", f"{origin.url}/app#!/items/3", "--via", proxy.url)
    assert "1 redirected" in ended.out.decode()


def test_link_headers() -> None:
    headers = CIMultiDictProxy(
        CIMultiDict(
            [
                ("Link", '</a>; rel="canonical next"; title="a, <b>; rel=up", <b>;rel=Alternate'),
                ("link", "<https://x.example/?a,b>; title=c; rel=canonical, </none>, broken"),
            ]
        )
    )
    fetched = Fetched("https://www.example.com/d/", 200, headers, b"", 0.0)
    assert list(fetched.links) == [
        ("https://www.example.com/a", ("canonical", "next")),
        ("https://www.example.com/d/b", ("alternate",)),
        ("https://x.example/?a,b", ("canonical",)),
        ("https://www.example.com/none", ()),
    ]


async def test_crawling_and_looking_take_turns() -> None:
    turns = Alternation()
    under_way: Counter[str] = Counter()
    order: list[str] = []

    async def worker() -> None:
        for _ in range(20):
            for kind, turn in (("crawl", turns.crawling), ("look", turns.looking)):
                async with turn():
                    under_way[kind] += 1
                    order.append(kind)
                    for _ in range(3):
                        await asyncio.sleep(0)
                        assert not (under_way["crawl"] and under_way["look"])
                    under_way[kind] -= 1

    async with asyncio.timeout(10):
        await asyncio.gather(*(worker() for _ in range(5)))
    # Both were many at once, and neither waited to the end.
    assert len(order) == 200
    assert {"crawl", "look"} <= set(order[:12])


async def test_the_report_for_people(start_origin: StartOrigin) -> None:
    site = await pages(start_origin, {"/": HEAD + TEXT, "/b": response(500)})
    ended = await run("check", f"{site.url}/", "--no-browser")
    assert (ended.status, ended.err) == (0, "")
    first, last = ended.out.decode().splitlines()
    assert first.startswith("ok       200  page ")
    assert first.endswith(f"  {site.url}/")
    assert last.endswith("0 errors, 0 warnings, 0 notes")
    ended = await run("check", f"{site.url}/b", "--no-browser")
    assert ended.status == 1
    assert "    error: status: status 500\n" in ended.out.decode()


async def test_pages_do_not_command_the_terminal(start_origin: StartOrigin) -> None:
    """Their texts can have the controls of ISO 6429, and those that change the order of a line."""
    titles = "<title>a\x1b]0;owned\x07\x9b31m\x7f</title><title>\u202ezwei\u2069 größe</title>"
    origin = await pages(start_origin, {"/": f"{titles}<h1>Shop</h1>"})
    arguments = ("check", f"{origin.url}/", "--no-browser")
    ended = await run(*arguments)
    assert r"2 titles: a\x1b]0;owned\x07\x9b31m\x7f, \u202ezwei\u2069 größe" in ended.out.decode()
    ended = await run(*arguments, "--json")
    printed = ended.out.decode()
    assert not set(printed) & set("\x1b\x07\x9b\x7f\u202e\u2069"), printed
    assert json.loads(printed)["pages"][0]["title"] == "a\x1b]0;owned\x07\x9b31m\x7f"


async def test_a_site_that_is_not_there() -> None:
    ended = await run("check", "http://127.0.0.1:9/", "--no-browser")
    assert ended.status == 1
    assert ended.err.startswith("prerender: http://127.0.0.1:9/: ")
    assert ended.err.count("\n") == 1

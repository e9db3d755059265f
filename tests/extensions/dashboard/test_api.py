"""The JSON API of the admin listener: every response is validated against its description."""

import asyncio
import itertools
import json
from functools import partial
from typing import Any
from urllib.parse import quote

import jsonschema
import pytest
from aiohttp import web
from openapi_spec_validator import validate

from prerender.browser.emulation import MOBILE
from prerender.tools.export.imports import OUTCOMES
from tests.conftest import Proxy, Site, StartOrigin, StartProxy, pages
from tests.support import example
from tests.support.api_description import description

SITE = "https://shop.example"
GOOGLEBOT = "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)"
PNG = b"\x89PNG\r\n"


class Api:
    """The API of a proxy. Validates each response; ``used``: the operations that succeeded."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.used: set[tuple[str, str]] = set()

    async def ask(self, method: str, path: str, expected: int = 200, **options: Any) -> Any:
        template = self._template(path.partition("?")[0])
        described = description()["paths"][template][method.lower()]["responses"]
        url = f"{self.proxy.admin_url}/api/v1{path}"
        async with self.proxy.client.request(method, url, **options) as response:
            body = await response.read()
        assert response.status == expected, body
        answer = described[str(expected)]
        if "$ref" in answer:
            answer = description()["components"]["responses"]["Problem"]
        if expected < 300:
            self.used.add((template, method.lower()))
        if "content" not in answer:
            assert not body
            return None
        ((media_type, content),) = answer["content"].items()
        assert response.content_type == media_type
        if not media_type.endswith("json"):
            return body
        schema = {**content["schema"], "components": description()["components"]}
        jsonschema.validate(json.loads(body), schema, jsonschema.Draft202012Validator)
        return json.loads(body)

    async def get(self, path: str, expected: int = 200) -> Any:
        return await self.ask("GET", path, expected)

    async def post(self, path: str, body: object, expected: int = 200) -> Any:
        return await self.ask("POST", path, expected, json=body)

    async def until(self, path: str, condition: Any) -> Any:
        """Repeat a request until its response meets a condition."""
        async with asyncio.timeout(20):
            while not condition(found := await self.get(path)):
                await asyncio.sleep(0.05)
            return found

    async def id_of(self, page: str) -> str:
        return str((await self.get(f"/pages?url={quote(page, safe='')}"))["id"])

    @staticmethod
    def _template(path: str) -> str:
        parts = path.split("/")
        if len(parts) > 2 and parts[1] == "snapshots":
            parts[2] = "{key}"
        if len(parts) > 2 and parts[1] == "jobs":
            parts[2] = "{job}"
        return "/".join(parts)


@pytest.fixture
async def shop(start_origin: StartOrigin) -> Site:
    return await start_origin(example.shop())


async def changing(start_origin: StartOrigin) -> tuple[Site, dict[str, Any]]:
    """A site whose pages the test can change."""
    content = {"/": "<title>First</title><h1>Lamps</h1><p>cost 20 euros"}
    return await pages(start_origin, content), content


@pytest.mark.ci_only
@pytest.mark.heavy
def test_the_description_is_openapi() -> None:
    validate(description())


def operations() -> set[tuple[str, str]]:
    """All but those of jobs, which are in tests/extensions/jobs."""
    return {
        (path, method)
        for path, methods in description()["paths"].items()
        for method in methods
        if not path.startswith(("/jobs", "/sitemaps"))
    }


async def test_everything_that_is_described(  # noqa: PLR0915
    shop: Site, start_proxy: StartProxy
) -> None:
    settings = {"site": {"url": SITE}, "triggers": {"search": "render", "ai_training": "refuse"}}
    proxy = await start_proxy(shop.url, settings)
    api = Api(proxy)
    await proxy.crawl("/#!/items/3")
    await proxy.crawl("/#!/items/3")
    await proxy.crawl("/#!/items/999")
    await proxy.get("/contact", headers={"User-Agent": GOOGLEBOT})
    await proxy.get("/contact", headers={"User-Agent": "GPTBot/1.2"})
    await proxy.get("/", headers={"User-Agent": "Mozilla/5.0 (a person)"})

    assert await api.get("/session") == {"token_needed": False, "open": True}
    summary = await api.get("/summary")
    total = {name: sum(point.get(name, 0) for point in summary["points"]) for name in
             ("hit", "hits", "miss", "refuse", "forward", "complete")}  # fmt: skip
    assert total == {"hit": 1, "hits": 1, "miss": 3, "refuse": 1, "forward": 1, "complete": 3}
    assert summary["site"] == SITE
    assert summary["store"]["in_memory"] == 3

    requests = await api.get("/requests")
    assert requests["count"] == 5
    assert [item["cache"] for item in requests["items"]] == ["", "miss", "miss", "hit", "miss"]
    assert requests["items"][0]["decision"] == "refuse"
    assert requests["items"][1]["phases"]["settle"] > 0
    for period in ("hour", "start"):
        came = {one["name"]: one for one in (await api.get(f"/crawlers?period={period}"))["items"]}
        assert {name: (one["requests"], one["snapshots"]) for name, one in came.items()} == {
            "others": (3, 3), "Googlebot": (1, 1), "GPTBot": (1, 0),
        }  # fmt: skip
    await api.get("/crawlers?period=ever", 400)
    (bot,) = (await api.get("/bots"))["items"]
    assert (bot["requests"], bot["snapshots"], bot["why"]) == (3, 3, "name")
    async with proxy.client.get(f"{proxy.admin_url}/api/v1/session") as response:
        assert "Server" not in response.headers

    snapshots = await api.get("/snapshots?sort=status&order=desc")
    assert snapshots["items"][0]["path"] == "/#!/items/999"
    assert snapshots["count"] == 3

    key = await api.id_of(f"{SITE}/?_escaped_fragment_=/items/3")
    assert key == await api.id_of("/#!/items/3")
    page = await api.until(f"/snapshots/{key}", lambda found: found["versions"])
    assert page["url"] == f"{SITE}/#!/items/3"
    assert page["snapshot"]["ugly_url"] == f"{SITE}/?_escaped_fragment_=/items/3"
    assert ["Content-Type", "text/html; charset=utf-8"] in page["snapshot"]["headers"]
    assert page["reading"]["title"] == "Arc Desk Lamp · Hashbang Goods"
    assert page["reading"]["canonical"] == page["url"]
    assert page["reading"]["structured_data"][0]["types"] == ["Product", "BreadcrumbList"]
    fetched = {fetch["url"]: fetch for fetch in page["render"]["fetches"]}
    assert fetched[f"{SITE}/"]["kind"] == "document"
    assert fetched[f"{SITE}/api/items/3"]["verdict"] == "allowed"
    assert fetched[f"{SITE}/api/items/3"]["status"] == 200
    assert page["render"]["settled"] == "nothing_pending"

    assert b"<h1>Arc Desk Lamp</h1>" in await api.get(f"/snapshots/{key}/html")
    assert b"Arc Desk Lamp" in await api.get(f"/snapshots/{key}/text")
    same = await api.get(f"/snapshots/{key}/comparison")
    assert (same["similarity"], same["unannounced"]) == (1, [])
    for name in ("user.png", "crawler.png"):
        picture = await api.get(f"/snapshots/{key}/{name}")
        assert picture.startswith(PNG)
        assert len(picture) > 20_000
    made = await api.post("/render", {"url": "/#!/items/3"})
    assert (made["id"], made["status"], made["stored"]) == (key, 200, True)
    worst = await api.get("/problems")
    assert {item["url"] for item in worst["slowest"]} >= {f"{SITE}/#!/items/3"}
    assert await api.post("/purge", {"url": "/#!/items/3"}) == {"purged": 1}
    assert (await api.get("/snapshots"))["count"] == 2
    left = await api.get(f"/snapshots/{key}")
    assert left["snapshot"] is None
    assert len(left["versions"]) == 1
    assert await api.get("/openapi.json") == description()
    await api.post("/session", {"token": ""})
    assert await api.ask("DELETE", "/session", 204) is None
    told = await api.get(f"/explain?url=/%23!/items/1&user_agent={quote(GOOGLEBOT)}&header=A:%201")
    assert told["snapshot"] is None
    nothing = dict.fromkeys(OUTCOMES, 0)
    assert await api.post("/import", {"site": SITE, "pages": []}) == nothing
    await api.get(f"/snapshots/{key}/history?old=0")
    for report in (
        "",
        "/visits?by=day,crawler",
        "/change?date=2026-01-31",
        "/pages",
        "/snapshots",
        "/recent",
    ):
        await api.get(f"/report{report}")
    await api.get("/report/gap")
    # No page of the shop has an image for link previews.
    assert operations() - api.used == {("/snapshots/{key}/preview.png", "get")}


async def test_what_is_wrong_is_said(shop: Site, start_proxy: StartProxy) -> None:
    api = Api(await start_proxy(shop.url, {"site": {"url": SITE}}))
    none = "0" * 32
    wrong: list[tuple[str, int, str]] = [
        ("/snapshots?sort=colour", 400, "sort: 'colour': give \"path\", "
         '"status", "age", "size" or "seconds"'),
        ("/snapshots?limit=201", 400, "limit: '201': give at most 200"),
        ("/snapshots?limit=-1", 400, "limit: '-1': give at least 0"),
        ("/snapshots?status=%d9%a1", 400, "status: '\u0661': give a whole number"),
        ("/snapshots?state=old", 400, "state: 'old': give \"fresh\" or \"stale\""),
        ("/snapshots?cursor=nonsense", 400, "cursor: invalid for this list"),
        ("/requests?cursor=WzFd", 400, "cursor: invalid for this list"),
        ("/requests?sort=time&cursor=WyJ4IiwgIngiXQ", 400, "cursor: invalid for this list"),
        ("/snapshots?cursor=WyJ4IiwgIngiXQ", 400, "cursor: invalid for this list"),
        ("/snapshots?sort=path&cursor=WzEsICJ4Il0", 400, "cursor: invalid for this list"),
        ("/requests?crawler=people", 400, "crawler: 'people': give \"search\", \"ai_search\", "
         '"ai_training", "ai_user", "social", "seo_tool", "archive", "feed", "monitoring", "signed" '
         'or "others"'),
        ("/pages?url=", 400, "url: is required"),
        ("/pages?url=https://elsewhere.example/", 400,
         f"url: 'https://elsewhere.example/': give a URL of {SITE}, or a path"),
        (f"/pages?url={SITE}.evil.example/", 400,
         f"url: '{SITE}.evil.example/': give a URL of {SITE}, or a path"),
        (f"/snapshots/{none}", 404, "unknown page: render it first"),
        ("/snapshots/x", 404, "an id has 32 hexadecimal digits"),
        (f"/snapshots/{none}/html", 404, "no snapshot of this page is stored"),
        (f"/snapshots/{none}/user.png", 404, "no snapshot of this page is stored"),
        (f"/snapshots/{none}/history", 404, "0 versions are stored"),
    ]  # fmt: skip
    for path, status, detail in wrong:
        assert (await api.get(path, status))["detail"] == detail, path
    for body, detail in (
        ([], "give an object with url, id"),
        ({"uri": "/"}, "'uri' is unknown: give an object with url, id"),
        ({}, "give either url or id"),
        ({"url": ""}, "url: '': must not be empty"),
        ({"url": 1}, "url: 1: give a string"),
    ):
        assert (await api.post("/render", body, 400))["detail"] == detail
    headers = {"Content-Type": "application/json"}
    broken = await api.ask("POST", "/render", 400, data=b"[" * 99_999, headers=headers)
    assert broken["detail"] == "the body is not JSON"
    assert (await api.post("/purge", {}, 400))["detail"] == "give from 1 to 1000 purges"
    await api.post("/purge", {"tag": "x" * 1024**2}, 413)
    await api.post("/session", {"token": "x" * 1024**2}, 413)
    # What is no page is no mistake of who asks.
    assert "media type" in (await api.post("/render", {"url": "/app.js"}, 409))["detail"]
    async with api.proxy.client.put(f"{api.proxy.admin_url}/api/v1/render", json={}) as response:
        assert response.status == 405
        assert response.headers["Allow"] == "POST"
        assert (await response.json())["status"] == 405
    for path in ("/api/v1/nothing", "/purge", "/dashboard/nothing"):
        async with api.proxy.client.get(f"{api.proxy.admin_url}{path}") as response:
            assert response.status == 404
            assert response.content_type == "application/problem+json"


@pytest.mark.ci_only
async def test_lists_in_pages(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    site = await pages(start_origin, {f"/{n}": f"<p>{'x' * n}" for n in range(7)})
    proxy = await start_proxy(site.url, {"triggers": {"search": "render"}})
    api = Api(proxy)
    for number in range(7):
        await proxy.get(f"/{number}", headers={"User-Agent": GOOGLEBOT})
    for sort, order in itertools.product(
        ("/snapshots?sort=size", "/requests?sort=target", "/requests?sort=time"), ("asc", "desc")
    ):
        path = f"{sort}&order={order}"
        seen, cursor = [], ""
        while cursor is not None:
            found = await api.get(f"{path}&limit=3&cursor={cursor}")
            assert found["count"] == 7
            seen += [item["url"].rpartition("/")[2] for item in found["items"]]
            cursor = found["next"]
        assert seen == list("0123456")[:: 1 if order == "asc" else -1]
        assert (await api.get(f"{path}&limit=7"))["next"] is None
    assert (await api.get("/requests?search=/3"))["count"] == 1
    assert (await api.get("/requests?search=GOOGLEBOT&status=2&crawler=search"))["count"] == 7
    assert (await api.get("/requests?status=404"))["count"] == 0


async def test_a_search_for_a_pasted_url(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    site = await pages(start_origin, {"/café/1": "<title>One</title><p>1", "/": "<p id=p>2"})
    proxy = await start_proxy(site.url, {"triggers": {"search": "render"}})
    headers = {"User-Agent": GOOGLEBOT}
    await proxy.get("/caf%C3%A9/1", headers=headers)
    await proxy.crawl("/#!/items/7")
    api = Api(proxy)
    for search, count in (
        (f"{site.url}/caf%C3%A9/1", 1),
        (f"{site.url}/café/1", 1),
        (f"{site.url.removeprefix('http://')}/café".upper(), 1),
        ("CAFÉ", 1),
        (f"{site.url}/#!/items/7", 1),
        (f"{site.url}/?_escaped_fragment_=/items/7", 1),
        (f"{site.url}/?_escaped_fragment_=%2Fitems%2F7", 1),
        ("/?_escaped_fragment_=%2Fitems%2F7", 1),
        ("?_escaped_fragment_=/items/7", 1),
        ("/?_escaped_fragment_=/items/8", 0),
        (f" {site.url}/caf%C3%A9/1#top ", 1),
        (f"{site.url}/", 2),
        (site.url, 2),
        (f"{site.url}/none", 0),
        ("http://other.example/café/1", 0),
    ):
        for name in ("snapshots", "requests", "report/pages"):
            found = await api.get(f"/{name}?search={quote(search)}")
            assert found["count"] == count, (name, search)
    assert (await api.get("/requests?search=www.google.com"))["count"] == 1


@pytest.mark.ci_only
async def test_variants_are_told_apart(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    site = await pages(start_origin, {"/": "<title>Lamps</title><h1>Lamps</h1><p>of steel"})
    phone = {"User-Agent": f"{GOOGLEBOT} Mobile", "Accept-Language": "de"}
    settings = {
        "cache": {"vary": ["device", "language"], "languages": ["en", "de"]},
        "triggers": {"search": "render", "ai_user": "markdown"},
    }
    proxy = await start_proxy(site.url, settings)
    for headers in ({"User-Agent": GOOGLEBOT}, phone, {"User-Agent": "ChatGPT-User"}):
        await proxy.get("/", headers=headers)
    api = Api(proxy)
    rows = (await api.get("/snapshots"))["items"]
    assert {row["url"] for row in rows} == {f"{site.url}/"}
    kinds = {(row["device"], row["language"], row["format"]): row["id"] for row in rows}
    assert set(kinds) == {
        ("desktop", "en", "html"), ("desktop", "en", "markdown"), ("mobile", "de", "html"),
    }  # fmt: skip
    assert kinds["desktop", "en", "html"] == kinds["desktop", "en", "markdown"]
    asked = (await api.get("/requests"))["items"]
    assert [(one["device"], one["language"]) for one in asked] == [
        ("desktop", "en"), ("mobile", "de"), ("desktop", "en"),
    ]  # fmt: skip
    # Each variant has its own page view, and is rendered again as itself.
    key = kinds["mobile", "de", "html"]
    assert (await api.get(f"/snapshots/{key}"))["snapshot"]["device"] == "mobile"
    for name in ("user.png", "crawler.png"):
        picture = await api.get(f"/snapshots/{key}/{name}")
        assert int.from_bytes(picture[16:20]) == MOBILE.width  # a picture is in CSS pixels
    assert (await api.post("/render", {"id": key}))["id"] == key
    # A URL means the default variant.
    assert (await api.post("/render", {"url": "/"}))["id"] == kinds["desktop", "en", "html"]
    await api.post("/render", {"id": "0" * 32}, 404)
    await api.post("/render", {"id": key, "url": "/"}, 400)


def _newest_is(title: str, found: dict[str, Any]) -> bool:
    return [version["title"] for version in found["versions"][:1]] == [title]


async def test_versions_and_where_they_differ(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    site, content = await changing(start_origin)
    api = Api(await start_proxy(site.url, {"admin": {"versions": 3}}))
    key = await api.id_of("/")
    for price in ("20", "20", "25", "30", "35"):
        content["/"] = f"<title>At {price}</title><h1>Lamps</h1><p>cost {price} euros"
        await api.post("/render", {"url": "/"})
        await api.until(f"/snapshots/{key}", partial(_newest_is, f"At {price}"))
    page = await api.get(f"/snapshots/{key}")
    assert [version["title"] for version in page["versions"]] == ["At 35", "At 30", "At 25"]
    newest = await api.get(f"/snapshots/{key}/history")
    assert [(one["kind"], one["left"], one["right"]) for one in newest["passages"]] == [
        ("same", "Lamps\ncost", "Lamps\ncost"),
        ("changed", "30", "35"),
        ("same", "euros", "euros"),
    ]
    oldest = await api.get(f"/snapshots/{key}/history?old=2&new=0")
    assert oldest["passages"][1]["left"] == "25"
    assert (await api.get(f"/snapshots/{key}/history?old=3", 404))[
        "detail"
    ] == "3 versions are stored"
    # A worse one is not served, and a private one is not stored.
    content["/"] = "<title>Broken</title><script>throw Error('x')</script>"
    assert not (await api.ask("POST", "/render", json={"url": "/"}))["stored"]
    content["/"] = web.Response(
        text="<title>Mine</title><p>x",
        content_type="text/html",
        headers={"Cache-Control": "private"},
    )
    assert not (await api.post("/render", {"url": "/"}))["stored"]
    content["/"] = "<title>At 40</title><h1>Lamps</h1><p>cost 40 euros"
    await api.post("/render", {"url": "/"})
    page = await api.until(f"/snapshots/{key}", partial(_newest_is, "At 40"))
    assert [version["title"] for version in page["versions"]] == ["At 40", "At 35", "At 30"]


async def test_a_render_that_fails_is_told(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    site, content = await changing(start_origin)
    api = Api(await start_proxy(site.url))
    key = await api.id_of("/")
    await api.post("/render", {"url": "/"})
    content["/"] = "<script>document.documentElement.remove()</script>"
    kept = await api.post("/render", {"url": "/"})
    assert kept["detail"] == "failed"
    page = await api.until(f"/snapshots/{key}", lambda found: found["render"]["error"])
    assert page["render"]["error"] == "empty_page"
    assert page["snapshot"]["title"] == "First"
    worst = await api.get("/problems")
    assert [item["failed"] for item in worst["failing"]] == [1]
    assert "nothing shown" in worst["failing"][0]["reason"].lower()
    assert "EmptyPage" not in worst["failing"][0]["reason"]
    await api.post("/purge", {"all": True})
    assert "nothing shown" in (await api.post("/render", {"url": "/"}, 503))["detail"].lower()


async def test_verdicts_of_the_waterfall(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    page = (
        "<h1>Page</h1><script src=/kept.js></script><script src=/missing.js></script>"
        "<script src=https://www.google-analytics.com/analytics.js></script>"
        "<script>new EventSource('/events'); throw Error('a mistake')</script>"
    )
    kept = web.Response(
        body=b"1", content_type="text/javascript", headers={"Cache-Control": "max-age=600"}
    )
    content: dict[str, str | web.Response] = {"/a": page, "/b": page, "/kept.js": kept}
    site = await pages(start_origin, content)
    api = Api(await start_proxy(site.url))
    verdicts = {}
    for path in ("/a", "/b"):
        key = (await api.post("/render", {"url": path}))["id"]
        render = (await api.until(f"/snapshots/{key}", lambda found: found["render"]))["render"]
        assert any("a mistake" in error for error in render["errors"])
        verdicts[path] = {
            fetch["url"].rpartition("/")[2]: (fetch["verdict"], fetch["status"], fetch["reason"])
            for fetch in render["fetches"]
        }
    assert verdicts["/a"]["a"] == ("allowed", 200, "")
    assert verdicts["/a"]["kept.js"] == ("allowed", 200, "")
    assert verdicts["/b"]["kept.js"][0] == "cached"
    assert list(verdicts["/b"])[:2] == ["b", "kept.js"]
    assert verdicts["/a"]["missing.js"] == ("failed", 404, "")
    assert verdicts["/a"]["analytics.js"] == ("blocked", 200, "a tracker")
    worst = await api.get("/problems")
    assert worst["failing"][0]["reason"].startswith("failed: ")
    assert "missing.js: status 404" in worst["failing"][0]["reason"]


async def test_what_people_see_and_crawlers_do_not(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """The visitor's page is requested as browsers do, so sites that treat renderers differently are
    found.
    """

    async def page(request: web.Request) -> web.Response:
        renderer = "X-Prerender" in request.headers or "Prerender" in request.headers["User-Agent"]
        price = "10 euros" if renderer else "99 euros"
        label = "" if renderer else "aria-label=Basket"
        html = f"<title>x</title><h1>Lamp</h1><p>costs {price}<p id=t>wait</p><button {label}>"
        return web.Response(
            text=f"{html}</button><script>t.textContent = 'made by a script'</script>",
            content_type="text/html",
        )

    application = web.Application()
    application.router.add_get("/", page)
    site = await start_origin(application)
    api = Api(await start_proxy(site.url))
    key = (await api.post("/render", {"url": "/"}))["id"]
    found = await api.get(f"/snapshots/{key}/comparison")
    changed = [(one["left"], one["right"]) for one in found["passages"] if one["kind"] == "changed"]
    assert changed == [("99", "10")]
    assert 0.5 < found["similarity"] < 1
    assert found["unannounced"] == ["button “Basket”"]
    assert any("made by a script" in one["right"] for one in found["passages"])


@pytest.mark.ci_only
async def test_the_image_of_a_link_preview(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    svg = web.Response(
        body=b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><rect width="9" height="9" '
        b'fill="red"/></svg>',
        content_type="image/svg+xml",
    )
    hostile = '<meta property="og:image" content=\'"><script>document.title = 1</script>\'><p>b'
    content: dict[str, str | web.Response] = {
        "/a": '<meta property="og:image" content="/red.svg"><p>a',
        "/b": hostile,
        "/c": "<p>c",
        "/red.svg": svg,
    }
    site = await pages(start_origin, content)
    api = Api(await start_proxy(site.url))
    key = (await api.post("/render", {"url": "/a"}))["id"]
    assert (await api.get(f"/snapshots/{key}/preview.png")).startswith(PNG)
    assert site.count("/red.svg") >= 1
    key = (await api.post("/render", {"url": "/b"}))["id"]
    assert (await api.get(f"/snapshots/{key}/preview.png")).startswith(PNG)
    key = (await api.post("/render", {"url": "/c"}))["id"]
    none = await api.get(f"/snapshots/{key}/preview.png", 404)
    assert none["detail"] == "the page has no image for link previews"


@pytest.mark.ci_only
async def test_pictures_are_made_one_at_a_time_and_leave_the_pool_as_it_was(
    shop: Site, start_proxy: StartProxy
) -> None:
    proxy = await start_proxy(shop.url, {"site": {"url": SITE}})
    api = Api(proxy)
    keys = [(await api.post("/render", {"url": f"/#!/items/{n}"}))["id"] for n in (1, 2)]
    looks = [
        api.get(f"/snapshots/{key}/{name}")
        for key, name in zip(keys, ("user.png", "crawler.png"), strict=True)
    ]
    crawled = asyncio.create_task(proxy.crawl("/#!/items/4"))
    pictures = await asyncio.gather(*looks)
    assert (await crawled).status == 200
    assert all(picture.startswith(PNG) for picture in pictures)
    async with asyncio.timeout(10):
        while proxy.running.pool.state.idle != 1:
            await asyncio.sleep(0.01)
    assert (await proxy.crawl("/#!/items/5")).status == 200
    # Seen a moment ago: not made again.
    asked = len(shop.requests)
    assert await api.get(f"/snapshots/{keys[0]}/user.png") == pictures[0]
    assert len(shop.requests) == asked

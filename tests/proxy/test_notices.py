"""Configuration notices: logged once, and shown in the dashboard and by doctor."""

from aiohttp import web

from tests.conftest import Proxy, StartOrigin, StartProxy, pages
from tests.support.origins import only_for_its_own_host

SITE = {"site": {"url": "https://www.example.com"}, "triggers": {"preset": "crawlers"}}
CRAWLER = {"User-Agent": "Googlebot/2.1"}


async def names_of_notices(proxy: Proxy) -> list[str]:
    async with proxy.client.get(f"{proxy.admin_url}/api/v1/summary") as response:
        notices = (await response.json())["notices"]
    assert all(notice["consequence"] and notice["remedy"] for notice in notices)
    return [notice["name"] for notice in notices]


async def test_no_shell_where_the_origin_refuses_the_public_host(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await start_origin(only_for_its_own_host())
    proxy = await start_proxy(origin.url, SITE)
    for path, headers in (("/page", CRAWLER), ("/page?_escaped_fragment_=", {})):
        for method in ("GET", "HEAD"):
            answer = await proxy.request(method, path, headers=headers)
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) > 0
            assert answer.headers["Cache-Status"] == "prerender; fwd=miss; detail=refused"
            assert "shell" not in answer.text
    assert "shell" in (await proxy.get("/page")).text
    assert await names_of_notices(proxy) == ["origin_refuses_renderer"]
    async with proxy.client.get(f"{proxy.admin_url}/api/v1/problems") as response:
        (page,) = (await response.json())["failing"]
    assert (page["url"], page["failed"]) == ("https://www.example.com/page", 4)
    assert page["reason"].startswith("refused: ")
    assert "403" in page["reason"]


async def test_a_refusal_that_clients_get_as_well_passes(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await start_origin(only_for_its_own_host())
    proxy = await start_proxy(origin.url, SITE)
    answer = await proxy.get("/page", headers=CRAWLER | {"Host": "www.example.com"})
    assert (answer.status, answer.text.startswith("Blocked request.")) == (403, True)
    assert await names_of_notices(proxy) == []


async def test_an_origin_that_recovers_at_once_sends_no_shell(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """The renderer gets an error, and the visitor's forwarded request gets the page."""
    asked = 0

    async def page(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.Response(
            status=503 if asked == 1 else 200, text="<p>shell", content_type="text/html"
        )

    application = web.Application()
    application.router.add_get("/", page)
    proxy = await start_proxy((await start_origin(application)).url)
    assert (await proxy.crawl("/")).status == 503
    assert (await proxy.crawl("/")).status == 200


async def test_a_host_that_differs_from_a_guessed_site(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": "<p>page"})
    proxy = await start_proxy(origin.url)
    same = {"Host": origin.url.removeprefix("http://")}
    await proxy.crawl("/", headers=same)
    assert await names_of_notices(proxy) == ["site_url_unset"]
    await proxy.crawl("/", headers={"Host": "www.example.com"})
    assert await names_of_notices(proxy) == ["site_url_unset", "host_differs"]


async def test_no_notices_where_all_is_set(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    origin = await pages(start_origin, {"/": "<p>page"})
    proxy = await start_proxy(origin.url, SITE)
    await proxy.crawl("/", headers={"Host": "prerender:8080"})
    assert await names_of_notices(proxy) == []

"""Pages without a usable snapshot are rendered again in the background."""

import asyncio

from aiohttp import web
from yarl import URL

from prerender.snapshots import retries
from prerender.snapshots.retries import Retries
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import StartOrigin, StartProxy


def target(path: str) -> Target:
    return Target.of(URL("https://www.example.com"), PrettyURL(path, ""))


async def test_a_page_is_given_up_after_some_retries() -> None:
    pages = Retries(lambda _: True)
    for _ in range(retries.RETRIES):
        pages.failed(target("/"))
        assert len(pages) == 1
    pages.failed(target("/"))
    assert len(pages) == 0


async def test_the_number_of_pages_is_bounded() -> None:
    pages = Retries(lambda _: True)
    for number in range(retries.MOST_PAGES + 10):
        pages.failed(target(f"/{number}"))
    assert len(pages) == retries.MOST_PAGES
    pages.succeeded(target("/0"))
    assert len(pages) == retries.MOST_PAGES - 1
    pages.close()
    assert len(pages) == 0


async def test_no_crawler_has_to_ask_again(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """The API fails once. When it works again, a snapshot is rendered without a request."""
    asked = 0
    works = asyncio.Event()

    async def page(_: web.Request) -> web.Response:
        script = "fetch('/api').then((a) => a.text()).then((text) => { out.textContent = text; })"
        return web.Response(
            text=f"<p id=out>Loading</p><script>{script}</script>", content_type="text/html"
        )

    async def api(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        if asked == 1:
            return web.Response(status=500, text="error")
        works.set()
        return web.Response(text="content")

    application = web.Application()
    application.router.add_get("/", page)
    application.router.add_get("/api", api)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url)
    assert (await proxy.crawl("/")).status == 503
    async with asyncio.timeout(60):
        await works.wait()
        while (answer := await proxy.crawl("/")).status != 200:
            pass
    assert "content" in answer.text
    assert asked == 2

"""Pages without a usable snapshot are rendered again in the background."""

import asyncio

import pytest
from aiohttp import web
from yarl import URL

from prerender.errors import EmptyPage, NotRenderable, OriginError, PoolBusy, PrerenderError
from prerender.snapshots import retries
from prerender.snapshots.retries import Retries
from prerender.snapshots.target import Target
from prerender.urls.ajax_crawling import PrettyURL
from tests.conftest import StartOrigin, StartProxy
from tests.snapshots.test_freshness import PAGE, Site
from tests.support.renders import freshness_of, until


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


@pytest.mark.parametrize(
    ("error", "renders"),
    [
        (PoolBusy("busy"), 1 + retries.RETRIES),
        (OriginError("refused"), 1 + retries.RETRIES),
        (NotRenderable("503", answered_with=503), 1 + retries.RETRIES),
        (EmptyPage("blank"), 1 + retries.RETRIES),
        (NotRenderable("no HTML"), 2),
    ],
    ids=repr,
)
async def test_a_retry_that_fails_otherwise_is_not_the_last(
    monkeypatch: pytest.MonkeyPatch, error: PrerenderError, renders: int
) -> None:
    """Its page takes no place forever either."""
    monkeypatch.setattr(retries, "FIRST_SECONDS", 0.001)
    site = Site(freshness_of(100.0))
    site.renders.error = EmptyPage("blank")
    with pytest.raises(EmptyPage):
        await site.get()
    site.renders.error = error
    await until(lambda: not len(site.cached._retries))
    assert site.renders.count == renders
    await site.cached.close()


async def test_a_page_that_another_replica_has_rendered_is_not_retried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retries, "FIRST_SECONDS", 0.001)
    site = Site(freshness_of(100.0))
    await site.get()
    site.cached._retries.failed(PAGE)
    await until(lambda: not len(site.cached._retries))
    assert site.renders.count == 1
    await site.cached.close()


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

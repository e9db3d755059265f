"""A worse snapshot does not replace a better one."""

import asyncio
import re

import pytest
from aiohttp import web

from tests.conftest import Proxy, Reply, StartOrigin, StartProxy
from tests.support import raw

GOOD = f"<p>{'a whole page of text ' * 20}</p>"


class _Changing:
    """An origin whose page changes, and whose API can fail."""

    def __init__(self) -> None:
        self.page = GOOD
        self.api_status = 200

    def application(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/", self._page)
        application.router.add_get("/api", self._api)
        return application

    async def _page(self, _: web.Request) -> web.Response:
        return web.Response(text=self.page, content_type="text/html")

    async def _api(self, _: web.Request) -> web.Response:
        return web.Response(text="answer", status=self.api_status)


async def _next_render(proxy: Proxy) -> Reply:
    """The first response that is not a cache hit; the TTL is short."""
    async with asyncio.timeout(raw.SECONDS):
        while "; hit;" in (answer := await proxy.crawl("/")).headers["Cache-Status"]:
            pass
    return answer


async def test_failed_requests_of_the_page(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    site = _Changing()
    site.page = (
        GOOD
        + """<p id="out"></p><script>
      fetch("/api").then(async (a) => { out.textContent = a.ok ? await a.text() : "failed"; });
    </script>"""
    )
    origin = await start_origin(site.application())
    proxy = await start_proxy(origin.url, {"cache": {"ttl": 0.05, "stale": 0}})
    good = await proxy.crawl("/")
    assert "answer" in good.text
    site.api_status = 500
    kept = await _next_render(proxy)
    assert kept.body == good.body
    assert kept.headers["Cache-Status"] == "prerender; fwd=stale; detail=failed"
    assert kept.headers["ETag"] == good.headers["ETag"]


async def test_a_first_render_with_a_failed_request_is_an_error(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    site = _Changing()
    site.api_status = 503
    site.page = GOOD + '<script>fetch("/api")</script>'
    origin = await start_origin(site.application())
    proxy = await start_proxy(origin.url)
    answer = await proxy.crawl("/")
    assert answer.status == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.headers["Cache-Status"] == "prerender; fwd=miss; detail=failed"


async def test_pages_that_have_shrunk(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    site = _Changing()
    origin = await start_origin(site.application())
    proxy = await start_proxy(origin.url, {"cache": {"ttl": 0.05, "stale": 0}})
    good = await proxy.crawl("/")
    site.page = "<p>loading"
    kept = await _next_render(proxy)
    assert kept.body == good.body
    assert kept.headers["Cache-Status"] == "prerender; fwd=stale; detail=shrunken"
    # Until it is looked at again, what was kept is shown at once.
    again = await proxy.crawl("/")
    status = again.headers["Cache-Status"]
    assert re.fullmatch(r"prerender; hit; ttl=-\d+; detail=stale-if-error; age=\d+", status)
    assert again.headers["Cache-Control"] == "no-cache"
    # Two more renders are refused. The next one is accepted, because the page stays short.
    for text in (GOOD, GOOD, "<p>loading"):
        url = f"{proxy.admin_url}/api/v1/render"
        async with proxy.client.post(url, json={"url": "/"}) as response:
            assert response.status == 200
        assert text in (await proxy.crawl("/")).text


@pytest.mark.ci_only
async def test_partial_pages(start_origin: StartOrigin, start_proxy: StartProxy) -> None:
    site = _Changing()
    origin = await start_origin(site.application())
    proxy = await start_proxy(
        origin.url, {"cache": {"ttl": 0.05, "stale": 0}, "render": {"timeout": 3}}
    )
    good = await proxy.crawl("/")
    assert good.status == 200
    site.page = GOOD + "<script>setTimeout(() => { for (;;); }, 50)</script>"
    # On a busy machine the page may take too long to be ended, too: such a render has failed.
    status = "failed"
    async with asyncio.timeout(60):
        while "failed" in status:
            kept = await _next_render(proxy)
            assert kept.body == good.body
            status = kept.headers["Cache-Status"]
    assert status == "prerender; fwd=stale; detail=cut-off"


async def test_a_page_that_is_gone_is_gone(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    site = _Changing()
    origin = await start_origin(site.application())
    proxy = await start_proxy(origin.url, {"cache": {"ttl": 0.05, "stale": 0}})
    await proxy.crawl("/")
    site.page = '<head><meta name="prerender-status-code" content="404"></head>not found'
    answer = await _next_render(proxy)
    assert answer.status == 404
    assert "not found" in answer.text

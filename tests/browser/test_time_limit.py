"""``[render] timeout`` limits a render and the wait of its clients, whatever a page does."""

import asyncio
import time

import pytest
from aiohttp import web

from tests.conftest import Proxy, StartOrigin, StartProxy
from tests.sites.hostile import GREEDY
from tests.support.sampling import sampled

TIMEOUT = 2.0
# What comes after the limit: the last words of a page, and its cleaning or its end.
AFTER = 1.0
# Places that can hold a render up. make test-long has all of GREEDY.
SHORT = ("endless-script", "dialogs")

LEAVING = {
    event: f"<p>x<script>addEventListener('{event}', () => {{ for (;;); }})</script>"
    for event in ("pagehide", "unload", "visibilitychange", "beforeunload")
}
PAGES = GREEDY | LEAVING


class Lag:
    """The maximum lag of this process: without CPU time, it cannot keep a limit."""

    def __init__(self) -> None:
        self.seconds = 0.0

    async def run(self) -> None:
        while True:
            asked = time.monotonic()
            await asyncio.sleep(0.01)
            self.seconds = max(self.seconds, time.monotonic() - asked - 0.01)


@pytest.fixture
async def proxy(start_origin: StartOrigin, start_proxy: StartProxy) -> Proxy:
    async def answer(request: web.Request) -> web.Response:
        html = PAGES.get(request.path[1:], "<p>fine")
        return web.Response(text=html, content_type="text/html")

    async def slow(_: web.Request) -> web.Response:
        await asyncio.sleep(60)
        raise AssertionError("nobody waits so long")

    application = web.Application()
    application.add_routes([web.get("/slow", slow), web.get("/{path:.*}", answer)])
    origin = await start_origin(application)
    return await start_proxy(origin.url, {"browser": {"pages": 2}, "render": {"timeout": TIMEOUT}})


async def keeps_the_limit(proxy: Proxy, path: str) -> None:
    lag = Lag()
    watching = asyncio.create_task(lag.run())
    pool, started = proxy.running.pool, time.monotonic()
    answer = await proxy.crawl(path)
    answered = time.monotonic() - started
    while pool.state.busy:
        await asyncio.sleep(0.01)
        assert time.monotonic() - started < 60
    freed = time.monotonic() - started
    watching.cancel()
    assert answer.status in (200, 503, 504)
    assert answered - lag.seconds < TIMEOUT + AFTER, f"answered after {answered:.1f} s"
    assert freed - lag.seconds < TIMEOUT + AFTER, f"page free after {freed:.1f} s"
    # The pages that follow are whole, if the machine is not too busy for the short limit.
    await proxy.all_pages_idle()
    async with asyncio.timeout(60):
        while (fine := await proxy.crawl("/fine")).status == 503:
            await proxy.all_pages_idle()
    assert "<p>fine" in fine.text


@pytest.mark.ci_only
@pytest.mark.parametrize("name", SHORT)
async def test_of_a_render(proxy: Proxy, name: str) -> None:
    await keeps_the_limit(proxy, f"/{name}")


async def test_of_a_document(proxy: Proxy) -> None:
    await keeps_the_limit(proxy, "/slow")


@pytest.mark.parametrize("event", sampled([*LEAVING], 3))
async def test_of_leaving_a_page(proxy: Proxy, event: str) -> None:
    await keeps_the_limit(proxy, f"/{event}")


@pytest.mark.long
@pytest.mark.parametrize("name", GREEDY)
async def test_of_every_page(proxy: Proxy, name: str) -> None:
    await keeps_the_limit(proxy, f"/{name}")

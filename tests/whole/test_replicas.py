"""Proxies with a browser each on one Redis: each page is rendered once, and purges apply to all."""

import asyncio
import time
from pathlib import Path

import pytest
from aiohttp import web

from tests.conftest import StartOrigin, StartProxy, pages
from tests.support import raw
from tests.support.redis_server import redis_server

REPLICAS = 2
REQUESTS = 60
TOKEN = "a-token-of-enough-length"
PAGE = """<p id="out">waiting</p><script>
  fetch("/slow").then(async (answer) => { out.textContent = await answer.text(); });
</script>"""


@pytest.mark.ci_only
async def test_one_render_one_purge(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    asked = 0
    hold = asyncio.Event()

    async def slow(_: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        await hold.wait()
        return web.Response(text="ready")

    application = web.Application()
    application.router.add_get("/slow", slow)
    application.router.add_get("/", _page)
    origin = await start_origin(application)
    async with redis_server(tmp_path) as redis:
        settings = {
            "site": {"url": "https://www.example.com"},
            "browser": {"pages": 1},
            "admin": {"token": TOKEN},
            "cache": {"url": redis.url},
        }
        proxies = [await start_proxy(origin.url, settings) for _ in range(REPLICAS)]
        asking = [
            asyncio.create_task(proxies[number % REPLICAS].crawl("/#!a"))
            for number in range(REQUESTS)
        ]
        async with asyncio.timeout(30):
            while not asked:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)  # all others have found the lease taken
        hold.set()
        answers = await asyncio.gather(*asking)
        assert {answer.status for answer in answers} == {200}
        assert {answer.body for answer in answers} == {answers[0].body}
        assert "ready" in answers[0].text
        assert origin.count("/") == 1
        assert asked == 1
        renders = origin.count("/")

        # A burst at what is kept touches no browser.
        burst = await asyncio.gather(*(proxies[n % REPLICAS].crawl("/#!a") for n in range(100)))
        assert all("; hit;" in answer.headers["Cache-Status"] for answer in burst)
        assert origin.count("/") == renders

        url, headers = f"{proxies[0].admin_url}/api/v1/purge", {"Authorization": f"Bearer {TOKEN}"}
        async with proxies[0].client.post(url, json={"all": True}, headers=headers) as purged:
            assert purged.status == 200
        asked_at = shown_at = purged_at = time.monotonic()
        async with asyncio.timeout(raw.SECONDS):
            while "; hit;" in (await proxies[1].crawl("/#!a")).headers["Cache-Status"]:
                shown_at = asked_at
                await asyncio.sleep(0.02)
                asked_at = time.monotonic()
        assert shown_at - purged_at < 1

        await redis.kill()
        for proxy in proxies:
            assert (await proxy.crawl("/#!a")).status == 200
            assert (await proxy.crawl("/#!b")).status == 200
        async with proxies[0].client.post(url, json={"all": True}, headers=headers) as refused:
            assert refused.status == 503


async def _page(_: web.Request) -> web.Response:
    return web.Response(text=PAGE, content_type="text/html")


@pytest.mark.ci_only
async def test_a_redis_that_is_away_at_the_start(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    origin = await pages(start_origin, {"/": "<p>hello"})
    async with redis_server(tmp_path) as redis:
        await redis.kill()
        proxy = await start_proxy(origin.url, {"cache": {"url": redis.url}})
        assert (await proxy.crawl("/")).status == 200
        await redis.start()
        async with asyncio.timeout(20):
            number = 0
            while not await redis.client.dbsize():
                number += 1
                await proxy.crawl(f"/?{number}")

"""Replicas that are stopped or busy: nothing is lost, and every request gets a response."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession, web

from tests.conftest import Proxy, StartOrigin, StartProxy, pages
from tests.project.test_deploy import DEPLOY
from tests.support import nginx_server, raw
from tests.support.redis_server import redis_server
from tests.support.serve_command import StartCommand

URLS = 12
NOBODY = "127.0.0.1:9"
BUSY = b"HTTP/1.1 503 Busy\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n"
PAGE = """<p id="out"></p><script>
  document.getElementById("out").textContent = "state " + location.hash;
</script>"""
ENDLESS = "<p>waiting</p><script>fetch('/never')</script>"


async def leases(redis: Any) -> list[bytes]:
    found: list[bytes] = await redis.keys("*lease:*")
    return found


async def test_a_replica_that_is_stopped_loses_nothing(
    start_command: StartCommand, start_origin: StartOrigin, client: ClientSession, tmp_path: Path
) -> None:
    site = await pages(start_origin, {"/": PAGE})
    answers: list[tuple[int, str]] = []
    some = asyncio.Event()
    async with redis_server(tmp_path) as redis:
        settings = {"CACHE_URL": redis.url, "SERVER_GRACE": "20"}
        commands = [await start_command(site.url, **settings) for _ in range(2)]
        await asyncio.gather(*(command.ready(client) for command in commands))
        addresses = [command.url.removeprefix("http://") for command in commands]
        async with replicas(tmp_path, *addresses) as url:

            async def crawl(numbers: list[int]) -> None:
                for number in numbers:
                    async with client.get(f"{url}/?_escaped_fragment_=/{number}") as answer:
                        text = await answer.text()
                        found = re.search(r"state #!/(\d+)", text)
                        answers.append((answer.status, found[1] if found else text))
                    if len(answers) == URLS // 4:
                        some.set()

            numbers = list(range(URLS))
            crawling = asyncio.gather(*(crawl(numbers[first::4]) for first in range(4)))
            await some.wait()
            commands[0].process.terminate()
            assert await commands[0].ended() == 0
            await crawling
        assert sorted(answers) == sorted((200, str(number)) for number in range(URLS))
        assert site.count("/") <= URLS + 4
        assert await leases(redis.client) == []


@asynccontextmanager
async def replicas(folder: Path, *addresses: str) -> AsyncIterator[str]:
    """nginx as in deploy/, in front of two proxies and one that is not there."""
    port = raw.free_port()
    text = (DEPLOY / "nginx/replicas.conf").read_text("utf-8")
    text = text.replace("listen 80;", f"listen 127.0.0.1:{port};")
    for number, address in enumerate((*addresses, NOBODY), 1):
        text = text.replace(f"server prerender-{number}:8080 ", f"server {address} ")
    async with nginx_server.running(folder, text, port, errors="crit"):
        yield f"http://127.0.0.1:{port}"


async def test_nginx_asks_another_proxy_for_a_snapshot_if_one_is_busy(
    client: ClientSession, tmp_path: Path
) -> None:
    """Requests of visitors are not repeated: the site itself may have responded."""
    async with raw.origin(raw.answering(BUSY)) as busy, raw.origin(raw.answering(raw.OK)) as idle:
        addresses = (f"127.0.0.1:{busy.port}", f"127.0.0.1:{idle.port}")
        async with replicas(tmp_path, *addresses) as url:
            for number in range(6):
                ugly = await client.get(f"{url}/?_escaped_fragment_={number}")
                assert (ugly.status, await ugly.text()) == (200, "ok")
            assert busy.requests
            visits = [(await client.get(f"{url}/{number}")).status for number in range(6)]
            assert set(visits) == {200, 503}


@pytest.mark.parametrize("busy", [True, False])
async def test_a_crawler_may_come_back_if_no_proxy_can(
    client: ClientSession, tmp_path: Path, *, busy: bool
) -> None:
    async with raw.origin(raw.answering(BUSY)) as proxy:
        address = f"127.0.0.1:{proxy.port}" if busy else NOBODY
        async with replicas(tmp_path, address, address) as url:
            answer = await client.get(f"{url}/?_escaped_fragment_=")
            assert answer.status == 503
            # The proxy's, or nginx's own if the one that is not there was asked last.
            assert answer.headers["Retry-After"] in (("7", "10") if busy else ("10",))


async def test_renders_that_cannot_finish_are_handed_over(
    start_command: StartCommand, start_origin: StartOrigin, client: ClientSession, tmp_path: Path
) -> None:
    """At the end of the grace period they get a 503, and their leases are released."""
    asked = asyncio.Event()

    async def never(_: web.Request) -> web.Response:
        asked.set()
        await asyncio.sleep(3600)
        raise AssertionError

    application = web.Application()
    application.router.add_get("/never", never)
    application.router.add_get("/", _endless)
    site = await start_origin(application)
    async with redis_server(tmp_path) as redis:
        command = await start_command(site.url, CACHE_URL=redis.url, SERVER_GRACE="0.5")
        await command.ready(client)
        urls = [f"{command.url}/?_escaped_fragment_={number}" for number in range(3)]
        asking = [asyncio.create_task(client.get(url)) for url in urls]
        await asked.wait()
        async with asyncio.timeout(raw.SECONDS):
            while len(await leases(redis.client)) < len(urls):
                await asyncio.sleep(0.02)
        command.process.terminate()
        answers: list[ClientResponse] = await asyncio.gather(*asking)
        assert [answer.status for answer in answers] == [503] * 3
        assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)
        assert await command.ended() == 0
        assert await leases(redis.client) == []


async def _endless(_: web.Request) -> web.Response:
    return web.Response(text=ENDLESS, content_type="text/html")


@pytest.mark.ci_only
async def test_a_proxy_leaves_before_its_queue_is_full_and_returns_when_it_is_short(
    start_origin: StartOrigin, start_proxy: StartProxy
) -> None:
    """It is alive all the time, forwards, and responds with stored snapshots."""
    gates: dict[str, asyncio.Event] = {}

    async def page(request: web.Request) -> web.Response:
        if gate := gates.get(request.path):
            await gate.wait()
        return web.Response(text="<p>content", content_type="text/html")

    application = web.Application()
    application.router.add_get("/{path:.*}", page)
    site = await start_origin(application)
    # Renders that wait for their document are in the queue, too: full are two pages and eight places.
    proxy = await start_proxy(site.url, {"browser": {"pages": 2, "queue": 8}})
    await proxy.crawl("/stored")
    await until_under_way(proxy, 0)
    asking = []
    for number in range(8):
        assert await status(proxy, "/readyz/queue") == 200
        gates[f"/{number}"] = asyncio.Event()
        asking.append(asyncio.create_task(proxy.crawl(f"/{number}")))
        await until_under_way(proxy, number + 1)
    assert await status(proxy, "/readyz/queue") == 503
    for path in ("/healthz", "/readyz"):
        assert await status(proxy, path) == 200
    assert (await proxy.get("/visitor")).status == 200
    assert (await proxy.crawl("/stored")).status == 200
    for number, task in enumerate(asking):
        gates[f"/{number}"].set()
        assert (await task).status == 200
        left = len(asking) - number - 1
        await until_under_way(proxy, left)
        # Two pages and a quarter of the queue: with fewer renders than four it returns.
        assert await status(proxy, "/readyz/queue") == (503 if left >= 4 else 200)


async def until_under_way(proxy: Proxy, renders: int) -> None:
    """Wait until this number of renders is running, including pages that are being cleaned."""
    async with asyncio.timeout(raw.SECONDS):
        while (state := proxy.running.pool.state).busy + state.admitted != renders:
            await asyncio.sleep(0.01)


async def status(proxy: Proxy, path: str) -> int:
    async with proxy.client.get(proxy.admin_url + path) as answer:
        return answer.status

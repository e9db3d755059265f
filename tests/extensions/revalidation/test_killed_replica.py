"""A replica that is killed while it asks for inputs leaves its page to the others."""

import asyncio
import signal
from collections import Counter
from pathlib import Path

import pytest
from aiohttp import ClientConnectionError, ClientSession, web

from tests.conftest import StartOrigin
from tests.support import raw
from tests.support.redis_server import redis_server
from tests.support.renders import until
from tests.support.serve_command import Command, StartCommand

PAGE = """<!doctype html><title>Shop</title><p id=p></p><script>
fetch('/data').then(r => r.text()).then(text => p.textContent = text)</script>"""


async def crawled(client: ClientSession, command: Command) -> tuple[str, str]:
    """Cache-Status and body of the snapshot."""
    async with client.get(f"{command.url}/?_escaped_fragment_=") as response:
        return response.headers["Cache-Status"], await response.text()


@pytest.mark.long
@pytest.mark.parametrize("changed", [False, True])
async def test_another_one_renews_it(
    changed: bool,
    start_command: StartCommand,
    start_origin: StartOrigin,
    client: ClientSession,
    tmp_path: Path,
) -> None:
    requests: Counter[str] = Counter()
    data = "data 1"
    gate = asyncio.Event()
    gate.set()

    async def respond(request: web.Request) -> web.Response:
        requests[request.path] += 1
        if request.path == "/":
            return web.Response(text=PAGE, content_type="text/html")
        await gate.wait()
        return web.Response(text=data)

    application = web.Application()
    application.router.add_get("/{path:.*}", respond)
    site = await start_origin(application)
    async with redis_server(tmp_path) as redis:
        settings = {"CACHE_URL": redis.url, "CACHE_REVALIDATE": "true", "CACHE_STALE": "0"}
        replicas = [await start_command(site.url, **settings) for _ in range(2)]
        await asyncio.gather(*(replica.ready(client) for replica in replicas))
        killed, other = replicas

        async def expire() -> None:
            purge = {"all": True, "soft": True}
            url = f"{killed.admin_url}/api/v1/purge"
            async with client.post(url, json=purge) as response:
                assert response.status == 200

        for _ in range(3):
            await expire()
            assert "fwd=miss; stored" in (await crawled(client, killed))[0]
        await expire()
        gate.clear()
        before = requests["/data"]
        asking = asyncio.create_task(crawled(client, killed))
        await until(lambda: requests["/data"] > before)
        waiting = asyncio.create_task(crawled(client, other))
        killed.process.send_signal(signal.SIGKILL)
        await killed.ended()
        with pytest.raises(ClientConnectionError):
            await asking
        if changed:
            data = "data 2"
        gate.set()
        async with asyncio.timeout(raw.SECONDS):
            status, body = await waiting
        assert ("detail=revalidated" in status) is not changed
        assert data in body

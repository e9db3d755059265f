"""nginx's cache in front keeps a snapshot no longer than the proxy does."""

import asyncio
import itertools
import re
from pathlib import Path

import pytest
from aiohttp import web

from tests.conftest import Reply, StartOrigin, StartProxy
from tests.support import nginx_server, raw

TTL_SECONDS = 6
CONFIG = """
  proxy_cache_path {folder}/cache keys_zone=pages:1m;
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://127.0.0.1:{proxy_port};
      proxy_cache pages;
      add_header X-Cache $upstream_cache_status;
    }}
  }}
"""


def age_of(answer: Reply) -> int:
    found = re.search(r"; age=(\d+)$", answer.headers["Cache-Status"])
    return int(found[1]) if found else 0


@pytest.mark.ci_only
async def test_a_cache_keeps_a_snapshot_no_longer_than_the_proxy(
    start_origin: StartOrigin, start_proxy: StartProxy, tmp_path: Path
) -> None:
    count = itertools.count(1)

    async def page(_: web.Request) -> web.Response:
        return web.Response(text=f"<p>version {next(count)}", content_type="text/html")

    application = web.Application()
    application.router.add_get("/", page)
    origin = await start_origin(application)
    proxy = await start_proxy(origin.url, {"cache": {"ttl": TTL_SECONDS, "stale_if_error": 0}})
    port = raw.free_port()
    config = CONFIG.format(folder=tmp_path, port=port, proxy_port=proxy.running.public_port)
    ugly = "/?_escaped_fragment_="

    async def behind_nginx() -> tuple[str, str]:
        async with proxy.client.get(f"http://127.0.0.1:{port}{ugly}") as answer:
            assert "Age" not in answer.headers
            return await answer.text(), answer.headers["X-Cache"]

    async with nginx_server.running(tmp_path, config, port), asyncio.timeout(60):
        while age_of(await proxy.get(ugly)) < TTL_SECONDS - 3:
            await asyncio.sleep(0.1)
        text, cache = await behind_nginx()
        while cache != "HIT":
            text, cache = await behind_nginx()
        while (now := await proxy.get(ugly)).text == text:
            await asyncio.sleep(0.1)
        # nginx counts in whole seconds.
        while (await behind_nginx())[0] == text:
            assert age_of(now) <= 1
            await asyncio.sleep(0.1)
            now = await proxy.get(ugly)

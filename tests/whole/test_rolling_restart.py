"""Two proxies behind nginx are restarted one after the other while people come: nobody notices."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import ClientSession

from tests.cli.test_process import Command, Start, start
from tests.support import nginx_server, raw

__all__ = ["start"]

# max_fails=0: else nginx leaves a server out for 10 s after a refused connection, and finds none left
# when the second one is restarted within that time.
CONFIG = """
  upstream prerender {{
    server 127.0.0.1:{first} max_fails=0;
    server 127.0.0.1:{second} max_fails=0;
    keepalive 16;
  }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://prerender;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $host;
    }}
  }}
"""


@asynccontextmanager
async def nginx(folder: Path, first: int, second: int) -> AsyncIterator[str]:
    port = raw.free_port()
    http = CONFIG.format(first=first, second=second, port=port)
    async with nginx_server.running(folder, http, port, errors="crit"):
        yield f"http://127.0.0.1:{port}"


async def test_nothing_is_lost(start: Start, tmp_path: Path) -> None:
    """About 100 requests a second; each process is ended and started again, twice."""
    answers: list[tuple[int, bytes]] = []
    done = asyncio.Event()
    async with raw.origin(raw.answering(raw.OK)) as origin, ClientSession() as client:
        ports = raw.free_ports(2)
        running: dict[int, Command] = {}

        async def begin(port: int) -> None:
            command = await start(
                origin.url, SERVER_PORT=str(port), BROWSER_PATH="/nonexistent", LOG_LEVEL="info"
            )
            await command.serving()
            running[port] = command

        await asyncio.gather(*map(begin, ports))
        async with nginx(tmp_path, *ports) as url:

            async def one() -> None:
                async with client.get(f"{url}/page") as answer:
                    answers.append((answer.status, await answer.read()))

            async def visitors() -> None:
                async with asyncio.TaskGroup() as group:
                    while not done.is_set():
                        group.create_task(one())
                        await asyncio.sleep(0.01)

            visiting = asyncio.create_task(visitors())
            for port in ports * 2:
                running[port].process.terminate()
                assert await running[port].ended() == 0
                await begin(port)
            done.set()
            await visiting
    assert len(answers) > 100
    assert set(answers) == {(200, b"ok")}

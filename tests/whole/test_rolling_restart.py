"""Proxies are restarted while visitors come: nobody notices."""

import asyncio
import itertools
import re
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest
from aiohttp import ClientSession, web

from tests.conftest import StartOrigin
from tests.support import nginx_server, raw
from tests.support.commands import ROOT
from tests.support.serve_command import Command, StartCommand

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


@pytest.mark.ci_only
@pytest.mark.parametrize("times", [1, pytest.param(2, marks=pytest.mark.long)])
async def test_nothing_is_lost(
    start_command: StartCommand, tmp_path: Path, client: ClientSession, times: int
) -> None:
    """Two proxies behind nginx, restarted one after the other under load.

    About 100 requests a second.
    """
    answers: list[tuple[int, bytes]] = []
    done = asyncio.Event()
    async with raw.origin(raw.answering(raw.OK)) as origin:
        ports = raw.free_ports(2)
        running: dict[int, Command] = {}

        async def begin(port: int) -> None:
            command = await start_command(
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

            async def more() -> None:
                before = len(answers)
                async with asyncio.timeout(raw.SECONDS):
                    while len(answers) < before + 25:
                        await asyncio.sleep(0.01)

            visiting = asyncio.create_task(visitors())
            for port in ports * times:
                await more()
                running[port].process.terminate()
                assert await running[port].ended() == 0
                await begin(port)
            done.set()
            await visiting
    assert len(answers) >= 50 * times
    assert set(answers) == {(200, b"ok")}


@pytest.mark.long
async def test_no_crawler_fails_while_replicas_are_replaced(
    start_command: StartCommand, start_origin: StartOrigin, tmp_path: Path, client: ClientSession
) -> None:
    """Two proxies with browsers behind the nginx of deploy/, replaced one after the other while each
    renders pages that take a while. test_scale_down.py has the ordinary form, without a new one.
    """
    application = web.Application()

    async def page(request: web.Request) -> web.Response:
        if request.path == "/data":
            await asyncio.sleep(0.3)
            return web.Response(text="the data")
        script = 'fetch("/data").then((r) => r.text()).then((text) => document.body.append(text))'
        return web.Response(text=f"<p>page<script>{script}</script>", content_type="text/html")

    application.router.add_get("/{path:.*}", page)
    site = await start_origin(application)
    ports = raw.free_ports(2)
    running: dict[int, Command] = {}

    async def begin(port: int) -> None:
        running[port] = await start_command(site.url, SERVER_PORT=str(port), RENDER_TIMEOUT="60")
        await running[port].ready(client)

    answers: list[tuple[int, bool]] = []
    numbers = itertools.count()
    done = asyncio.Event()
    await asyncio.gather(*map(begin, ports))
    http = (ROOT / "deploy/nginx/replicas.conf").read_text("utf-8")
    front = raw.free_port()
    http = http.replace("listen 80;", f"listen 127.0.0.1:{front};")
    http = re.sub(r" *server prerender-3.*\n", "", http)
    for number, port in enumerate(ports, start=1):
        http = http.replace(f"prerender-{number}:8080", f"127.0.0.1:{port}")
    async with nginx_server.running(tmp_path, http, front, errors="crit"):

        async def crawler() -> None:
            while not done.is_set():
                url = f"http://127.0.0.1:{front}/?_escaped_fragment_={next(numbers)}"
                async with client.get(url, headers={"Host": "site.example"}) as answer:
                    answers.append((answer.status, "the data" in await answer.text()))

        crawling = [asyncio.create_task(crawler()) for _ in range(4)]
        for port in ports:
            before = len(answers)
            async with asyncio.timeout(60):
                while len(answers) < before + 4:
                    await asyncio.sleep(0.01)
            running[port].process.terminate()
            assert await running[port].ended() == 0
            await begin(port)
        done.set()
        await asyncio.gather(*crawling)
    for command in running.values():
        command.process.terminate()
        assert await command.ended() == 0
    assert set(answers) == {(200, True)}, answers


async def test_a_stop_under_load_loses_no_request(start_command: StartCommand) -> None:
    """Requests that the origin got have responses. All others fail before they are read, and can be
    repeated.
    """
    asked: set[bytes] = set()
    answered: set[bytes] = set()
    many = asyncio.Event()

    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        while True:
            request = await raw.receive(reader)
            asked.add(request.line.split()[1])
            await asyncio.sleep(0.02)  # so that many are under way at any time
            writer.write(raw.OK)

    async def visitor(port: int, name: int) -> None:
        """Sends requests on one connection until it is closed."""
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            async with raw.client(port) as client:
                for number in itertools.count():
                    target = b"/%d/%d" % (name, number)
                    await client.send(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target)
                    assert (await client.answer()).endswith(b"\r\n\r\nok")
                    answered.add(target)
                    if len(answered) == 500:
                        many.set()

    async with raw.origin(script) as origin:
        port = raw.free_port()
        command = await start_command(
            origin.url, SERVER_PORT=str(port), BROWSER_PATH="/nonexistent"
        )
        await command.serving()
        async with asyncio.timeout(raw.SECONDS * 3), asyncio.TaskGroup() as visitors:
            for name in range(50):
                visitors.create_task(visitor(port, name))
            await many.wait()
            command.process.terminate()
        assert await command.ended() == 0
    assert asked == answered


@pytest.mark.long
async def test_with_10000_idle_connections_others_are_served(start_command: StartCommand) -> None:
    """The ordinary form with 1,000 is in proxy/test_slow_clients.py."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < 12_000:
        pytest.skip(f"a process may have only {most} files open")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    get = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = raw.free_port()
        command = await start_command(
            origin.url,
            SERVER_PORT=str(port),
            SERVER_HEADER_TIMEOUT="10m",
            BROWSER_PATH="/nonexistent",
        )
        await command.serving()
        process = psutil.Process(command.process.pid)
        before = process.memory_info().rss
        with ExitStack() as idle:
            for _ in range(10_000):
                idle.enter_context(socket.create_connection(("127.0.0.1", port), raw.SECONDS))
            answers = await asyncio.gather(*(raw.ask(port, get) for _ in range(100)))
            assert all(answer.endswith(b"\r\n\r\nok") for answer in answers)
            # The kernel may still hold some of them; those that were accepted are in the process.
            assert process.num_fds() > 10_000
            assert process.memory_info().rss - before < 400 * 2**20
        assert (await raw.ask(port, get)).endswith(b"\r\n\r\nok")
        command.process.terminate()
        assert await command.ended() == 0

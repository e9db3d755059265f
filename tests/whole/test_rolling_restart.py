"""Proxies are restarted while visitors come: nobody notices."""

import asyncio
import itertools
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import psutil
import pytest
from aiohttp import ClientSession

from tests.support import nginx_server, raw
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


async def test_nothing_is_lost(
    start_command: StartCommand, tmp_path: Path, client: ClientSession
) -> None:
    """Two proxies behind nginx, restarted one after the other, twice, under load.

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
            for port in ports * 2:
                await more()
                running[port].process.terminate()
                assert await running[port].ended() == 0
                await begin(port)
            done.set()
            await visiting
    assert len(answers) >= 100
    assert set(answers) == {(200, b"ok")}


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

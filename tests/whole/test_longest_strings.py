"""What clients choose does not fill the memory: many requests with the longest accepted strings."""

import asyncio
import re
from collections.abc import Callable

import psutil
import pytest
from aiohttp import ClientSession, web

from prerender.proxy.decision import LONGEST_PAGE
from tests.conftest import StartOrigin
from tests.support.serve_command import StartCommand

REQUESTS = 10_000
AT_ONCE = 4
MOST_BYTES = 64 * 1024**2
LONG = b"z" * 60_000


def _header(name: bytes) -> Callable[[int], tuple[bytes, bytes]]:
    def make(number: int) -> tuple[bytes, bytes]:
        target = b"/p?%d%s" % (number, b"&_escaped_fragment_=" if number % 2 else b"")
        return target, b"%s: %d%s\r\n" % (name, number, LONG)

    return make


def _many_headers(number: int) -> tuple[bytes, bytes]:
    return b"/p", b"".join(b"X-%d-%d: %s\r\n" % (number, one, LONG[:500]) for one in range(200))


KINDS: dict[str, Callable[[int], tuple[bytes, bytes]]] = {
    "path": lambda number: (b"/%d%s" % (number, LONG), b""),
    "ugly": lambda number: (
        b"/?n=%d&_escaped_fragment_=%s" % (number, b'"' * (LONGEST_PAGE - 20)),
        b"",
    ),
    "user-agent": _header(b"User-Agent"),
    "googlebot": _header(b"User-Agent: Googlebot"),
    "referer": _header(b"Referer"),
    "cookie": _header(b"Cookie"),
    "accept": _header(b"Accept"),
    "x-forwarded-for": _header(b"X-Forwarded-For"),
    "x-forwarded-host": _header(b"X-Forwarded-Host"),
    "many-headers": _many_headers,
}


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_strings_of_clients_do_not_fill_the_memory(
    start_command: StartCommand, start_origin: StartOrigin, client: ClientSession
) -> None:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(text="x")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    origin = await start_origin(application)
    command = await start_command(origin.url, LOG_ACCESS="none")
    await command.ready(client)
    reading = asyncio.create_task(command.rest())
    process = psutil.Process(command.process.pid)
    port = int(command.url.rpartition(":")[2])
    before = process.memory_info().rss
    grown = {}
    for kind, make in KINDS.items():
        await asyncio.gather(
            *(_send(port, make, range(at, REQUESTS, AT_ONCE)) for at in range(AT_ONCE))
        )
        grown[kind] = (process.memory_info().rss - before) >> 20
    reading.cancel()
    assert process.memory_info().rss - before < MOST_BYTES, grown


async def _send(port: int, make: Callable[[int], tuple[bytes, bytes]], numbers: range) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in numbers:
        target, headers = make(number)
        writer.write(b"GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n" % (target, headers))
        head = await reader.readuntil(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: (\d+)", head)
        await reader.readexactly(int(found[1]) if found else 0)
        if b"close" in head.lower():
            writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.close()

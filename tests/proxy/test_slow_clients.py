"""Slow clients run into timeouts, and never delay others."""

import asyncio
import os
import shlex
import sys
import tracemalloc
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import psutil
import pytest
from aiohttp import ClientSession

from prerender.http.connection import Sweeper
from prerender.http.message_head import Request
from prerender.proxy.client_stream import ClientStream
from prerender.proxy.responses import whole
from prerender.proxy.server import Server
from tests.conftest import StartForwarding
from tests.support import raw
from tests.support.limits import limits

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
CLOSE = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"


async def test_an_idle_connection_is_closed(start_forwarding: StartForwarding) -> None:
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url, header_timeout=5, idle_timeout=0.3)
        async with raw.client(port) as client:
            await client.send(GET)
            assert (await client.answer()).endswith(b"ok")
            assert await client.rest() == b""


async def test_a_first_request_is_due_soon(start_forwarding: StartForwarding) -> None:
    port = await start_forwarding("http://127.0.0.1:9", header_timeout=0.3)
    async with raw.client(port) as client:
        assert await client.rest() == b""


async def test_empty_lines_put_off_nothing(start_forwarding: StartForwarding) -> None:
    """Sending CRLF from time to time does not extend the timeout."""
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url, header_timeout=0.4, idle_timeout=0.4)
        for begun in (b"", GET):
            async with raw.client(port) as client:
                await client.send(begun)
                if begun:
                    await client.answer()
                answering = asyncio.create_task(client.rest())
                async with asyncio.timeout(raw.SECONDS):
                    while not answering.done():
                        client.writer.write(b"\r\n")
                        await asyncio.sleep(0.05)
                with suppress(ConnectionError):
                    assert await answering == b""


async def test_a_head_that_comes_byte_by_byte(start_forwarding: StartForwarding) -> None:
    port = await start_forwarding("http://127.0.0.1:9", header_timeout=0.5)
    async with raw.client(port) as client:
        answering = asyncio.create_task(client.until(b"\r\n\r\n"))
        await client.send(b"GET / HTTP/1.1\r\nX: ")
        async with asyncio.timeout(raw.SECONDS):
            while not answering.done():
                client.writer.write(b"y")
                await asyncio.sleep(0.02)
        assert (await answering).startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize("framing", [b"Content-Length: 10", b"Transfer-Encoding: chunked"])
async def test_a_body_that_stops(start_forwarding: StartForwarding, framing: bytes) -> None:
    """The origin's connection is released, too."""
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url, body_timeout=0.3)
        async with raw.client(port) as client:
            await client.send(b"POST / HTTP/1.1\r\nHost: a\r\n" + framing + b"\r\n\r\n5\r\nab")
            assert (await client.rest()).startswith(b"HTTP/1.1 408 ")
            async with asyncio.timeout(raw.SECONDS):
                await origin.ended.wait()
    assert origin.requests == []


async def test_a_client_that_takes_nothing(start_forwarding: StartForwarding) -> None:
    """The origin's endless response ends with it."""

    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await raw.receive(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(bytes(100_000))
            await writer.drain()

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url, write_timeout=0.5)
        async with raw.client(port, limit=1000) as client:
            await client.send(GET)
            await client.until(b"\r\n\r\n")
            async with asyncio.timeout(raw.SECONDS):
                await origin.ended.wait()


async def test_a_client_that_takes_little_but_steadily(start_forwarding: StartForwarding) -> None:
    body = bytes(12_000_000)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    async with raw.origin(raw.ending_with(answer)) as origin:
        port = await start_forwarding(origin.url, write_timeout=1)
        async with raw.client(port, limit=1000) as client:
            await client.send(GET)
            await client.until(b"\r\n\r\n")
            for _ in range(12):
                await client.reader.readexactly(1_000_000)
                await asyncio.sleep(0.1)


@pytest.mark.ci_only
@pytest.mark.heavy
async def test_new_clients_are_served_with_1000_slow_ones(
    start_forwarding: StartForwarding,
) -> None:
    """Slow heads, slow bodies, and silent clients; none of them is left at the end."""
    slow = (
        b"GET / HTTP/1.1\r\nX: y",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nx",
        b"",
    )
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url, header_timeout=3, body_timeout=3)
        opened = []
        for number in range(1000):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(slow[number % 3])
            opened.append((reader, writer))
        answers = await asyncio.gather(*(raw.ask(port, CLOSE) for _ in range(20)))
        assert all(answer.endswith(b"ok") for answer in answers)
        assert not opened[-1][0].at_eof(), "they have waited until the slow ones were cut"
        async with asyncio.timeout(raw.SECONDS):
            ends = [await _end(reader) for reader, _ in opened]
        told = [end.startswith(b"HTTP/1.1 408 ") for end in ends]
        assert not any(told[2::3])
        # On a machine that is very busy the first bytes can come too late to be answered.
        assert sum(told) > 300
        for _, writer in opened:
            writer.close()


async def _end(reader: raw.Reader) -> bytes:
    """The last bytes that a client gets before it is disconnected."""
    try:
        return await reader.read()
    except ConnectionError:
        return b""


@pytest.mark.heavy
async def test_many_pipelined_requests_are_not_read_ahead(
    start_forwarding: StartForwarding,
) -> None:
    """While one is slow, the socket's buffers fill, not the proxy's memory."""
    go_on = asyncio.Event()

    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        while True:
            await raw.receive(reader)
            await go_on.wait()
            writer.write(raw.OK)

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            flood = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"y" * 8000 + b"\r\n\r\n"
            for _ in range(1800):
                client.writer.write(flood)
            await asyncio.sleep(0.5)
            # 14 MB were written; what was not read is still here.
            assert client.writer.transport.get_write_buffer_size() > 4_000_000
            go_on.set()
            for _ in range(1800):
                assert (await client.answer()).endswith(b"ok")


async def test_slow_readers_of_one_answer_share_it() -> None:
    """A snapshot is in memory once, not once for each client that reads it."""
    body = bytes(20_000_000)

    async def handler(_: Request, client: ClientStream) -> None:
        await client.respond(whole(200, b"X: y\r\n", body))

    with Sweeper() as sweeper:
        server = Server(handler, limits(write_timeout=1), sweeper)
        await server.listen("127.0.0.1", 0, 100)
        before = psutil.Process().memory_info().rss
        async with AsyncExitStack() as stack:
            clients = [
                await stack.enter_async_context(raw.client(server.port, limit=1000))
                for _ in range(20)
            ]
            for client in clients:
                await client.send(GET)
                await client.until(b"\r\n\r\n")
            assert psutil.Process().memory_info().rss - before < 60_000_000
            async with asyncio.timeout(raw.SECONDS):
                while server.clients:  # none of them takes anything
                    await asyncio.sleep(0.05)
        await server.close(0)


@pytest.mark.heavy
async def test_slow_readers_of_a_forwarded_file(start_forwarding: StartForwarding) -> None:
    """The rest of the file stays with the origin, and all memory is released when they leave."""
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 20000000\r\n\r\n" + bytes(20_000_000)

    def held() -> int:
        """The bytes in the proxy's write queues and buffers."""
        found = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(inclusive=True, filename_pattern="*/prerender/*")]
        )
        return sum(trace.size for trace in found.traces)

    async with raw.origin(raw.ending_with(body)) as origin:
        port = await start_forwarding(origin.url)
        tracemalloc.start()
        try:
            before = held()
            async with AsyncExitStack() as stack:
                for _ in range(20):
                    client = await stack.enter_async_context(raw.client(port, limit=1000))
                    await client.send(GET)
                    await client.until(b"\r\n\r\n")
                await asyncio.sleep(0.5)
                assert held() - before < 20 * 100_000
            async with asyncio.timeout(raw.SECONDS):
                while held() - before > 500_000:
                    await asyncio.sleep(0.1)
        finally:
            tracemalloc.stop()


@pytest.mark.long
async def test_without_descriptors_clients_wait(tmp_path: Path) -> None:
    """The admin listener still responds."""
    public, admin = raw.free_ports(2)
    environ = {
        "PRERENDER_ORIGIN_URL": "http://127.0.0.1:9",
        "PRERENDER_SERVER_PORT": str(public),
        "PRERENDER_ADMIN_PORT": str(admin),
        "PRERENDER_BROWSER_PATH": "/nonexistent/chromium",
        "PRERENDER_SERVER_HEADER_TIMEOUT": "3s",
    }
    log = tmp_path / "log"
    prerender = f"{shlex.quote(sys.executable)} -m prerender serve 2>{shlex.quote(str(log))}"
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f"ulimit -n 256; ulimit -Hn 256; exec {prerender}"), env=os.environ | environ
    )
    try:
        async with asyncio.timeout(30):
            while not await raw.accepts(public):
                await asyncio.sleep(0.05)
        clients = [await asyncio.open_connection("127.0.0.1", public) for _ in range(300)]
        async with ClientSession() as session:
            for _ in range(3):
                async with session.get(f"http://127.0.0.1:{admin}/healthz") as answer:
                    assert answer.status == 200
        reader, writer = clients[-1]
        writer.write(CLOSE)
        async with asyncio.timeout(raw.SECONDS):
            assert (await reader.read()).startswith(b"HTTP/1.1 502 ")
        for _, writer in clients:
            writer.close()
    finally:
        process.terminate()
        await process.wait()
    assert log.read_text().count("file_descriptors_exhausted") == 1


async def test_a_flood_of_interim_responses_waits_for_its_client(
    start_forwarding: StartForwarding,
) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: <%b>\r\n\r\n" % (b"x" * 8000)

    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await raw.receive(reader)
        for _number in range(5000):  # more than sockets buffer
            writer.write(hints)
            await writer.drain()
        await reader.read()

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url, origin_timeout=100, write_timeout=0.3)
        async with raw.client(port) as client:
            await client.send(GET)
            async with asyncio.timeout(raw.SECONDS):
                await origin.ended.wait()

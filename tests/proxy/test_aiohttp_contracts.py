"""What the public listener relies on in aiohttp's server, and the faults that it works around.

Before using a new series of aiohttp, make these tests pass or change them (docs/aiohttp.md).
"""

import asyncio
import tomllib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.test_utils import RawTestServer

from prerender.http.connection import Sweeper
from prerender.http.message_head import Request
from prerender.proxy.client_connection import ClientConnection, Written
from prerender.proxy.client_stream import ClientStream
from prerender.proxy.server import Server
from tests.support import raw
from tests.support.limits import limits

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
StartServer = Callable[..., Awaitable[RawTestServer]]

GET = b"GET /%b HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
OVERRIDDEN = {
    "connection_made", "data_received", "eof_received", "connection_lost", "handle_error",
    "keep_alive", "prepare", "write_eof",
}  # fmt: skip


async def ok(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(text="ok")


def port_of(server: RawTestServer) -> int:
    assert server.port
    return server.port


class Protocol(web.RequestHandler):
    """aiohttp's protocol, which records calls."""

    faults: list[BaseException | None]
    fed: list[bytes]

    def data_received(self, data: bytes) -> None:
        self.fed.append(data)
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        self.faults.append(exc)
        return web.Response(status=status)


class Listener(web.Server):
    """Creates such protocols, and keeps them."""

    def __init__(self, handler: Answer) -> None:
        super().__init__(handler, handler_cancellation=True)
        self.made: list[Protocol] = []

    def __call__(self) -> web.RequestHandler:
        protocol = Protocol(self, loop=asyncio.get_running_loop(), read_bufsize=1000)
        protocol.faults, protocol.fed = [], []
        self.made.append(protocol)
        return protocol


async def listening(handler: Answer) -> tuple[Listener, asyncio.Server, int]:
    listener = Listener(handler)
    server = await asyncio.get_running_loop().create_server(listener, "127.0.0.1", 0)
    return listener, server, server.sockets[0].getsockname()[1]


def test_one_series_is_allowed() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text("utf-8"))["project"]
    (aiohttp,) = (d for d in project["dependencies"] if d.startswith("aiohttp>"))
    assert aiohttp == "aiohttp>=3.14.5,<3.15"


async def test_no_name_of_ours_is_one_of_theirs() -> None:
    async def handler(_: Request, __: ClientStream) -> None:
        """Receives no request."""

    with Sweeper() as sweeper:
        server = Server(handler, limits(1), sweeper)
        pairs = (
            (
                ClientConnection(server, server, sweeper),
                web.RequestHandler(server, loop=sweeper.loop),
            ),
            (server, web.Server(ok)),
            (Written(), web.StreamResponse()),
        )
        for ours, theirs in pairs:
            own = {name for name in vars(type(ours)) if not name.startswith(("__", "_abc_"))}
            own |= vars(ours).keys() - getattr(theirs, "__dict__", {}).keys()
            assert own & set(dir(theirs)) <= OVERRIDDEN


async def test_octets_and_order_of_fields(aiohttp_raw_server: StartServer) -> None:
    """White space around values is lost."""
    seen: list[object] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        seen.extend((request.method, request.raw_path, request.version, request.raw_headers))
        return await ok(request)

    server = await aiohttp_raw_server(handler)
    await raw.ask(
        port_of(server),
        b"GET //a?? HTTP/1.0\r\nx-B: \t1 \r\nX-a:\xe9\xff\r\nx-B:\r\nConnection: close\r\n\r\n",
    )
    assert seen == [
        "GET",
        "//a??",
        (1, 0),
        ((b"x-B", b"1"), (b"X-a", b"\xe9\xff"), (b"x-B", b""), (b"Connection", b"close")),
    ]


async def test_a_response_that_is_written_already(aiohttp_raw_server: StartServer) -> None:
    """aiohttp adds nothing to it, and continues with the next request."""
    written = Written()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(
            b"HTTP/1.1 299 X\r\nContent-Length: 1\r\n\r\n" + request.raw_path[1:].encode()
        )
        return written

    server = await aiohttp_raw_server(handler)
    async with raw.client(port_of(server)) as client:
        await client.send(GET % b"1" + GET % b"2")
        assert await client.answer() == b"HTTP/1.1 299 X\r\nContent-Length: 1\r\n\r\n1"
        assert await client.answer() == b"HTTP/1.1 299 X\r\nContent-Length: 1\r\n\r\n2"


async def test_faults_of_the_parser_are_handed_over() -> None:
    listener, server, port = await listening(ok)
    async with server:
        await raw.ask(port, b"GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n")
    (fault,) = listener.made[0].faults
    assert isinstance(fault, HttpProcessingError)


async def test_only_force_close_ends_an_idle_connection() -> None:
    listener, server, port = await listening(ok)
    async with server, raw.client(port) as client:
        await client.send(GET % b"")
        await client.answer()
        listener.made[0].close()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.reader.read()
    listener, server, port = await listening(ok)
    async with server, raw.client(port) as client:
        await client.send(GET % b"")
        await client.answer()
        listener.made[0].force_close()
        assert await client.rest() == b""


async def test_what_is_early_behind_an_upgrade_is_handed_over() -> None:
    class Taker:
        data = b""

        def feed_data(self, data: bytes) -> tuple[bool, bytes]:
            self.data += data
            return False, b""

        def feed_eof(self) -> None:
            """The end."""

    taker = Taker()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        request.protocol.set_parser(taker)  # type: ignore[arg-type]
        return web.Response(text="ok")

    _, server, port = await listening(handler)
    upgrade = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: WebSocket\r\n\r\n"
    async with server, raw.client(port) as client:
        await client.send(upgrade + b"early")
        await client.answer()
    assert taker.data == b"early"


async def test_what_was_held_back_is_parsed_by_an_empty_packet() -> None:
    """So data_received must pass b"" on."""
    got: list[int] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(0.05)
        got.append(len(await request.content.read()))
        return await ok(request)

    listener, server, port = await listening(handler)
    async with server, raw.client(port) as client:
        await client.send(POST + b"2710\r\n" + b"x" * 10000 + b"\r\n0\r\n\r\n")
        assert (await client.answer()).endswith(b"ok")
    assert got == [10000]
    assert b"" in listener.made[0].fed


async def test_a_handler_is_cancelled_when_the_client_leaves() -> None:
    begun, cancelled = asyncio.Event(), asyncio.Event()

    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        raise AssertionError

    _, server, port = await listening(handler)
    async with server, raw.client(port) as client:
        await client.send(GET % b"")
        async with asyncio.timeout(raw.SECONDS):
            await begun.wait()
            client.writer.transport.abort()
            await cancelled.wait()


@pytest.mark.parametrize(
    "method",
    [
        "BASELINE-CONTROL", "CHECKIN", "LABEL", "MKREDIRECTREF", "MKWORKSPACE", "ORDERPATCH",
        "UNCHECKOUT", "UPDATE", "UPDATEREDIRECTREF", "VERSION-CONTROL", "OWN",
    ],
)  # fmt: skip
async def test_methods_that_the_parser_does_not_take(
    aiohttp_raw_server: StartServer, method: str
) -> None:
    """They are listed in docs/aiohttp.md."""
    server = await aiohttp_raw_server(ok)
    answer = await raw.ask(port_of(server), f"{method} / HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert b"Invalid method" in answer


# Faults that are worked around. When one of these fails, the work-around can go.


async def test_fault_what_is_behind_another_upgrade_is_dropped(
    aiohttp_raw_server: StartServer,
) -> None:
    """The rest of the packet is lost, and the next packet is parsed as a new request."""
    asked: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.raw_path)
        return await ok(request)

    server = await aiohttp_raw_server(handler)
    upgrade = b"GET /1 HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    async with raw.client(port_of(server)) as client:
        await client.send(upgrade + GET % b"2")
        await client.answer()
        await client.send(GET % b"3")
        await client.answer()
    assert asked == ["/1", "/3"]


async def test_fault_good_requests_before_a_bad_one_are_forgotten(
    aiohttp_raw_server: StartServer,
) -> None:
    server = await aiohttp_raw_server(ok)
    answer = await raw.ask(port_of(server), GET % b"" + b"GET / HTTP/1.1\r\nX : y\r\n\r\n")
    assert answer.startswith(b"HTTP/1.0 400 ")
    assert b" 200 OK" not in answer


async def test_fault_a_bad_chunk_is_told_to_nobody(aiohttp_raw_server: StartServer) -> None:
    """A handler that reads the body waits forever."""
    waited = asyncio.Event()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        try:
            async with asyncio.timeout(0.3):
                await request.content.read()
        except TimeoutError:
            waited.set()
        return await ok(request)

    server = await aiohttp_raw_server(handler)
    async with raw.client(port_of(server)) as client:
        await client.send(POST)
        await asyncio.sleep(0.05)
        await client.send(b"what\r\n")
        async with asyncio.timeout(raw.SECONDS):
            await waited.wait()

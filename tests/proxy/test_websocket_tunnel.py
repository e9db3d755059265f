"""WebSockets: the origin answers the handshake, and all later bytes pass unchanged."""

import asyncio

import pytest
from aiohttp import ClientSession, WSMsgType, web
from hypothesis import given
from hypothesis import strategies as st

from prerender import app
from prerender.proxy.websocket_tunnel import FrameBoundaries
from tests.conftest import Site, StartForwarding, StartOrigin, settings_for
from tests.support import raw

HANDSHAKE = (
    b"GET /chat? HTTP/1.1\r\nHost: a\r\nUpgrade: WebSocket\r\nConnection: keep-alive, Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: chat, superchat\r\nSec-WebSocket-Extensions: x-own; a=1\r\n"
    b"Origin: http://a\r\nCookie: c=1\r\n\r\n"
)
SWITCHING = (
    b"HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n"
    b"Sec-WebSocket-Protocol: chat\r\nSet-Cookie: d=2\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\n\r\n"
)
OURS = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
GOING_AWAY = b"\x88\x02\x03\xe9"


def frame(payload: bytes, first: int = 0x82, mask: bytes = b"") -> bytes:
    """A frame; with a mask of zeros if a client sends it."""
    flag = 0x80 if mask else 0
    if len(payload) < 126:
        length = bytes([flag | len(payload)])
    elif len(payload) < 65536:
        length = bytes([flag | 126]) + len(payload).to_bytes(2, "big")
    else:
        length = bytes([flag | 127]) + len(payload).to_bytes(8, "big")
    return bytes([first]) + length + mask + payload


async def test_the_handshake_is_the_origins(start_forwarding: StartForwarding) -> None:
    """Bytes right behind it, on both sides, are not lost."""
    heads = []

    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(SWITCHING + b"\x81\x02hi")
        assert await reader.readexactly(8) == b"\x81\x82\0\0\0\0yo"
        writer.write(b"\x88\x02\x03\xe8")

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(HANDSHAKE + b"\x81\x82\0\0\0\0yo")
            rest = await client.rest()
    lines = heads[0].split(b"\r\n")
    assert lines[0] == b"GET /chat? HTTP/1.1"
    for sent in HANDSHAKE.split(b"\r\n")[4:-2]:
        assert sent in lines
    assert heads[0].endswith(OURS)
    answer, _, frames = rest.partition(b"\r\n\r\n")
    assert sorted((answer + b"\r\n\r\n").split(b"\r\n")) == sorted(SWITCHING.split(b"\r\n"))
    assert frames == b"\x81\x02hi\x88\x02\x03\xe8"


@pytest.mark.parametrize("status", [200, 301, 401, 403, 426, 503])
async def test_a_refusal_is_the_origins(start_forwarding: StartForwarding, status: int) -> None:
    refusal = (
        b"HTTP/1.1 %d No\r\nDate: x\r\nX-Why: because\r\nContent-Length: 3\r\n\r\nwhy" % status
    )
    async with raw.origin(raw.answering(refusal)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            for _ in range(2):
                await client.send(HANDSHAKE)
                assert await client.answer() == refusal


async def test_the_origin_is_down(start_forwarding: StartForwarding) -> None:
    port = await start_forwarding("http://127.0.0.1:9")
    async with raw.client(port) as client:
        await client.send(HANDSHAKE)
        assert (await client.answer()).startswith(b"HTTP/1.1 502 ")


async def echo(request: web.Request) -> web.StreamResponse:
    socket = web.WebSocketResponse(max_msg_size=0, protocols=["echo"], autoping=False)
    await socket.prepare(request)
    async for message in socket:
        match message.type:
            case WSMsgType.TEXT if message.data == "die":
                assert request.transport is not None
                request.transport.abort()
            case WSMsgType.TEXT if message.data.startswith("close "):
                await socket.close(code=int(message.data.split()[1]), message=b"as you wish")
            case WSMsgType.TEXT:
                await socket.send_str(message.data)
            case WSMsgType.BINARY:
                await socket.send_bytes(message.data)
            case WSMsgType.PING:
                await socket.pong(message.data)
    return socket


@pytest.fixture
async def site(start_origin: StartOrigin) -> Site:
    application = web.Application()
    application.router.add_get("/", echo)
    return await start_origin(application)


@pytest.mark.parametrize("compress", [0, 15])
async def test_messages_of_any_size(
    start_forwarding: StartForwarding, site: Site, client: ClientSession, compress: int
) -> None:
    port = await start_forwarding(site.url)
    async with (
        client.ws_connect(
            f"http://127.0.0.1:{port}/", compress=compress, max_msg_size=0, protocols=["echo"]
        ) as socket,
    ):
        assert socket.protocol == "echo"
        assert bool(socket.compress) == bool(compress)
        for size in (0, 1, 125, 126, 65535, 65536, 5_000_000):
            await socket.send_bytes(bytes(size))
            assert await socket.receive_bytes(timeout=raw.SECONDS) == bytes(size)
            await socket.send_str("é" * (size // 2))
            assert await socket.receive_str(timeout=raw.SECONDS) == "é" * (size // 2)


async def test_pings_reach_the_other_side(
    start_forwarding: StartForwarding, site: Site, client: ClientSession
) -> None:
    port = await start_forwarding(site.url)
    async with (
        client.ws_connect(f"http://127.0.0.1:{port}/", autoping=False) as socket,
    ):
        await socket.ping(b"are you there")
        message = await socket.receive(timeout=raw.SECONDS)
        assert (message.type, message.data) == (WSMsgType.PONG, b"are you there")


@pytest.mark.parametrize("code", [1000, 1001, 1008, 1011, 3000, 4999])
async def test_close_codes(
    start_forwarding: StartForwarding, site: Site, client: ClientSession, code: int
) -> None:
    port = await start_forwarding(site.url)
    async with (
        client.ws_connect(f"http://127.0.0.1:{port}/", autoclose=False) as socket,
    ):
        await socket.send_str(f"close {code}")
        message = await socket.receive(timeout=raw.SECONDS)
        assert (message.type, message.data, message.extra) == (
            WSMsgType.CLOSE,
            code,
            "as you wish",
        )


async def test_one_side_dies(
    start_forwarding: StartForwarding, site: Site, client: ClientSession
) -> None:
    port = await start_forwarding(site.url)
    before = len(asyncio.all_tasks())
    async with client.ws_connect(f"http://127.0.0.1:{port}/") as socket:
        await socket.send_str("die")
        message = await socket.receive(timeout=raw.SECONDS)
        assert message.type in (WSMsgType.CLOSED, WSMsgType.ERROR)
    socket = await client.ws_connect(f"http://127.0.0.1:{port}/")
    await socket.send_str("hello")
    assert await socket.receive_str(timeout=raw.SECONDS) == "hello"
    assert socket._response.connection is not None
    transport = socket._response.connection.transport
    assert transport is not None
    transport.abort()
    async with asyncio.timeout(raw.SECONDS):
        while len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.01)


async def test_what_is_no_websocket_is_no_upgrade(start_forwarding: StartForwarding) -> None:
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            for changed in (
                HANDSHAKE.replace(b"keep-alive, Upgrade", b"keep-alive"),
                HANDSHAKE.replace(b"GET", b"POST"),
            ):
                await client.send(changed)
                assert (await client.answer()).endswith(b"ok")
        # Another protocol than WebSocket ends the connection: aiohttp loses what comes behind.
        other = await raw.ask(port, HANDSHAKE.replace(b"WebSocket\r\n", b"h2c\r\n") + HANDSHAKE)
        assert other.count(b"HTTP/1.1 200 OK") == 1
        assert other.endswith(b"\r\nConnection: close\r\n\r\nok")
    assert all(not r.values("upgrade") and not r.values("connection") for r in origin.requests)


async def serve(origin_url: str, port: asyncio.Future[int], stop: asyncio.Event) -> None:
    settings = settings_for(origin_url, {"browser": {"path": "/nonexistent"}})
    async with app.serving(settings) as running:
        port.set_result(running.public_port)
        await stop.wait()


async def refused(port: int) -> None:
    """Wait until no new connection is accepted."""
    async with asyncio.timeout(raw.SECONDS):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                return
            writer.close()
            await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    "under_way", [b"", frame(b"x" * 300), frame(b"x" * 300)[:1], frame(b"x" * 70000)[:5000]]
)
async def test_both_sides_are_told_at_a_shutdown(under_way: bytes) -> None:
    """Status 1001, never within a frame: the origin's current frame is completed first."""
    rest_of_frame = (
        b""
        if not under_way
        else next(
            whole[len(under_way) :]
            for whole in (frame(b"x" * 300), frame(b"x" * 70000))
            if whole.startswith(under_way)
        )
    )
    go_on = asyncio.Event()
    told = asyncio.get_running_loop().create_future()

    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(SWITCHING + frame(b"hello") + under_way)
        await go_on.wait()
        writer.write(rest_of_frame)
        told.set_result(await reader.readexactly(8))
        writer.write(frame(b"too late") + b"\x88\x02\x03\xe9")

    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    async with raw.origin(script) as origin:
        serving = asyncio.create_task(serve(origin.url, port, stop))
        async with raw.client(await port) as client:
            await client.send(HANDSHAKE)
            await client.until(frame(b"hello") + under_way)
            stop.set()
            await refused(await port)
            go_on.set()
            assert await client.until(GOING_AWAY) == rest_of_frame + GOING_AWAY
            await client.send(frame(b"\x03\xe9", 0x88, b"\0\0\0\0"))
            assert await client.rest() == b""
        async with asyncio.timeout(raw.SECONDS):
            await serving
    close = await told
    assert close[:2] == b"\x88\x82"
    assert bytes(a ^ b for a, b in zip(close[6:], close[2:], strict=False)) == b"\x03\xe9"


@given(
    st.lists(st.tuples(st.integers(0, 70000), st.booleans()), min_size=1, max_size=4),
    st.data(),
)
def test_frames_are_counted_however_they_are_cut(
    sizes: list[tuple[int, bool]], data: st.DataObject
) -> None:
    whole = [frame(bytes(size), mask=b"abcd" if masked else b"") for size, masked in sizes]
    stream = b"".join(whole)
    ends = {sum(map(len, whole[:n])) for n in range(len(whole) + 1)}
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    frames = FrameBoundaries()
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        assert frames.count(stream[start:end]) == end - start
        assert frames.between == (end in ends)
    rest = FrameBoundaries()
    at = 0
    while at < len(stream):
        at += rest.count(stream[at:], one=True)
        assert at in ends

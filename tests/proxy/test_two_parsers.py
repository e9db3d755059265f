"""aiohttp and the proxy both parse each request, and must end it at the same place.

Mutated requests are sent to a connection of the public listener in pieces, and parsed by the
proxy's own parser alone. Nothing hangs or crashes, all responses are well-formed, and nothing is
handed on that the other parser reads differently.
"""

import asyncio
import random
import re
from contextlib import suppress
from typing import Any

import pytest
from structlog.testing import capture_logs

from prerender.errors import BadMessage
from prerender.http.body import Chunked, Sized
from prerender.http.connection import Sweeper
from prerender.http.message_head import Request, parse_request
from prerender.proxy.client_stream import ClientStream
from prerender.proxy.responses import whole
from prerender.proxy.server import Server
from tests.conftest import StartForwarding
from tests.proxy import test_bad_requests, test_second_hops
from tests.support import raw
from tests.support.limits import limits

Read = tuple[str, str, bytes]

AFTER = b"GET /after HTTP/1.1\r\nHost: a\r\n\r\n"
SEEDS = [
    b"GET /\xc3\xa9?\xe9 HTTP/1.1\r\nHost: a\r\n\r\n",
    *(request.data for request in test_second_hops.REQUESTS.values()),
    *(data for data in test_bad_requests.FRAMING.values() if len(data) < 1000),
    *(data for data in test_bad_requests.CHUNKS.values() if len(data) < 1000),
]
# What means something to a parser.
TOKENS = (
    b"\r\n", b"\n", b"\r", b" ", b"\t", b"\0", b":", b";", b",", b"\x0b", b"\xa0", b"0", b"3", b"f",
    b"-", b"+", b"\r\n\r\n", b"0\r\n\r\n", b"3\r\nabc\r\n",
    b"Content-Length: 3\r\n", b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"Transfer-Encoding:\r\n ",
    b"Connection: Upgrade\r\nUpgrade: h2c\r\n", b"Connection: close\r\n", b"Expect: 100-continue\r\n",
    b"Connection: Upgrade\r\nUpgrade: websocket\r\n", b"HTTP/1.0", b"HTTP/1.1", b"Host: b\r\n", AFTER,
)  # fmt: skip
_STATUS_LINE = re.compile(rb"HTTP/1\.1 (200 OK|4\d\d [A-Za-z -]+|50[15] [A-Za-z ]+)\r\n")


class Wire(asyncio.Transport):
    """A transport in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.closed = self.aborted = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name == "peername" else default


class Site:
    """Keeps the requests."""

    def __init__(self) -> None:
        self.asked: list[Read] = []

    async def __call__(self, request: Request, client: ClientStream) -> None:
        body = b""
        while piece := await client.receive():
            body += piece
        self.asked.append((request.method, request.target, body))
        await client.respond(whole(200, b"X: y\r\n", b"ok"))


def mutated(chance: random.Random) -> bytes:
    """A request with changes at some places, perhaps with another one behind it."""
    data = chance.choice(SEEDS)
    if chance.random() < 0.3:
        data += chance.choice(SEEDS)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 3))):
        at = chance.randrange(len(data))
        match chance.randrange(5):
            case 0:
                data = data[:at] + chance.choice(TOKENS) + data[at:]
            case 1:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 2:
                data = data[:at] + data[at + chance.randrange(1, 8) :]
            case 3:
                data = data[:at] + data[max(0, at - chance.randrange(1, 40)) :]
            case 4:
                lines = data.split(b"\r\n")
                chance.shuffle(lines) if chance.random() < 0.1 else lines.reverse()
                data = b"\r\n".join([data.split(b"\r\n")[0], *lines])
        data = data or b"\r\n"
    return data + AFTER


def read_alone(data: bytes) -> list[Read]:
    """What the proxy's own parser reads, up to the first error or the end of the connection."""
    read: list[Read] = []
    buffer = bytearray(data)
    try:
        while True:
            buffer = buffer.lstrip(b"\r\n")
            head, end, rest = bytes(buffer).partition(b"\r\n\r\n")
            if not end:
                return read
            request = parse_request(head)
            buffer = bytearray(rest)
            body = Chunked() if request.body_bytes is None else Sized(request.body_bytes)
            content = b""
            while not body.done:
                before = len(buffer)
                content += body.decode(buffer)
                if len(buffer) == before and not body.done:
                    return read
            read.append((request.method, request.target, content))
    except BadMessage:
        return read


async def ask(data: bytes, server: Server, cuts: list[int]) -> Wire:
    """Feed bytes to a connection in pieces, until nothing more happens."""
    wire = Wire()
    connection = server()
    connection.connection_made(wire)
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        if not wire.closed and data[start:end]:
            connection.data_received(data[start:end])
        await asyncio.sleep(0)
    for _ in range(60):
        await asyncio.sleep(0)
    if not wire.closed:
        connection.eof_received()
    for _ in range(10):
        await asyncio.sleep(0)
    connection.connection_lost(None)
    await asyncio.sleep(0)
    return wire


def malformed(written: bytes) -> bool:
    """Whether a client got anything but complete responses."""
    while written:
        head, _, rest = written.partition(b"\r\n\r\n")
        length = re.search(rb"\r\nContent-Length: (\d+)", head)
        if not _STATUS_LINE.match(head + b"\r\n") or length is None:
            return True
        if len(rest) < int(length[1]):
            return True
        written = rest[int(length[1]) :]
        if written and b"\r\nConnection: close" in head:
            return True
    return False


async def tried(count: int, seed: int) -> int:
    """Try this number of mutated requests. Returns how many got a 200."""
    chance = random.Random(seed)
    site = Site()
    answered = 0
    with Sweeper() as sweeper:
        server = Server(site, limits(5), sweeper)
        for _ in range(count):
            data = mutated(chance)
            cuts = sorted(chance.randrange(len(data)) for _ in range(chance.choice((0, 0, 1, 4))))
            site.asked.clear()
            wire = await ask(data, server, cuts)
            alone = read_alone(data)
            assert site.asked == alone[: len(site.asked)], (data, cuts)
            assert not malformed(wire.written), (data, cuts, wire.written)
            assert wire.written or wire.closed or not alone, (data, cuts)
            answered += len(site.asked)
    return answered


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"(", b"GET / HTTP/1.1\r\n b\r\n"]
)
@pytest.mark.parametrize("turns", [0, 1, 2, 3, 4, 5, 6, 20])
async def test_one_response_when_the_timeout_of_the_head_passes(data: bytes, turns: int) -> None:
    """At any moment: before aiohttp has called anything, and while the client reads an error."""
    with Sweeper() as sweeper:
        connection = Server(Site(), limits(idle_timeout=500), sweeper)()
        wire = Wire()
        connection.connection_made(wire)
        connection.data_received(data)
        for _ in range(turns):
            await asyncio.sleep(0)
        connection.sweep(asyncio.get_running_loop().time() + 100)
        for _ in range(60):
            await asyncio.sleep(0)
        connection.connection_lost(None)
        await asyncio.sleep(0)
    assert wire.written.count(b"HTTP/1.1 ") == 1


async def test_a_bug_before_the_first_record_is_logged() -> None:
    async def handler(_: Request, __: ClientStream) -> None:
        raise IndexError("a bug")

    with Sweeper() as sweeper, capture_logs() as logs:
        connection = Server(handler, limits(), sweeper)()
        wire = Wire()
        connection.connection_made(wire)
        connection.data_received(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(raw.SECONDS):
            while not wire.written:
                await asyncio.sleep(0)
        connection.connection_lost(None)
        await asyncio.sleep(0)
    assert wire.written.startswith(b"HTTP/1.1 500 ")
    (line,) = (line for line in logs if line["event"] == "internal_error")
    assert str(line["exc_info"]) == "a bug"


@pytest.mark.heavy
async def test_mutated_requests() -> None:
    assert await tried(1_000, seed=18) > 200


@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_many_mutated_requests() -> None:
    assert await tried(100_000, seed=1618) > 20_000


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_mutated_requests_from_outside(start_forwarding: StartForwarding) -> None:
    """Through sockets and the whole proxy: nothing hangs or crashes, and each response is
    well-formed.
    """
    chance = random.Random(16)
    answered = 0
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url, header_timeout=1, body_timeout=1, idle_timeout=1)
        for _ in range(32):
            asked = [mutated(chance) for _ in range(500)]
            answers = await asyncio.gather(*(all_that_comes(port, data) for data in asked))
            for data, answer in zip(asked, answers, strict=True):
                interim = re.sub(rb"HTTP/1\.1 1\d\d [^\r]*\r\n(?:[^\r]+\r\n)*\r\n", b"", answer)
                assert not malformed(interim), (data, answer)
                answered += answer.count(b"HTTP/1.1 200 ")
    assert answered > 1_000


async def all_that_comes(port: int, data: bytes) -> bytes:
    """All bytes until the client or the proxy closes the connection."""
    received = b""
    with suppress(ConnectionError):
        async with raw.client(port) as client:
            await client.send(data)
            client.writer.write_eof()
            async with asyncio.timeout(raw.SECONDS):
                while piece := await client.reader.read(65536):
                    received += piece
    return received

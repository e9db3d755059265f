"""Both ends of a connection, byte by byte: a scripted origin and a client."""

import asyncio
import itertools
import random
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

# More than anything takes on a machine that is busy with other things.
SECONDS = 20.0

_HOST = "127.0.0.1"
_RANGES = range(20000, 32000, 50)
_RESERVED = 2

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


@dataclass
class Received:
    """A request as the origin got it: its head without the last line end, and the body's bytes."""

    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        """The request line."""
        return self.head.partition(b"\r\n")[0]

    @property
    def fields(self) -> list[bytes]:
        """The field lines, in order."""
        return self.head.split(b"\r\n")[1:]

    def values(self, name: str) -> list[str]:
        """The values of a field, one for each line."""
        lines = (line.partition(b":") for line in self.fields)
        return [
            value.strip().decode() for n, _, value in lines if n.lower() == name.lower().encode()
        ]


async def receive(reader: Reader) -> Received:
    """Read one request. The body of a chunked one is returned with its framing."""
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
    request = Received(head, b"")
    if request.values("transfer-encoding"):
        request.body = await reader.readuntil(b"0\r\n\r\n")
    elif length := request.values("content-length"):
        request.body = await reader.readexactly(int(length[0]))
    return request


Script = Callable[["Origin", Reader, Writer], Awaitable[None]]


@dataclass
class Origin:
    """A scripted origin; ``script`` is run for each connection."""

    script: Script
    port: int = 0
    connections: int = 0
    requests: list[Received] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _connected(self, reader: Reader, writer: Writer) -> None:
        self.connections += 1
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await self.script(self, reader, writer)
        finally:
            writer.close()
            self.ended.set()


@asynccontextmanager
async def origin(
    script: Script, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Origin]:
    """Starts an origin, on a free port if none is given.

    pytest-aiohttp's ``aiohttp_raw_server`` sends only valid HTTP; this one sends any bytes.
    """
    site = Origin(script)
    server = await asyncio.start_server(site._connected, "127.0.0.1", port, backlog=2048, ssl=tls)
    site.port = server.sockets[0].getsockname()[1]
    try:
        yield site
    finally:
        server.close()


def answering(*answers: bytes) -> Script:
    """Responds to every request of a connection with the next answer; the last one is repeated."""

    async def script(site: Origin, reader: Reader, writer: Writer) -> None:
        number = 0
        while True:
            site.requests.append(await receive(reader))
            writer.write(answers[min(number, len(answers) - 1)])
            number += 1

    return script


def ending_with(answer: bytes) -> Script:
    """Responds to the first request of each connection, and closes it."""

    async def script(site: Origin, reader: Reader, writer: Writer) -> None:
        site.requests.append(await receive(reader))
        writer.write(answer)
        await writer.drain()

    return script


OK = b"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Length: 2\r\n\r\nok"


@dataclass
class Client:
    """A connection to the proxy."""

    reader: Reader
    writer: Writer

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> bytes:
        """One response with Content-Length or without a body; its head and body as received."""
        async with asyncio.timeout(SECONDS):
            head = await self.reader.readuntil(b"\r\n\r\n")
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    return head + await self.reader.readexactly(int(line.partition(b":")[2]))
            return head

    async def rest(self) -> bytes:
        """All bytes until the connection ends. Raises ConnectionError after a reset."""
        async with asyncio.timeout(SECONDS):
            return await self.reader.read()

    async def until(self, end: bytes) -> bytes:
        """Bytes up to and including ``end``."""
        async with asyncio.timeout(SECONDS):
            return await self.reader.readuntil(end)


@asynccontextmanager
async def client(port: int, limit: int = 2**16) -> AsyncIterator[Client]:
    """A connected client."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(SECONDS):
                await writer.wait_closed()


async def ask(port: int, request: bytes) -> bytes:
    """Send bytes on a connection that the proxy closes. Returns all that it sent back."""
    async with client(port) as connection:
        await connection.send(request)
        return await connection.rest()


async def accepts(address: int | Path) -> bool:
    """Whether a port of this machine, or a socket file, accepts connections."""
    try:
        if isinstance(address, Path):
            _, writer = await asyncio.open_unix_connection(address)
        else:
            _, writer = await asyncio.open_connection("127.0.0.1", address)
    except OSError:
        return False
    writer.close()
    return True


def free_ports(count: int) -> list[int]:
    """Unused ports that no other process of the tests gets."""
    ports = _ports()
    return [next(ports) for _ in range(count)]


def free_port() -> int:
    """An unused port that no other process of the tests gets."""
    return next(_ports())


def reserved_ports() -> list[int]:
    """Two ports that only their users in this process take: free_port() never returns them."""
    _, ports = _owned()
    return list(ports[-_RESERVED:])


@cache
def _ports() -> Iterator[int]:
    _, ports = _owned()
    return _free(ports[:-_RESERVED])


@cache
def _owned() -> tuple[socket.socket, range]:
    """A range of ports that belongs to this process as long as it lives, and the socket that shows it.

    The range is below the kernel's ephemeral ports: between finding a port free and using it, any
    other process could get one of those.
    """
    for start in random.sample(_RANGES, len(_RANGES)):
        with suppress(OSError):
            owner = socket.create_server((_HOST, start))
            return owner, range(start + 1, start + _RANGES.step)
    raise OSError("all ranges of ports are taken")


def _free(ports: Iterable[int]) -> Iterator[int]:
    for port in itertools.cycle(ports):
        with suppress(OSError):
            socket.create_server((_HOST, port)).close()
            yield port

"""If the origin fails, clients get a complete response, a short error, or an aborted connection."""

import asyncio
import logging
import socket

import pytest

from tests.conftest import StartForwarding, StartProxy
from tests.support import raw

GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nbody"
PUT = POST.replace(b"POST", b"PUT")
DELETE = GET.replace(b"GET", b"DELETE")


def is_error(answer: bytes, status: int) -> bool:
    """Whether it is the proxy's error response: short, not cacheable, and without internals."""
    return (
        answer.startswith(b"HTTP/1.1 %d " % status)
        and b"\r\nCache-Control: no-store\r\n" in answer
        and b"127.0.0.1" not in answer
        and b"Error" not in answer
        and len(answer) < 400
    )


def head(status: bytes = b"200 OK", *fields: bytes, body: bytes = b"ok") -> bytes:
    return b"\r\n".join([b"HTTP/1.1 " + status, *fields, b"", body])


LENGTH = b"Content-Length: 2"
CHUNKED = b"Transfer-Encoding: chunked"

WRONG = {
    "nothing": b"",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "not HTTP": b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n\r\n",
    "TLS": b"\x15\x03\x01\x00\x02\x02\x28\r\n\r\n",
    "two lengths": head(b"200 OK", LENGTH, b"Content-Length: 3"),
    "length and coding": head(b"200 OK", LENGTH, CHUNKED, body=b"0\r\n\r\n"),
    "a bad length": head(b"200 OK", b"Content-Length: 2x"),
    "another coding": head(b"200 OK", b"Transfer-Encoding: gzip", body=b""),
    "0x01 in a value": head(b"200 OK", b"X: a\x01", LENGTH),
    "NUL in a value": head(b"200 OK", b"X: a\x00", LENGTH),
    "bare LF": b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
    "bare CR": head(b"200 OK", b"X: a\rY: b", LENGTH),
    "folded": head(b"200 OK", b"X: a", b" b", LENGTH),
    "status 20 X": head(b"20 X", LENGTH),
    "status 099": head(b"099 X", LENGTH),
    "status 2000": head(b"2000 X", LENGTH),
    "HTTP/2.0": b"HTTP/2.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "101 that nobody asked for": head(b"101 Switching", b"Upgrade: x", b"Connection: Upgrade"),
    "300 fields": head(b"200 OK", *[b"X: y"] * 300, LENGTH),
    "a long head": head(b"200 OK", *[b"X: " + b"y" * 70000] * 2, LENGTH),
    "a bad chunk": head(b"200 OK", CHUNKED, body=b"3\r\nabc\r\nzz\r\n"),
    "a chunk that is too long": head(b"200 OK", CHUNKED, body=b"3\r\nabcd\r\n0\r\n\r\n"),
    "no name": head(b"200 OK", b": x", LENGTH),
}


async def test_no_proper_answer_is_a_502(
    start_forwarding: StartForwarding, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = {}
    answers = list(WRONG.values())

    async def script(site: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await raw.receive(reader)
        writer.write(answers[site.connections - 1])
        await writer.drain()

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            for name in WRONG:
                caplog.clear()
                await client.send(GET)
                answer = await client.answer()
                lines = [r for r in caplog.records if r.name == "prerender.proxy.handler"]
                if not is_error(answer, 502) or len(lines) != 1 or lines[0].exc_info:
                    wrong[name] = answer
    assert wrong == {}
    assert origin.connections == len(WRONG)


ODD = (
    b"HTTP/1.1 200\r\nDate: x\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 600 Odd\r\nDate: x\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 O\xe9\tK  \r\nDate: x\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nDate: x\r\n" + b"X-Y: z\r\n" * 200 + b"Content-Length: 2\r\n\r\nok",
    b"HTTP/1.1 200 OK\r\nDate: x\r\nX: " + b"y" * 9000 + b"\r\nContent-Length: 2\r\n\r\nok",
)


async def test_what_is_odd_but_proper_passes(start_forwarding: StartForwarding) -> None:
    async with raw.origin(raw.answering(*ODD)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            for answer in ODD:
                await client.send(GET)
                assert await client.answer() == answer.replace(b" 200\r\n", b" 200 \r\n")


DYING = {
    "short": head(b"200 OK", b"Content-Length: 100", body=b"abc"),
    "mid-chunk": head(b"200 OK", CHUNKED, body=b"5\r\nabc"),
    "between chunks": head(b"200 OK", CHUNKED, body=b"3\r\nabc\r\n"),
    "within the last chunk": head(b"200 OK", CHUNKED, body=b"3\r\nabc\r\n0\r\n"),
}


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("answer", DYING.values(), ids=DYING)
async def test_an_origin_that_dies_in_its_answer(
    start_forwarding: StartForwarding, answer: bytes, reset: bool, version: bytes
) -> None:
    """The client's connection is aborted: no second status line, no end that looks complete."""
    seen = asyncio.Event()

    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await raw.receive(reader)
        writer.write(answer)
        await seen.wait()
        if reset:
            connection = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            writer.transport.abort()

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(GET.replace(b"1.1", version))
            got = await client.until(b"abc")
            seen.set()
            with pytest.raises(ConnectionError):
                got += await client.rest()
    assert got.count(b"HTTP/1.1 ") <= 1
    assert not got.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize(
    ("what", "body"),
    [
        ("silent", None),
        ("a byte of the head at a time", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 1000),
    ],
)
async def test_an_origin_that_takes_too_long(
    start_proxy: StartProxy, what: str, body: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await raw.receive(reader)
        for octet in body or b"":
            writer.write(bytes([octet]))
            await asyncio.sleep(0.05)
        await reader.read()

    settings = {"browser": {"path": "/nonexistent"}, "origin": {"timeout": 0.5}}
    async with raw.origin(script) as origin:
        proxy = await start_proxy(origin.url, settings)
        for request in (GET, POST):
            async with raw.client(proxy.running.public_port) as client:
                await client.send(request)
                assert is_error(await client.answer(), 504), what
    assert "no response headers within [origin] timeout (0.5 s)" in caplog.text


async def test_an_origin_that_stalls_in_its_body(start_proxy: StartProxy) -> None:
    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await raw.receive(reader)
        writer.write(DYING["short"])
        await reader.read()

    settings = {"browser": {"path": "/nonexistent"}, "origin": {"timeout": 0.5}}
    async with raw.origin(script) as origin:
        proxy = await start_proxy(origin.url, settings)
        async with raw.client(proxy.running.public_port) as client:
            await client.send(GET)
            with pytest.raises(ConnectionError):
                await client.rest()


async def test_an_upload_may_take_longer_than_an_answer(start_proxy: StartProxy) -> None:
    settings = {"browser": {"path": "/nonexistent"}, "origin": {"timeout": 0.4}}
    async with raw.origin(raw.answering(raw.OK)) as origin:
        proxy = await start_proxy(origin.url, settings)
        async with raw.client(proxy.running.public_port) as client:
            await client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n")
            for _ in range(10):
                await client.send(b"x")
                await asyncio.sleep(0.1)
            assert (await client.answer()).endswith(b"ok")


async def test_a_response_may_begin_before_the_upload_ends(
    start_forwarding: StartForwarding,
) -> None:
    """The time limit of its head ends neither its body, nor the next response on the connection."""
    timeout = 2.0

    async def script(site: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n")
        await reader.readexactly(1)
        for _ in range(13):
            await asyncio.sleep(timeout / 10)
            writer.write(b"x")
        site.requests.append(await raw.receive(reader))
        await asyncio.sleep(timeout / 4)
        writer.write(raw.OK)

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url, origin_timeout=timeout)
        async with raw.client(port) as client:
            await client.send(b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
            head = await client.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            await client.send(b"y")
            assert await client.reader.readexactly(13) == b"x" * 13
        async with raw.client(port) as client:
            await client.send(GET)
            assert (await client.answer()).endswith(b"ok")
        assert origin.connections == len(origin.requests) == 1


async def test_nobody_listens(start_forwarding: StartForwarding) -> None:
    port = await start_forwarding("http://127.0.0.1:9")
    async with raw.client(port) as client:
        for request in (GET, POST):
            await client.send(request)
            assert is_error(await client.answer(), 502)


async def test_no_such_host(start_forwarding: StartForwarding) -> None:
    port = await start_forwarding("http://no-such-host.invalid:80")
    async with raw.client(port) as client:
        await client.send(GET)
        assert is_error(await client.answer(), 502)


async def test_a_listener_that_accepts_nobody(
    start_proxy: StartProxy, caplog: pytest.LogCaptureFixture
) -> None:
    """Its backlog is full, so that no connection can be established."""
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for queued in waiting:
            queued.setblocking(False)
            queued.connect_ex(address)
        settings = {"browser": {"path": "/nonexistent"}, "origin": {"connect_timeout": 0.5}}
        proxy = await start_proxy(f"http://127.0.0.1:{address[1]}", settings)
        async with raw.client(proxy.running.public_port) as client:
            await client.send(GET)
            assert is_error(await client.answer(), 504)
        assert "no connection within [origin] connect_timeout (0.5 s)" in caplog.text
        for queued in waiting:
            queued.close()


class Closing:
    """Closes a connection at its second request."""

    def __init__(self) -> None:
        self.executed: list[bytes] = []

    async def __call__(self, site: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        self.executed.append((await raw.receive(reader)).line)
        writer.write(raw.OK)
        await reader.readuntil(b"\r\n\r\n")


@pytest.mark.parametrize("request_", [GET, DELETE, POST, PUT], ids=lambda r: r[:4].decode())
async def test_a_kept_connection_that_was_closed_costs_nothing(
    start_forwarding: StartForwarding, request_: bytes
) -> None:
    """Each request is processed once and gets its response, whatever its method."""
    script = Closing()
    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            for _ in range(5):
                await client.send(GET)
                assert (await client.answer()).endswith(b"ok")
                await client.send(request_)
                assert (await client.answer()).endswith(b"ok")
    assert len(script.executed) == 10


async def test_what_may_have_been_done_is_not_done_again(start_forwarding: StartForwarding) -> None:
    """From the second request on, the origin reads it and closes the connection without a response."""

    async def script(site: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        while True:
            site.requests.append(await raw.receive(reader))
            if len(site.requests) > 1:
                return
            writer.write(raw.OK)

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(GET)
            assert (await client.answer()).endswith(b"ok")
            await client.send(POST)
            assert is_error(await client.answer(), 502)
            assert len(origin.requests) == 2
            await client.send(GET)
            assert is_error(await client.answer(), 502)
    # The connection of the first GET is kept: the last one is tried on it, and once more.
    assert len(origin.requests) == 4


@pytest.mark.parametrize(
    "poison",
    [
        head(b"200 OK", LENGTH, body=b"ok" + head(b"200 OK", b"Content-Length: 6", body=b"poison")),
        head(b"204 No Content", body=b"poison"),
        head(b"304 Not Modified", body=b"poison"),
        head(b"200 OK", CHUNKED, body=b"0\r\n\r\npoison"),
    ],
)
async def test_what_comes_after_an_answer_reaches_nobody(
    start_forwarding: StartForwarding, poison: bytes
) -> None:
    async with raw.origin(raw.answering(poison)) as origin:
        port = await start_forwarding(origin.url)

        async def ask() -> bytes:
            return await raw.ask(port, GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

        for _ in range(3):
            answers = await asyncio.gather(*(ask() for _ in range(20)))
            assert not any(b"poison" in answer for answer in answers)
    assert origin.connections == 60


async def test_flapping(
    start_forwarding: StartForwarding, caplog: pytest.LogCaptureFixture
) -> None:
    """The origin goes up and down many times: responses while it is up, and no stale state."""
    caplog.set_level(logging.ERROR)
    origin_port = raw.free_port()
    port = await start_forwarding(f"http://127.0.0.1:{origin_port}")
    caplog.clear()

    async with raw.client(port) as client:
        for _ in range(10):
            async with raw.origin(raw.answering(raw.OK), origin_port):
                for _ in range(3):
                    await client.send(GET)
                    assert (await client.answer()).endswith(b"ok")
            await client.send(POST)
            assert is_error(await client.answer(), 502)
    assert [r for r in caplog.records if not r.name.startswith("prerender.browser")] == []


async def test_interim_responses_extend_no_timeout(start_forwarding: StartForwarding) -> None:
    interim = b"HTTP/1.1 102 Processing\r\n\r\n"

    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await raw.receive(reader)
        while True:
            writer.write(interim)
            await writer.drain()
            await asyncio.sleep(0)

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url, origin_timeout=0.3)
        for version in (b"1.1", b"1.0"):  # HTTP/1.0 has no interim responses
            request = b"GET / HTTP/%b\r\nHost: a\r\nConnection: close\r\n\r\n" % version
            answer = await raw.ask(port, request)
            assert is_error(answer.rpartition(interim)[2], 504)

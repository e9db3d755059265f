"""Ordinary traffic is forwarded unchanged: bytes, framing, streams and headers."""

import asyncio
import hashlib
import itertools
import random
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from prerender.http.client_address import Peer, peer_of
from prerender.http.fields import Fields
from prerender.http.forwarding_headers import Forwarding
from prerender.http.message_head import parse_fields
from tests.conftest import StartForwarding, settings_for
from tests.support import certificates, raw

GET = b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n"
LARGE = random.Random(7).randbytes(16 * 1024**2)

TARGETS = (
    b"//a",
    b"/a//b",
    b"/a?",
    b"/a??b",
    b"/?",
    b"/%2f",
    b"/%zz",
    b"/a;b=c",
    b"/[x]",
    b'/"<>',
    b"/%C3%A9",
    b"/\xc3\xa9?\xc3\xa9",
    b"/\xe9\xff",
    b"/a%0d%0ab",
    b"/a/../b/./c",
    b"/%2e%2e/",
    b"/\\evil",
    b"/@evil/x",
    b"/:80/x",
    b"//evil.example/x",
    b"/a?b=2&a=1&a=%2F&c",
    b"/a?_escaped_fragment_",
    b"/" + b"x" * 16000,
)


async def test_targets(start_forwarding: StartForwarding) -> None:
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            for target in TARGETS:
                await client.send(GET % target)
                assert (await client.answer()).endswith(b"ok")
    assert [request.line for request in origin.requests] == [
        b"GET " + target + b" HTTP/1.1" for target in TARGETS
    ]


@pytest.mark.parametrize(
    "method",
    [
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "OPTIONS",
        "PROPFIND",
        "MKCOL",
        "REPORT",
        "PURGE",
        "QUERY",
        "M-SEARCH",
        "UNSUBSCRIBE",
    ],
)
async def test_methods(start_forwarding: StartForwarding, method: str) -> None:
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            target = "*" if method == "OPTIONS" else "/"
            line = f"{method} {target} HTTP/1.1"
            await client.send(f"{line}\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
            answer = await client.rest()
    assert origin.requests[0].line.decode() == line
    assert answer.endswith(b"\r\n\r\n" if method == "HEAD" else b"ok")


async def test_request_fields_pass_as_they_are(start_forwarding: StartForwarding) -> None:
    """Order, repetition, case and Latin-1 are kept; white space is not. Only the proxy's own
    headers are added.
    """
    sent = [
        b"hOsT: Site:8080",
        b"X-b: 1",
        b"x-A:2",
        b"COOKIE: a=1; b=caf\xe9",
        b"X-B:\t3 ",
        b"Cookie: c=2",
        b'If-None-Match: W/"a", *',
        b'If-Range: "x"',
        b"Range: bytes=0-1,5-",
        b"X-Empty:",
        b"Accept: " + b"a" * 9000,
        *(b"X-Many-%d: %d" % (n, n) for n in range(130)),
    ]
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(b"\r\n".join([b"GET / HTTP/1.1", *sent, b"", b""]))
            await client.answer()
    got = origin.requests[0].fields
    white_space = {b"x-A:2": b"x-A: 2", b"X-B:\t3 ": b"X-B: 3"}
    expected = [white_space.get(line, line) for line in sent]
    assert got[: len(sent)] == [b"Host: Site:8080", *expected[1:]]
    names = [line.partition(b":")[0] for line in got[len(sent) :]]
    added = [b"X-Forwarded-For", b"X-Forwarded-Host", b"X-Forwarded-Proto", b"Forwarded", b"Via"]
    assert names == added


async def test_answer_fields_pass_as_they_are(start_forwarding: StartForwarding) -> None:
    head = (
        b"HTTP/1.1 299 Tr\xe8s  bien\r\nX-b: 1\r\nSet-Cookie: a=caf\xe9\r\nsEt-cookie: b=2\r\n"
        b"Content-Encoding: br\r\nx-A:2\r\nSet-Cookie: c=3\r\nLocation: //other/x?\r\n"
        b"Date: today\r\nContent-Length:3\r\nX-Empty:\r\n\r\n"
    )
    async with raw.origin(raw.answering(head + b"\x00\xffx")) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(GET % b"/")
            assert await client.answer() == head + b"\x00\xffx"


async def test_hop_by_hop_fields_stay(start_forwarding: StartForwarding) -> None:
    """In both directions, with those that Connection names, except those that it must not name."""
    hop = (
        b"Connection: close, X-Secret, X-Forwarded-For, Via, Host, Content-Length, Cookie\r\n"
        b"X-Secret: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: x\r\nTE: trailers\r\n"
        b"Trailer: X\r\nProxy-Authorization: x\r\nProxy-Authenticate: x\r\n"
    )
    upgrade = b"Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    answer = b"HTTP/1.1 200 OK\r\nDate: x\r\n" + hop + b"Cookie: a\r\nContent-Length: 2\r\n\r\nok"
    async with raw.origin(raw.ending_with(answer)) as origin:
        port = await start_forwarding(origin.url)
        got = await raw.ask(
            port,
            b"POST / HTTP/1.1\r\nHost: a\r\nCookie: b\r\nContent-Length: 2\r\n"
            + hop
            + upgrade
            + b"\r\nhi",
        )
    (request,) = origin.requests
    assert request.body == b"hi"
    assert request.fields[:4] == [
        b"Host: a",
        b"Cookie: b",
        b"Content-Length: 2",
        b"HTTP2-Settings: AAMAAABkAAQAAP__",
    ]
    assert request.values("x-forwarded-for") == ["127.0.0.1"]
    assert len(request.values("via")) == 1
    assert len(request.fields) == 9
    assert got == (
        b"HTTP/1.1 200 OK\r\nDate: x\r\nCookie: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
    )


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (b"204 No Content\r\nDate: x\r\n\r\n", b""),
        (b"204 No Content\r\nDate: x\r\nContent-Length: 0\r\n\r\n", b""),
        (b"205 Reset Content\r\nDate: x\r\nContent-Length: 0\r\n\r\n", b"Content-Length: 0\r\n"),
        (b"304 Not Modified\r\nDate: x\r\nContent-Length: 99\r\n\r\n", b"Content-Length: 99\r\n"),
        (b"304 Not Modified\r\nDate: x\r\nTransfer-Encoding: chunked\r\n\r\n", b""),
        (b"599 \r\nDate: x\r\nContent-Length: 0\r\n\r\n", b"Content-Length: 0\r\n"),
        (b"999\r\nDate: x\r\nContent-Length: 0\r\n\r\n", b"Content-Length: 0\r\n"),
    ],
)
async def test_answers_without_a_body(
    start_forwarding: StartForwarding, answer: bytes, got: bytes
) -> None:
    async with raw.origin(raw.answering(b"HTTP/1.1 " + answer, raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(GET % b"/1" + GET % b"/2")
            first = await client.until(b"\r\n\r\n")
            assert first.endswith(b"\r\nDate: x\r\n" + got + b"\r\n")
            assert (await client.answer()).endswith(b"ok")
    assert origin.connections == 1


async def test_head_keeps_the_length_of_get(start_forwarding: StartForwarding) -> None:
    head = b"HTTP/1.1 200 OK\r\nDate: x\r\nContent-Length: 1000\r\n\r\n"
    async with raw.origin(raw.answering(head, raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n" + GET % b"/")
            assert await client.until(b"\r\n\r\n") == head
            assert (await client.answer()).endswith(b"ok")
    assert origin.connections == 1


async def test_interim_answers_pass(start_forwarding: StartForwarding) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\nConnection: x\r\n\r\n"
    interim = b"HTTP/1.1 102 Processing\r\n\r\n" + early
    async with raw.origin(raw.answering(interim + raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(GET % b"/")
            expected = (interim + raw.OK).replace(b"Connection: x\r\n", b"")
            assert await client.until(b"ok") == expected
        old = await raw.ask(port, b"GET / HTTP/1.0\r\n\r\n")
    assert old.startswith(b"HTTP/1.1 200 OK\r\n")


async def test_a_body_is_waited_for_only_if_the_origin_wants_it(
    start_forwarding: StartForwarding,
) -> None:
    """Expect: 100-continue is between client and origin (RFC 9110 section 10.1.1)."""
    expecting = b"PUT / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"

    async def script(site: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"\r\nExpect: 100-continue\r\n" in head
        if site.connections == 1:
            writer.write(b"HTTP/1.1 401 No\r\nDate: x\r\nContent-Length: 2\r\n\r\nno")
            return
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.write(raw.OK + await reader.readexactly(4))

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        refused = await raw.ask(port, expecting)
        assert refused.startswith(b"HTTP/1.1 401 No\r\n")
        assert refused.endswith(b"Connection: close\r\n\r\nno")
        async with raw.client(port) as client:
            await client.send(expecting)
            assert await client.until(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            await client.send(b"body")
            assert (await client.answer()).endswith(b"ok")


async def test_trailers_go_to_who_asked_for_them(start_forwarding: StartForwarding) -> None:
    answer = (
        b"HTTP/1.1 200 OK\r\nDate: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"2;ext=1\r\nok\r\n0\r\nServer-Timing: db;dur=2\r\n\r\n"
    )
    async with raw.origin(raw.answering(answer)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n")
            asked = await client.until(b"dur=2\r\n\r\n")
            assert asked == answer.replace(b";ext=1", b"")
            await client.send(GET % b"/")
            plain = await client.until(b"0\r\n\r\n")
            assert plain == asked.replace(b"Server-Timing: db;dur=2\r\n", b"")


async def test_trailers_change_nothing_that_the_head_has_said(
    start_forwarding: StartForwarding,
) -> None:
    """They are ignored (RFC 9110 section 6.5.1), and the response is as good as without them."""
    names = """Content-Type Content-Length Content-Encoding Content-Range Transfer-Encoding Trailer
        Connection Keep-Alive Set-Cookie Location Host Authorization Cache-Control Vary Age X-Named"""
    trailers = "".join(f"{name}: a/b\r\n" for name in names.split())
    head = "HTTP/1.1 200 OK\r\nDate: x\r\nTransfer-Encoding: chunked\r\n"
    body = "\r\n2\r\nok\r\n0\r\nX-Sum: 1\r\n"
    answer = f"{head}Connection: X-Named\r\n{body}{trailers}ETag: x\r\n\r\n"
    async with raw.origin(raw.answering(answer.encode())) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            for _ in range(2):
                await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n")
                got = await client.until(b"\r\n0\r\nX-Sum: 1\r\nETag: x\r\n\r\n")
                assert got.decode() == f"{head}{body}ETag: x\r\n\r\n"
    assert len(origin.requests) == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nDate: x\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nDate: x\r\n\r\nok",
        b"HTTP/1.1 200 OK\r\nDate: x\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok",
    ],
)
async def test_framings(start_forwarding: StartForwarding, answer: bytes) -> None:
    """Whatever the origin's framing, clients of both versions get the body in their own."""
    async with raw.origin(raw.ending_with(answer)) as origin:
        port = await start_forwarding(origin.url)
        old = await raw.ask(port, b"GET / HTTP/1.0\r\n\r\n")
        assert old.endswith(b"Connection: close\r\n\r\nok")
        async with raw.client(port) as client:
            for _ in range(2):
                await client.send(GET % b"/")
                if b"Content-Length" in answer:
                    assert (await client.answer()).endswith(b"ok")
                else:
                    new = await client.until(b"0\r\n\r\n")
                    assert b"Transfer-Encoding: chunked" in new
                    assert b"".join(new.split(b"\r\n\r\n", 1)[1].split(b"\r\n")[1::2]) == b"ok"


async def test_old_clients_may_keep_their_connection(start_forwarding: StartForwarding) -> None:
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            for _ in range(2):
                await client.send(b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n")
                assert b"\r\nConnection: keep-alive\r\n" in await client.answer()
    assert origin.requests[0].values("host") == [f"127.0.0.1:{origin.port}"]


async def test_pipelined_requests_are_answered_in_order(start_forwarding: StartForwarding) -> None:
    async def script(site: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        while True:
            request = await raw.receive(reader)
            said = request.line.split()[1] + request.body
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(said), said))

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            post = b"POST /%d HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
            for start in range(0, 100, 10):
                await client.send(
                    b"".join(GET % b"/%d" % n + post % n for n in range(start, start + 10))
                )
                for n in range(start, start + 10):
                    assert (await client.answer()).endswith(b"\r\n\r\n/%d" % n)
                    assert (await client.answer()).endswith(b"\r\n\r\n/%dabc" % n)


SIZES = (0, 1, 65535, 65536, 65537, len(LARGE))


@pytest.mark.heavy
@pytest.mark.parametrize("chunked", [False, True])
async def test_bodies_of_any_size_both_ways(
    start_forwarding: StartForwarding, chunked: bool
) -> None:
    """The origin echoes the body while it receives it."""

    async def echo(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        kept = [n for n in lines if n.lower().startswith((b"content-length", b"transfer-enc"))]
        writer.write(b"\r\n".join([b"HTTP/1.1 200 OK", b"Connection: close", *kept, b"", b""]))
        left = -1 if chunked else int(kept[0].partition(b":")[2])
        end = b""
        while left and not end.endswith(b"\r\n0\r\n\r\n") and end != b"0\r\n\r\n":
            data = await reader.read(65536)
            left -= len(data)
            end = (end + data)[-7:]
            writer.write(data)
            await writer.drain()

    async with raw.origin(echo) as origin:
        port = await start_forwarding(origin.url)
        for size in SIZES:
            body = LARGE[:size]
            async with raw.client(port, limit=2**25) as client:
                sending = asyncio.create_task(_upload(client, body, chunked=chunked))
                head = await client.until(b"\r\n\r\n")
                assert head.startswith(b"HTTP/1.1 200 OK\r\n")
                async with asyncio.timeout(raw.SECONDS):
                    got = hashlib.sha256()
                    async for piece in _body(client, None if chunked else size):
                        got.update(piece)
                await sending
            assert got.hexdigest() == hashlib.sha256(body).hexdigest()


async def _upload(client: raw.Client, body: bytes, *, chunked: bool) -> None:
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    await client.send(b"POST / HTTP/1.1\r\nHost: a\r\n" + framing + b"\r\n\r\n")
    for start in range(0, len(body), 100_000):
        piece = body[start : start + 100_000]
        await client.send(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
    if chunked:
        await client.send(b"0\r\n\r\n")


async def _body(client: raw.Client, size: int | None):  # type: ignore[no-untyped-def]
    if size is not None:
        yield await client.reader.readexactly(size)
        return
    while length := int(await client.reader.readline(), 16):
        yield await client.reader.readexactly(length)
        await client.reader.readexactly(2)


async def test_events_are_not_held_back(start_forwarding: StartForwarding) -> None:
    read = asyncio.Event()

    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        await raw.receive(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: 1\n\n")
        await read.wait()
        writer.write(b"data: 2\n\n")

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(GET % b"/")
            await client.until(b"data: 1\n\n\r\n")
            read.set()
            await client.until(b"data: 2\n\n\r\n0\r\n\r\n")


@pytest.mark.heavy
async def test_many_slow_answers_at_once(start_forwarding: StartForwarding) -> None:
    """No limit of the proxy stops 300 clients from waiting for slow responses."""
    go_on = asyncio.Event()

    async def script(site: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        site.requests.append(await raw.receive(reader))
        await go_on.wait()
        writer.write(raw.OK)

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        close = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        asking = [asyncio.create_task(raw.ask(port, close)) for _ in range(300)]
        async with asyncio.timeout(raw.SECONDS):
            while len(origin.requests) < 300:
                await asyncio.sleep(0.01)
        go_on.set()
        answers = await asyncio.gather(*asking)
        assert [answer for answer in answers if not answer.endswith(b"ok")] == []


async def test_a_slow_reader_takes_no_memory(start_forwarding: StartForwarding) -> None:
    """An endless response is read from the origin no faster than the client reads it."""
    sent = 0

    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        nonlocal sent
        await raw.receive(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(bytes(100_000))
            await writer.drain()
            sent += 100_000

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port, limit=1000) as client:
            await client.send(GET % b"/")
            await client.until(b"\r\n\r\n")
            still, before = 0, -1
            async with asyncio.timeout(raw.SECONDS):
                while still < 10:  # until nothing more is read
                    still, before = (still + 1 if sent == before else 0), sent
                    await asyncio.sleep(0.03)
            resident = psutil.Process().memory_info().rss
            for _ in range(100):
                await client.reader.readexactly(100_000)
            assert psutil.Process().memory_info().rss - resident < 16 * 1024**2
        async with asyncio.timeout(raw.SECONDS):
            await origin.ended.wait()


async def test_a_client_that_leaves_cancels_its_request(start_forwarding: StartForwarding) -> None:
    left = asyncio.Event()

    async def script(site: raw.Origin, reader: raw.Reader, _: raw.Writer) -> None:
        site.requests.append(await raw.receive(reader))
        try:
            assert await reader.read() == b""
        finally:
            left.set()

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(GET % b"/")
            async with asyncio.timeout(raw.SECONDS):
                while not origin.requests:
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(raw.SECONDS):
            await left.wait()


@pytest.mark.parametrize(
    "part",
    [b"Content-Length: 10\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n5\r\nabc"],
)
async def test_half_an_upload_is_never_a_whole_one(
    start_forwarding: StartForwarding, part: bytes
) -> None:
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(b"POST / HTTP/1.1\r\nHost: a\r\n" + part)
            async with asyncio.timeout(raw.SECONDS):
                while not origin.connections:
                    await asyncio.sleep(0.01)
        async with asyncio.timeout(raw.SECONDS):
            await origin.ended.wait()
    assert origin.requests == []


async def test_an_early_answer_ends_the_connection(start_forwarding: StartForwarding) -> None:
    """The rest of the body must not be parsed as the next request."""

    async def script(_: raw.Origin, reader: raw.Reader, writer: raw.Writer) -> None:
        assert b"/admin" not in await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 No\r\nDate: x\r\nContent-Length: 2\r\n\r\nno")
        await reader.read()

    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
            assert b"\r\nConnection: close\r\n" in await client.answer()
            await client.send(GET % b"/admin")
            assert await client.rest() == b""
    assert origin.connections == 1


async def test_an_origin_with_tls(
    start_forwarding: StartForwarding, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate is verified. If its name has several addresses, one that accepts is used."""
    certificate = tmp_path / "certificate.pem"
    certificates.write(certificate, "localhost")
    context = certificates.server_context(certificate)
    async with raw.origin(raw.answering(raw.OK), tls=context) as origin:
        url = f"https://localhost:{origin.port}"
        distrusting = await start_forwarding(url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        trusting = await start_forwarding(url)
        for port, status in ((distrusting, b"502"), (trusting, b"200"), (trusting, b"200")):
            async with raw.client(port) as client:
                await client.send(GET % b"/")
                assert (await client.answer()).startswith(b"HTTP/1.1 " + status)
    assert len(origin.requests) == 2


async def test_a_loop_is_seen(
    start_forwarding: StartForwarding, caplog: pytest.LogCaptureFixture
) -> None:
    """The origin's URL is the proxy's own. The first pass is detected."""
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(GET % b"/")
            await client.answer()
            (via,) = origin.requests[0].values("via")
            await client.send(b"GET / HTTP/1.1\r\nHost: a\r\nVia: 1.1 x, %b\r\n\r\n" % via.encode())
            assert (await client.answer()).startswith(b"HTTP/1.1 508 ")
    assert len(origin.requests) == 1
    assert "[origin] url leads to the proxy" in caplog.text


FORWARDING = Forwarding(URL("http://origin:81"))


def told(block: str, *, trusted: bool, remote: str = "9.9.9.9") -> list[str]:
    fields = parse_fields(block.encode()) if block else Fields([])
    lines = FORWARDING.request_lines(
        fields, host="s:1", remote=remote, trusted=trusted, minor=0, traced=False
    )
    found = lines.decode().removesuffix("\r\n").split("\r\n")
    return [line for line in found if not line.startswith(("Via: 1.0 ", "Host: s:1"))]


def test_remembered_lines_are_those_of_the_request() -> None:
    block = b"Host: a\r\nExpect: 100-continue\r\nTraceparent: 1\r\nX-Forwarded-For: 1.1.1.1"
    shared, alone = parse_fields(block), parse_fields(block)
    shared.shared = True
    seen = set()
    for host, remote, trusted, minor, traced in itertools.product(
        ("a", "b:1"), ("9.9.9.9", "::1"), (False, True), (0, 1), (False, True)
    ):
        first, again, other = (
            FORWARDING.request_lines(
                fields, host=host, remote=remote, trusted=trusted, minor=minor, traced=traced
            )
            for fields in (shared, shared, alone)
        )
        assert first == again == other
        seen.add(first)
    assert len(seen) == 32


REPLACED = [
    "X-Forwarded-For: 9.9.9.9",
    "X-Forwarded-Host: s:1",
    "X-Forwarded-Proto: http",
    'Forwarded: for=9.9.9.9;host="s:1";proto=http',
]
SPOOFED = (
    "X-Forwarded-For: 1.1.1.1\r\nx-forwarded-host: evil\r\nX-Forwarded-Proto: https\r\n"
    "Forwarded: for=1.1.1.1\r\nX-Real-IP: 1.1.1.1\r\nX-Forwarded-Port: 1\r\nX-Forwarded-Prefix: /x"
)


@pytest.mark.parametrize(
    ("block", "trusted", "expected"),
    [
        ("", False, REPLACED),
        ("", True, REPLACED),
        (SPOOFED, False, REPLACED),
        (
            "X-Forwarded-For: 1.1.1.1, 2.2.2.2\r\nX-Forwarded-For: 3.3.3.3\r\n"
            "X-Forwarded-Proto: https\r\nX-Real-IP: 1.1.1.1",
            True,
            [
                "X-Real-IP: 1.1.1.1",
                "X-Forwarded-For: 1.1.1.1, 2.2.2.2, 3.3.3.3, 9.9.9.9",
                "X-Forwarded-Host: s:1",
                "X-Forwarded-Proto: https",
            ],
        ),
        (
            'Forwarded: for="[::1]";proto=https',
            True,
            ['Forwarded: for="[::1]";proto=https, for=9.9.9.9;host="s:1";proto=http'],
        ),
        *(
            (f"Forwarded: for=6.6.6.6;host=evil\r\n{old_form}", True, expected)
            for old_form, expected in (
                (
                    "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: https",
                    [
                        "X-Forwarded-For: 1.1.1.1, 9.9.9.9",
                        "X-Forwarded-Host: s:1",
                        "X-Forwarded-Proto: https",
                    ],
                ),
                (
                    "X-Forwarded-Proto: https",
                    [*REPLACED[:2], "X-Forwarded-Proto: https"],
                ),
            )
        ),
    ],
)
def test_who_is_believed(block: str, trusted: bool, expected: list[str]) -> None:
    assert told(block, trusted=trusted) == expected


def test_an_ipv6_client_is_quoted() -> None:
    assert told("", trusted=False, remote="2001:db8::1")[-1].startswith(
        'Forwarded: for="[2001:db8::1]";'
    )


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", ("127.0.0.1", True)),
        ("::ffff:127.0.0.1", ("127.0.0.1", True)),
        ("fe80::1%eth0", ("fe80::1", False)),
        ("fd00::1", ("fd00::1", True)),
        ("8.8.8.8", ("8.8.8.8", False)),
        ("2001:db8::1", ("2001:db8::1", False)),
    ],
)
def test_addresses_of_clients(address: str, expected: tuple[str, bool]) -> None:
    default = settings_for("http://a").server.trusted_proxies
    assert peer_of(address, default) == Peer(*expected)


async def test_trusted_proxies(start_forwarding: StartForwarding) -> None:
    said = (
        b"GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: https\r\n\r\n"
    )
    async with raw.origin(raw.answering(raw.OK)) as origin:
        for networks in (["127.0.0.0/8"], ["10.0.0.0/8", "::/0"], []):
            port = await start_forwarding(origin.url, trusted_proxies=networks)
            async with raw.client(port) as client:
                await client.send(said)
                await client.answer()
    got = [(r.values("x-forwarded-for"), r.values("x-forwarded-proto")) for r in origin.requests]
    assert got == [(["1.1.1.1, 127.0.0.1"], ["https"]), *[(["127.0.0.1"], ["http"])] * 2]


def test_an_old_client_expects_nothing() -> None:
    assert told("Expect: 100-continue", trusted=False) == REPLACED


@given(
    st.lists(
        st.sampled_from(["Connection: x, X-A", "X-A: 1", "Via: a", "TE: x", "X-B: 2", "a_b: c"])
    )
)
def test_what_is_ours_is_always_there(lines: list[str]) -> None:
    got = told("\r\n".join(lines), trusted=False)
    assert got[-4:] == REPLACED
    named = any(line.startswith("Connection") for line in lines)
    kept = [n for n in lines if n in ("Via: a", "X-B: 2") or (n == "X-A: 1" and not named)]
    assert got[:-4] == kept

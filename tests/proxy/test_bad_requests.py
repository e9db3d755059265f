"""Malformed requests get an error response, end the connection, and never reach the origin.

The vectors follow RFC 9112 sections 2.2, 3, 5, 6 and 7.1 and RFC 9110 sections 4.2, 5.5 and 7.2.
"""

import asyncio
import logging
import os

import pytest

from tests.conftest import StartForwarding
from tests.support import raw

# What would be done if the rest of a bad request were taken for a request.
SMUGGLED = b"GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"


def request(*lines: bytes, line: bytes = b"POST / HTTP/1.1", body: bytes = b"") -> bytes:
    """A request with a valid Host and lines that may be invalid."""
    return b"\r\n".join([line, b"Host: a", *lines, b"", body])


BAD_LENGTHS = (
    b"+3",
    b"-1",
    b"0x3",
    b"3 4",
    b"3, 3",
    b"9" * 23,
    b"",
    b"3;",
    b"\xb3",
    b"3_0",
    b"1e1",
)
BAD_CODINGS = (
    b"xchunked",
    b'"chunked"',
    b"chunked, identity",
    b"identity",
    b"chunked, chunked",
    b"chunked;q=1",
    b"",
    b"gzip",
    b"chunked\x0b",
    b"\x0bchunked",
)
BAD_HOSTS = (b'a b<>"', b"a@b", b"a/b", b"", b"a:b", b"[::1", b"a\\b", b"a?b", b"a#b")
CONTROLS = (*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), 0x7F)

FRAMING = {
    "two equal lengths": request(b"Content-Length: 3", b"Content-Length: 3", body=b"abc"),
    "two lengths": request(b"Content-Length: 3", b"Content-Length: 5", body=b"abc"),
    "length and coding": request(
        b"Content-Length: 3", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"
    ),
    "coding and length": request(
        b"Transfer-Encoding: chunked", b"Content-Length: 3", body=b"0\r\n\r\n"
    ),
    "two codings": request(
        b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"
    ),
    "space before the colon": request(b"Transfer-Encoding : chunked", body=b"0\r\n\r\n"),
    "space before a length's colon": request(b"Content-Length : 3", body=b"abc"),
    "folded coding": request(b"Transfer-Encoding:\r\n chunked", body=b"0\r\n\r\n"),
    **{
        f"length {value!r}": request(b"Content-Length: " + value, body=b"abc")
        for value in BAD_LENGTHS
    },
    **{
        f"coding {value!r}": request(b"Transfer-Encoding: " + value, body=b"0\r\n\r\n")
        for value in BAD_CODINGS
    },
}
HEADS = {
    "folded line": request(b"X: a", b" b"),
    "folded by a tab": request(b"X: a", b"\tb"),
    "folded first line": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "bare LF": b"GET / HTTP/1.1\nHost: a\n\n\r\n\r\n",
    "one bare LF": b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n",
    "bare CR": b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": request(b"Host: a"),
    "no colon": request(b"X"),
    "no name": request(b": x"),
    "space in a name": request(b"X Y: x"),
    "@ in a name": request(b"X@: x"),
    "latin-1 in a name": request(b"X\xe9: x"),
    **{f"{octet:#04x} in a value": request(b"X: a" + bytes([octet]) + b"b") for octet in CONTROLS},
    **{f"Host {host!r}": b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n" for host in BAD_HOSTS},
}
TARGETS = {
    f"target {target!r}": request(line=b"GET " + target + b" HTTP/1.1")
    for target in (
        b"/a b",
        b"/\x00",
        b"/a#frag",
        b"file:///etc/passwd",
        b"evil:80",
        b"@evil/x",
        b"\\\\evil\\x",
        b"*",
        b"http://",
        b"http:///x",
        b"http://u@h/",
        b"http://a b/",
        b"http://a[::1]@/",  # yarl raises IndexError
        b"?a",
        b"",
    )
}
LINES = {
    "HTTP/0.9": b"GET /\r\n\r\n",
    "lower-case version": request(line=b"GET / http/1.1"),
    "two spaces": request(line=b"GET  / HTTP/1.1"),
    "a tab": request(line=b"GET\t/\tHTTP/1.1"),
    "space after": request(line=b"GET / HTTP/1.1 "),
    "space before": request(line=b" GET / HTTP/1.1"),
    "version with a sign": request(line=b"GET / HTTP/+1.1"),
    "long version": request(line=b"GET / HTTP/1.10"),
    "bad method": request(line=b"G{T / HTTP/1.1"),
    "bad Host and a whole URL": b"GET http://a/ HTTP/1.1\r\nHost: b c\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(1, 200)) + b"\r\n\r\n",
}
CHUNKS = {
    f"chunks {chunks[:20]!r}": request(b"Transfer-Encoding: chunked", body=chunks)
    for chunks in (
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b"-3\r\nabc\r\n0\r\n\r\n",
        b"+3\r\nabc\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0\r\n\r\n",
        b" 3\r\nabc\r\n0\r\n\r\n",
        b"3\nabc\r\n0\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"3\r\nabc\n0\r\n\r\n",
        b"\r\nabc\r\n0\r\n\r\n",
        b"10000000000000000\r\nabc\r\n0\r\n\r\n",
        b"3;a\nb\r\nabc\r\n0\r\n\r\n",
        b"3;a\rb\r\nabc\r\n0\r\n\r\n",
        b"3;" + b"a" * 65536 + b"\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabc\r\n0\r\nContent-Length: 3\r\n\r\n",
        b"3\r\nabc\r\n0\r\nHost: b\r\n\r\n",
        b"3\r\nabc\r\n0\r\nX : b\r\n\r\n",
        b"3\r\nabc\r\n0\r\n" + b"X: b\r\n" * 5000,
    )
}
OTHER_STATUS = {
    "unknown method": (501, request(line=b"FOO / HTTP/1.1")),
    "lower-case method": (501, request(line=b"get / HTTP/1.1")),
    "known codings, not chunked": (400, request(b"Transfer-Encoding: gzip")),
    "known codings": (501, request(b"Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n")),
    "HTTP/2.0": (505, request(line=b"GET / HTTP/2.0")),
    "HTTP/1.2": (505, request(line=b"GET / HTTP/1.2")),
    "HTTP/3.9": (505, request(line=b"GET / HTTP/3.9")),
    "TRACE": (405, request(line=b"TRACE / HTTP/1.1")),
    "CONNECT": (405, b"CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n"),
    "long target": (414, request(line=b"GET /" + b"a" * 65536 + b" HTTP/1.1")),
    "unknown expectation": (417, request(b"Expect: foo", line=b"GET / HTTP/1.1")),
    "many fields": (431, request(*[b"X: y"] * 300)),
    "long head": (431, request(*[b"X: " + b"y" * 60000] * 3)),
    "preface of HTTP/2": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
}
BAD = {
    name: (400, data) for name, data in (FRAMING | HEADS | TARGETS | LINES).items()
} | OTHER_STATUS


def said_once(answer: bytes, status: int) -> bool:
    """Whether there is one short response that ends the connection."""
    return (
        answer.startswith(b"HTTP/1.1 %d " % status)
        and answer.count(b"\r\nDate: ") == 1
        and b"\r\nConnection: close\r\n" in answer
        and b"\r\nCache-Control: no-store\r\n" in answer
        and len(answer) < 500
    )


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The log events, except about the missing browser."""
    records = caplog.records
    return [r.getMessage() for r in records if not r.name.startswith("prerender.browser")]


async def test_bad_heads(
    start_forwarding: StartForwarding, caplog: pytest.LogCaptureFixture
) -> None:
    """Each is followed by another request, which must not get a response."""
    caplog.set_level(logging.INFO)
    wrong = {}
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        caplog.clear()
        for name, (status, data) in BAD.items():
            answer = await raw.ask(port, data + SMUGGLED)
            if not said_once(answer, status):
                wrong[name] = answer
        assert wrong == {}
        assert origin.requests == []
    assert logged(caplog) == []


async def test_a_bad_request_after_a_good_one(start_forwarding: StartForwarding) -> None:
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        for bad in (HEADS["folded line"], CHUNKS[next(iter(CHUNKS))]):
            async with raw.client(port) as client:
                await client.send(request(line=b"GET /good HTTP/1.1") + bad + SMUGGLED)
                assert (await client.answer()).endswith(b"ok")
                assert said_once(await client.rest(), 400)
    assert [r.line for r in origin.requests] == [b"GET /good HTTP/1.1"] * 2


async def test_bad_chunks(start_forwarding: StartForwarding) -> None:
    """The head of such a request may have been sent already; the end of its body never is."""
    whole = []

    async def script(_: raw.Origin, reader: raw.Reader, __: raw.Writer) -> None:
        whole.append(await raw.receive(reader))

    wrong = {}
    async with raw.origin(script) as origin:
        port = await start_forwarding(origin.url)
        for name, data in CHUNKS.items():
            answer = await raw.ask(port, data + SMUGGLED)
            if not said_once(answer, 400):
                wrong[name] = answer
    assert wrong == {}
    assert whole == []


@pytest.mark.parametrize("pieces", [1, 3, 7])
async def test_a_request_in_pieces_is_the_same_request(
    start_forwarding: StartForwarding, pieces: int
) -> None:
    good = request(
        b"Transfer-Encoding: chunked", body=b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n"
    )
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            for start in range(0, len(good), pieces):
                await client.send(good[start : start + pieces])
                await asyncio.sleep(0)
            assert (await client.answer()).endswith(b"ok")
    (received,) = origin.requests
    assert b"".join(received.body.split(b"\r\n")[1::2]) == b"abcde"
    assert received.body.endswith(b"0\r\n\r\n")
    assert received.values("transfer-encoding") == ["chunked"]


async def test_empty_lines_before_a_request(start_forwarding: StartForwarding) -> None:
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(b"\r\n\r\n" + request(line=b"GET /a HTTP/1.1"))
            assert (await client.answer()).endswith(b"ok")
            await client.send(b"\r\n" + request(line=b"GET /b HTTP/1.1"))
            assert (await client.answer()).endswith(b"ok")
    assert [r.line for r in origin.requests] == [b"GET /a HTTP/1.1", b"GET /b HTTP/1.1"]


async def test_absolute_targets_lead_to_the_origin(start_forwarding: StartForwarding) -> None:
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            for target in (b"http://other:81/x?", b"HTTPS://other:81", b"http://other:81?q"):
                await client.send(b"GET " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n")
                assert (await client.answer()).endswith(b"ok")
            # aiohttp cannot decode this name.
            await client.send(b"GET http://xn--a/x HTTP/1.1\r\nHost: a\r\n\r\n")
            assert (await client.answer()).endswith(b"ok")
    assert [r.line.split()[1] for r in origin.requests] == [b"/x?", b"/", b"/?q", b"/x"]
    assert [r.values("host") for r in origin.requests] == [["other:81"]] * 3 + [["xn--a"]]


async def test_chunked_in_http_1_0(start_forwarding: StartForwarding) -> None:
    head = b"POST / HTTP/1.0\r\nHost: a\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        answer = await raw.ask(port, head + b"3\r\nabc\r\n0\r\n\r\n" + SMUGGLED)
    assert answer.count(b"HTTP/1.1") == 1
    assert len(origin.requests) == 1
    assert origin.requests[0].body == b"3\r\nabc\r\n0\r\n\r\n"


async def test_names_with_underscores_are_left_out(start_forwarding: StartForwarding) -> None:
    """CGI maps underscores and hyphens to the same name, so they could replace the proxy's own
    headers.
    """
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        async with raw.client(port) as client:
            await client.send(request(b"X_Forwarded_For: 6.6.6.6", line=b"GET / HTTP/1.1"))
            await client.answer()
    assert b"6.6.6.6" not in origin.requests[0].head


@pytest.mark.heavy
async def test_many_bad_requests_cost_little(
    start_forwarding: StartForwarding, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with raw.origin(raw.answering(raw.OK)) as origin:
        port = await start_forwarding(origin.url)
        caplog.clear()
        for _ in range(20):
            answers = await asyncio.gather(
                *(raw.ask(port, os.urandom(200) + b"\r\n\r\n") for _ in range(25))
            )
            assert all(b" 400 " in answer or b" 501 " in answer for answer in answers)
        assert (await raw.ask(port, request(b"Connection: close"))).endswith(b"ok")
    assert logged(caplog) == []

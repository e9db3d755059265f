"""Requests that servers parse in two ways, built from parts: none is forwarded like that.

A request combines variants of framing, line ends and chunks, with another request hidden in its
body and one behind it. Eight lenient readings (which header counts, the first or the last; whether
a bare CR or LF ends a line) model other servers. What the proxy forwards must be the beginning of
every reading (RFC 9112 sections 6.3 and 11.2).
"""

import asyncio
import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from prerender.http.connection import Sweeper
from prerender.proxy.server import Server
from tests.conftest import StartForwarding
from tests.proxy import test_second_hops, test_two_parsers
from tests.support import raw
from tests.support.limits import limits

Read = tuple[str, str, bytes]
Reading = Callable[[bytes], list[Read]]

CODING_NAMES = (
    b"Transfer-Encoding", b"transfer-encoding", b"Transfer-Encoding ", b"Transfer-Encoding\t",
    b" Transfer-Encoding", b"\tTransfer-Encoding", b"Transfer-Encoding\x0b", b"\x0bTransfer-Encoding",
    b"Transfer-Encoding\0", b"\xa0Transfer-Encoding", b"X: y\nTransfer-Encoding",
    b"X: y\rTransfer-Encoding", b"X:\r\n Y\r\nTransfer-Encoding",
    b"Connection: close\r\nTransfer-Encoding",
)  # fmt: skip
CODINGS = (
    b"chunked", b"CHUNKED", b"\tchunked\t", b"\x0bchunked", b"chunked\x0b", b"\xa0chunked", b"xchunked",
    b"chunkedx", b"chunked, identity", b"identity, chunked", b"gzip, chunked", b"identity",
    b'"chunked"', b"chunked;q=1", b"", b"chunked, chunked", b"chun\tked", b"\r\n chunked",
    b"chunked\r\n x", b"\0chunked", b"chunked,", b",chunked", b"chunked\rX: y", b"chunked\nX: y",
)  # fmt: skip
LENGTH_NAMES = (
    b"Content-Length", b"content-length", b"Content-Length ", b" Content-Length", b"Content-Length\x0b",
    b"\0Content-Length", b"X: y\nContent-Length", b"X: y\rContent-Length", b"Content-Length\t",
)  # fmt: skip
# %d is the length of the whole body, or of what comes before the hidden request.
LENGTHS = (
    b"%d", b"0%d", b"+%d", b"-%d", b"0x%d", b"%d,%d", b"%d, 0", b"\t%d ", b"%d\x0b", b"\x0b%d", b"%d;",
    b"%d.0",
    b"%d_0", b"", b"%d 0", b"9999999999999999999%d", b"%d\r\n 0", b"\r\n %d", b"%d\0", b"\xd9\xa3",
    b"%d\nX: y", b"%d\rX: y", b"%de0",
)  # fmt: skip
SIZES = (
    b"0", b"00", b"0 ", b" 0", b"0\t", b"0;x", b'0;x="\r\n"', b"0;x\n", b"0x0", b"-0", b"+0", b"0_0",
    b"\x0b0",
    b"0;\x0b", b"10000000000000000", b"g", b"", b"0\0", b"0,0", b"0\r", b"0\n",
)  # fmt: skip
ENDS = (b"\r\n", b"\n", b"\r", b"\r\n\r\n", b"\n\n", b"", b" \r\n", b"X: y\r\n\r\n", b" x\r\n\r\n")
LINES = (b"POST %b HTTP/1.1", b"POST %b HTTP/1.0", b"GET %b HTTP/1.1")


def hidden(number: int) -> bytes:
    return b"GET /%d/hidden HTTP/1.1\r\nHost: a\r\n\r\n" % number


def built(number: int, line: bytes, lines: Sequence[bytes], start: bytes, *, whole: bool) -> bytes:
    """One request, the one hidden in its body, and one behind it."""
    body = start + hidden(number)
    length = len(body) if whole else len(start)
    fields = [re.sub(rb"%d", b"%d" % length, field) for field in lines]
    head = b"\r\n".join([line % (b"/%d/outer" % number), b"Host: a", *fields, b"", b""])
    after = b"GET /%d/after HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n" % number
    return head + body + after


def vectors(count: int, seed: int) -> Iterator[bytes]:
    """This number of requests, each built from other parts."""
    codings = [name + b": " + value for name, value in itertools.product(CODING_NAMES, CODINGS)]
    lengths = [name + b": " + value for name, value in itertools.product(LENGTH_NAMES, LENGTHS)]
    starts = [size + a + b for size, a, b in itertools.product(SIZES, ENDS, ENDS)]
    chance = random.Random(seed)
    good_coding, good_length, good_start = codings[0], lengths[0], b"0\r\n\r\n"
    made: set[bytes] = set()
    for number in itertools.count():
        coding = chance.choice((good_coding, chance.choice(codings)))
        length = chance.choice((good_length, chance.choice(lengths)))
        fields = chance.choice(
            ([coding], [length], [coding, length], [length, coding], [length, chance.choice(lengths)],
             [coding, chance.choice(codings)])
        )  # fmt: skip
        start = chance.choice((good_start, good_start, chance.choice(starts)))
        line, whole = chance.choice(LINES), chance.random() < 0.5
        if (one := built(0, line, fields, start, whole=whole)) not in made:
            made.add(one)
            yield built(number, line, fields, start, whole=whole)
        if len(made) == count:
            return


def reading(*, coding_first: bool, last: bool, lenient_ends: bool) -> Reading:
    """A lenient way to parse requests, which stops where nothing can be parsed."""
    one_end = rb"(?:\r\n|\n|\r(?!\n))" if lenient_ends else rb"\r\n"
    line_end, head_end = re.compile(one_end), re.compile(one_end * 2)

    def chunks(data: bytes) -> tuple[bytes, bytes] | None:
        body = b""
        while size := re.match(rb"[\s\0]*([0-9A-Fa-f]+)", data):
            end = line_end.search(data, size.end())
            if end is None:
                return None
            length = int(size[1], 16)
            data = data[end.end() :]
            if not length:
                # The trailer fields, and the empty line behind them.
                while end := line_end.search(data):
                    line, data = data[: end.start()], data[end.end() :]
                    if not line:
                        return body, data
                return None
            body, data = body + data[:length], data[length:]
            if end := line_end.match(data):
                data = data[end.end() :]
        return None

    def body_of(fields: list[tuple[bytes, bytes]], data: bytes) -> tuple[bytes, bytes] | None:
        values = [value for name, value in fields if name == b"content-length"]
        lengths = [int(found[1]) for v in values if (found := re.match(rb"[\s+\0]*(\d+)", v))]
        coded = any(name == b"transfer-encoding" and b"chunked" in value for name, value in fields)
        if coded and (coding_first or not lengths):
            return chunks(data)
        length = lengths[-1 if last else 0] if lengths else 0
        return (data[:length], data[length:]) if len(data) >= length else None

    def read(data: bytes) -> list[Read]:
        found: list[Read] = []
        while end := head_end.search(data := data.lstrip(b"\r\n")):
            line, *lines = line_end.split(data[: end.start()])
            words = line.split()
            if len(words) != 3:
                break
            fields = [
                (name.strip(b" \t\x0b\0\xa0").lower(), value.lower())
                for name, _, value in (one.partition(b":") for one in lines)
            ]
            if (body := body_of(fields, data[end.end() :])) is None:
                break
            found.append((words[0].decode("latin-1"), words[1].decode("latin-1"), body[0]))
            data = body[1]
        return found

    return read


READINGS = [
    reading(coding_first=first, last=last, lenient_ends=ends)
    for first, last, ends in itertools.product((True, False), repeat=3)
]


def read_twice(data: bytes, handed_on: list[Read]) -> list[Read] | None:
    """A reading that does not begin with what was forwarded."""
    readings = (read(data) for read in READINGS)
    return next((one for one in readings if one[: len(handed_on)] != handed_on), None)


def test_the_readings_differ() -> None:
    """They would detect a smuggled request."""
    data = built(
        1,
        LINES[0],
        [b"Content-Length: %d", b"Transfer-Encoding: chunked"],
        b"0\r\n\r\n",
        whole=True,
    )
    targets = {tuple(target for _, target, _ in read(data)) for read in READINGS}
    assert targets == {("/1/outer", "/1/after"), ("/1/outer", "/1/hidden", "/1/after")}
    assert len({len(read_twice(data, read(data)) or ()) for read in READINGS}) == 2
    assert read_twice(data, []) is None


@pytest.mark.heavy
async def test_nothing_is_read_twice() -> None:
    """What the listener hands on, whatever is done with it."""
    site = test_two_parsers.Site()
    taken = 0
    with Sweeper() as sweeper:
        server = Server(site, limits(), sweeper)
        for data in vectors(1_000, seed=18):
            site.asked.clear()
            wire = await test_two_parsers.ask(data, server, [])
            assert read_twice(data, site.asked) is None, (data, site.asked)
            assert not test_two_parsers.malformed(wire.written), (data, wire.written)
            taken += bool(site.asked)
    assert 25 < taken < 250


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_nothing_is_read_twice_behind_the_proxy(
    start_forwarding: StartForwarding, tmp_path: Path
) -> None:
    """What a server with another parser understood."""
    async with test_second_hops.HOPS["h11"](tmp_path) as url:
        port = await start_forwarding(url, body_timeout=2)
        few = asyncio.Semaphore(20)

        async def ask(data: bytes) -> tuple[bytes, list[Read], bytes]:
            async with few:
                answer = await raw.ask(port, data)
            return data, understood(answer), answer

        taken = 0
        made = list(vectors(12_000, seed=1812))
        for start in range(0, len(made), 500):
            part = made[start : start + 500]
            for data, handed_on, answer in await asyncio.gather(*map(ask, part)):
                assert read_twice(data, handed_on) is None, (data, handed_on)
                assert b"HTTP/1.1 502" not in answer, (data, answer)
                taken += bool(handed_on)
    assert 200 < taken < 3_000


def understood(answers: bytes) -> list[Read]:
    """What the server behind the proxy understood, from all its responses."""
    found = []
    while answers.startswith(b"HTTP/1.1 200 "):
        head, _, rest = answers.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: (\d+)", head)
        assert length, answers
        one = test_second_hops.understood(head + b"\r\n\r\n" + rest[: int(length[1])])
        assert one
        found.append(one)
        answers = rest[int(length[1]) :]
    return found

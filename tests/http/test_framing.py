"""The pure parts of HTTP/1.1: heads and bodies in any pieces and with any content."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from prerender.errors import BadMessage, CutShort
from prerender.http.body import Chunked, Sized, UntilClose, chunk, last_chunk
from prerender.http.fields import members
from prerender.http.message_head import parse_fields, parse_request, parse_response

TOKEN = st.text("!#$%&'*+-.^_`|~09azAZ", min_size=1, max_size=9).map(str.encode)
VALUE = st.text(st.characters(codec="latin-1", exclude_categories=["Cc"]), max_size=30).map(
    lambda text: text.encode("latin-1")
)
LINES = st.lists(st.builds(lambda name, value: name + b":" + value, TOKEN, VALUE), max_size=8)
SPECIAL = (b"host", b"content-length", b"transfer-encoding", b"connection")


@given(LINES, st.sampled_from(["GET", "POST", "M-SEARCH", "OWN"]))
def test_a_head_keeps_its_lines(lines: list[bytes], method: str) -> None:
    lines = [line for line in lines if line.partition(b":")[0].lower() not in SPECIAL]
    head = parse_request(b"\r\n".join([f"{method} /a? HTTP/1.1".encode(), *lines, b"Host: a"]))
    assert (head.method, head.target, head.host) == (method, "/a?", "a")
    assert [line for _, line in head.headers.lines] == [*lines, b"Host: a"]
    for name, line in head.headers.lines:
        value = line.partition(b":")[2].strip(b" \t").decode("latin-1")
        assert value in head.headers.getall(name.upper())
        assert name in head.headers


@given(st.binary(max_size=200))
@example(b"GET / HTTP/1.1\r\nHost: a\r\n")
@example(b"GET / HTTP/1.1\r\n: a")
def test_anything_else_is_a_bad_message(data: bytes) -> None:
    for parse in (parse_request, lambda head: parse_response(head, "GET"), parse_fields):
        try:
            parse(data)
        except BadMessage as error:
            refused = error
        else:
            continue
        assert 400 <= refused.status < 600


@given(LINES, st.integers(0, 500), st.integers(0, 255))
def test_one_wrong_octet_never_changes_the_framing(
    lines: list[bytes], where: int, octet: int
) -> None:
    """The message is refused, or has the same length, or properly declares another one."""
    lines = [line for line in lines if line.partition(b":")[0].lower() not in SPECIAL]
    good = b"\r\n".join([b"POST / HTTP/1.1", *lines, b"Host: a", b"Content-Length: 11"])
    where %= len(good)
    try:
        head = parse_request(good[:where] + bytes([octet]) + good[where + 1 :])
    except BadMessage:
        return
    (length,) = head.headers.getall("content-length") or ["0"]
    assert head.body_bytes == int(length)
    assert length.isascii()
    assert length.isdigit()


@pytest.mark.parametrize(
    ("status", "method", "lines", "expected"),
    [
        (200, "GET", [b"Content-Length: 5"], (5, False, True)),
        (200, "GET", [b"Transfer-Encoding: CHUNKED"], (None, True, True)),
        (200, "GET", [], (None, False, False)),
        (200, "HEAD", [b"Content-Length: 5"], (0, False, True)),
        (200, "HEAD", [], (0, False, True)),
        (204, "GET", [b"Content-Length: 5"], (0, False, True)),
        (304, "GET", [b"Transfer-Encoding: chunked"], (0, False, True)),
        (103, "GET", [], (0, False, True)),
        (200, "GET", [b"Content-Length: 5", b"Connection: x, Close"], (5, False, False)),
    ],
)
def test_where_a_response_ends(
    status: int,
    method: str,
    lines: list[bytes],
    expected: tuple[int | None, bool, bool],
) -> None:
    """RFC 9112 section 6.3: the length, whether it is chunked, and whether the connection stays
    open.
    """
    head = parse_response(b"\r\n".join([b"HTTP/1.1 %d" % status, *lines]), method)
    assert (head.body_bytes, head.chunked, head.keep_alive) == expected


def test_http_1_0_ends_with_its_connection() -> None:
    assert not parse_response(b"HTTP/1.0 200 OK\r\nContent-Length: 5", "GET").keep_alive
    kept = b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\nConnection: keep-alive"
    assert parse_response(kept, "GET").keep_alive


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.lists(st.integers(1, 9), max_size=30),
    st.binary(max_size=9),
)
def test_chunks_however_they_are_cut(pieces: list[bytes], cuts: list[int], behind: bytes) -> None:
    stream = b"".join(map(chunk, pieces)) + b"0\r\nA: b\r\nC: d\r\n\r\n" + behind
    decoder = Chunked()
    buffer = bytearray()
    got = b""
    for cut in [*cuts, len(stream)]:
        buffer += stream[:cut]
        stream = stream[cut:]
        if not decoder.done:
            got += decoder.decode(buffer)
    assert decoder.done
    assert got == b"".join(pieces)
    assert buffer == behind
    assert last_chunk(line for _, line in decoder.trailers.lines) == b"0\r\nA: b\r\nC: d\r\n\r\n"


@given(st.binary(max_size=60))
def test_what_is_no_chunked_body_is_a_bad_message_or_cut_short(data: bytes) -> None:
    decoder = Chunked()
    try:
        decoder.decode(bytearray(data))
        decoder.end_of_input()
    except (BadMessage, CutShort):
        assert not decoder.done


def test_other_bodies() -> None:
    buffer = bytearray(b"abcdef")
    sized = Sized(4)
    assert sized.decode(buffer) == b"abcd"
    assert sized.done
    assert buffer == b"ef"
    with pytest.raises(CutShort):
        Sized(1).end_of_input()
    until_close = UntilClose()
    assert until_close.decode(buffer) == b"ef"
    assert not until_close.done
    until_close.end_of_input()
    assert until_close.done


def test_members_of_lists() -> None:
    assert members(" Keep-Alive,\tX ,, ") == {"keep-alive", "x"}
    assert members("") == frozenset()


def test_whitespace_after_names_is_removed_from_responses() -> None:
    head = parse_response(
        b"HTTP/1.1 200 OK\r\nContent-Type : text/html\r\nContent-Length \t: 3\r\nX: a : b", "GET"
    )
    assert head.body_bytes == 3
    assert head.fields.get("content-type") == "text/html"
    assert b"\r\nX: a : b\r\n" in head.forwarded
    assert b"\r\nContent-Type: text/html\r\n" in head.forwarded

"""Strict parsers of request and response heads. Pure.

aiohttp parses requests; ``check_request`` parses them again before they are handled. Whatever two
recipients could parse differently is refused (RFC 9112 sections 2.2, 3, 5 and 6), so it never reaches
the origin. ``parse_response`` parses responses of the origin. Header lines keep their bytes and order.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from http import HTTPStatus
from typing import Final, Self

from prerender.errors import BadMessage
from prerender.http.client_address import NOBODY, Peer
from prerender.http.fields import Fields, members, value_of
from prerender.http.hop_by_hop import end_to_end_lines

MAX_TARGET_BYTES = 65536
# RFC 1035 section 2.3.4, with room for other registries of names.
MAX_HOST_BYTES = 1024
MAX_HEAD_BYTES = 131072
MAX_FIELDS = 256

# RFC 9110 section 5.6.2, and the octets that are allowed in a field value (section 5.5).
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_SPACE_BEFORE_COLON = re.compile(rb"\r\n([^:\s]+)[ \t]+(?=:)")
_TEXT = bytes([0x09, *range(0x20, 0x7F), *range(0x80, 0x100)])
# Visible octets without "#": a fragment is no part of a request target (RFC 9112 section 3.2). Octets
# above 0x7F are not allowed in one, but some clients send UTF-8, and other servers pass it.
_TARGET = re.compile(rb"[!-\"$-~\x80-\xff]+")
_NOT_ASCII = re.compile(rb"[\x80-\xff]")
_VERSION = re.compile(rb"HTTP/([0-9])\.([0-9])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: (.*))?", re.DOTALL)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_ABSOLUTE = re.compile(rb"https?://([^/?]*)(.*)", re.IGNORECASE | re.DOTALL)
# RFC 3986 section 3.2.2 without user information, which a Host must not have.
_HOST = re.compile(rb"(?:[A-Za-z0-9\-._~%!$&'()*+,;=]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
_STATUS_LINES = {
    status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus
}
_CODINGS = frozenset({b"gzip", b"x-gzip", b"deflate", b"compress", b"x-compress"})


# Final instead of frozen: CPython 3.11 sets the fields of a frozen class slowly, and reads those of a
# named tuple slowly.
@dataclass(slots=True)
class Request:
    """A request without its body. ``octets``: the target in origin form or ``*``; ``target``: the same
    with octets above 0x7F escaped, as by browsers; ``host``: as in a Host header.

    ``body_bytes``: the length of the body, None if it is chunked; ``minor``: the x of HTTP/1.x.
    ``line``: the request line without this x. ``remote``: the address of the client, or of the
    proxy in front; ``trusted``: whether its forwarding headers are trusted.
    """

    method: Final[str]
    octets: Final[bytes]
    target: Final[str]
    minor: Final[int]
    headers: Final[Fields]
    host: Final[str]
    body_bytes: Final[int | None]
    keep_alive: Final[bool]
    line: Final[bytes]
    remote: Final[str]
    trusted: Final[bool]

    def with_target(self, target: str) -> Self:
        """The same request with another target."""
        return replace(self, target=target, octets=target.encode())


# The parsed request line (method, octets, target, host, minor version, line), and the parsed headers.
_Line = tuple[str, bytes, str, str | None, int, bytes]
_Block = tuple[Fields, str, int | None, bool]


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response head. ``body_bytes``: None if the body is chunked or ends with the connection.

    ``forwarded``: the status line and the end-to-end headers, with line ends.
    """

    status: int
    fields: Fields
    forwarded: bytes
    body_bytes: int | None
    chunked: bool
    keep_alive: bool


def parse_request(head: bytes, peer: Peer = NOBODY) -> Request:
    """Parse a request head without the empty line at its end. Raises BadMessage."""
    first, *lines = head.split(b"\r\n")
    try:
        method, target, version = first.split(b" ")
    except ValueError:
        raise BadMessage("the request line is not METHOD TARGET VERSION") from None
    match = _VERSION.fullmatch(version)
    if match is None:
        raise BadMessage("the version is not HTTP/1.1")
    line = _request_line(method, target, int(match[1]), int(match[2]))
    return _request(line, _block(_field_lines(lines), line[4]), peer)


def check_request(
    method: str,
    target: str,
    version: tuple[int, int],
    fields: tuple[tuple[bytes, bytes], ...],
    size: int,
    *,
    peer: Peer,
) -> Request:
    """Check a request head of ``size`` bytes that aiohttp has parsed. Raises BadMessage.

    ``target``: UTF-8 with surrogates for other octets; ``fields``: names and values.
    """
    if size > _LONGEST_REMEMBERED_HEAD:
        return _request(_line_of(method, target, version), _block_of(fields, version[1]), peer)
    line = _remembered_line_of(method, target, version)
    return _request(line, _remembered_block_of(fields, version[1]), peer)


def parse_response(head: bytes, method: str) -> ResponseHead:
    """Parse the head of the response to a request with ``method``. Raises BadMessage."""
    read = _remembered_response if len(head) <= _LONGEST_REMEMBERED_HEAD else _response
    return read(head, method == "HEAD")


def _response(head: bytes, to_head: bool) -> ResponseHead:
    if b" :" in head or b"\t:" in head:
        # A proxy removes whitespace after a name from responses (RFC 9112 section 5.1).
        head = _SPACE_BEFORE_COLON.sub(rb"\r\n\1", head)
    first, *lines = head.split(b"\r\n")
    match = _STATUS_LINE.fullmatch(first)
    if match is None:
        raise BadMessage("the status line is malformed")
    if match[3] and match[3].translate(None, _TEXT):
        raise BadMessage("the status line has control characters")
    status = int(match[2])
    fields = Fields(_field_lines(lines))
    length, chunked, until_close = _framing(fields)
    keep_alive = _keep_alive(fields, int(match[1]))
    if to_head or status < 200 or status in (204, 304):
        # No body, whatever the headers say (RFC 9112 section 6.3).
        length, chunked = 0, False
    elif length is None and not chunked:
        until_close = True
    if until_close:
        length, chunked, keep_alive = None, False, False
    forwarded = _forwarded(status, match[3] or b"", fields)
    return ResponseHead(status, fields, forwarded, length, chunked, keep_alive)


def _forwarded(status: int, reason: bytes, fields: Fields) -> bytes:
    dropped = "content-length" if status < 200 or status == 204 else ""  # RFC 9110 section 8.6
    lines = [line for name, line in end_to_end_lines(fields) if name != dropped]
    return b"\r\n".join((b"HTTP/1.1 %d %b" % (status, reason), *lines, b""))


def escaped(octets: bytes) -> bytes:
    """A target or request line with octets above 0x7F escaped."""
    if octets.isascii():
        return octets
    return _NOT_ASCII.sub(lambda octet: b"%%%02X" % octet[0][0], octets)


def status_line(status: int) -> bytes:
    """The status line of a response of the proxy itself."""
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status


def parse_fields(block: bytes) -> Fields:
    """Parse header lines without an empty line at their end. Raises BadMessage."""
    return Fields(_field_lines(block.split(b"\r\n")))


def _request(line: _Line, block: _Block, peer: Peer) -> Request:
    method, octets, target, authority, minor, raw = line
    fields, host, body_bytes, keep_alive = block
    if authority is not None:
        host = authority  # takes precedence over Host (RFC 9112 section 3.2.2)
    return Request(method, octets, target, minor, fields, host, body_bytes, keep_alive, raw, *peer)


def _block(lines: list[tuple[str, bytes]], minor: int) -> _Block:
    """The fields of a request, its host or "", the length of its body, and whether more may follow."""
    if len(lines) > MAX_FIELDS:
        raise BadMessage("there are too many headers", 431)
    fields = Fields(lines)
    host = _only(fields, "host")
    if host is None and minor == 1:
        raise BadMessage("there is no Host header")
    length, chunked, _ = _framing(fields)
    keep_alive = _keep_alive(fields, minor)
    if chunked and minor == 0:
        keep_alive = False  # RFC 9112 section 6.1: its framing is not trustworthy
    host_name = "" if host is None else _host(host)
    return fields, host_name, None if chunked else length or 0, keep_alive


def _block_of(fields: Iterable[tuple[bytes, bytes]], minor: int) -> _Block:
    lines = [
        (_remembered_field if len(value) <= _LONGEST_REMEMBERED else _field)(name, value)
        for name, value in fields
    ]
    return _block(lines, minor)


def _shared_block_of(fields: Iterable[tuple[bytes, bytes]], minor: int) -> _Block:
    block = _block_of(fields, minor)
    block[0].shared = True
    return block


def _line_of(method: str, target: str, version: tuple[int, int]) -> _Line:
    return _request_line(method.encode(), target.encode("utf-8", "surrogateescape"), *version)


def _request_line(method: bytes, target: bytes, major: int, minor: int) -> _Line:
    """The method, target in origin form, host if it has one, minor version, and the line without it."""
    line = b"%b %b HTTP/1." % (method, target)
    if major != 1 or minor > 1:
        raise BadMessage("only HTTP/1.1 and HTTP/1.0 are supported", 505 if major else 400)
    name = _method(method)
    authority = None
    if not target.startswith(b"/") and not (target == b"*" and name == "OPTIONS"):
        target, authority = _of_absolute_form(target)
    if not _TARGET.fullmatch(target):
        raise BadMessage("the request target has invalid characters")
    if len(target) > MAX_TARGET_BYTES:
        raise BadMessage("the request target is too long", 414)
    host = None if authority is None else _host(authority)
    return name, target, escaped(target).decode("ascii"), host, minor, line


def _method(method: bytes) -> str:
    if not _TOKEN.fullmatch(method):
        raise BadMessage("the method is not a token")
    if method in (b"CONNECT", b"TRACE"):
        # A tunnel to any host, and an echo of cookies.
        raise BadMessage("the method is not allowed", 405)
    return method.decode("ascii")


def _field_lines(lines: list[bytes]) -> list[tuple[str, bytes]]:
    if len(lines) > MAX_FIELDS:
        raise BadMessage("there are too many headers", 431)
    return [_field_line(line) for line in lines]


def _field_line(line: bytes) -> tuple[str, bytes]:
    name, colon, _ = line.partition(b":")
    if not colon:
        raise BadMessage("a header has no colon")
    # A folded line begins with whitespace, so its name is not a token (RFC 9112 section 5.2).
    if not _TOKEN.fullmatch(name):
        raise BadMessage("the name of a header is not a token")
    if line.translate(None, _TEXT):
        raise BadMessage("a header has control characters")
    return name.decode("ascii").lower(), line


def _field(name: bytes, value: bytes) -> tuple[str, bytes]:
    return _field_line(b"%b: %b" % (name, value) if value else name + b":")


# Clients repeat most headers, crawlers all of them, and some pages are requested often.
_LONGEST_REMEMBERED = 256
_LONGEST_REMEMBERED_HEAD = 1024
_remembered_field = lru_cache(maxsize=4096)(_field)
_remembered_block_of = lru_cache(maxsize=1024)(_shared_block_of)
# A hot file has the same head as long as its Date is that of the same second.
_remembered_response = lru_cache(maxsize=256)(_response)
_remembered_line_of = lru_cache(maxsize=1024)(_line_of)


def _only(fields: Fields, name: str) -> bytes | None:
    """The value of a header that must not be repeated."""
    line = fields.names.get(name)
    if line is None:
        return None
    if fields.repeated and len(fields.values(name)) > 1:
        raise BadMessage(f"there is more than one {name} header")
    return value_of(line)


def _host(value: bytes) -> str:
    if len(value) > MAX_HOST_BYTES:
        raise BadMessage("the Host header is too long")
    if not _HOST.fullmatch(value):
        raise BadMessage("the Host header is not a valid host")
    return value.decode("ascii")


def _of_absolute_form(target: bytes) -> tuple[bytes, bytes]:
    """The path and authority of a target in absolute form (RFC 9112 section 3.2.2)."""
    match = _ABSOLUTE.fullmatch(target)
    if match is None:
        raise BadMessage("the request target is neither a path nor a URL")
    path = match[2]
    return (path if path.startswith(b"/") else b"/" + path), match[1]


def _framing(fields: Fields) -> tuple[int | None, bool, bool]:
    """The length, whether the body is chunked, and whether it ends with the connection
    (RFC 9112 section 6.3)."""
    if "content-length" not in fields.names and "transfer-encoding" not in fields.names:
        return None, False, False
    length = _only(fields, "content-length")
    if length is not None and not _LENGTH.fullmatch(length):
        raise BadMessage("Content-Length is not a number")
    coding = _only(fields, "transfer-encoding")
    if coding is None:
        return (None if length is None else int(length)), False, False
    if length is not None:
        raise BadMessage("there are both Content-Length and Transfer-Encoding headers")
    if coding.lower() != b"chunked":
        names = [name.strip(b" \t").lower() for name in coding.split(b",")]
        known = names[-1] == b"chunked" and all(name in _CODINGS for name in names[:-1])
        raise BadMessage("the transfer coding is not supported", 501 if known else 400)
    return None, True, False


def _keep_alive(fields: Fields, minor: int) -> bool:
    if "connection" not in fields.names:
        return minor == 1
    options = members(fields.get("connection"))
    return "close" not in options and (minor == 1 or "keep-alive" in options)

"""The bodies of messages: framing taken off, piece by piece. Pure (RFC 9112 sections 6 and 7).

Each decoder takes what it can from the front of a buffer and leaves what belongs to the next message.
``done`` tells that the body has ended; ``end_of_input`` raises CutShort if it has not.
"""

import re
from typing import TYPE_CHECKING

from prerender.http.head import BadMessage, Fields, parse_fields

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_CHUNK_LINE_BYTES = 4096
_MAX_TRAILER_BYTES = 16384
_CHUNKS_AT_ONCE = 1024
# No white space around the size, and no line ends or other controls within extensions.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]{0,4000})?\r\n")
# They would change what has been decided by the head (RFC 9110 section 6.5.1).
_NO_TRAILERS = frozenset(
    {"authorization", "content-length", "content-type", "host", "transfer-encoding", "trailer"}
)


class CutShort(Exception):
    """The connection ended within a message."""


class Sized:
    """A body of so many bytes; 0 for none."""

    __slots__ = ("_left",)

    def __init__(self, body_bytes: int) -> None:
        self._left = body_bytes

    @property
    def done(self) -> bool:
        return not self._left

    def decode(self, buffer: bytearray) -> bytes:
        """The next piece, or b"" when more has to be received."""
        piece = _take(buffer, self._left)
        self._left -= len(piece)
        return piece

    def end_of_input(self) -> None:
        """Nothing more will be received."""
        if self._left:
            raise CutShort(f"{self._left} bytes of the body are missing")


class UntilClose:
    """A body that ends with its connection (a response without any framing)."""

    __slots__ = ("done",)

    def __init__(self) -> None:
        self.done = False

    def decode(self, buffer: bytearray) -> bytes:
        """The next piece, or b"" when more has to be received."""
        return _take(buffer, len(buffer))

    def end_of_input(self) -> None:
        """Nothing more will be received."""
        self.done = True


class Chunked:
    """A chunked body. ``trailers`` are its trailer fields, once it is done.

    Raises BadMessage where the framing is anything but the plain form. Extensions are left out.
    """

    __slots__ = ("_left", "_state", "done", "trailers")

    def __init__(self) -> None:
        self._left = 0
        self._state: Callable[[bytearray, int, list[bytearray]], int] = self._size
        self.done = False
        self.trailers = Fields([])

    def decode(self, buffer: bytearray) -> bytes:
        """The next piece, or b"" when more has to be received.

        A body of tiny chunks is returned in several pieces, so that nobody else waits for it long.
        """
        pieces: list[bytearray] = []
        at = 0
        while not self.done and len(pieces) < _CHUNKS_AT_ONCE:
            after = self._state(buffer, at, pieces)
            if after == at and not self.done:
                break
            at = after
        del buffer[:at]
        return b"".join(pieces)

    def end_of_input(self) -> None:
        """Nothing more will be received."""
        if not self.done:
            raise CutShort("the last chunk is missing")

    # Each state looks at the buffer from a place on, and returns the place up to which it went.

    def _size(self, buffer: bytearray, at: int, _: list[bytearray]) -> int:
        match = _CHUNK_LINE.match(buffer, at)
        if match is None:
            if buffer.find(b"\r\n", at) >= 0 or len(buffer) - at > _MAX_CHUNK_LINE_BYTES:
                raise BadMessage("a chunk has no proper size")
            return at
        self._left = int(match[1], 16)
        self._state = self._data if self._left else self._trailer
        return match.end()

    def _data(self, buffer: bytearray, at: int, pieces: list[bytearray]) -> int:
        piece = buffer[at : at + self._left]
        if piece:
            pieces.append(piece)
            self._left -= len(piece)
        if not self._left:
            self._state = self._data_end
        return at + len(piece)

    def _data_end(self, buffer: bytearray, at: int, _: list[bytearray]) -> int:
        if len(buffer) < at + 2:
            return at
        if not buffer.startswith(b"\r\n", at):
            raise BadMessage("a chunk is longer than its size")
        self._state = self._size
        return at + 2

    def _trailer(self, buffer: bytearray, at: int, _: list[bytearray]) -> int:
        if buffer.startswith(b"\r\n", at):
            self.done = True
            return at + 2
        end = buffer.find(b"\r\n\r\n", at, at + _MAX_TRAILER_BYTES)
        if end < 0:
            if len(buffer) - at >= _MAX_TRAILER_BYTES:
                raise BadMessage("the trailer fields are too long")
            return at
        self.trailers = parse_fields(bytes(buffer[at:end]))
        if any(name in _NO_TRAILERS for name, _ in self.trailers.lines):
            raise BadMessage("a trailer field would change the message")
        self.done = True
        return end + 4


Decoder = Sized | UntilClose | Chunked


def chunk(piece: bytes) -> bytes:
    """A piece of a body, which must not be empty, as a chunk."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def last_chunk(trailers: Fields | None = None) -> bytes:
    """What ends a chunked body."""
    lines = [line for _, line in trailers.lines] if trailers else []
    return b"\r\n".join([b"0", *lines, b"", b""])


def _take(buffer: bytearray, most: int) -> bytes:
    if len(buffer) <= most:
        piece = bytes(buffer)
        buffer.clear()
        return piece
    with memoryview(buffer) as view:
        piece = bytes(view[:most])
    del buffer[:most]
    return piece

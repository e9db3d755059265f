"""Decoders of message bodies (RFC 9112 sections 6 and 7). Pure.

Each decoder consumes the front of a buffer and leaves what belongs to the next message.
``done``: the body has ended; ``end_of_input`` raises CutShort if it has not.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prerender.errors import BadMessage, CutShort
from prerender.http.fields import Fields
from prerender.http.message_head import parse_fields

if TYPE_CHECKING:
    from collections.abc import Callable

_MAX_CHUNK_LINE_BYTES = 4096
_MAX_TRAILER_BYTES = 16384
_CHUNKS_AT_ONCE = 1024
# No whitespace around the size, and no line ends or other control characters in extensions.
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:;[\t\x20-\x7e\x80-\xff]{0,4000})?\r\n")


class Sized:
    """A body of known length; 0 for none."""

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
    """A body that ends with the connection (a response without framing)."""

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
    """A chunked body. ``trailers`` are available once it is done: all that were sent.

    Raises BadMessage for malformed framing. Extensions are dropped.
    """

    __slots__ = ("_left", "_state", "done", "trailers")

    def __init__(self) -> None:
        self._left = 0
        self._state: Callable[[bytearray, int, list[bytearray]], int] = self._size
        self.done = False
        self.trailers = Fields([])

    def decode(self, buffer: bytearray) -> bytes:
        """The next piece, or b"" if more data is needed.

        A body of tiny chunks is returned in several pieces, so that other tasks get their turn.
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

    # Each state parses the buffer from an offset, and returns the next offset.

    def _size(self, buffer: bytearray, at: int, _: list[bytearray]) -> int:
        match = _CHUNK_LINE.match(buffer, at)
        if match is None:
            if buffer.find(b"\r\n", at) >= 0 or len(buffer) - at > _MAX_CHUNK_LINE_BYTES:
                raise BadMessage("a chunk has no valid size")
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
                raise BadMessage("the trailers are too long")
            return at
        self.trailers = parse_fields(bytes(buffer[at:end]))
        self.done = True
        return end + 4


Decoder = Sized | UntilClose | Chunked


def chunk(piece: bytes) -> bytes:
    """A non-empty piece of a body as a chunk."""
    return b"%x\r\n%b\r\n" % (len(piece), piece)


def last_chunk(trailers: Iterable[bytes] = ()) -> bytes:
    """The last chunk with the lines of trailers."""
    return b"\r\n".join([b"0", *trailers, b"", b""])


def _take(buffer: bytearray, most: int) -> bytes:
    if len(buffer) <= most:
        piece = bytes(buffer)
        buffer.clear()
        return piece
    with memoryview(buffer) as view:
        piece = bytes(view[:most])
    del buffer[:most]
    return piece

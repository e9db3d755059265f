"""What a page received: enough to tell later whether the response is still the same. Pure."""

from dataclasses import dataclass

import xxhash

from prerender.http.caching import Headers

_GZIP = b"\x1f\x8b\x08"
# The optional parts of a gzip header (RFC 1952, section 2.3.1).
_EXTRA, _NAME, _COMMENT, _CHECKSUM = 4, 8, 16, 2


@dataclass(frozen=True, slots=True)
class ReceivedResponse:
    """A complete response: its end-to-end headers, and the digest of its body as transferred."""

    status: int
    headers: Headers
    digest: str


class Digest:
    """The digest of a body. A gzip header does not count: it may have the time, or random bytes against
    attacks on compression."""

    __slots__ = ("_hash", "_is_begun")

    def __init__(self) -> None:
        self._hash = xxhash.xxh3_128()
        self._is_begun = False

    def update(self, part: bytes) -> None:
        """Add a part of the body."""
        if not self._is_begun and part:
            self._is_begun = True
            if part.startswith(_GZIP):
                part = part[_gzip_head(part) :]
        self._hash.update(part)

    def __str__(self) -> str:
        return self._hash.hexdigest()


def digest_of(body: bytes) -> str:
    """The digest of a whole body."""
    digest = Digest()
    digest.update(body)
    return str(digest)


def _gzip_head(data: bytes) -> int:
    """The length of a gzip header; 0 if it is not complete."""
    if len(data) < 12:
        return 0
    flags, at = data[3], 10
    if flags & _EXTRA:
        at += 2 + int.from_bytes(data[10:12], "little")
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            at = data.find(b"\0", at) + 1
            if not at:
                return 0
    return at + 2 * bool(flags & _CHECKSUM)

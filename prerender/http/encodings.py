"""Content codings: which one a client gets (RFC 9110 section 12.5.3), and making them."""

import gzip
from functools import lru_cache

import brotli
import zstandard

from prerender.http.negotiation import weights

IDENTITY = "identity"
# Where the client has no preference, the smallest comes first.
CODINGS = ("br", "zstd", "gzip")
# Less than this fits into one packet anyway.
_LEAST_BYTES = 512
_LONGEST_HEADER = 512


def encoded(body: bytes) -> tuple[tuple[str, bytes], ...]:
    """The codings of a body that are worth it. Takes milliseconds: not for the event loop.

    The same body gives the same bytes in every process: each has a strong entity-tag.
    """
    if len(body) < _LEAST_BYTES:
        return ()
    made = (
        ("br", brotli.compress(body, mode=brotli.MODE_TEXT, quality=5)),
        ("zstd", zstandard.ZstdCompressor(level=9).compress(body)),
        ("gzip", gzip.compress(body, compresslevel=6, mtime=0)),
    )
    return tuple((coding, data) for coding, data in made if len(data) < len(body))


def accepted(value: str) -> tuple[str, ...]:
    """The codings a client takes by its Accept-Encoding, best first; identity is always there.

    Never raises: what is malformed counts as not said.
    """
    # Nobody sends more in earnest, and it must not fill the memory of the next line.
    return _accepted(value) if len(value) <= _LONGEST_HEADER else (IDENTITY,)


@lru_cache(maxsize=256)
def _accepted(value: str) -> tuple[str, ...]:
    said = {name.removeprefix("x-"): weight for name, weight in weights(value).items()}
    other = said.get("*", 0.0)
    weighed = [(said.get(coding, other), coding) for coding in CODINGS]
    # Unless it is named, identity is acceptable, and less so than what was asked for.
    weighed.append((said.get(IDENTITY, other), IDENTITY))
    best = sorted((pair for pair in weighed if pair[0] > 0), key=lambda pair: -pair[0])
    # Where nothing is acceptable identity is sent all the same: an answer is better than a 406.
    return tuple(dict.fromkeys([*(coding for _, coding in best), IDENTITY]))

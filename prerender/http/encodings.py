"""Content codings: negotiation (RFC 9110 section 12.5.3) and compression."""

import gzip
from functools import lru_cache

import brotli
import zstandard

from prerender.http.negotiation import weights

IDENTITY = "identity"
# In order of size, for clients without a preference.
CODINGS = ("br", "zstd", "gzip")
# Smaller bodies fit into one packet anyway.
_LEAST_BYTES = 512
_LONGEST_HEADER = 512


def encoded(body: bytes) -> tuple[tuple[str, bytes], ...]:
    """The worthwhile codings of a body. Takes milliseconds, so do not call it on the event loop.

    The same body gives the same bytes in every process, because each has a strong ETag.
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
    """The codings that a client accepts, by its Accept-Encoding, best first, with identity.

    Never raises: malformed members are ignored.
    """
    # Longer headers are not genuine, and must not fill the cache.
    return _accepted(value) if len(value) <= _LONGEST_HEADER else (IDENTITY,)


@lru_cache(maxsize=256)
def _accepted(value: str) -> tuple[str, ...]:
    accepted_weights = {name.removeprefix("x-"): weight for name, weight in weights(value).items()}
    other = accepted_weights.get("*", 0.0)
    weighed = [(accepted_weights.get(coding, other), coding) for coding in CODINGS]
    # Unless it is named, identity is acceptable, but less than the named codings.
    weighed.append((accepted_weights.get(IDENTITY, other), IDENTITY))
    best = sorted((pair for pair in weighed if pair[0] > 0), key=lambda pair: -pair[0])
    # If nothing is acceptable, identity is sent: better than a 406.
    return tuple(dict.fromkeys([*(coding for _, coding in best), IDENTITY]))

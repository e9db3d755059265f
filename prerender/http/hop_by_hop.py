"""Strips the hop-by-hop headers of messages (RFC 9110 section 7.6.1), in both directions. Pure."""

from multidict import CIMultiDict, CIMultiDictProxy

from prerender.http.fields import Fields, members

# Also headers that are hop-by-hop in practice.
HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
# Connection cannot remove headers for framing and routing.
_NOT_REMOVABLE = frozenset({"host", "content-length", "content-type", "cookie", "cache-control"})


def end_to_end_lines(fields: Fields) -> list[tuple[str, bytes]]:
    """The lines of a message without hop-by-hop headers."""
    dropped = HOP_BY_HOP
    if "connection" in fields.names:
        dropped = _dropped(fields.get("connection"))
    return [line for line in fields.lines if line[0] not in dropped]


def end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The same for headers of aiohttp, in their order."""
    dropped = _dropped(",".join(headers.getall("Connection", ())))
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in dropped
    )


def _dropped(connection: str) -> frozenset[str]:
    """The headers to remove from a message with this combined Connection header."""
    return HOP_BY_HOP | (members(connection) - _NOT_REMOVABLE)

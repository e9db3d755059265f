"""Strips the hop-by-hop headers of messages (RFC 9110 section 7.6.1), in both directions, and trailers
that would change what the head has said. Pure."""

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
# Not allowed as trailers, as they are for framing, routing, authentication, request modifiers, response
# control data, or say what the content is (RFC 9110 section 6.5.1).
_NOT_TRAILERS = frozenset(
    {
        "age",
        "authorization",
        "cache-control",
        "content-encoding",
        "content-length",
        "content-location",
        "content-range",
        "content-type",
        "date",
        "expires",
        "host",
        "location",
        "pragma",
        "refresh",
        "retry-after",
        "set-cookie",
        "vary",
        "warning",
        "www-authenticate",
    }
)


def end_to_end_lines(fields: Fields) -> list[tuple[str, bytes]]:
    """The lines of a message without hop-by-hop headers."""
    dropped = HOP_BY_HOP
    if "connection" in fields.names:
        dropped = _dropped(fields.get("connection"))
    return [line for line in fields.lines if line[0] not in dropped]


def trailer_lines(head: Fields, trailers: Fields) -> list[bytes]:
    """The lines of a response's trailers that may be forwarded."""
    dropped = _NOT_TRAILERS | _dropped(head.get("connection"))
    return [line for name, line in trailers.lines if name not in dropped]


def end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The same for headers of aiohttp, in their order."""
    dropped = _dropped(",".join(headers.getall("Connection", ())))
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in dropped
    )


def _dropped(connection: str) -> frozenset[str]:
    """The headers to remove from a message with this combined Connection header."""
    return HOP_BY_HOP | (members(connection) - _NOT_REMOVABLE)

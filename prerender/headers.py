"""Which header fields go on, and which stay. Pure.

The hop-by-hop fields stand in one list, used in both directions by the proxy and by the gateway.
"""

import re
from collections.abc import Iterable, Mapping

from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from prerender import __version__

Headers = Mapping[str, str] | CIMultiDictProxy[str] | CIMultiDict[str]

# RFC 9110 section 7.6.1, with the fields that are hop-by-hop in practice.
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
# Framing and routing cannot be taken away by naming them in Connection.
_NOT_REMOVABLE = frozenset({"host", "content-length", "content-type", "cookie", "cache-control"})

# Where a field holds a URL, after what stands before it.
_REFERENCES = {
    "Location": re.compile("()(.+)"),
    "Content-Location": re.compile("()(.+)"),
    "Link": re.compile("(<)([^>]+)"),
    "Refresh": re.compile(r"""(url\s*=\s*["']?)([^"']+)""", re.IGNORECASE),
}

VIA = "1.1 prerender"
# Requests that we make ourselves are marked, and marked requests are never rendered again.
MARK = "X-Prerender"
USER_AGENT_MARK = f"PrerenderProxy/{__version__}"

# What a snapshot keeps of its document. Validators, lengths, cookies, codings and policies of the
# origin's bytes would be wrong on other bytes; these describe the page itself.
_KEPT_ON_SNAPSHOT = frozenset({"content-language", "link", "x-robots-tag"})


def end_to_end(headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The fields that a proxy passes on, in their order (RFC 9110 section 7.6.1)."""
    named = {
        name.strip().lower()
        for value in headers.getall("Connection", ())
        for name in value.split(",")
    }
    dropped = HOP_BY_HOP | (named - _NOT_REMOVABLE)
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in dropped
    )


def add_forwarded(headers: CIMultiDict[str], *, remote: str | None, scheme: str, host: str) -> None:
    """Tell the origin for whom we ask. What an outer proxy said of host and scheme stays."""
    if remote:
        known = headers.getall("X-Forwarded-For", [])
        headers["X-Forwarded-For"] = ", ".join([*known, remote])
    headers.setdefault("X-Forwarded-Proto", scheme)
    headers.setdefault("X-Forwarded-Host", host)
    headers.add("Via", VIA)


def is_marked(headers: CIMultiDictProxy[str]) -> bool:
    """Whether a request comes from a renderer, ours or another one."""
    return MARK in headers


def mark(headers: CIMultiDict[str], public: URL) -> None:
    """Make a request that the browser or the renderer caused: for the public host, and marked.

    This is done here and not in the browser, where an additional header would make requests of the
    page to other origins need a CORS preflight.
    """
    headers["Host"] = authority(public)
    headers["X-Forwarded-Proto"] = public.scheme
    headers["X-Forwarded-Host"] = headers["Host"]
    headers[MARK] = "1"
    headers["User-Agent"] = f"{headers.get('User-Agent', 'Mozilla/5.0')} {USER_AGENT_MARK}"


def authority(url: URL) -> str:
    """Host, and port when it is not the scheme's own, as in a Host field."""
    return url.host_port_subcomponent or ""


def publish(location: str, origin: URL, public: URL) -> str:
    """A Location of the origin as the public sees it: its internal host is replaced."""
    try:
        url = URL(location, encoded=True)
        # The host is the same in capitals (RFC 3986 section 6.2.2.1).
        internal = url.absolute and URL(str(url.origin()).lower()) == origin.origin()
    except ValueError:
        return location
    if not internal:
        return location
    after_scheme = location.partition("://")[2]
    return f"{public.origin()}{after_scheme[len(url.raw_authority) :]}"


def publish_all(headers: CIMultiDict[str], origin: URL, public: URL) -> None:
    """Take the origin's internal host out of every field that leads somewhere: Location and
    Content-Location (RFC 9110), Link (RFC 8288 section 3) and Refresh."""

    def published(found: re.Match[str]) -> str:
        return found[1] + publish(found[2], origin, public)

    for name, reference in _REFERENCES.items():
        if name in headers:
            values = [reference.sub(published, value) for value in headers.popall(name)]
            headers.extend((name, value) for value in values)


def kept_on_snapshot(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The fields of the document that are true of its snapshot too."""
    return tuple((name, value) for name, value in headers if name.lower() in _KEPT_ON_SNAPSHOT)


def origin_form(target: str) -> str:
    """A request target as path and query; ``*`` stays (RFC 9112 section 3.2)."""
    if target.startswith("/") or target == "*":
        return target
    _, separator, rest = target.partition("://")
    if not separator:
        return target
    start = min((i for i in (rest.find("/"), rest.find("?")) if i >= 0), default=len(rest))
    path = rest[start:]
    return path if path.startswith("/") else f"/{path}"

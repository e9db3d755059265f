"""Which header fields go on, and which stay. Pure.

The hop-by-hop fields stand in one list, used in both directions by the proxy and by the gateway.
"""

import re
import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache

from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from prerender import __version__
from prerender.http.head import Fields, members, value_of
from prerender.http.trace_context import PARENT_FIELD, TraceContext

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

# What a client may say about others for whom it asks. The first four are made from what was said.
_REMADE = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded")
_NOTHING_SAID: tuple[tuple[bytes, ...], ...] = ((),) * len(_REMADE)
_ABOUT_OTHERS = frozenset(
    {
        *_REMADE,
        "x-forwarded-by",
        "x-forwarded-port",
        "x-forwarded-prefix",
        "x-forwarded-server",
        "x-forwarded-ssl",
        "x-real-ip",
    }
)
# Requests that we make ourselves are marked, and marked requests are never rendered again.
MARK = "X-Prerender"
_MARK_NAME = MARK.lower()
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


def end_to_end_lines(fields: Fields) -> list[tuple[str, bytes]]:
    """As ``end_to_end``, of lines that stay the bytes they are."""
    dropped = HOP_BY_HOP
    if "connection" in fields.names:
        dropped = HOP_BY_HOP | (members(fields.get("connection")) - _NOT_REMOVABLE)
    return [line for line in fields.lines if line[0] not in dropped]


class Forwarding:
    """What the origin is told about the way of a request (RFC 9110 section 7.6.3, RFC 7239).

    What a client says about others for whom it asks counts only if it is a trusted proxy. Its word is
    not contradicted: if it uses one of the two forms, Forwarded or X-Forwarded-*, so do we.
    """

    def __init__(self, origin: URL) -> None:
        # Of this process alone: another one of ours may well stand in front of this one.
        self._name = f"prerender-{secrets.token_hex(4)}"
        self._via = {minor: f"Via: 1.{minor} {self._name}".encode() for minor in (0, 1)}
        self._origin_host = authority(origin)

    def is_loop(self, fields: Fields) -> bool:
        """Whether a request has been here before."""
        return "via" in fields and self._name in fields.get("via").replace(",", " ").split()

    def request_lines(
        self,
        fields: Fields,
        *,
        host: str,
        remote: str,
        trusted: bool,
        minor: int,
        traceparent: bytes = b"",
    ) -> list[bytes]:
        """The field lines of a request as the origin gets them, without those of its framing.

        ``host`` is the authority that was asked for, '' if the client named none (HTTP/1.0);
        ``traceparent`` replaces the client's if it is not empty.
        """
        kept = [b"Host: " + (host or self._origin_host).encode()] if "host" not in fields else []
        for name, line in end_to_end_lines(fields):
            if name == "host":
                kept.append(b"Host: " + host.encode())
            elif name == "content-length":
                kept.append(b"Content-Length: " + value_of(line))
            elif name == "expect" and not minor:
                pass  # RFC 9110 section 10.1.1
            elif name == PARENT_FIELD and traceparent:
                pass
            elif "_" not in name and name not in (_REMADE if trusted else _ABOUT_OTHERS):
                kept.append(line)
        said = _NOTHING_SAID
        if trusted and not fields.names.keys().isdisjoint(_REMADE):
            said = tuple(tuple(fields.values(name)) for name in _REMADE)
        if traceparent:
            kept.append(b"traceparent: " + traceparent)
        kept += _about(said, host, remote)
        kept.append(self._via[minor])
        return kept


@lru_cache(maxsize=1024)
def _about(said: tuple[tuple[bytes, ...], ...], host: str, remote: str) -> list[bytes]:
    """For whom we ask, in the form that the proxy in front of us uses, or in both.

    ``said`` holds what that proxy says, in the order of ``_REMADE``.
    """
    clients, hosts, schemes, forwarded = (
        [value.decode("latin-1") for value in values if value] for values in said
    )
    old_form = bool(clients or hosts or schemes)
    lines = []
    if old_form or not forwarded:
        lines.append(f"X-Forwarded-For: {', '.join([*clients, remote])}")
        if hosts or host:
            lines.append(f"X-Forwarded-Host: {', '.join(hosts or [host])}")
        lines.append(f"X-Forwarded-Proto: {', '.join(schemes or ['http'])}")
    if forwarded or not old_form:
        node = f'"[{remote}]"' if ":" in remote else remote
        element = f"for={node}" + (f';host="{host}"' if host else "") + ";proto=http"
        lines.append(f"Forwarded: {', '.join([*forwarded, element])}")
    return [line.encode("latin-1") for line in lines]


def is_marked(headers: Fields) -> bool:
    """Whether a request comes from a renderer, ours or another one."""
    return _MARK_NAME in headers.names


def mark(headers: CIMultiDict[str], public: URL) -> None:
    """Make a request that the browser or the renderer caused: for the public host, and marked.

    This is done here and not in the browser, where an additional header would make requests of the
    page to other origins need a CORS preflight.
    """
    direct(headers, public)
    headers[MARK] = "1"
    headers["User-Agent"] = f"{headers.get('User-Agent', 'Mozilla/5.0')} {USER_AGENT_MARK}"


def direct(headers: CIMultiDict[str], public: URL) -> None:
    """Make a request one for the public host, whoever it is sent to."""
    headers["Host"] = authority(public)
    headers["X-Forwarded-Proto"] = public.scheme
    headers["X-Forwarded-Host"] = headers["Host"]


def add_trace(headers: CIMultiDict[str], trace: TraceContext | None) -> None:
    """Let a request of a render belong to the render's trace, unless a script has named another one
    (W3C Trace Context). A client's trace is none of the render's."""
    if trace is not None and trace.own and PARENT_FIELD not in headers:
        headers[PARENT_FIELD] = str(trace)


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

"""Which headers are forwarded, rewritten or added. Pure. Hop-by-hop headers: hop_by_hop.py."""

import re
import secrets
from collections.abc import Iterable, Mapping
from functools import lru_cache

from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

from prerender import __version__
from prerender.http.fields import Fields, value_of
from prerender.http.hop_by_hop import end_to_end_lines
from prerender.http.trace_context import PARENT_FIELD, TraceContext
from prerender.urls.addresses import url_of

AnyHeaders = Mapping[str, str] | CIMultiDictProxy[str] | CIMultiDict[str]

# Headers that contain a URL, each with what precedes it.
_REFERENCES = {
    "Location": re.compile("()(.+)"),
    "Content-Location": re.compile("()(.+)"),
    "Link": re.compile("(<)([^>]+)"),
    "Refresh": re.compile(r"""(url\s*=\s*["']?)([^"']+)""", re.IGNORECASE),
}

# Forwarding headers. The first four are rebuilt and extended.
_REMADE = ("x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "forwarded")
_NONE: tuple[tuple[bytes, ...], ...] = ((),) * len(_REMADE)
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


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Names and words in names of headers by which proxies tell of the client, of its user as they know
# them, and of the request as it was, or by which servers give orders to each other.
_NAMES_OF_PROXIES = frozenset({"proxy", "x-scheme"})
_WORDS_OF_PROXIES = _words(
    "accel appengine arr clientcert clientip cloudfront envoy forwarded https ip mtls realip sendfile"
    " socketip ssl subrequest tls via webauth wl"
)
# The same in pairs: one of each set.
_PAIRS_OF_PROXIES = [
    (_words(one), _words(other))
    for one, other in (
        (
            "orig original originating rewrite",
            "for host method path port prefix proto scheme uri url",
        ),
        ("remote", "addr address email group groups host name port user"),
        ("client", "addr address cert certificate dn principal verify"),
        ("authenticated", "email group groups user userid"),
        ("auth", "request"),
        ("oidc", "accesstoken claim data identity"),
        ("jwt", "assertion"),
        ("host", "override x"),
        ("request", "uri"),
        ("scheme", "url"),
        ("cf", "visitor"),
    )
]
_NOT_IN_WORDS = re.compile("[^a-z0-9]")
# Requests of the renderer are marked, and marked requests are never rendered.
MARK = "X-Prerender"
_MARK_NAME = MARK.lower()
USER_AGENT_MARK = f"PrerenderProxy/{__version__}"

# Headers of the document that snapshots keep. Validators, lengths, cookies, codings and policies belong
# to the origin's bytes; these describe the page itself.
_SNAPSHOT_HEADERS = frozenset({"content-language", "content-signal", "link", "x-robots-tag"})


class Forwarding:
    """Builds the headers of a forwarded request (RFC 9110 section 7.6.3, RFC 7239).

    Forwarding headers are kept only from trusted proxies. If a proxy sends one of the two forms,
    Forwarded or X-Forwarded-*, only that form is used; if both, X-Forwarded-*.
    """

    def __init__(self, origin: URL) -> None:
        # Unique to this process, because another prerender proxy may be in front.
        self._name = f"prerender-{secrets.token_hex(4)}"
        self._via = {minor: f"Via: 1.{minor} {self._name}".encode() for minor in (0, 1)}
        self._origin_host = authority(origin)
        # Clients send the same headers with every request.
        self._remembered = lru_cache(maxsize=1024)(self._lines)

    def is_loop(self, fields: Fields) -> bool:
        """Whether a request has already passed through this proxy."""
        return "via" in fields.names and self._name in fields.get("via").replace(",", " ").split()

    def request_lines(
        self, fields: Fields, *, host: str, remote: str, trusted: bool, minor: int, traced: bool
    ) -> bytes:
        """The header lines of a request for the origin, without framing.

        ``host``: the requested authority, '' if the client sent none (HTTP/1.0);
        ``traced``: omit traceparent, because the caller adds another one.
        """
        read = self._remembered if fields.shared else self._lines
        return read(fields, host, (remote, trusted), minor, traced)

    def _lines(
        self, fields: Fields, host: str, peer: tuple[str, bool], minor: int, traced: bool
    ) -> bytes:
        remote, trusted = peer
        lines = [b"Host: " + (host or self._origin_host).encode()] if "host" not in fields else []
        for name, line in end_to_end_lines(fields):
            if name == "host":
                lines.append(b"Host: " + host.encode())
            elif name == "content-length":
                lines.append(b"Content-Length: " + value_of(line))
            elif name == "expect" and not minor:
                pass  # RFC 9110 section 10.1.1
            elif name == PARENT_FIELD and traced:
                pass
            elif "_" not in name and name not in (_REMADE if trusted else _ABOUT_OTHERS):
                lines.append(line)
        received = _NONE
        if trusted and not fields.names.keys().isdisjoint(_REMADE):
            received = tuple(tuple(fields.values(name)) for name in _REMADE)
        lines += (*_about(received, host, remote), self._via[minor], b"")
        return b"\r\n".join(lines)


def _about(received: tuple[tuple[bytes, ...], ...], host: str, remote: str) -> list[bytes]:
    """The forwarding headers, in the form that the proxy in front uses; in both if it uses none.

    If there are both, it has set X-Forwarded-*, as most do, and passed on Forwarded of a client.
    ``received``: the values from that proxy, in the order of ``_REMADE``.
    """
    clients, hosts, schemes, forwarded = (
        [value.decode("latin-1") for value in values if value] for values in received
    )
    old_form = bool(clients or hosts or schemes)
    lines = []
    if old_form or not forwarded:
        lines.append(f"X-Forwarded-For: {', '.join([*clients, remote])}")
        if hosts or host:
            lines.append(f"X-Forwarded-Host: {', '.join(hosts or [host])}")
        lines.append(f"X-Forwarded-Proto: {', '.join(schemes or ['http'])}")
    if not old_form:
        node = f'"[{remote}]"' if ":" in remote else remote
        element = f"for={node}" + (f';host="{host}"' if host else "") + ";proto=http"
        lines.append(f"Forwarded: {', '.join([*forwarded, element])}")
    return [line.encode("latin-1") for line in lines]


def is_marked(headers: Fields) -> bool:
    """Whether a request comes from this or another renderer."""
    return _MARK_NAME in headers.names


def remove_forwarding(headers: CIMultiDict[str]) -> None:
    """Remove what only proxies may say from a request of a page, whose scripts can set headers.

    The origin trusts the renderer's address. Proxies use many names, so the words in them decide:
    CF-Connecting-IP, X-Original-URL, Remote-User, SSL-Client-Verify. As in CGI, other characters count
    as ``-``.
    """
    for name in {*headers.keys()}:
        plain = _NOT_IN_WORDS.sub("-", name.lower())
        words = set(plain.split("-"))
        if (
            plain in _NAMES_OF_PROXIES
            or words & _WORDS_OF_PROXIES
            or any(words & one and words & other for one, other in _PAIRS_OF_PROXIES)
        ):
            headers.popall(name, None)


def mark(headers: CIMultiDict[str], public: URL) -> None:
    """Direct a request of the browser or the renderer to the public host, and mark it.

    This happens here and not in the browser, where an additional header would cause CORS preflights.
    """
    direct(headers, public)
    headers[MARK] = "1"
    headers["User-Agent"] = f"{headers.get('User-Agent', 'Mozilla/5.0')} {USER_AGENT_MARK}"


def direct(headers: CIMultiDict[str], public: URL) -> None:
    """Set the headers that direct a request to the public host."""
    headers["Host"] = authority(public)
    headers["X-Forwarded-Proto"] = public.scheme
    headers["X-Forwarded-Host"] = headers["Host"]


def add_trace(headers: CIMultiDict[str], trace: TraceContext | None) -> None:
    """Add the render's trace to a request of the page, unless a script has set another one
    (W3C Trace Context)."""
    if trace is not None and trace.own and PARENT_FIELD not in headers:
        headers[PARENT_FIELD] = str(trace)


def authority(url: URL) -> str:
    """The host, with the port if it is not the default, as in a Host header."""
    return url.host_port_subcomponent or ""


def publish(location: str, origin: URL, public: URL) -> str:
    """Replace the origin's internal host in a Location by the public host."""
    if location.startswith("//"):
        whole = f"{origin.scheme}:{location}"
        published = publish(whole, origin, public)
        return location if published == whole else published
    try:
        url = url_of(location)
        # Hosts are case-insensitive (RFC 3986 section 6.2.2.1).
        internal = url.absolute and URL(str(url.origin()).lower()) == origin.origin()
    except ValueError:
        return location
    if not internal:
        return location
    after_scheme = location.partition("://")[2]
    return f"{public.origin()}{after_scheme[len(url.raw_authority) :]}"


def publish_all(headers: CIMultiDict[str], origin: URL, public: URL) -> None:
    """Replace the origin's internal host in all headers with URLs: Location and Content-Location
    (RFC 9110), Link (RFC 8288 section 3) and Refresh."""

    def published(match: re.Match[str]) -> str:
        return match[1] + publish(match[2], origin, public)

    for name, reference in _REFERENCES.items():
        if name in headers:
            values = [reference.sub(published, value) for value in headers.popall(name)]
            headers.extend((name, value) for value in values)


def snapshot_headers(headers: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The headers of the document that its snapshot keeps."""
    return tuple((name, value) for name, value in headers if name.lower() in _SNAPSHOT_HEADERS)


def origin_form(target: str) -> str:
    """A request target in origin form; ``*`` stays (RFC 9112 section 3.2)."""
    if target.startswith("/") or target == "*":
        return target
    _, separator, rest = target.partition("://")
    if not separator:
        return target
    start = min((i for i in (rest.find("/"), rest.find("?")) if i >= 0), default=len(rest))
    path = rest[start:]
    return path if path.startswith("/") else f"/{path}"
